//! Tests of the other primitives on one or two real threads. `loom-tests` runs all interleavings.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use pirn_sync::{Batch, Batches, DrainGate, Lost, Quota, Refused, completion};

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
    let late = early.clone();
    assert_eq!(
        (late.peek(), late.wait_timeout(AT_ONCE)),
        (Some(Ok("done")), Some(Ok("done")))
    );
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
    assert!(!gate.is_closed());
    gate.close();
    assert!(gate.is_closed());
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

/// Mailbox of the single thread, and the messages that it must contain: the items of a batch, or none for another message.
#[derive(Default)]
struct Mailbox {
    sent: RefCell<VecDeque<Option<Batch<u32>>>>,
    expected: VecDeque<Option<Vec<u32>>>,
    /// True if the last expected message is a batch that accepts items.
    is_open: bool,
    most: usize,
}

impl Mailbox {
    fn send(&self, message: Option<Batch<u32>>) {
        self.sent.borrow_mut().push_back(message);
    }

    fn step(&mut self, batches: &Batches<u32>, operation: u32, item: u32) {
        match operation {
            // An item, during the sending of which a batch is sent, another message is sent, or nothing happens.
            0..3 => {
                let is_added = self.is_open;
                batches.put(item, |batch| {
                    if operation == 1 {
                        batches.put(item + 100, |other| self.send(Some(other)));
                    } else if operation == 2 {
                        self.send(None);
                        batches.seal();
                    }
                    self.send(Some(batch));
                });
                if is_added {
                    let items = self.expected.back_mut().unwrap().as_mut().unwrap();
                    items.push(item);
                    self.is_open = items.len() < self.most;
                } else {
                    let crossing = [None, Some(Some(vec![item + 100])), Some(None)];
                    self.expected.extend(crossing[operation as usize].clone());
                    self.expected.push_back(Some(vec![item]));
                    self.is_open = operation == 0 && self.most > 1;
                }
            }
            3 => {
                self.send(None);
                batches.seal();
                self.expected.push_back(None);
                self.is_open = false;
            }
            _ => {
                let received = self.sent.borrow_mut().pop_front();
                let expected = self.expected.pop_front();
                self.is_open &= !self.expected.is_empty();
                if operation == 4 {
                    assert_eq!(received.map(|message| message.map(Batch::take)), expected);
                }
            }
        }
        let untaken = self.expected.iter().flatten().count();
        assert_eq!(format!("{batches:?}"), format!("Batches {{ untaken: {untaken}, .. }}"));
        assert_eq!(self.sent.borrow().len(), self.expected.len());
    }
}

#[test]
fn a_batch_accepts_up_to_its_limit_while_it_is_the_last_message_and_a_dropped_one_retains_nothing() {
    const OPERATIONS: u32 = 6;
    const LENGTH: u32 = 6;
    for (sequence, most) in (0..OPERATIONS.pow(LENGTH)).flat_map(|sequence| [(sequence, 1), (sequence, 3)]) {
        let mut mailbox = Mailbox {
            most,
            ..Mailbox::default()
        };
        let batches = Batches::new(most);
        for at in 0..LENGTH {
            mailbox.step(&batches, sequence / OPERATIONS.pow(at) % OPERATIONS, at);
        }
        while !mailbox.expected.is_empty() {
            mailbox.step(&batches, 4, 0);
        }
    }
}
