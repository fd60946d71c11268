//! Tests of the other primitives on one or two real threads. `loom-tests` runs all interleavings.

use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use pirn_sync::{DrainGate, Lost, Quota, Refused, completion};

const AT_ONCE: Duration = Duration::ZERO;

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_completion_is_seen_by_every_waiter_early_and_late() {
    let (setter, early) = completion();
    assert_eq!((early.peek(), early.wait_timeout(AT_ONCE)), (None, None));
    let counters = [Arc::new(CountingWaker::default()), Arc::new(CountingWaker::default())];
    let mut waits = counters.clone().map(|counter| (early.wait(), Waker::from(counter)));
    for (wait, waker) in &mut waits {
        assert_eq!(pin!(wait).poll(&mut Context::from_waker(waker)), Poll::Pending);
    }
    let other = early.clone();
    let blocked = thread::spawn(move || other.wait_blocking());
    setter.set("done");
    assert_eq!(blocked.join().unwrap(), Ok("done"));
    assert!(counters.iter().all(|counter| counter.0.load(Ordering::SeqCst) == 1));
    for (wait, waker) in &mut waits {
        assert_eq!(
            pin!(wait).poll(&mut Context::from_waker(waker)),
            Poll::Ready(Ok("done"))
        );
    }
    assert_eq!(early.clone().wait_timeout(AT_ONCE), Some(Ok("done")));
}

#[test]
fn a_setter_dropped_by_a_panic_completes_as_lost() {
    let (setter, completion) = completion::<u8>();
    let panicked = catch_unwind(move || {
        let _owed = setter;
        panic!("before it could answer");
    });
    assert!(panicked.is_err());
    assert_eq!(completion.wait_blocking(), Err(Lost));
}

#[test]
fn a_dropped_wait_removes_its_waker() {
    let (_setter, completion) = completion::<u8>();
    let counter = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&counter));
    let mut wait = completion.wait();
    for _ in 0..3 {
        assert_eq!(pin!(&mut wait).poll(&mut Context::from_waker(&waker)), Poll::Pending);
    }
    drop((wait, waker));
    assert_eq!(Arc::strong_count(&counter), 1);
}

#[test]
fn a_gate_admits_up_to_its_limit_and_none_after_closing() {
    let gate = DrainGate::new(2);
    let first = gate.try_enter().unwrap();
    let second = gate.try_enter().unwrap();
    assert_eq!(gate.try_enter().unwrap_err(), Refused::Full { limit: 2 });
    drop(first);
    let third = gate.try_enter().unwrap();
    gate.close();
    drop((second, third));
    assert_eq!(gate.try_enter().unwrap_err(), Refused::Closed);
    assert_eq!(gate.inside(), 0);
}

#[test]
fn a_gate_is_drained_when_closed_and_empty_in_either_order() {
    for close_last in [true, false] {
        let gate = DrainGate::new(1);
        let counter = Arc::new(CountingWaker::default());
        let waker = Waker::from(Arc::clone(&counter));
        let permit = gate.try_enter().unwrap();
        let mut drained = pin!(gate.drained());
        assert_eq!(drained.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        if close_last {
            drop(permit);
            assert!(!gate.wait_drained(AT_ONCE), "empty but open");
            gate.close();
        } else {
            gate.close();
            assert!(!gate.wait_drained(AT_ONCE), "closed but not empty");
            drop(permit);
        }
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
        assert_eq!(drained.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(()));
        assert!(gate.wait_drained(AT_ONCE));
    }
}

#[test]
fn many_threads_together_claim_a_quota_up_to_its_limit() {
    let quota = Arc::new(Quota::new(100));
    let claiming: Vec<_> = (0..4)
        .map(|_| {
            let quota = Arc::clone(&quota);
            thread::spawn(move || std::iter::from_fn(|| quota.claim()).collect::<Vec<u64>>())
        })
        .collect();
    let mut claimed: Vec<u64> = claiming.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, (1..=100).collect::<Vec<_>>());
    assert_eq!((quota.claimed(), quota.claim()), (100, None));
}
