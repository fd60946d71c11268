//! A subscriber's request, and its deliveries.

use std::sync::Arc;

use pirn_core::event::{Event, EventMask, EventType};

/// A delivery to a subscriber.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// An event.
    Event(Arc<Event>),
    /// So many events did not fit the buffer.
    Lagged(u64),
}

/// The end of a subscription that takes deliveries. Must not block.
pub trait Deliver: Send + 'static {
    /// Takes one, or refuses because the buffer is full.
    ///
    /// # Errors
    /// [`Undelivered`]; the delivery is dropped.
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered>;

    /// Nothing more comes from here, and so many events at the end did not fit the buffer. Not called where that is none.
    fn end(&mut self, missed: u64);

    /// Another end of the same subscription, for another arbiter's events.
    fn another(&self) -> Box<dyn Deliver>;
}

/// Why a delivery was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// The buffer is full.
    Full,
    /// Nobody reads it any more.
    Gone,
}

/// The events that a subscriber wants.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only this run's events.
    pub run_id: Option<String>,
    /// Only these types; empty: all.
    pub types: Vec<EventType>,
}

impl EventFilter {
    pub(crate) fn mask(&self) -> EventMask {
        mask_of(&self.types)
    }
}

/// A subscription to one run, from its first event on.
pub struct Subscription {
    /// Only these types; empty: all.
    pub types: Vec<EventType>,
    /// Only events after the one with this sequence; 0: all.
    pub after: u64,
    /// The end that takes the events.
    pub deliver: Box<dyn Deliver>,
}

impl Subscription {
    pub(crate) fn mask(&self) -> EventMask {
        mask_of(&self.types)
    }
}

fn mask_of(types: &[EventType]) -> EventMask {
    if types.is_empty() {
        return EventMask::ALL;
    }
    let union = |mask: EventMask, kind: &EventType| mask.union(EventMask::of(*kind));
    types.iter().fold(EventMask::NONE, union)
}
