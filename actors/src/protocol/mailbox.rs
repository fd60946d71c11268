//! The mailbox of an actor that is told much: of the event bus and the trigger matcher.
//!
//! An actix mailbox allocates twice for every message; this one has room for some thirty at a time. What is told comes in
//! the order in which it was told.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A handle to an actor that is told messages of type `M`.
pub(crate) struct Sender<M>(UnboundedSender<M>);

/// The messages that the actor was told. Once it is dropped, so is what comes.
pub(crate) struct Receiver<M>(UnboundedReceiver<M>);

/// A mailbox: its handle, and what the actor takes its messages from.
pub(crate) fn mailbox<M>() -> (Sender<M>, Receiver<M>) {
    let (sender, receiver) = unbounded_channel();
    (Sender(sender), Receiver(receiver))
}

impl<M> Sender<M> {
    /// Tells the actor. Where it is gone the message is dropped: whoever waits for an answer is told so by the drop.
    pub(crate) fn do_send(&self, message: M) {
        drop(self.0.send(message));
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> Stream for Receiver<M> {
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<M>> {
        self.0.poll_recv(task)
    }
}
