use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use pirn_loom_tests::ready::{ReadyQueue, WakeFlag};

use crate::{block_on, model};

/// The reader's way: takes what there is, and rests only where there is nothing. Ends when `seen` says so.
fn read(queue: &ReadyQueue<usize>, mut seen: impl FnMut(usize) -> bool) {
    let mut taken = VecDeque::new();
    block_on(Box::pin(poll_fn(|context| {
        loop {
            queue.take(&mut taken);
            while let Some(item) = taken.pop_front() {
                if seen(item) {
                    return Poll::Ready(());
                }
            }
            if queue.rest(context.waker()) {
                return Poll::Pending;
            }
        }
    })));
}

#[test]
fn a_reader_that_rests_is_woken_by_every_push() {
    model(|| {
        let queue = Arc::new(ReadyQueue::new());
        let pushers: Vec<_> = (0..2)
            .map(|item| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.push(item))
            })
            .collect();
        let mut seen = Vec::new();
        read(&queue, |item| {
            seen.push(item);
            seen.len() == 2
        });
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
        for pusher in pushers {
            pusher.join().unwrap();
        }
    });
}

#[test]
fn what_was_done_before_a_wake_is_seen_by_the_turn_after_it() {
    model(|| {
        let world = Arc::new((ReadyQueue::new(), WakeFlag::new(false), AtomicUsize::new(0)));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let (queue, flag, done) = &*world;
                    done.fetch_add(1, Ordering::Relaxed);
                    if flag.raise() {
                        queue.push(0);
                    }
                })
            })
            .collect();
        let (queue, flag, done) = &*world;
        read(queue, |_| {
            flag.lower();
            done.load(Ordering::Relaxed) == 2
        });
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}
