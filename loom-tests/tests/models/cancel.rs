use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use pirn_loom_tests::cancel::CancelToken;

use crate::{block_on, model};

#[test]
fn a_child_made_during_the_cancel_is_cancelled() {
    model(|| {
        let root = CancelToken::new();
        let other = root.clone();
        let cancelling = thread::spawn(move || other.cancel(7));
        let child = root.child();
        assert!(cancelling.join().unwrap());
        assert_eq!((child.is_cancelled(), child.reason()), (true, Some(7)));
    });
}

#[test]
fn of_two_cancels_one_is_first_and_its_reason_stays() {
    model(|| {
        let root = CancelToken::new();
        let child = root.child();
        let other = root.clone();
        let cancelling = thread::spawn(move || other.cancel(1));
        let mine = root.cancel(2);
        let reason = root.reason();
        let theirs = cancelling.join().unwrap();
        assert!(mine != theirs, "one of them was first");
        let first = if mine { Some(2) } else { Some(1) };
        assert_eq!((reason, root.reason(), child.reason()), (first, first, first));
    });
}

#[test]
fn a_task_below_hears_of_a_cancel_above() {
    model(|| {
        let root = CancelToken::new();
        let child = root.child();
        let task = thread::spawn(move || block_on(child.cancelled()));
        root.cancel(7);
        assert_eq!(task.join().unwrap(), 7);
    });
}

#[test]
fn a_cancel_reaches_below_a_token_that_is_forgotten_meanwhile() {
    model(|| {
        let root = CancelToken::new();
        let middle = root.child();
        let below = [middle.child(), middle.child()];
        let forgetting = thread::spawn(move || drop(middle));
        root.cancel(7);
        assert!(below.iter().all(CancelToken::is_cancelled));
        forgetting.join().unwrap();
        drop(below);
        assert_eq!(root.tree_size(), 1);
    });
}

#[test]
fn who_sees_the_flag_sees_the_reason_and_what_came_before() {
    model(|| {
        let token = CancelToken::new();
        let before = Arc::new(AtomicUsize::new(0));
        let (other, work) = (token.clone(), Arc::clone(&before));
        let cancelling = thread::spawn(move || {
            work.store(1, Ordering::Relaxed);
            other.cancel(7);
        });
        if token.is_cancelled() {
            assert_eq!(before.load(Ordering::Relaxed), 1);
            assert_eq!(token.reason(), Some(7));
        }
        cancelling.join().unwrap();
    });
}

#[test]
fn a_callback_is_called_once_however_late_it_comes() {
    model(|| {
        let token = CancelToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let other = token.clone();
        let cancelling = thread::spawn(move || other.cancel(7));
        let count = Arc::clone(&calls);
        let registration = token.on_cancel(move |reason| {
            assert_eq!(reason, 7);
            count.fetch_add(1, Ordering::SeqCst);
        });
        cancelling.join().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop(registration);
    });
}

#[test]
fn a_callback_taken_back_during_the_cancel_is_called_at_most_once() {
    model(|| {
        let token = CancelToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let registration = token.on_cancel(move |()| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let other = token.clone();
        let cancelling = thread::spawn(move || other.cancel(()));
        drop(registration);
        cancelling.join().unwrap();
        assert!(calls.load(Ordering::SeqCst) <= 1);
    });
}
