//! A thread's way to its conversation.

use std::rc::Rc;
use std::sync::Arc;

use actix::Addr;
use pirn_core::conversation::Conversation;
use pirn_core::definition::Pinned;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::thread::{ConversationOp, EffectId, Input, Outcome};

use super::turn::Turn;
use super::{ThreadActor, ThreadMsg};
use crate::answer::Answer;
use crate::contain::{Exit, start_contained};
use crate::conversation::{ConversationActor, ConversationMsg, ConversationSettings, Request};
use crate::supervisor::SupervisorMsg;

/// A thread's conversation.
pub(super) enum Speech {
    /// What it started with: it has not spoken yet.
    Silent(Conversation),
    /// Its own alone, called in place.
    Alone(Box<ConversationActor>),
    /// Shared with other threads, behind a mailbox.
    Shared(Addr<ConversationActor>),
}

/// A conversation as one thread hands it to another: a snapshot, or where to find the one they share.
#[derive(Clone)]
pub(crate) enum ConversationRef {
    Snapshot(Conversation),
    Shared(Addr<ConversationActor>),
}

impl Speech {
    pub(super) fn of(handed: ConversationRef) -> Self {
        match handed {
            ConversationRef::Snapshot(conversation) => Self::Silent(conversation),
            ConversationRef::Shared(address) => Self::Shared(address),
        }
    }

    /// Becomes that of a thread that begins with `conversation`; one that it is already costs nothing. An actor that
    /// nobody asks any more is handed back: another conversation may have its place.
    pub(super) fn become_snapshot(&mut self, conversation: &Conversation) -> Option<Box<ConversationActor>> {
        match self {
            Self::Silent(own) if own.is_the_same_as(conversation) => return None,
            Self::Silent(_) | Self::Alone(_) | Self::Shared(_) => {}
        }
        match std::mem::replace(self, Self::Silent(conversation.clone())) {
            Self::Alone(own) => Some(own),
            Self::Silent(_) | Self::Shared(_) => None,
        }
    }

    /// The conversation of a thread that has ended.
    pub(super) fn take(&mut self) -> ConversationRef {
        match std::mem::replace(self, Self::Silent(Conversation::new())) {
            Self::Silent(conversation) => ConversationRef::Snapshot(conversation),
            Self::Alone(own) => ConversationRef::Snapshot(own.conversation().clone()),
            Self::Shared(address) => ConversationRef::Shared(address),
        }
    }

    /// The conversation as it is now, or where that is to be asked.
    pub(super) fn hand_over(&mut self) -> ConversationRef {
        match self {
            Self::Silent(conversation) => ConversationRef::Snapshot(conversation.snapshot()),
            Self::Alone(own) => ConversationRef::Snapshot(own.snapshot()),
            Self::Shared(address) => ConversationRef::Shared(address.clone()),
        }
    }
}

/// The error of a conversation whose actor is gone.
fn lost() -> RunError {
    RunError::new(RunErrorCode::ActorPanicked, "the conversation's actor has panicked")
}

impl ConversationRef {
    /// Hands the conversation as it is now to `then`, at once or when its actor answers.
    pub(crate) fn with_snapshot(self, then: impl FnOnce(Result<Conversation, RunError>) + Send + 'static) {
        match self {
            Self::Snapshot(conversation) => then(Ok(conversation)),
            Self::Shared(address) => {
                let answer = Answer::new(move |result: Result<Conversation, _>| then(result.map_err(|_| lost())));
                address.do_send(ConversationMsg::Snapshot(answer));
            }
        }
    }
}

impl ThreadActor {
    /// Asks the conversation; what it answers at once is returned.
    pub(super) fn converse(
        &mut self,
        id: EffectId,
        op: ConversationOp,
        turn: &mut dyn Turn,
    ) -> Option<(EffectId, Outcome)> {
        let request = match op {
            ConversationOp::Merge(firing) => match self.rare().merges.remove(&firing) {
                Some(merge) => Request::Merge(merge),
                None => return Some((id, Outcome::Done)),
            },
            ConversationOp::Prepare { node, .. } => {
                let specs = self.run.engine.ports.tools.specs(&self.tools_of(node));
                let tool_tokens = if specs.is_empty() { 0 } else { self.tool_tokens(&specs) };
                Request::Do {
                    op,
                    pinned: Some(Box::new(self.pinned())),
                    tool_tokens,
                }
            }
            op => Request::Do {
                op,
                pinned: None,
                tool_tokens: 0,
            },
        };
        self.ask(id, request, turn)
    }

    /// A join's or a child's good end: its conversation takes this one's place before the thread goes on.
    pub(super) fn replace(
        &mut self,
        effect: EffectId,
        outcome: Outcome,
        conversation: Box<Conversation>,
        turn: &mut dyn Turn,
    ) {
        if let Speech::Silent(own) = &mut self.speech {
            *own = *conversation;
            return self.drive(Input::Answer { effect, outcome }, turn);
        }
        let request = Request::Restore {
            conversation,
            then: outcome,
        };
        if let Some((effect, outcome)) = self.ask(effect, request, turn) {
            self.drive(Input::Answer { effect, outcome }, turn);
        }
    }

    fn conversation_actor(&mut self, conversation: Conversation) -> Box<ConversationActor> {
        let config = &self.machine.graph().config;
        let settings = ConversationSettings {
            token_limit: self.token_limit,
            from_end: config.from_end,
            workflow_id: Arc::clone(&self.machine.graph().workflow_id),
            trigger_depth: self.machine.trigger_depth(),
            owner: self.no,
        };
        let tokenizer = self.run.tokenizer(config.tokenizer.as_deref());
        if let Some(mut place) = self.spare.take() {
            place.become_another(conversation, tokenizer, settings);
            return place;
        }
        let run = Rc::clone(&self.run);
        Box::new(ConversationActor::new(run, conversation, tokenizer, settings))
    }

    fn ask(&mut self, id: EffectId, request: Request, turn: &mut dyn Turn) -> Option<(EffectId, Outcome)> {
        if let Speech::Silent(conversation) = &mut self.speech {
            let conversation = std::mem::take(conversation);
            let own = self.conversation_actor(conversation);
            self.speech = Speech::Alone(own);
        }
        match &mut self.speech {
            Speech::Alone(own) => Some((id, own.serve(request))),
            Speech::Shared(address) => {
                let own = turn.address();
                let answer = Answer::new(move |result: Result<Outcome, _>| {
                    let outcome = result.unwrap_or_else(|_| Outcome::Failed(lost()));
                    own.do_send(ThreadMsg::Answer { effect: id, outcome });
                });
                let request = Box::new(request);
                address.do_send(ConversationMsg::Serve { request, answer });
                None
            }
            Speech::Silent(_) => None,
        }
    }

    /// The conversation's mailbox, for a thread that is to share it.
    pub(super) fn share(&mut self) -> ConversationRef {
        let own = match std::mem::replace(&mut self.speech, Speech::Silent(Conversation::new())) {
            Speech::Shared(address) => {
                self.speech = Speech::Shared(address.clone());
                return ConversationRef::Shared(address);
            }
            Speech::Alone(own) => *own,
            Speech::Silent(conversation) => *self.conversation_actor(conversation),
        };
        let (thread, supervisor) = (self.no, Arc::clone(&self.run.supervisor));
        let address = start_contained(&self.run.host, own, move |exit| {
            if let Exit::Panicked { message } = exit {
                supervisor.do_send(SupervisorMsg::ConversationLost {
                    thread,
                    message,
                    known: None,
                });
            }
        });
        self.speech = Speech::Shared(address.clone());
        ConversationRef::Shared(address)
    }

    /// A compression of the conversation has ended, well or not.
    pub(super) fn compression_ended(&mut self) {
        match &mut self.speech {
            Speech::Silent(_) => {}
            Speech::Alone(own) => own.compression_ended(),
            Speech::Shared(address) => address.do_send(ConversationMsg::CompressionEnded),
        }
    }

    fn pinned(&self) -> Pinned {
        let mut pinned = self.run.pinned.borrow().clone();
        if let Some(agent) = self.machine.agent() {
            pinned.role.clone_from(&agent.role);
        }
        pinned
    }

    fn tool_tokens(&self, specs: &[crate::ports::ToolSpec]) -> u64 {
        let tokenizer = self.run.tokenizer(self.machine.graph().config.tokenizer.as_deref());
        specs
            .iter()
            .map(|spec| tokenizer.count(&format!("{} {} {}", spec.name, spec.description, spec.parameters)))
            .sum()
    }
}
