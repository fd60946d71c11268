//! Subscriptions: an async stream, or a receiver for a thread that blocks.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use crossbeam_channel::TryRecvError;
use futures::stream::Stream;
pub use pirn_actors::events::EventFilter;
use pirn_actors::events::{Deliver, Delivery, Undelivered};
use pirn_events::event::Event;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::runtime::WeakRuntime;

/// An item that a subscriber receives.
#[derive(Clone, Debug, PartialEq)]
pub enum SubscriptionItem {
    /// An event.
    Event(Arc<Event>),
    /// Number of events dropped because the buffer had no place or no memory left: the subscriber was too slow. The run does not
    /// wait for subscribers.
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

/// Memory of the events that one async stream buffers, in bytes. A single larger event is accepted by an empty buffer.
const STREAM_BYTES: u64 = 64 << 20;

/// Memory of the events that all async streams of an engine buffer, in bytes.
const ALL_STREAMS_BYTES: u64 = 256 << 20;

/// Memory that a stream may use although the others have exhausted [`ALL_STREAMS_BYTES`]: a subscriber that does not read must not
/// make the streams of all others drop events.
const RESERVED_BYTES: u64 = 1 << 20;

/// Events with less memory are not counted, because the capacity in events limits them.
const COUNTED_BYTES: u64 = 1 << 10;

/// Events as an async stream, which ends with the run or the engine.
///
/// Besides the capacity in events, the values of the buffered events are limited to 64 MiB for one stream and 256 MiB for all
/// streams of an engine, of which each stream can use at least 1 MiB. Events beyond these limits are dropped and reported as
/// [`SubscriptionItem::Lagged`]. The memory of a value is estimated, and a value that several events share counts for each.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<(SubscriptionItem, Option<BufferedBytes>)>,
    missed_at_end: Arc<AtomicU64>,
}

/// Memory of the buffered events of all async streams of an engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventMemory(Arc<AtomicU64>);

/// Memory of the buffered events of one stream, which is also counted for the engine.
#[derive(Debug)]
struct StreamMemory {
    own: AtomicU64,
    all: EventMemory,
}

/// Memory of a buffered event. Released on drop, so a stream that is dropped releases the events that it has not delivered.
#[derive(Debug)]
struct BufferedBytes {
    bytes: u64,
    of: Arc<StreamMemory>,
}

impl StreamMemory {
    /// Counts the memory of an event; `None` if it exceeds the limits.
    fn take(self: &Arc<Self>, bytes: u64) -> Option<BufferedBytes> {
        // Read before the addition: arbiters that offer events to one stream at the same moment may each exceed the limit by one.
        let own = self.own.load(Ordering::Relaxed);
        let is_within = |limit: u64, used: u64| used.saturating_add(bytes) <= limit;
        let fits = is_within(STREAM_BYTES, own)
            && (is_within(RESERVED_BYTES, own) || is_within(ALL_STREAMS_BYTES, self.all.0.load(Ordering::Relaxed)));
        // An event that is larger than a limit would otherwise never be delivered.
        if !fits && own > 0 {
            return None;
        }
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.all.0.fetch_add(bytes, Ordering::Relaxed);
        Some(BufferedBytes {
            bytes,
            of: Arc::clone(self),
        })
    }
}

impl Drop for BufferedBytes {
    fn drop(&mut self) {
        self.of.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.of.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Stream for Events {
    type Item = SubscriptionItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SubscriptionItem>> {
        match self.receiver.poll_recv(context) {
            // A count of lost events has no buffer slot of its own at the end of a run, so the receiver takes it from the counter.
            Poll::Ready(None) => Poll::Ready(last(&self.missed_at_end)),
            other => other.map(|received| received.map(|(item, _)| item)),
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

/// Events for a thread that blocks; the iterator ends with the run or the engine. The threads that run the engine's actors may not
/// block: the thread of a [local](super::EngineBuilder::local) engine, and the caller of an inline function. There the iterator
/// yields the buffered events and then returns `None` until more arrive.
#[derive(Debug)]
pub struct BlockingEvents {
    receiver: crossbeam_channel::Receiver<SubscriptionItem>,
    missed_at_end: Arc<AtomicU64>,
    /// The threads that may not block. Weak, because a subscriber does not keep an engine from stopping.
    runtime: Option<WeakRuntime>,
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
        let runtime = self.runtime.as_ref();
        if runtime.is_some_and(WeakRuntime::carries_actors_here) {
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

impl EventMemory {
    /// Returns a stream with a buffer of `capacity` events, and the subscriber that fills it.
    pub(crate) fn stream(&self, capacity: usize) -> (Box<dyn Deliver>, Events) {
        // tokio panics for a capacity of 0 and for one above the maximum.
        let (sender, receiver) = mpsc::channel(capacity.clamp(1, Semaphore::MAX_PERMITS));
        let missed_at_end = Arc::new(AtomicU64::new(0));
        let memory = Arc::new(StreamMemory {
            own: AtomicU64::new(0),
            all: self.clone(),
        });
        let offer = move |heard| {
            let bytes = match &heard {
                SubscriptionItem::Event(event) => event.raised.fields.memory(),
                SubscriptionItem::Lagged(_) => 0,
            };
            let counted = match bytes {
                0..COUNTED_BYTES => None,
                bytes => Some(memory.take(bytes).ok_or(Undelivered::Full)?),
            };
            // Never awaited: the run must not wait for a slow subscriber, so a full buffer drops the event and counts it.
            sender.try_send((heard, counted)).map_err(|refused| match refused {
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
}

pub(crate) fn blocking(capacity: usize, runtime: Option<WeakRuntime>) -> (Box<dyn Deliver>, BlockingEvents) {
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
        runtime,
    };
    (deliver, events)
}
