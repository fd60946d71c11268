//! The thread actor: carries one [`ThreadMachine`] (main, branch, called or triggered).
//!
//! It decides nothing. Effects that are evaluated in place (texts, inline functions, globals) are answered in a loop
//! without a message; everything else ends as a [`ThreadMsg::Answer`].

mod carry;
mod model;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler};
use pirn_core::conversation::{Conversation, Spent};
use pirn_core::definition::{PinSection, Pinned};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::RaisedEvent;
use pirn_core::graph::NodeIx;
use pirn_core::thread::{
    EffectId, FiringId, Input, NodeRecord, Outcome, Outputs, ThreadEnd, ThreadMachine, TriggeredResult, Variables,
    nothing,
};
use serde_json::Value;

use crate::conversation::{ConversationActor, ConversationMsg, ConversationSettings, Merge};
use crate::host::{TimerHandle, WorkHandle};
use crate::ports::{ModelSession, ScriptHandle};
use crate::run::{EffectBuffers, RunShared};
use crate::supervisor::ThreadNo;

/// A thread's conversation: a snapshot until the thread first speaks, then an actor.
#[derive(Clone)]
pub(crate) struct ConversationRef {
    pub(crate) seed: Conversation,
    pub(crate) address: Option<Addr<ConversationActor>>,
}

impl ConversationRef {
    pub(crate) fn of(seed: Conversation) -> Self {
        Self { seed, address: None }
    }

    /// Hands the conversation as it is now to `then`, at once or when its actor answers.
    pub(crate) fn with_snapshot(&self, then: impl FnOnce(Conversation) + Send + 'static) {
        match &self.address {
            Some(address) => address.do_send(ConversationMsg::Snapshot(Box::new(then))),
            None => then(self.seed.clone()),
        }
    }
}

/// How a thread ended, for its supervisor.
pub(crate) struct Ended {
    pub(crate) end: ThreadEnd,
    pub(crate) variables: Variables,
    pub(crate) spent: Spent,
    pub(crate) history: Vec<NodeRecord>,
    pub(crate) conversation: ConversationRef,
    pub(crate) node: NodeIx,
}

/// What a triggered sub-workflow gets of its main thread.
pub(crate) struct Described {
    pub(crate) output: Arc<Value>,
    pub(crate) input: Arc<Value>,
    pub(crate) variables: Variables,
    pub(crate) node: NodeIx,
    pub(crate) conversation: Conversation,
}

/// A message to a thread actor.
pub(crate) enum ThreadMsg {
    Input(Input),
    Answer {
        effect: EffectId,
        outcome: Outcome,
    },
    /// A join's or a child's good end, with the conversation that replaces this thread's.
    Replace {
        effect: EffectId,
        outcome: Outcome,
        conversation: Box<Conversation>,
    },
    Triggered {
        firing: FiringId,
        result: TriggeredResult,
        merge: Option<Box<Merge>>,
    },
    Describe(Box<dyn FnOnce(Option<Described>) + Send>),
    CompressionEnded,
    ConversationLost {
        message: String,
    },
}

impl actix::Message for ThreadMsg {
    type Result = ();
}

enum InFlight {
    Timer(#[allow(dead_code)] TimerHandle),
    Work(#[allow(dead_code)] WorkHandle),
    Script(#[allow(dead_code)] ScriptHandle),
    Supervised,
    Wait,
}

pub(crate) struct ThreadActor {
    pub(crate) run: Rc<RunShared>,
    pub(crate) no: ThreadNo,
    pub(crate) machine: ThreadMachine,
    pub(crate) conversation: ConversationRef,
    pub(crate) settings: ConversationSettings,
    in_flight: BTreeMap<EffectId, InFlight>,
    merges: BTreeMap<FiringId, Box<Merge>>,
    sessions: BTreeMap<String, ModelSession>,
}

impl ThreadActor {
    pub(crate) fn new(
        run: Rc<RunShared>,
        no: ThreadNo,
        machine: ThreadMachine,
        conversation: ConversationRef,
        settings: ConversationSettings,
    ) -> Self {
        Self {
            run,
            no,
            machine,
            conversation,
            settings,
            in_flight: BTreeMap::new(),
            merges: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Takes an input and carries out everything that follows in place.
    fn drive(&mut self, input: Input, context: &mut Context<Self>) {
        let moment = self.run.moment();
        let EffectBuffers { mut queue, mut out } = self.run.effects.take();
        self.machine.step(moment, input, &mut out);
        queue.extend(out.drain(..));
        while let Some(effect) = queue.pop_front() {
            if let Some((effect, outcome)) = self.carry(effect, context) {
                self.machine.step(moment, Input::Answer { effect, outcome }, &mut out);
                queue.extend(out.drain(..));
            }
        }
        self.run.effects.set(EffectBuffers { queue, out });
    }

    fn emit(&self, event: RaisedEvent) {
        self.run
            .emit(&self.machine.graph().workflow_id, self.machine.thread_id(), event);
    }
}

/// What a fork's branches start from.
pub(crate) struct ForkState {
    pub(crate) variables: Variables,
    pub(crate) outputs: Outputs,
    pub(crate) input: Arc<Value>,
    pub(crate) conversation: Conversation,
}

/// Sets a section of the pinned context.
pub(crate) fn pin(pinned: &mut Pinned, section: PinSection, value: &Value) -> Result<(), RunError> {
    fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Result<Option<T>, RunError> {
        serde_json::from_value(value.clone()).map_err(|error| {
            RunError::new(
                RunErrorCode::NodeFailed,
                format!("the value does not fit the section: {error}"),
            )
        })
    }
    match section {
        PinSection::Role => pinned.role = read(value)?,
        PinSection::Todo => pinned.todo = read(value)?,
        PinSection::UsefulInfo => pinned.useful_info = read(value)?,
        PinSection::FolderNotes => pinned.folder_notes = read(value)?,
    }
    Ok(())
}

impl Actor for ThreadActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.drive(Input::Start, context);
    }
}

impl Handler<ThreadMsg> for ThreadActor {
    type Result = ();

    fn handle(&mut self, message: ThreadMsg, context: &mut Context<Self>) {
        match message {
            ThreadMsg::Input(input) => self.drive(input, context),
            ThreadMsg::Answer { effect, outcome } => {
                self.in_flight.remove(&effect);
                self.drive(Input::Answer { effect, outcome }, context);
            }
            ThreadMsg::Replace {
                effect,
                outcome,
                conversation,
            } => {
                self.in_flight.remove(&effect);
                self.replace(effect, outcome, conversation, context);
            }
            ThreadMsg::Triggered { firing, result, merge } => {
                if let Some(merge) = merge {
                    self.merges.insert(firing, merge);
                }
                self.drive(Input::Triggered { firing, result }, context);
            }
            ThreadMsg::Describe(answer) => {
                if self.machine.status().is_final() {
                    answer(None);
                    return;
                }
                let output = Arc::clone(self.machine.last_output());
                let input = Arc::clone(self.machine.input());
                let variables = self.machine.variables().clone();
                let node = self.machine.node();
                self.conversation.with_snapshot(move |conversation| {
                    answer(Some(Described {
                        output,
                        input,
                        variables,
                        node,
                        conversation,
                    }));
                });
            }
            ThreadMsg::CompressionEnded => {
                if let Some(address) = &self.conversation.address {
                    address.do_send(ConversationMsg::CompressionEnded);
                }
            }
            ThreadMsg::ConversationLost { message } => {
                // Its unanswered slots have said so already; later requests find the address dead.
                tracing::error!(message, "a conversation actor panicked");
            }
        }
    }
}

impl Ended {
    /// Lets go of what only a join needs.
    pub(crate) fn release(&mut self) {
        self.end.output = nothing();
        self.variables = Variables::default();
        self.history = Vec::new();
        self.conversation = ConversationRef::of(Conversation::new());
    }
}
