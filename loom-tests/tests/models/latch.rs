use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use pirn_loom_tests::latch::Latch;

use crate::model;

#[test]
fn who_waited_sees_what_was_done_before_each_count() {
    model(|| {
        let latch = Latch::new(2);
        let work = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let (there, done) = (latch.clone(), Arc::clone(&work));
        let first = thread::spawn(move || {
            done.0.store(1, Ordering::Relaxed);
            there.count_down();
        });
        let (there, done) = (latch.clone(), Arc::clone(&work));
        let second = thread::spawn(move || {
            done.1.store(1, Ordering::Relaxed);
            there.count_down();
        });
        latch.wait();
        assert_eq!(work.0.load(Ordering::Relaxed) + work.1.load(Ordering::Relaxed), 2);
        assert!(latch.wait_timeout(Duration::ZERO));
        first.join().unwrap();
        second.join().unwrap();
    });
}
