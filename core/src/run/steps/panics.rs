//! Panics of actors, which a run receives as external inputs.

use pirn_definition::error::{RunError, RunErrorCode};

use crate::run::ThreadNo;
use crate::run::data::message::{Message, Panic, Panicked, ThreadResult, ToConversation, ToSupervisor, ToThread};
use crate::run::data::thread_state::{ConversationSlot, Slot, panicked};
use crate::run::parts::mailbox::answer;
use crate::run::state::RunMachine;
use crate::run::turns::conversation::lost;
use crate::status::ThreadStatus;
use crate::thread::{EffectId, Outcome, Output, ThreadEnd, UsageByNode};

impl RunMachine {
    /// Handles a panic at once, before queued messages: those to the dead actor have no receiver.
    pub(in crate::run) fn panicked(&mut self, panic: &Panic) {
        match panic.of {
            Panicked::Thread { thread, is_known } => self.thread_panicked(thread, &panic.message, is_known),
            Panicked::Conversation { owner, asker } => self.conversation_panicked(owner, &panic.message, asker),
        }
    }

    fn thread_panicked(&mut self, thread: ThreadNo, message: &str, is_known: bool) {
        // The thread may be at the front of an evaluation queue: without this, the threads behind it would wait for ever.
        if let Some((_, Some(next))) = self.globals.withdraw(thread) {
            self.send(next, ToThread::GoOn);
        }
        let Some(Slot::Live(live)) = self.slots.get_mut(thread as usize) else {
            return;
        };
        if is_known {
            let (owner, ended) = (live.speaks_in(thread), live.panicked(message));
            let message = ToConversation::Ended(thread, Box::new(ended));
            // Through the conversation, like a normal end: operations that the thread sent before its panic are still applied.
            return self.mailbox.send(Message::Conversation(owner, message));
        }
        // The host has sent the panic before, and the read of the partial results panicked too: none of them is used.
        let end = ThreadEnd {
            status: ThreadStatus::Failed,
            output: Output::default(),
            error: Some(panicked(message)),
        };
        let ended = Box::new(ThreadResult {
            end,
            spent: UsageByNode::default(),
            panicked: true,
            artifacts: None,
        });
        self.mailbox
            .send(Message::Supervisor(ToSupervisor::Ended { thread, ended }));
    }

    fn conversation_panicked(&mut self, owner: ThreadNo, message: &str, asker: Option<(ThreadNo, EffectId)>) {
        // `Lost` makes `refuse` answer later requests. Only the report of the main thread needs the messages.
        if let Some(Slot::Live(live)) = self.slots.get_mut(owner as usize)
            && let ConversationSlot::Own(own) = std::mem::replace(&mut live.speech, ConversationSlot::Lost)
            && owner == 0
        {
            self.salvaged = Some(Box::new(own.machine.conversation().clone()));
        }
        let message = format!("the conversation's actor panicked: {message}");
        let error = RunError::new(RunErrorCode::ActorPanicked, message);
        let lost_one = ToSupervisor::ConversationLost { thread: owner, error };
        self.mailbox.send(Message::Supervisor(lost_one));
        // The step that panicked has consumed the request, so no other answer follows.
        if let Some((thread, effect)) = asker {
            answer(&mut self.mailbox, thread, effect, Outcome::Failed(lost()));
        }
    }
}
