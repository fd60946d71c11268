//! Subscriptions: an async stream, or a receiver for a thread that blocks.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use crossbeam_channel::TryRecvError;
use futures::stream::Stream;
pub use pirn_actors::events::EventFilter;
use pirn_actors::events::{Deliver, Delivery, Undelivered};
use pirn_actors::host::ThreadTag;
use pirn_events::event::Event;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, error::TrySendError};

/// An item that a subscriber receives.
#[derive(Clone, Debug, PartialEq)]
pub enum SubscriptionItem {
    /// An event.
    Event(Arc<Event>),
    /// Number of events dropped because the buffer was full: the subscriber was too slow. The run does not wait for subscribers.
    Lagged(u64),
}

impl From<Delivery> for SubscriptionItem {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Event(event) => Self::Event(event),
            Delivery::Lagged(count) => Self::Lagged(count),
        }
    }
}

/// Events as an async stream, which ends with the run or the engine.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<SubscriptionItem>,
    missed_at_end: Arc<AtomicU64>,
}

impl Stream for Events {
    type Item = SubscriptionItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SubscriptionItem>> {
        match self.receiver.poll_recv(context) {
            // A count of lost events has no buffer slot of its own at the end of a run, so the receiver takes it from the counter.
            Poll::Ready(None) => Poll::Ready(last(&self.missed_at_end)),
            other => other,
        }
    }
}

impl Events {
    /// Returns the next item, or `None` after the end.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<SubscriptionItem> {
        futures::StreamExt::next(self).await
    }
}

/// Events for a thread that blocks; the iterator ends with the run or the engine. The thread that runs the actors of a
/// [local](super::EngineBuilder::local) engine may not block: there the iterator yields the buffered events and then returns `None`
/// until more arrive.
#[derive(Debug)]
pub struct BlockingEvents {
    receiver: crossbeam_channel::Receiver<SubscriptionItem>,
    missed_at_end: Arc<AtomicU64>,
    /// Identifies the threads that may not block.
    tag: Option<ThreadTag>,
}

/// Returns the number of events dropped at the end, once, as the last item.
fn last(missed: &AtomicU64) -> Option<SubscriptionItem> {
    // The swap makes the count appear once, even if the stream is polled again after its end.
    match missed.swap(0, Ordering::AcqRel) {
        0 => None,
        count => Some(SubscriptionItem::Lagged(count)),
    }
}

impl BlockingEvents {
    /// Returns the channel's receiver, for `select!`. Events that were dropped at the end of the run are only reported by the
    /// iterator.
    pub fn receiver(&self) -> &crossbeam_channel::Receiver<SubscriptionItem> {
        &self.receiver
    }
}

impl Iterator for BlockingEvents {
    type Item = SubscriptionItem;

    fn next(&mut self) -> Option<SubscriptionItem> {
        if self.tag.is_some_and(ThreadTag::is_here) {
            // Blocking here would stop the actors on this thread, and with them the source of the events.
            return match self.receiver.try_recv() {
                Ok(heard) => Some(heard),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => last(&self.missed_at_end),
            };
        }
        self.receiver.recv().ok().or_else(|| last(&self.missed_at_end))
    }
}

/// The sending end: a function that offers an event, and the counter of events dropped at the end.
#[derive(Clone)]
struct ChannelSubscriber<F> {
    offer: F,
    missed_at_end: Arc<AtomicU64>,
}

impl<F: Fn(SubscriptionItem) -> Result<(), Undelivered> + Clone + Send + 'static> Deliver for ChannelSubscriber<F> {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        (self.offer)(delivery.into())
    }

    fn end(&mut self, missed: u64) {
        // Added and not set: a subscription to all runs has one delivery end for each arbiter, and all share the counter.
        self.missed_at_end.fetch_add(missed, Ordering::AcqRel);
    }

    fn another(&self) -> Box<dyn Deliver> {
        Box::new(self.clone())
    }
}

/// Discards all events.
pub(super) struct NullSubscriber;

impl Deliver for NullSubscriber {
    fn deliver(&mut self, _: Delivery) -> Result<(), Undelivered> {
        Ok(())
    }

    fn end(&mut self, _: u64) {}

    fn another(&self) -> Box<dyn Deliver> {
        Box::new(Self)
    }
}

pub(crate) fn stream(capacity: usize) -> (Box<dyn Deliver>, Events) {
    // tokio panics for a capacity of 0 and for one above the maximum.
    let (sender, receiver) = mpsc::channel(capacity.clamp(1, Semaphore::MAX_PERMITS));
    let missed_at_end = Arc::new(AtomicU64::new(0));
    let offer = move |heard| {
        // Never awaited: the run must not wait for a slow subscriber, so a full buffer drops the event and counts it.
        sender.try_send(heard).map_err(|refused| match refused {
            TrySendError::Full(_) => Undelivered::Full,
            TrySendError::Closed(_) => Undelivered::Gone,
        })
    };
    let deliver = Box::new(ChannelSubscriber {
        offer,
        missed_at_end: Arc::clone(&missed_at_end),
    });
    let events = Events {
        receiver,
        missed_at_end,
    };
    (deliver, events)
}

pub(crate) fn blocking(capacity: usize, tag: Option<ThreadTag>) -> (Box<dyn Deliver>, BlockingEvents) {
    // A bounded channel allocates its whole buffer at once, and most subscribers request more than they receive. Only the bus of
    // the run's arbiter sends here, so a length that it reads can only shrink afterwards.
    let (sender, receiver) = crossbeam_channel::unbounded();
    let missed_at_end = Arc::new(AtomicU64::new(0));
    let offer = move |heard| {
        // A capacity of 0 would refuse every event.
        if sender.len() >= capacity.max(1) {
            return Err(Undelivered::Full);
        }
        sender.send(heard).map_err(|_| Undelivered::Gone)
    };
    let deliver = Box::new(ChannelSubscriber {
        offer,
        missed_at_end: Arc::clone(&missed_at_end),
    });
    let events = BlockingEvents {
        receiver,
        missed_at_end,
        tag,
    };
    (deliver, events)
}
