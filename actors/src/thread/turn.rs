//! What a thread's actor needs of whoever gives it its turn: its own address, and somebody to hear its end.

use actix::dev::channel::{AddressReceiver, AddressSender, channel};
use actix::{ActorContext, Addr, AsyncContext, Context};

use super::{Ended, ThreadActor, ThreadMsg};
use crate::run::RunShared;
use crate::supervisor::{SupervisorMsg, ThreadNo};

/// Messages that a mailbox keeps before it tells senders to wait; nobody here waits.
const MAILBOX: usize = 16;

/// A turn of a thread's actor.
pub(crate) trait Turn {
    /// Where answers that come later are sent.
    fn address(&mut self) -> Addr<ThreadActor>;
    /// The thread has ended: nothing follows.
    fn end(&mut self, run: &RunShared, thread: ThreadNo, ended: Box<Ended>);
}

impl Turn for Context<ThreadActor> {
    fn address(&mut self) -> Addr<ThreadActor> {
        AsyncContext::address(self)
    }

    fn end(&mut self, run: &RunShared, thread: ThreadNo, ended: Box<Ended>) {
        run.supervisor.do_send(SupervisorMsg::Ended { thread, ended });
        self.stop();
    }
}

/// The turn that a thread takes before it has a mailbox. One is made when an answer is to come later.
pub(crate) struct FirstTurn {
    mailbox: Option<(AddressSender<ThreadActor>, AddressReceiver<ThreadActor>)>,
    /// Told things before: what it says of them to its supervisor comes before its end, so its end is a message too.
    is_late: bool,
    pub(crate) ended: Option<Box<Ended>>,
}

impl FirstTurn {
    /// The first turn of a thread that was sent `mail` before it.
    pub(crate) fn after(mail: &[ThreadMsg]) -> Self {
        Self {
            mailbox: None,
            is_late: !mail.is_empty(),
            ended: None,
        }
    }

    /// The mailbox of a thread that goes on.
    pub(crate) fn into_mailbox(self) -> (AddressSender<ThreadActor>, AddressReceiver<ThreadActor>) {
        self.mailbox.unwrap_or_else(|| channel(MAILBOX))
    }
}

impl Turn for FirstTurn {
    fn address(&mut self) -> Addr<ThreadActor> {
        let (sender, _) = self.mailbox.get_or_insert_with(|| channel(MAILBOX));
        Addr::new(sender.clone())
    }

    fn end(&mut self, run: &RunShared, thread: ThreadNo, ended: Box<Ended>) {
        if self.is_late {
            run.supervisor.do_send(SupervisorMsg::Ended { thread, ended });
        } else {
            self.ended = Some(ended);
        }
    }
}
