use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use pirn_loom_tests::drain_gate::DrainGate;

use crate::{block_on, model};

#[test]
fn at_most_the_limit_of_permits_is_held() {
    model(|| {
        let gate = DrainGate::new(1);
        let inside = Arc::new(AtomicUsize::new(0));
        let visit = |gate: DrainGate, inside: Arc<AtomicUsize>| {
            if let Ok(permit) = gate.try_enter() {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
        };
        let (other, count) = (gate.clone(), Arc::clone(&inside));
        let visitor = thread::spawn(move || visit(other, count));
        visit(gate.clone(), inside);
        visitor.join().unwrap();
        assert_eq!(gate.inside(), 0);
    });
}

#[test]
fn a_task_is_woken_when_the_gate_is_closed_and_empty_in_either_order() {
    model(|| {
        let gate = DrainGate::new(1);
        let permit = gate.try_enter().unwrap();
        let leaving = thread::spawn(move || drop(permit));
        let other = gate.clone();
        let closing = thread::spawn(move || other.close());
        block_on(gate.drained());
        assert_eq!((gate.is_closed(), gate.inside()), (true, 0));
        leaving.join().unwrap();
        closing.join().unwrap();
    });
}

#[test]
fn a_blocked_thread_is_woken_when_the_gate_is_drained() {
    model(|| {
        let gate = DrainGate::new(1);
        let permit = gate.try_enter().unwrap();
        let other = gate.clone();
        let leaving = thread::spawn(move || {
            other.close();
            drop(permit);
        });
        assert!(gate.wait_drained(Duration::ZERO));
        leaving.join().unwrap();
    });
}

#[test]
fn no_permit_is_held_after_the_gate_is_drained() {
    model(|| {
        let gate = DrainGate::new(1);
        let inside = Arc::new(AtomicUsize::new(0));
        let (other, count) = (gate.clone(), Arc::clone(&inside));
        let visitor = thread::spawn(move || {
            if let Ok(permit) = other.try_enter() {
                count.store(1, Ordering::SeqCst);
                count.store(0, Ordering::SeqCst);
                drop(permit);
            }
        });
        gate.close();
        block_on(gate.drained());
        assert_eq!((gate.inside(), inside.load(Ordering::SeqCst)), (0, 0));
        assert!(gate.try_enter().is_err());
        visitor.join().unwrap();
    });
}
