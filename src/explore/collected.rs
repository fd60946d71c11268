//! The events of a replayed order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_actors::events::{Deliver, Delivery, Subscription, Undelivered};
use pirn_events::event::Event;

/// Estimated memory of an event without its values.
const EVENT_BYTES: u64 = 300;

/// Collects the events of a run within a memory limit.
#[derive(Clone, Default)]
pub(super) struct Collected(Arc<Mutex<Collection>>);

#[derive(Default)]
struct Collection {
    events: Vec<Arc<Event>>,
    bytes: u64,
    max_bytes: u64,
    /// True once an event exceeded the limit.
    is_full: bool,
}

impl Collected {
    pub(super) fn within(max_bytes: u64) -> Self {
        let collection = Collection {
            max_bytes,
            ..Collection::default()
        };
        Self(Arc::new(Mutex::new(collection)))
    }

    pub(super) fn subscription(&self) -> Subscription {
        Subscription {
            types: Vec::new(),
            after: 0,
            deliver: Box::new(self.clone()),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().events.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.lock().is_full
    }

    pub(super) fn take(&self) -> Vec<Arc<Event>> {
        std::mem::take(&mut self.lock().events)
    }

    fn lock(&self) -> MutexGuard<'_, Collection> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliver for Collected {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        let mut collection = self.lock();
        if let Delivery::Event(event) = delivery {
            let bytes = EVENT_BYTES.saturating_add(event.raised.fields.memory());
            collection.bytes = collection.bytes.saturating_add(bytes);
            if collection.bytes > collection.max_bytes {
                collection.is_full = true;
                return Err(Undelivered::Gone);
            }
            collection.events.push(event);
        }
        Ok(())
    }

    fn end(&mut self, _: u64) {}

    fn another(&self) -> Box<dyn Deliver> {
        Box::new(self.clone())
    }
}
