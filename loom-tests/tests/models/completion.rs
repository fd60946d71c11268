use loom::thread;
use pirn_loom_tests::completion::{Lost, completion};

use crate::{block_on, model};

#[test]
fn a_task_is_woken_with_the_result() {
    model(|| {
        let (setter, completion) = completion();
        let task = thread::spawn(move || block_on(completion.wait()));
        setter.set(7);
        assert_eq!(task.join().unwrap(), Ok(7));
    });
}

#[test]
fn two_tasks_are_woken_with_the_result() {
    model(|| {
        let (setter, completion) = completion();
        let other = completion.clone();
        let task = thread::spawn(move || block_on(other.wait()));
        let setting = thread::spawn(move || setter.set(7));
        assert_eq!(block_on(completion.wait()), Ok(7));
        assert_eq!(task.join().unwrap(), Ok(7));
        setting.join().unwrap();
    });
}

#[test]
fn a_blocked_thread_is_woken_with_the_result() {
    model(|| {
        let (setter, completion) = completion();
        let setting = thread::spawn(move || setter.set(7));
        assert_eq!(completion.wait_blocking(), Ok(7));
        setting.join().unwrap();
        assert_eq!(completion.peek(), Some(Ok(7)), "late ones see it too");
    });
}

#[test]
fn a_dropped_setter_completes_as_lost() {
    model(|| {
        let (setter, completion) = completion::<u8>();
        let dropping = thread::spawn(move || drop(setter));
        assert_eq!(block_on(completion.wait()), Err(Lost));
        dropping.join().unwrap();
    });
}

#[test]
fn a_dropped_wait_does_not_affect_other_waits() {
    model(|| {
        let (setter, completion) = completion();
        let other = completion.clone();
        let giving_up = thread::spawn(move || {
            let mut wait = other.wait();
            let waker = std::task::Waker::noop();
            let poll = std::pin::Pin::new(&mut wait);
            let _seen = std::future::Future::poll(poll, &mut std::task::Context::from_waker(waker));
        });
        let setting = thread::spawn(move || setter.set(7));
        assert_eq!(block_on(completion.wait()), Ok(7));
        giving_up.join().unwrap();
        setting.join().unwrap();
    });
}
