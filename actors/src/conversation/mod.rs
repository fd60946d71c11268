//! The conversation actor: owns one thread's history and answers its thread (SPEC section 3).
//!
//! It is made when a thread first speaks; until then the thread holds the snapshot it was given, which costs nothing.
//! While the thread is the only one that speaks in it, the thread calls it in place; it gets a mailbox when a second
//! thread (SUBGRAPH with `conversation: share`) is to reach it.

mod compression;

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, Context, Handler};
use pirn_core::conversation::compression::{CompressionResult, SummaryPlan, replacement};
use pirn_core::conversation::{
    AgentKind, Basis, Conversation, ConversationEffect, ConversationInput, ConversationMachine, Counted, PinStrategy,
    RequestParts, ResolvedContext, TokenSignal, Tokenizer, build_request,
};
use pirn_core::definition::Pinned;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{EventType, Field, RaisedEvent};
use pirn_core::message::Message;
use pirn_core::thread::{ContextChange, ConversationOp, Outcome, Prepared, ThreadId};
use serde_json::json;

use crate::answer::Answer;
use crate::contain::contained;
use crate::globals::HandedGlobals;
use crate::panic_text::panic_message;
use crate::run::RunShared;
use crate::supervisor::{SupervisorMsg, ThreadNo};

/// What a conversation needs to know beside its messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConversationSettings {
    pub(crate) token_limit: Option<u64>,
    pub(crate) from_end: Option<usize>,
    pub(crate) workflow_id: Arc<str>,
    /// How many triggers stand between the run's own steps and what its thread says.
    pub(crate) trigger_depth: u32,
    /// The thread that it belongs to.
    pub(crate) owner: ThreadNo,
}

/// What a firing hands to the conversation of its main thread.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    pub(crate) change: Change,
    /// A token event set it off: COMPRESSION_COMPLETED says what came of it, also where that is nothing.
    pub(crate) is_compression: bool,
    /// How many triggers stand between the run's own steps and this.
    pub(crate) trigger_depth: u32,
    /// Global variables that change with it: both or neither.
    pub(crate) globals: Option<HandedGlobals>,
}

/// What becomes of the conversation.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Nothing.
    Nothing,
    /// These at its end.
    Append(Vec<Message>),
    /// These in the place of what was visible at `basis`.
    Replace { basis: Basis, messages: Vec<Message> },
    /// A compression's result, checked before it is taken.
    Compressed { basis: Basis, result: CompressionResult },
}

/// Something that a conversation is asked to do.
pub(crate) enum Request {
    Do {
        op: ConversationOp,
        pinned: Option<Box<Pinned>>,
        tool_tokens: u64,
    },
    Merge(Box<Merge>),
    /// Take over another conversation's content; where that is done, answer with `then`.
    Restore {
        conversation: Box<Conversation>,
        then: Outcome,
    },
}

/// A message to the actor of a conversation that several threads share.
pub(crate) enum ConversationMsg {
    Serve {
        request: Box<Request>,
        answer: Answer<Outcome>,
    },
    Snapshot(Answer<Conversation>),
    CompressionEnded,
}

impl actix::Message for ConversationMsg {
    type Result = ();
}

pub(crate) struct ConversationActor {
    run: Rc<RunShared>,
    settings: ConversationSettings,
    /// Its thread's id, once something was said in its name.
    thread_id: OnceCell<Arc<str>>,
    machine: ConversationMachine,
    tokenizer: Arc<dyn Tokenizer>,
    effects: Vec<ConversationEffect>,
    summary: Option<(SummaryPlan, Basis)>,
    /// How many triggers stand between the run's own steps and what it does just now.
    trigger_depth: u32,
}

impl ConversationActor {
    pub(crate) fn new(
        run: Rc<RunShared>,
        conversation: Conversation,
        tokenizer: Arc<dyn Tokenizer>,
        settings: ConversationSettings,
    ) -> Self {
        Self {
            machine: ConversationMachine::new(conversation, settings.token_limit),
            run,
            thread_id: OnceCell::new(),
            tokenizer,
            effects: Vec::new(),
            summary: None,
            trigger_depth: settings.trigger_depth,
            settings,
        }
    }

    /// Becomes another thread's of the same run, in the place of one that nobody asks any more.
    pub(crate) fn become_another(
        &mut self,
        conversation: Conversation,
        counts: Arc<dyn Tokenizer>,
        new: ConversationSettings,
    ) {
        // Every field by name: one that is added later is thought of here.
        let Self {
            run: _,
            settings,
            thread_id,
            machine,
            tokenizer,
            effects,
            summary,
            trigger_depth,
        } = self;
        thread_id.take();
        machine.become_another(conversation, new.token_limit);
        *tokenizer = counts;
        effects.clear();
        *summary = None;
        *trigger_depth = new.trigger_depth;
        *settings = new;
    }

    /// The conversation as it is. A clone of it is a snapshot, in O(1).
    pub(crate) fn conversation(&self) -> &Conversation {
        self.machine.conversation()
    }

    /// A snapshot for many to start from.
    pub(crate) fn snapshot(&mut self) -> Conversation {
        self.machine.snapshot()
    }

    /// Does what it is asked.
    pub(crate) fn serve(&mut self, request: Request) -> Outcome {
        match request {
            Request::Do {
                op,
                pinned,
                tool_tokens,
            } => self.answer_op(op, pinned.as_deref(), tool_tokens),
            Request::Merge(merge) => {
                self.trigger_depth = self.settings.trigger_depth.max(merge.trigger_depth);
                let outcome = self.merge_with_globals(*merge);
                self.trigger_depth = self.settings.trigger_depth;
                outcome
            }
            Request::Restore { conversation, then } => match self.step(ConversationInput::Restore(*conversation)) {
                Ok(_) => then,
                Err(error) => Outcome::Failed(not_restored().caused_by(error)),
            },
        }
    }

    /// A compression of it has ended, well or not.
    pub(crate) fn compression_ended(&mut self) {
        // Never refused: it only re-arms the limit.
        let _: Result<Vec<TokenSignal>, RunError> = self.step(ConversationInput::CompressionEnded);
    }

    fn count(&self, messages: Vec<Message>) -> Vec<Counted> {
        // In a list of its own: in the place of the messages, whose room is larger, it would have to be moved at once.
        let mut counted = Vec::with_capacity(messages.len());
        counted.extend(
            messages
                .into_iter()
                .map(|message| Counted::new(message, &*self.tokenizer)),
        );
        counted
    }

    fn emit(&self, event: RaisedEvent) {
        self.run.emit(
            &self.settings.workflow_id,
            self.thread_id(),
            event.at_depth(self.trigger_depth),
        );
    }

    fn thread_id(&self) -> &Arc<str> {
        let written = || ThreadId::written(&self.run.run_id, self.settings.owner as usize);
        self.thread_id.get_or_init(written)
    }

    /// Steps the machine and tells what came of it; the error where it refused.
    fn step(&mut self, input: ConversationInput) -> Result<Vec<TokenSignal>, RunError> {
        let mut effects = std::mem::take(&mut self.effects);
        // Time plays no part in it, and costs a call of the system's clock.
        self.machine.step(0, input, &mut effects);
        let mut signals = Vec::new();
        let mut refused = None;
        for effect in effects.drain(..) {
            match effect {
                ConversationEffect::MessageAdded { index, message } => {
                    if self.run.listens(EventType::MessageAdded) {
                        let tokens = message.tokens;
                        // A message is made JSON where somebody reads the event.
                        let message = message.message.shown_later();
                        self.emit(RaisedEvent::of(
                            EventType::MessageAdded,
                            [
                                ("index", Field::from(json!(index))),
                                ("message", (&message).into()),
                                ("tokens", json!(tokens).into()),
                            ],
                        ));
                    }
                }
                ConversationEffect::Reshaped { .. } => {}
                ConversationEffect::Signal(signal) => signals.push(signal),
                ConversationEffect::Rejected(error) => refused = Some(error),
            }
        }
        self.effects = effects;
        match refused {
            Some(error) => Err(RunError::new(RunErrorCode::NodeFailed, error.to_string())
                .with_details(json!({ "code": error.code() }))),
            None => Ok(signals),
        }
    }

    fn done(&mut self, input: ConversationInput) -> Outcome {
        match self.step(input) {
            Ok(_) => Outcome::Done,
            Err(error) => Outcome::Failed(error),
        }
    }

    fn answer_op(&mut self, op: ConversationOp, pinned: Option<&Pinned>, tool_tokens: u64) -> Outcome {
        match op {
            ConversationOp::Append(messages) => {
                let messages = self.count(messages);
                self.done(ConversationInput::Append(messages))
            }
            ConversationOp::Apply(change) => {
                let change = match change {
                    ContextChange::Insert { messages, position } => ResolvedContext::Insert {
                        messages: self.count(messages),
                        position,
                    },
                    ContextChange::Replace { target, messages } => ResolvedContext::Replace {
                        target,
                        messages: self.count(messages),
                    },
                    ContextChange::Truncate(truncate) => ResolvedContext::Truncate(truncate),
                    ContextChange::Clear { keep_system } => ResolvedContext::Clear { keep_system },
                    ContextChange::Filter(filter) => ResolvedContext::Filter(filter),
                };
                self.done(ConversationInput::Apply(change))
            }
            ConversationOp::Prepare {
                agent, system, recheck, ..
            } => self.prepare(agent, system.as_deref(), pinned, tool_tokens, recheck),
            ConversationOp::Compress(config) => self.compress(config),
            ConversationOp::FinishSummary(text) => self.finish_summary(&text),
            ConversationOp::Merge(_) => {
                Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "there is nothing to merge"))
            }
        }
    }

    fn prepare(
        &mut self,
        agent: AgentKind,
        system: Option<&str>,
        pinned: Option<&Pinned>,
        tool_tokens: u64,
        recheck: bool,
    ) -> Outcome {
        let strategy = self
            .settings
            .from_end
            .map_or_else(PinStrategy::default, PinStrategy::FromEnd);
        let parts = RequestParts {
            agent,
            pinned,
            strategy,
            system,
            pending: None,
            tool_tokens,
        };
        let request = build_request(self.machine.conversation(), &parts, &*self.tokenizer);
        let mut events = Vec::new();
        if self.run.listens(EventType::RequestPrepared) {
            events.push(RaisedEvent::new(
                EventType::RequestPrepared,
                [
                    ("tokensUsed", json!(request.tokens)),
                    ("tokenLimit", json!(self.settings.token_limit)),
                    ("messages", json!(request.messages.len())),
                    ("pinnedAt", json!(request.inserted_at)),
                ],
            ));
        }
        if !request.mended.is_empty() {
            events.push(RaisedEvent::new(
                EventType::RequestMended,
                [("mended", json!(request.mended))],
            ));
        }
        let signals = match self.step(ConversationInput::BeforeModelCall { tokens: request.tokens }) {
            Ok(signals) => signals,
            Err(error) => return Outcome::Failed(error),
        };
        for signal in signals {
            let (event_type, used, limit) = match signal {
                TokenSignal::Exceeded {
                    tokens_used,
                    token_limit,
                } => (EventType::TokenLimitExceeded, tokens_used, token_limit),
                TokenSignal::Warning {
                    tokens_used,
                    token_limit,
                } => (EventType::TokenUsageWarning, tokens_used, token_limit),
            };
            if recheck && event_type == EventType::TokenLimitExceeded {
                continue;
            }
            events.push(RaisedEvent::new(
                event_type,
                [("tokensUsed", json!(used)), ("tokenLimit", json!(limit))],
            ));
        }
        Outcome::Prepared(Prepared {
            request: Arc::new(request),
            events,
        })
    }

    fn merge_with_globals(&mut self, mut merge: Merge) -> Outcome {
        let Some(globals) = merge.globals.take() else {
            return self.merge(merge);
        };
        if let Err(error) = self.run.check_globals(&globals) {
            if merge.is_compression {
                self.compression_ended();
            }
            return Outcome::Failed(error);
        }
        match self.merge(merge) {
            Outcome::Done => match self.run.take_globals(globals) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error),
            },
            refused => refused,
        }
    }

    fn merge(&mut self, merge: Merge) -> Outcome {
        let before = self.size();
        let (outcome, changed) = match merge.change {
            Change::Nothing => (Outcome::Done, false),
            Change::Append(messages) => {
                let messages = self.count(messages);
                (self.done(ConversationInput::Append(messages)), true)
            }
            Change::Replace { basis, messages } => {
                let outcome = match replacement(self.machine.conversation(), basis, self.count(messages)) {
                    Ok(messages) => self.done(ConversationInput::Replace { basis, messages }),
                    Err(error) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, error.to_string())),
                };
                (outcome, true)
            }
            Change::Compressed { basis, result } => return self.take_result(basis, &result),
        };
        if merge.is_compression {
            // The watch re-arms whatever came of it.
            self.compression_ended();
            if matches!(outcome, Outcome::Done) && self.run.listens(EventType::CompressionCompleted) {
                self.emit(self.compressed(changed, before));
            }
        }
        outcome
    }
}

/// The error of a join whose main path's conversation is not to be had.
pub(crate) fn not_restored() -> RunError {
    RunError::new(
        RunErrorCode::ConversationManagerMergeFailed,
        "the main path's conversation could not be restored",
    )
}

impl Actor for ConversationActor {
    type Context = Context<Self>;
}

impl Handler<ConversationMsg> for ConversationActor {
    type Result = ();

    /// Where that panics, the supervisor is told what had been said, and the panic goes on.
    fn handle(&mut self, message: ConversationMsg, _: &mut Context<Self>) {
        let taken = catch_unwind(AssertUnwindSafe(|| match message {
            ConversationMsg::Serve { request, answer } => answer.give(self.serve(*request)),
            ConversationMsg::Snapshot(answer) => answer.give(self.conversation().clone()),
            ConversationMsg::CompressionEnded => self.compression_ended(),
        }));
        if let Err(payload) = taken {
            let message = panic_message(payload);
            self.run.supervisor.do_send(SupervisorMsg::ConversationLost {
                thread: self.settings.owner,
                message: message.clone(),
                known: contained(|| Box::new(self.conversation().clone())).ok(),
            });
            resume_unwind(Box::new(message));
        }
    }
}
