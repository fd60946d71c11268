//! The panics of actors, which a run is told of like of anything else from outside.

use serde::{Deserialize, Serialize};

use super::conversation::{Speech, answer, lost};
use super::message::{Ended, Message, ToConversation, ToSupervisor, ToThread};
use super::slots::Slot;
use super::thread::panicked;
use super::{RunMachine, ThreadNo};
use crate::error::{RunError, RunErrorCode};
use crate::status::ThreadStatus;
use crate::thread::{EffectId, Outcome, Output, Spending, ThreadEnd};

/// An actor panicked while it handled the message that was taken last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panic {
    /// The actor.
    pub of: Panicked,
    /// The panic's text.
    pub message: String,
}

/// The actor that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Panicked {
    /// A thread. It ends FAILED with what it had gathered, or, where that is not to be had, with nothing.
    Thread {
        /// The thread.
        thread: ThreadNo,
        /// True if what it had gathered can be salvaged.
        is_known: bool,
    },
    /// A conversation. Whoever asks it hears so, and the thread that it belongs to ends.
    Conversation {
        /// The thread that it belongs to.
        owner: ThreadNo,
        /// The thread that awaits its answer, and which.
        asker: Option<(ThreadNo, EffectId)>,
    },
}

impl RunMachine {
    /// Takes effect at once: what had been told the actor before is for nobody.
    pub(super) fn panicked(&mut self, panic: &Panic) {
        match panic.of {
            Panicked::Thread { thread, is_known } => self.thread_panicked(thread, &panic.message, is_known),
            Panicked::Conversation { owner, asker } => self.conversation_panicked(owner, &panic.message, asker),
        }
    }

    fn thread_panicked(&mut self, thread: ThreadNo, message: &str, is_known: bool) {
        if let Some((_, Some(next))) = self.globals.withdraw(thread) {
            self.send(next, ToThread::GoOn);
        }
        let Some(Slot::Live(live)) = self.slots.get_mut(thread as usize) else {
            return;
        };
        if is_known {
            let (owner, ended) = (live.speaks_in(thread), live.panicked(message));
            let message = ToConversation::Ended(thread, Box::new(ended));
            return self.mailbox.send(Message::Conversation(owner, message));
        }
        let end = ThreadEnd {
            status: ThreadStatus::Failed,
            output: Output::default(),
            error: Some(panicked(message)),
        };
        let ended = Box::new(Ended {
            end,
            spent: Spending::default(),
            panicked: true,
            artifacts: None,
        });
        self.mailbox
            .send(Message::Supervisor(ToSupervisor::Ended { thread, ended }));
    }

    fn conversation_panicked(&mut self, owner: ThreadNo, message: &str, asker: Option<(ThreadNo, EffectId)>) {
        if let Some(Slot::Live(live)) = self.slots.get_mut(owner as usize)
            && let Speech::Own(own) = std::mem::replace(&mut live.speech, Speech::Lost)
            && owner == 0
        {
            self.salvaged = Some(Box::new(own.machine.conversation().clone()));
        }
        let message = format!("the conversation's actor panicked: {message}");
        let error = RunError::new(RunErrorCode::ActorPanicked, message);
        let lost_one = ToSupervisor::ConversationLost { thread: owner, error };
        self.mailbox.send(Message::Supervisor(lost_one));
        if let Some((thread, effect)) = asker {
            answer(&mut self.mailbox, thread, effect, Outcome::Failed(lost()));
        }
    }
}
