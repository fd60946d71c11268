//! The mailbox of an actor with a high message rate: the event bus or the trigger matcher.
//!
//! An actix mailbox allocates twice per message; this one allocates once per block of about thirty messages. Messages are
//! delivered in FIFO order.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Sends messages of type `M` to an actor.
pub(crate) struct Sender<M>(UnboundedSender<M>);

/// The receiver of an actor. Once it is dropped, later messages are dropped too.
pub(crate) struct Receiver<M> {
    // Shared with the handles that read its length.
    mail: Rc<RefCell<UnboundedReceiver<M>>>,
    turn: TurnEnd,
}

/// Ends the actor's turn after the current message, so that other tasks of the thread run before the next one.
#[derive(Clone, Default)]
pub(crate) struct TurnEnd(Rc<Cell<bool>>);

impl TurnEnd {
    pub(crate) fn set(&self) {
        self.0.set(true);
    }
}

/// Measures a mailbox, on its actor's thread.
pub(crate) struct Depth<M>(Weak<RefCell<UnboundedReceiver<M>>>);

/// Creates a mailbox.
pub(crate) fn mailbox<M>() -> (Sender<M>, Receiver<M>) {
    let (sender, receiver) = unbounded_channel();
    let receiver = Receiver {
        mail: Rc::new(RefCell::new(receiver)),
        turn: TurnEnd::default(),
    };
    (Sender(sender), receiver)
}

impl<M> Sender<M> {
    /// Sends a message. If the actor is gone the message is dropped, which notifies a caller that waits for an answer.
    pub(crate) fn do_send(&self, message: M) {
        drop(self.0.send(message));
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> Receiver<M> {
    /// Returns a handle that measures the mailbox.
    pub(crate) fn depth(&self) -> Depth<M> {
        // Weak, so that the messages are dropped together with the actor.
        Depth(Rc::downgrade(&self.mail))
    }

    /// Returns the handle that ends the actor's turn.
    pub(crate) fn turn_end(&self) -> TurnEnd {
        self.turn.clone()
    }
}

impl<M> Depth<M> {
    /// Number of messages in the mailbox; 0 once the actor is gone.
    pub(crate) fn waiting(&self) -> usize {
        let mail = self.0.upgrade();
        // Borrowed only inside of `poll_next`, so the length is known wherever actors run.
        mail.and_then(|mail| Some(mail.try_borrow().ok()?.len())).unwrap_or(0)
    }
}

impl<M> Clone for Depth<M> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<M> Stream for Receiver<M> {
    type Item = M;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<M>> {
        if self.turn.0.replace(false) {
            // The channel was not polled and holds no waker, so the task wakes itself.
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.mail.borrow_mut().poll_recv(task)
    }
}

/// A run with a postponed turn.
pub(crate) trait PutOff {
    /// Takes the turn now.
    fn has_turn(&self);
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    #[test]
    fn messages_after_the_end_of_a_turn_are_received_in_the_next_turn() {
        let (sender, mut receiver) = mailbox();
        let turn = receiver.turn_end();
        sender.do_send(1);
        turn.set();
        assert_eq!(receiver.next().now_or_never(), None);
        assert_eq!(receiver.next().now_or_never(), Some(Some(1)));
    }

    #[test]
    fn the_depth_of_a_mailbox_is_its_number_of_pending_messages() {
        let (sender, mut receiver) = mailbox();
        let depth = receiver.depth();
        for number in 0..3 {
            sender.do_send(number);
        }
        assert_eq!(depth.waiting(), 3);
        assert_eq!(receiver.next().now_or_never().flatten(), Some(0));
        assert_eq!(depth.waiting(), 2);
        drop(receiver);
        sender.do_send(3);
        assert_eq!(depth.waiting(), 0, "the receiver is gone");
    }
}
