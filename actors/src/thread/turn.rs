//! What a thread's actor needs of whoever gives it its turn: a way for answers to reach it, and somebody to hear its end.

use actix::{ActorContext, Addr, AsyncContext, Context};

use super::{Alarm, Ended, ThreadActor};
use crate::run::RunShared;
use crate::supervisor::{SupervisorMsg, ThreadNo};

/// A turn of a thread's actor.
pub(crate) trait Turn {
    /// Where answers that come later are sent.
    fn address(&mut self) -> Addr<ThreadActor>;
    /// How a timer reaches the thread.
    fn alarm(&mut self) -> Alarm;
    /// Whether anybody takes over what the thread leaves behind, should it end in this turn.
    fn takes_over(&self) -> bool;
    /// The thread has ended: nothing follows.
    fn end(&mut self, run: &RunShared, thread: ThreadNo, ended: Ended);
}

impl Turn for Context<ThreadActor> {
    fn address(&mut self) -> Addr<ThreadActor> {
        AsyncContext::address(self)
    }

    fn alarm(&mut self) -> Alarm {
        Alarm::Mailbox(AsyncContext::address(self))
    }

    fn takes_over(&self) -> bool {
        // That is for its supervisor to say, who is not here.
        true
    }

    fn end(&mut self, run: &RunShared, thread: ThreadNo, ended: Ended) {
        let ended = Box::new(ended);
        run.supervisor.do_send(SupervisorMsg::Ended { thread, ended });
        self.stop();
    }
}
