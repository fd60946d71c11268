//! What a cancel tree promises, on one thread; `loom-tests` has the same for several.

use std::cell::Cell;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use pirn_sync::CancelToken;

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_first_reason_wins_and_goes_all_the_way_down() {
    let root = CancelToken::new();
    let (left, right) = (root.child(), root.child());
    let below = left.child();
    assert!(left.cancel("left"));
    assert!(root.cancel("root"));
    assert!(!left.cancel("again"));
    let reasons: Vec<_> = [&root, &left, &below, &right].map(CancelToken::reason).into();
    assert_eq!(reasons, [Some("root"), Some("left"), Some("left"), Some("root")]);
}

#[test]
fn a_cancel_goes_neither_up_nor_sideways() {
    let root = CancelToken::new();
    let (left, right) = (root.child(), root.child());
    left.cancel(());
    assert!(!root.is_cancelled() && !right.is_cancelled());
}

#[test]
fn a_child_of_a_cancelled_token_is_born_cancelled() {
    let root = CancelToken::new();
    root.cancel(1);
    let child = root.child();
    assert!(child.is_cancelled());
    assert_eq!(child.child().reason(), Some(1));
}

#[test]
fn a_grandchild_hears_through_a_forgotten_parent() {
    for children in 1..4 {
        let root = CancelToken::new();
        let middle = root.child();
        let below: Vec<_> = (0..children).map(|_| middle.child()).collect();
        drop(middle);
        root.cancel(children);
        assert!(below.iter().all(CancelToken::is_cancelled), "{children} children");
    }
}

#[test]
fn a_waiting_task_is_woken_once_and_a_dropped_one_never() {
    let (kept, dropped) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let token = CancelToken::new();
    let mut future = pin!(token.cancelled());
    let waker = Waker::from(Arc::clone(&kept));
    assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    {
        let gone = pin!(token.cancelled());
        let waker = Waker::from(Arc::clone(&dropped));
        assert_eq!(gone.poll(&mut Context::from_waker(&waker)), Poll::Pending);
    }
    token.cancel("now");
    assert_eq!(
        (kept.0.load(Ordering::SeqCst), dropped.0.load(Ordering::SeqCst)),
        (1, 0)
    );
    assert_eq!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready("now"));
    assert_eq!(Arc::strong_count(&dropped), 1, "no waker of a dropped future is kept");
}

#[test]
fn a_callback_runs_once_and_may_use_the_tree() {
    let token = CancelToken::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (inside, notes) = (token.clone(), Arc::clone(&heard));
    let before = token.on_cancel(move |reason: &str| {
        assert!(inside.is_cancelled() && inside.child().is_cancelled());
        notes.lock().unwrap().push(reason);
    });
    let notes = Arc::clone(&heard);
    drop(token.on_cancel(move |_| notes.lock().unwrap().push("taken back")));
    token.cancel("now");
    let notes = Arc::clone(&heard);
    let after = token.on_cancel(move |_| notes.lock().unwrap().push("at once"));
    drop((before, after));
    assert_eq!(*heard.lock().unwrap(), ["now", "at once"]);
}

#[test]
fn a_callback_that_panics_keeps_nobody_else_from_hearing() {
    let token = CancelToken::new();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let first = token.on_cancel(|()| panic!("a callback's own mistake"));
    let second = token.on_cancel(move |()| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let panicked = std::panic::catch_unwind(|| token.cancel(()));
    assert!(panicked.is_err());
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    drop((first, second));
}

#[test]
fn ten_thousand_children_hear_of_one_cancel() {
    let root = CancelToken::new();
    let children: Vec<_> = (0..10_000).map(|_| root.child()).collect();
    root.cancel("all");
    assert!(children.iter().all(|child| child.reason() == Some("all")));
    drop(children);
    assert_eq!(root.tree_size(), 1);
}

#[test]
fn a_tree_ten_thousand_deep_is_cancelled_and_dropped_without_recursion() {
    let root = CancelToken::new();
    let mut line = vec![root.clone()];
    for depth in 0..10_000 {
        line.push(line[depth].child());
    }
    root.cancel(());
    assert!(line.iter().all(CancelToken::is_cancelled));
    drop(line);
    assert_eq!(root.tree_size(), 1);
}

#[test]
fn a_chain_of_tokens_that_each_outlive_their_parent_does_not_grow() {
    let root = CancelToken::new();
    let mut token = root.child();
    for _ in 0..1000 {
        token = token.child();
    }
    assert_eq!(root.tree_size(), 2);
    root.cancel(());
    assert!(token.is_cancelled());
}

/// The tree as a list of parents that forgets nothing.
#[derive(Default)]
struct Oracle {
    parents: Vec<Option<usize>>,
    reasons: Vec<Option<u32>>,
}

impl Oracle {
    fn cancel(&mut self, at: usize, reason: u32) {
        for node in 0..self.parents.len() {
            let mut above = Some(node);
            while let Some(up) = above.filter(|up| *up != at) {
                above = self.parents[up];
            }
            if above.is_some() {
                self.reasons[node].get_or_insert(reason);
            }
        }
    }
}

#[test]
fn any_order_of_making_cancelling_and_dropping_agrees_with_a_tree_that_forgets_nothing() {
    for seed in 0..300_u64 {
        let state = Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let pick = |below: usize| {
            state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            (state.get() >> 33) as usize % below
        };
        let mut oracle = Oracle::default();
        oracle.parents.push(None);
        oracle.reasons.push(None);
        let mut held = vec![(0, CancelToken::new())];
        for round in 0..120 {
            let chosen = pick(held.len());
            match pick(8) {
                0..4 => {
                    let (parent, child) = (held[chosen].0, held[chosen].1.child());
                    held.push((oracle.parents.len(), child));
                    oracle.parents.push(Some(parent));
                    oracle.reasons.push(oracle.reasons[parent]);
                }
                4..7 if held.len() > 1 => drop(held.swap_remove(chosen)),
                _ if round % 5 == 0 => {
                    held[chosen].1.cancel(round);
                    oracle.cancel(held[chosen].0, round);
                }
                _ => {}
            }
            for (at, token) in &held {
                assert_eq!(token.reason(), oracle.reasons[*at], "seed {seed} round {round}");
                assert_eq!(token.is_cancelled(), token.reason().is_some());
            }
            assert!(held[0].1.tree_size() < 2 * held.len(), "seed {seed} round {round}");
        }
    }
}
