//! Message queue of a run, for all its actors.
//!
//! 1. Messages are delivered in FIFO order across all actors.
//! 2. Messages that start new work have low priority: a thread's first step, the rest of a long turn, the cancel of losers.
//!    They are delivered when the main queue is empty. All consequences of one thread's step are therefore processed before the
//!    next thread starts, and a join's parent is answered before its losers are examined.
//! 3. To prevent starvation, a low-priority message is delivered after 1,024 others in a row.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::run::ThreadNo;
use crate::run::data::message::{Message, ToThread};
use crate::thread::{EffectId, Input, Outcome};

/// Maximum number of messages delivered in a row while a low-priority message waits.
const IN_A_ROW: u32 = 1_024;

/// The queue. The module documentation has the rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Mailbox {
    /// First message, stored inline: most runs that wake receive one message, and then allocate no queue.
    first: Option<Message>,
    mail: VecDeque<Message>,
    /// Low-priority messages.
    later: VecDeque<Message>,
    in_a_row: u32,
}

impl Mailbox {
    /// Adds a message to the main queue.
    pub(in crate::run) fn send(&mut self, message: Message) {
        // Only if the queue is empty: the inline slot is read first, so the message would overtake the queued ones.
        if self.first.is_none() && self.mail.is_empty() {
            self.first = Some(message);
        } else {
            self.mail.push_back(message);
        }
    }

    /// Adds a low-priority message behind the others.
    pub(in crate::run) fn send_later(&mut self, message: Message) {
        self.later.push_back(message);
    }

    /// Adds a low-priority message before the others.
    pub(in crate::run) fn send_next(&mut self, message: Message) {
        self.later.push_front(message);
    }

    /// Returns true if a queued message satisfies the predicate.
    pub(in crate::run) fn any(&self, is: impl FnMut(&Message) -> bool) -> bool {
        self.iter().any(is)
    }

    /// Returns the queued messages, the main queue first.
    pub(in crate::run) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.first.iter().chain(&self.mail).chain(&self.later)
    }

    pub(in crate::run) fn is_empty(&self) -> bool {
        self.first.is_none() && self.mail.is_empty() && self.later.is_empty()
    }

    pub(in crate::run) fn take(&mut self) -> Option<Message> {
        if self.in_a_row < IN_A_ROW
            && let Some(message) = self.next_mail()
        {
            self.in_a_row += 1;
            return Some(message);
        }
        // Either no main message is queued or the maximum is reached. In both cases a low-priority message is next.
        self.in_a_row = 0;
        let next = self.later.pop_front().or_else(|| self.next_mail());
        if next.is_none() && self.mail.capacity() + self.later.capacity() > 0 {
            // Free the buffers: a waiting run should take little memory.
            *self = Self::default();
        }
        next
    }

    fn next_mail(&mut self) -> Option<Message> {
        self.first.take().or_else(|| self.mail.pop_front())
    }
}

/// Answers a thread, unless it expects no answer (effect 0).
pub(in crate::run) fn answer(mailbox: &mut Mailbox, thread: ThreadNo, effect: EffectId, outcome: Outcome) {
    if effect > 0 {
        mailbox.send(Message::Thread(
            thread,
            ToThread::Input(Input::Answer { effect, outcome }),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::data::message::ToSupervisor;

    fn stop_losers(fork: u32) -> Message {
        Message::Supervisor(ToSupervisor::StopLosers { fork, from: 0 })
    }

    fn order(mailbox: &mut Mailbox) -> Vec<u32> {
        std::iter::from_fn(|| mailbox.take())
            .map(|message| match message {
                Message::Supervisor(ToSupervisor::StopLosers { fork, .. }) => fork,
                Message::Thread(thread, _) => thread,
                other => unreachable!("{other:?} was not sent"),
            })
            .collect()
    }

    #[test]
    fn messages_are_delivered_in_order_and_before_deferred_messages() {
        let mut mailbox = Mailbox::default();
        mailbox.send_later(Message::Thread(4, ToThread::GoOn));
        mailbox.send(stop_losers(1));
        mailbox.send_next(stop_losers(3));
        mailbox.send(Message::Thread(2, ToThread::GoOn));
        assert_eq!(order(&mut mailbox), [1, 2, 3, 4]);
        assert!(mailbox.is_empty());
    }

    #[test]
    fn endless_messages_do_not_starve_a_deferred_message() {
        let mut mailbox = Mailbox::default();
        mailbox.send_later(stop_losers(7));
        let mut served = 0;
        loop {
            mailbox.send(Message::Thread(0, ToThread::GoOn));
            match mailbox.take() {
                Some(Message::Supervisor(_)) => break,
                _ => served += 1,
            }
            assert!(served <= IN_A_ROW, "it never had its turn");
        }
    }
}
