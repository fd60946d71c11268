//! What is known of a thread whose actor panics.
//!
//! A broken actor is asked to do nothing more. But what it spent was spent and what was said was said: those only grow,
//! whatever was going on when it broke, so they are read before the panic goes on its way.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pirn_core::status::ThreadStatus;
use pirn_core::thread::{Output, ThreadEnd};

use super::{Ended, ThreadActor, ThreadMsg, Turn};
use crate::contain::{Exit, contained};
use crate::panic_text::panic_message;
use crate::supervisor::SupervisorMsg;

impl ThreadActor {
    /// Takes a message. Where that panics the supervisor is told what is known of the thread, and the panic goes on.
    pub(super) fn take_or_tell(&mut self, message: ThreadMsg, turn: &mut dyn Turn) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.take(message, turn))) else {
            return;
        };
        let message = panic_message(payload);
        let known = self.known();
        self.run.supervisor.do_send(SupervisorMsg::Exited {
            thread: self.no,
            exit: Exit::Panicked {
                message: message.clone(),
            },
            known,
        });
        resume_unwind(Box::new(message));
    }

    /// What the thread had gathered when it broke; none where even that panics.
    pub(crate) fn known(&mut self) -> Option<Box<Ended>> {
        let end = ThreadEnd {
            status: ThreadStatus::Failed,
            output: Output::default(),
            error: None,
        };
        let ended = contained(|| {
            let history = self.machine.take_broken_history();
            let left = Some(Box::new(self.left(history)));
            let spent = *self.machine.spent();
            Box::new(Ended { end, spent, left })
        });
        ended.ok()
    }
}
