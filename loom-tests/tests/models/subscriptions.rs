use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use pirn_loom_tests::subscriptions::subscriptions;

use crate::model;

#[test]
fn who_joins_during_events_gets_all_from_its_first_on_in_order() {
    model(|| {
        let (mut publisher, set) = subscriptions::<Arc<Mutex<Vec<u64>>>>();
        let publishing = thread::spawn(move || {
            for _ in 0..2 {
                publisher.publish(|sequence, heard| heard.lock().unwrap().push(sequence));
            }
        });
        let heard = Arc::new(Mutex::new(Vec::new()));
        let subscription = set.subscribe(Arc::clone(&heard));
        publishing.join().unwrap();
        let expected: Vec<u64> = (subscription.from()..2).collect();
        assert_eq!(*heard.lock().unwrap(), expected);
    });
}

#[test]
fn two_who_join_at_once_are_both_in() {
    model(|| {
        let (mut publisher, set) = subscriptions::<u8>();
        let other = set.clone();
        let joining = thread::spawn(move || other.subscribe(1));
        let mine = set.subscribe(2);
        let theirs = joining.join().unwrap();
        let mut heard = 0;
        publisher.publish(|_, who| heard += who);
        assert_eq!(heard, 3);
        drop((mine, theirs));
        assert!(publisher.nobody_listens());
    });
}

#[test]
fn who_has_left_gets_no_event_that_starts_later() {
    model(|| {
        let (mut publisher, set) = subscriptions::<u8>();
        let subscription = set.subscribe(1);
        let left = Arc::new(AtomicBool::new(false));
        let gone = Arc::clone(&left);
        let leaving = thread::spawn(move || {
            drop(subscription);
            gone.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            let already_left = left.load(Ordering::Acquire);
            publisher.publish(|_, _| assert!(!already_left));
        }
        leaving.join().unwrap();
    });
}
