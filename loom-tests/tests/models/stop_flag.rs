use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use pirn_loom_tests::stop_flag::StopFlag;

use crate::model;

#[test]
fn a_thread_that_sees_the_stop_sees_earlier_writes() {
    model(|| {
        let (flag, reason) = (StopFlag::default(), Arc::new(AtomicU64::new(0)));
        let (seen, told) = (flag.clone(), Arc::clone(&reason));
        let running = thread::spawn(move || seen.is_stopped().then(|| told.load(Ordering::Relaxed)));
        reason.store(7, Ordering::Relaxed);
        flag.stop();
        assert!(matches!(running.join().unwrap(), None | Some(7)));
        assert!(flag.is_stopped());
    });
}
