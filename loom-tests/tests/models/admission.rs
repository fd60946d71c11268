use loom::sync::{Arc, Mutex};
use loom::thread;
use pirn_loom_tests::admission::{Registry, admit, close_and_list};
use pirn_loom_tests::drain_gate::DrainGate;

use crate::model;

#[derive(Default)]
struct Runs(Mutex<Vec<u8>>);

impl Registry for Runs {
    type Key = u8;
    type Run = u8;

    fn insert(&self, _: &u8, run: u8) {
        self.0.lock().unwrap().push(run);
    }

    fn remove(&self, key: &u8) {
        self.0.lock().unwrap().retain(|run| run != key);
    }

    fn list(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn closing_lists_every_admitted_run() {
    model(|| {
        let world = Arc::new((DrainGate::new(2), Runs::default()));
        let its = Arc::clone(&world);
        let closing = thread::spawn(move || close_and_list(&its.0, &its.1));
        let permit = admit(&world.0, &world.1, &1, 1).ok();
        let known = closing.join().unwrap();
        assert!(permit.is_none() || known == [1], "a run got in and was missed");
    });
}

#[test]
fn a_refused_run_is_forgotten() {
    model(|| {
        let world = Arc::new((DrainGate::new(1), Runs::default()));
        let its = Arc::clone(&world);
        let other = thread::spawn(move || admit(&its.0, &its.1, &1, 1).ok());
        let own = admit(&world.0, &world.1, &2, 2).ok();
        let other = other.join().unwrap();
        assert_eq!([&own, &other].into_iter().flatten().count(), 1);
        assert_eq!(world.1.list(), [if own.is_some() { 2 } else { 1 }]);
    });
}
