use loom::sync::{Arc, Mutex};
use loom::thread;
use pirn_loom_tests::batches::{Batch, Batches};

use crate::model;

/// Message in the mailbox that receives the batches.
enum Sent {
    Batch(Batch<u32>),
    Other,
}

struct World {
    batches: Batches<u32>,
    mailbox: Mutex<Vec<Sent>>,
}

impl World {
    fn put(&self, item: u32) {
        self.batches
            .put(item, |batch| self.mailbox.lock().unwrap().push(Sent::Batch(batch)));
    }

    fn send_other(&self) {
        self.mailbox.lock().unwrap().push(Sent::Other);
        self.batches.seal();
    }

    /// Receives the first message, if there is one.
    fn receive(&self, received: &mut Vec<u32>) -> bool {
        let mut mailbox = self.mailbox.lock().unwrap();
        if mailbox.is_empty() {
            return false;
        }
        let first = mailbox.remove(0);
        drop(mailbox);
        match first {
            Sent::Batch(batch) => received.extend(batch.take()),
            Sent::Other => received.push(0),
        }
        true
    }
}

fn world() -> Arc<World> {
    Arc::new(World {
        batches: Batches::new(3),
        mailbox: Mutex::new(Vec::new()),
    })
}

#[test]
fn every_item_is_received_once_in_the_order_of_its_sender() {
    model(|| {
        let world = world();
        let its = Arc::clone(&world);
        let one = thread::spawn(move || {
            its.put(1);
            its.put(2);
        });
        let its = Arc::clone(&world);
        let other = thread::spawn(move || {
            its.put(3);
            its.send_other();
            its.put(4);
        });
        let mut received = Vec::new();
        world.receive(&mut received);
        one.join().unwrap();
        other.join().unwrap();
        while world.receive(&mut received) {}
        let of = |items: &[u32]| -> Vec<u32> { received.iter().copied().filter(|item| items.contains(item)).collect() };
        assert_eq!(of(&[1, 2]), [1, 2], "{received:?}");
        assert_eq!(of(&[3, 0, 4]), [3, 0, 4], "{received:?}");
        assert_eq!(received.len(), 5, "{received:?}");
    });
}

#[test]
fn no_item_overtakes_an_earlier_item_of_its_sender() {
    model(|| {
        let world = world();
        let its = Arc::clone(&world);
        let one = thread::spawn(move || its.put(1));
        let its = Arc::clone(&world);
        let other = thread::spawn(move || {
            its.send_other();
            its.put(2);
        });
        one.join().unwrap();
        other.join().unwrap();
        let mut received = Vec::new();
        while world.receive(&mut received) {}
        received.retain(|item| *item != 1);
        assert_eq!(received, [0, 2]);
    });
}
