//! Subscriptions and their deliveries.

use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, EventMask};

/// A delivery to a subscriber.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// An event.
    Event(Arc<Event>),
    /// Number of events that were dropped because the buffer was full.
    Lagged(u64),
}

/// The sending side of a subscription. Must not block.
pub trait Deliver: Send + 'static {
    /// Delivers an event, or fails if the buffer is full.
    ///
    /// # Errors
    /// [`Undelivered`]; the delivery is dropped.
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered>;

    /// Ends the stream with the number of events dropped at its end. Not called if there are none.
    fn end(&mut self, missed: u64);

    /// Returns another sender of this subscription, for another arbiter.
    fn another(&self) -> Box<dyn Deliver>;
}

/// Why a delivery failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// The buffer is full.
    Full,
    /// The receiver was dropped.
    Gone,
}

/// The events that a subscriber receives.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Restricts the events to this run.
    pub run_id: Option<String>,
    /// Event types to deliver; empty for all types.
    pub types: Vec<EventType>,
}

impl EventFilter {
    pub(crate) fn mask(&self) -> EventMask {
        mask_of(&self.types)
    }
}

/// A subscription to one run, from its first event on.
pub struct Subscription {
    /// Event types to deliver; empty for all types.
    pub types: Vec<EventType>,
    /// Sequence number after which events are delivered; 0 for all events.
    pub after: u64,
    /// Receiver of the events.
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
