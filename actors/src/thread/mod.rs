//! The thread actor: carries one [`ThreadMachine`] (main, branch, called or triggered).
//!
//! It decides nothing. Effects that are evaluated in place (texts, inline functions, globals) are answered in a loop
//! without a message; everything else ends as a [`ThreadMsg::Answer`].

mod broken;
mod carry;
mod in_flight;
mod model;
mod signs;
mod speech;
mod standing;
mod turn;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, Context, Handler};
use pirn_core::conversation::{Conversation, Spent};
use pirn_core::definition::{PinSection, Pinned};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::RaisedEvent;
use pirn_core::graph::{Graph, NodeIx};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{
    BranchSeed, Effect, EffectId, FiringId, Input, Moment, NodeRecord, Outcome, Output, Outputs, Snapshot, ThreadEnd,
    ThreadMachine, TriggeredResult, Variables,
};
use serde_json::Value;

use crate::conversation::{ConversationActor, Merge};
use crate::ports::ModelSession;
use crate::run::{EffectBuffers, RunShared};
use crate::supervisor::{Assignment, SupervisorMsg, ThreadNo};
use in_flight::{InFlight, UnderWay};
pub(crate) use speech::ConversationRef;
use speech::Speech;
use standing::Alarm;
pub(crate) use standing::{Came, Standing};
pub(crate) use turn::Turn;

/// How a thread ended, for its supervisor.
pub(crate) struct Ended {
    pub(crate) end: ThreadEnd,
    pub(crate) spent: Spent,
    /// None where nobody takes it over, as of most branches.
    pub(crate) left: Option<Box<Left>>,
}

/// What a thread leaves to those it ran for.
pub(crate) struct Left {
    pub(crate) variables: Variables,
    pub(crate) history: Vec<NodeRecord>,
    pub(crate) conversation: ConversationRef,
    pub(crate) node: NodeIx,
    /// What the main thread's nodes left behind. Nobody reads it any more: it is kept so that the outcome need not wait
    /// for its cleaning up, which after a fork of many branches takes a while.
    pub(crate) _outputs: Option<Box<Outputs>>,
}

/// Effects that a thread carries out in one turn. A loop of nodes that wait for nothing leaves the rest for a later turn,
/// so that a cancel, a pause and the other runs of its arbiter come in between.
const IN_ONE_TURN: usize = 4_096;

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
    /// A trigger assigns a variable of this thread.
    Assign(Box<Assignment>),
    /// The last turn left something over.
    GoOn,
    Describe(Box<dyn FnOnce(Option<Described>) + Send>),
    CompressionEnded,
}

impl actix::Message for ThreadMsg {
    type Result = ();
}

/// What few threads have.
#[derive(Default)]
struct Rare {
    merges: BTreeMap<FiringId, Box<Merge>>,
    sessions: BTreeMap<String, ModelSession>,
    /// Effects that the last turn had no time for.
    left_over: VecDeque<Effect>,
}

pub(crate) struct ThreadActor {
    pub(crate) run: Rc<RunShared>,
    pub(crate) no: ThreadNo,
    pub(crate) machine: ThreadMachine,
    speech: Speech,
    /// Where a conversation of this place had its actor.
    spare: Option<Box<ConversationActor>>,
    token_limit: Option<u64>,
    in_flight: UnderWay,
    /// What the supervisor knows of it.
    is_paused: bool,
    rare: Option<Box<Rare>>,
}

impl ThreadActor {
    pub(crate) fn new(
        run: Rc<RunShared>,
        no: ThreadNo,
        machine: ThreadMachine,
        conversation: ConversationRef,
        token_limit: Option<u64>,
    ) -> Self {
        Self {
            run,
            no,
            machine,
            speech: Speech::of(conversation),
            spare: None,
            token_limit,
            in_flight: UnderWay::default(),
            is_paused: false,
            rare: None,
        }
    }

    /// Becomes another thread of its run, a branch, in the place of one that has ended.
    pub(crate) fn become_branch(
        &mut self,
        thread: ThreadNo,
        graph: &Arc<Graph>,
        seed: &BranchSeed<'_>,
        conversation: &Conversation,
        limit: Option<u64>,
    ) {
        // Every field by name: one that is added later is thought of here.
        let Self {
            run: _,
            no,
            machine,
            speech,
            spare,
            token_limit,
            in_flight,
            is_paused,
            rare,
        } = self;
        *no = thread;
        machine.become_branch(graph, seed);
        if let Some(own) = speech.become_snapshot(conversation) {
            *spare = Some(own);
        }
        *token_limit = limit;
        in_flight.clear();
        *is_paused = false;
        *rare = None;
    }

    /// Takes an input and carries out everything that follows in place.
    pub(crate) fn drive(&mut self, input: Input, turn: &mut dyn Turn) {
        let moment = self.run.moment();
        let mut buffers = self.run.local.effects.take().unwrap_or_default();
        self.take_left_over(&mut buffers);
        self.tell_heard(&input);
        self.machine.step(moment, input, &mut buffers.out);
        self.carry_all(moment, buffers, turn);
    }

    /// Goes on with what the last turn left over.
    fn go_on(&mut self, turn: &mut dyn Turn) {
        let mut buffers = self.run.local.effects.take().unwrap_or_default();
        self.take_left_over(&mut buffers);
        self.carry_all(self.run.moment(), buffers, turn);
    }

    fn take_left_over(&mut self, buffers: &mut EffectBuffers) {
        if let Some(rare) = &mut self.rare {
            buffers.queue.extend(rare.left_over.drain(..));
        }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn carry_all(&mut self, moment: Moment, mut buffers: Box<EffectBuffers>, turn: &mut dyn Turn) {
        let EffectBuffers { queue, out } = &mut *buffers;
        for _ in 0..IN_ONE_TURN {
            let Some(effect) = next(queue, out) else {
                break;
            };
            if let Some((effect, outcome)) = self.carry(effect, turn) {
                let answer = Input::Answer { effect, outcome };
                self.tell_heard(&answer);
                self.machine.step(moment, answer, out);
            }
        }
        let is_paused = self.machine.status() == ThreadStatus::Paused;
        if is_paused != self.is_paused {
            self.is_paused = is_paused;
            let thread = self.no;
            self.run.supervisor.do_send(SupervisorMsg::Stands { thread, is_paused });
        }
        if !(queue.is_empty() && out.is_empty()) {
            queue.extend(out.drain(..));
            self.rare().left_over.extend(queue.drain(..));
            let own = turn.address();
            self.run
                .host
                .spawn(Box::pin(async move { own.do_send(ThreadMsg::GoOn) }));
        }
        self.run.local.effects.set(Some(buffers));
    }

    /// Whether it holds nothing but values: no session of a model, nothing under way, nobody else's address.
    fn is_plain(&self) -> bool {
        let speaks_alone = matches!(self.speech, Speech::Silent(_) | Speech::Alone(_));
        speaks_alone && self.rare.is_none() && self.in_flight.is_empty()
    }

    /// Whether nothing follows any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.machine.status().is_final()
    }

    fn emit(&self, event: RaisedEvent) {
        self.run
            .emit(&self.machine.graph().workflow_id, self.machine.thread_id(), event);
    }
}

/// The next effect: what a step asked for comes after what waits already.
fn next(queue: &mut VecDeque<Effect>, out: &mut Vec<Effect>) -> Option<Effect> {
    match out.len() {
        0 => {}
        // Most steps ask for one thing.
        1 if queue.is_empty() => return out.pop(),
        _ => queue.extend(out.drain(..)),
    }
    queue.pop_front()
}

/// What a fork's branches start from.
pub(crate) struct ForkState {
    pub(crate) start: Snapshot,
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
}

impl Handler<ThreadMsg> for ThreadActor {
    type Result = ();

    fn handle(&mut self, message: ThreadMsg, context: &mut Context<Self>) {
        self.take_or_tell(message, context);
    }
}

impl ThreadActor {
    /// Takes a message.
    pub(crate) fn take(&mut self, message: ThreadMsg, turn: &mut dyn Turn) {
        match message {
            ThreadMsg::Input(input) => self.drive(input, turn),
            ThreadMsg::Answer { effect, outcome } => {
                if let (Some(InFlight::Wait(wait)), Outcome::Event(_)) = (self.in_flight.remove(effect), &outcome) {
                    wait.answered();
                }
                self.drive(Input::Answer { effect, outcome }, turn);
            }
            ThreadMsg::Replace {
                effect,
                outcome,
                conversation,
            } => {
                self.in_flight.remove(effect);
                self.replace(effect, outcome, conversation, turn);
            }
            ThreadMsg::Triggered { firing, result, merge } => {
                if let Some(merge) = merge {
                    self.rare().merges.insert(firing, merge);
                }
                self.drive(Input::Triggered { firing, result }, turn);
            }
            ThreadMsg::Assign(assignment) => {
                if self.has_ended() {
                    // Nobody is there to take it: the answer is dropped, which says so.
                    return;
                }
                let Assignment {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                    taken,
                    thread_id: _,
                } = *assignment;
                // From here on the machine answers for it.
                taken.give(Ok(()));
                let input = Input::Assign {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                };
                self.drive(input, turn);
            }
            ThreadMsg::Describe(answer) => {
                if self.machine.status().is_final() {
                    answer(None);
                    return;
                }
                let output = Arc::clone(self.machine.last_output().value());
                let input = Arc::clone(self.machine.input());
                let variables = self.machine.variables().clone();
                let node = self.machine.node();
                self.speech.hand_over().with_snapshot(move |conversation| {
                    // Without its conversation the thread ends: to be told nothing of it is to be told that.
                    answer(conversation.ok().map(|conversation| Described {
                        output,
                        input,
                        variables,
                        node,
                        conversation,
                    }));
                });
            }
            ThreadMsg::GoOn => self.go_on(turn),
            ThreadMsg::CompressionEnded => {
                self.compression_ended();
            }
        }
    }
}

impl Ended {
    /// Lets go of what only a join needs.
    pub(crate) fn release(&mut self) {
        self.end.output = Output::default();
        self.left = None;
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    /// Ten thousand runs wait at a time: what each holds while it does is counted here.
    #[test]
    fn what_a_waiting_thread_holds_stays_small() {
        assert!(size_of::<ThreadActor>() <= 592);
        assert!(size_of::<ThreadMachine>() <= 440);
        assert!(size_of::<Ended>() <= 72);
    }
}
