//! The queue of a run: every message of its actors, in the order sent.
//!
//! 1. Messages are served first come, first served, whoever they are for: an actor hears things in the order they were said.
//! 2. What begins something new (a thread's first step, the rest of a long turn, losers that are to be stopped) waits until
//!    nothing else does: what follows from a thread's step has happened before the next thread begins, and a join's answer
//!    was heard before anybody looks at its losers.
//! 3. That is no way to starve: after so many messages in a row one of those has its turn.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::message::Message;

/// Messages that are served before one that waits for a quiet moment is, if there is none.
const IN_A_ROW: u32 = 1_024;

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Mailbox {
    /// Before all other mail: most runs that wake are told one thing.
    first: Option<Message>,
    mail: VecDeque<Message>,
    /// Waits until there is no mail.
    later: VecDeque<Message>,
    in_a_row: u32,
}

impl Mailbox {
    /// At the end of the queue.
    pub(super) fn send(&mut self, message: Message) {
        if self.first.is_none() && self.mail.is_empty() {
            self.first = Some(message);
        } else {
            self.mail.push_back(message);
        }
    }

    /// When nothing else waits, after what waits for that already.
    pub(super) fn send_later(&mut self, message: Message) {
        self.later.push_back(message);
    }

    /// When nothing else waits, before what waits for that already.
    pub(super) fn send_next(&mut self, message: Message) {
        self.later.push_front(message);
    }

    /// True if a message like this waits.
    pub(super) fn any(&self, is: impl FnMut(&Message) -> bool) -> bool {
        let mail = self.first.iter().chain(&self.mail).chain(&self.later);
        mail.into_iter().any(is)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.mail.is_empty() && self.later.is_empty()
    }

    pub(super) fn take(&mut self) -> Option<Message> {
        if self.in_a_row < IN_A_ROW
            && let Some(message) = self.next_mail()
        {
            self.in_a_row += 1;
            return Some(message);
        }
        self.in_a_row = 0;
        let next = self.later.pop_front().or_else(|| self.next_mail());
        if next.is_none() && self.mail.capacity() + self.later.capacity() > 0 {
            // A run that waits has no room for those that do not.
            *self = Self::default();
        }
        next
    }

    fn next_mail(&mut self) -> Option<Message> {
        self.first.take().or_else(|| self.mail.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{ToSupervisor, ToThread};
    use super::*;

    fn losers(fork: u32) -> Message {
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
    fn mail_comes_in_its_order_and_before_what_waits_for_a_quiet_moment() {
        let mut mailbox = Mailbox::default();
        mailbox.send_later(Message::Thread(4, ToThread::GoOn));
        mailbox.send(losers(1));
        mailbox.send_next(losers(3));
        mailbox.send(Message::Thread(2, ToThread::GoOn));
        assert_eq!(order(&mut mailbox), [1, 2, 3, 4]);
        assert!(mailbox.is_empty());
    }

    #[test]
    fn endless_mail_does_not_starve_what_waits() {
        let mut mailbox = Mailbox::default();
        mailbox.send_later(losers(7));
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
