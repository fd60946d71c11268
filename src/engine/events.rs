//! Subscriptions: an async stream, or a receiver for a thread that blocks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::mpsc;
use futures::stream::Stream;
pub use pirn_actors::events::EventFilter;
use pirn_actors::events::{Deliver, Delivery, Undelivered};
use pirn_core::event::Event;

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// An event.
    Event(Arc<Event>),
    /// So many events did not fit the buffer: the subscriber was too slow for them, the run was not held up.
    Missed(u64),
}

impl From<Delivery> for Heard {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Event(event) => Self::Event(event),
            Delivery::Missed(count) => Self::Missed(count),
        }
    }
}

/// Events as an async stream; it ends with the run, or the engine.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Heard>,
}

impl Stream for Events {
    type Item = Heard;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Heard>> {
        Pin::new(&mut self.receiver).poll_next(context)
    }
}

impl Events {
    /// The next one; none when nothing more can come.
    pub async fn next(&mut self) -> Option<Heard> {
        futures::StreamExt::next(&mut self.receiver).await
    }
}

/// Events for a thread that blocks; iterating ends with the run, or the engine.
#[derive(Debug)]
pub struct BlockingEvents {
    receiver: crossbeam_channel::Receiver<Heard>,
}

impl BlockingEvents {
    /// The receiver itself, for `select!`.
    pub fn receiver(&self) -> &crossbeam_channel::Receiver<Heard> {
        &self.receiver
    }
}

impl Iterator for BlockingEvents {
    type Item = Heard;

    fn next(&mut self) -> Option<Heard> {
        self.receiver.recv().ok()
    }
}

struct ToStream(mpsc::Sender<Heard>);

impl Deliver for ToStream {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        self.0.try_send(delivery.into()).map_err(|error| {
            if error.is_full() {
                Undelivered::Full
            } else {
                Undelivered::Gone
            }
        })
    }
}

struct ToReceiver(crossbeam_channel::Sender<Heard>);

impl Deliver for ToReceiver {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        self.0.try_send(delivery.into()).map_err(|error| {
            if error.is_full() {
                Undelivered::Full
            } else {
                Undelivered::Gone
            }
        })
    }
}

pub(super) fn stream(capacity: usize) -> (Box<dyn Deliver>, Events) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (Box::new(ToStream(sender)), Events { receiver })
}

pub(super) fn blocking(capacity: usize) -> (Box<dyn Deliver>, BlockingEvents) {
    let (sender, receiver) = crossbeam_channel::bounded(capacity.max(1));
    (Box::new(ToReceiver(sender)), BlockingEvents { receiver })
}
