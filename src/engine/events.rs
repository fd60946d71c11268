//! Subscriptions: an async stream, or a receiver for a thread that blocks.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use crossbeam_channel::TryRecvError;
use futures::channel::mpsc;
use futures::stream::Stream;
pub use pirn_actors::events::EventFilter;
use pirn_actors::events::{Deliver, Delivery, Undelivered};
use pirn_actors::host::Here;
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
    missed_at_end: Arc<AtomicU64>,
}

impl Stream for Events {
    type Item = Heard;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Heard>> {
        match Pin::new(&mut self.receiver).poll_next(context) {
            Poll::Ready(None) => Poll::Ready(last(&self.missed_at_end)),
            other => other,
        }
    }
}

impl Events {
    /// The next one; none when nothing more can come.
    pub async fn next(&mut self) -> Option<Heard> {
        futures::StreamExt::next(self).await
    }
}

/// Events for a thread that blocks; iterating ends with the run, or the engine. The thread that carries the actors of a
/// [local](super::EngineBuilder::local) engine may not block: there, iterating gives what has come, and then ends for now.
#[derive(Debug)]
pub struct BlockingEvents {
    receiver: crossbeam_channel::Receiver<Heard>,
    missed_at_end: Arc<AtomicU64>,
    /// Tells the threads that would wait for themselves.
    here: Option<Here>,
}

/// What is said last, once: how many events at the end did not fit the buffer.
fn last(missed: &AtomicU64) -> Option<Heard> {
    match missed.swap(0, Ordering::AcqRel) {
        0 => None,
        count => Some(Heard::Missed(count)),
    }
}

impl BlockingEvents {
    /// The receiver itself, for `select!`. What was missed at the very end is told by iterating only.
    pub fn receiver(&self) -> &crossbeam_channel::Receiver<Heard> {
        &self.receiver
    }
}

impl Iterator for BlockingEvents {
    type Item = Heard;

    fn next(&mut self) -> Option<Heard> {
        if self.here.is_some_and(Here::is_here) {
            return match self.receiver.try_recv() {
                Ok(heard) => Some(heard),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => last(&self.missed_at_end),
            };
        }
        self.receiver.recv().ok().or_else(|| last(&self.missed_at_end))
    }
}

/// The sending end: how it offers one, and where what was missed at the end is told.
struct To<F>(F, Arc<AtomicU64>);

impl<F: FnMut(Heard) -> Result<(), Undelivered> + Send + 'static> Deliver for To<F> {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        (self.0)(delivery.into())
    }

    fn end(&mut self, missed: u64) {
        self.1.store(missed, Ordering::Release);
    }
}

/// Takes everything and keeps nothing.
pub(super) struct Silent;

impl Deliver for Silent {
    fn deliver(&mut self, _: Delivery) -> Result<(), Undelivered> {
        Ok(())
    }

    fn end(&mut self, _: u64) {}
}

fn refused(is_full: bool) -> Undelivered {
    if is_full { Undelivered::Full } else { Undelivered::Gone }
}

pub(super) fn stream(capacity: usize) -> (Box<dyn Deliver>, Events) {
    let (mut sender, receiver) = mpsc::channel(capacity.max(1));
    let missed_at_end = Arc::new(AtomicU64::new(0));
    let deliver = Box::new(To(
        move |heard| sender.try_send(heard).map_err(|error| refused(error.is_full())),
        Arc::clone(&missed_at_end),
    ));
    (
        deliver,
        Events {
            receiver,
            missed_at_end,
        },
    )
}

pub(super) fn blocking(capacity: usize, here: Option<Here>) -> (Box<dyn Deliver>, BlockingEvents) {
    // A bounded channel lays out its whole buffer at once, and most subscribers ask for more than comes. Only the bus
    // puts something in, so what it counts there can only have become less.
    let (sender, receiver) = crossbeam_channel::unbounded();
    let missed_at_end = Arc::new(AtomicU64::new(0));
    let deliver = Box::new(To(
        move |heard| {
            if sender.len() >= capacity.max(1) {
                return Err(Undelivered::Full);
            }
            sender.send(heard).map_err(|_| Undelivered::Gone)
        },
        Arc::clone(&missed_at_end),
    ));
    (
        deliver,
        BlockingEvents {
            receiver,
            missed_at_end,
            here,
        },
    )
}
