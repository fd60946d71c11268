//! External messages to a run, and the handle that sends them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use actix::Recipient;
use pirn_core::run::{
    AnswerRefused, Control, Firing, Fits, FollowUp, Message, MessageRefused, RunMachine, RunReport, RunStatus,
    ToSupervisor,
};
use pirn_core::thread::{FiringId, Interaction, PersonsAnswer, When};
use pirn_definition::Millis;
use pirn_definition::definition::{PinSection, TriggerDefinition, VariableScope};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_events::event::{Event, EventMask, RaisedEvent};
use pirn_sync::{Batch, Batches, Completion};
use serde_json::{Map, Value};

use super::events::Deliver;
use crate::acknowledgements::Acknowledge;
use crate::answer::{Answer, Lost};
use crate::contain::contained;

/// Maximum number of events in one message.
const MAX_EVENTS_AT_ONCE: usize = 256;

/// A message to a run.
pub(crate) enum SupervisorMsg {
    /// Starts the run. Sent behind the messages that arrived before the first turn.
    Begin,
    /// A message in the machine's own form: an answer, or the outcome of work that the run started.
    Tell(Message),
    Control(Control),
    /// The engine is closing. A durable run that waits for people or events only ends in this process.
    Closing,
    /// The engine is about to replace the triggers of this workflow.
    KeepTriggers(Arc<str>),
    ControlThread {
        thread_id: String,
        control: Control,
        trigger_depth: u32,
        /// Raised if the run has no such thread. The run raises it while it handles this message: an event that came back by the bus
        /// could miss the end of the run.
        unknown: Box<FollowUp>,
    },
    /// A trigger assigns a variable.
    Assign {
        scope: VariableScope,
        assignment: Box<Assignment>,
    },
    Pin(PinSection, Value),
    /// External events, raised in the name of the main thread.
    Raise(Batch<RaisedEvent>),
    Status(Box<dyn FnOnce(RunStatus) + Send>),
    /// Requests the questions that wait for a person.
    Interactions(Box<dyn FnOnce(Vec<Interaction>) + Send>),
    /// A person answers a question.
    AnswerInteraction(Box<InteractionAnswer>),
    /// A person sends a message to the run's model.
    Say(Box<SaidMessage>),
    /// Calls back once all earlier inputs are durable.
    AwaitKept(Acknowledge),
    /// Subscribes to the run's events from now on.
    Subscribe {
        mask: EventMask,
        deliver: Box<dyn Deliver>,
    },
    Fire(Box<Firing>),
    /// A run that a firing of this run started has left its engine without an outcome, for this reason.
    StartedRunLeft {
        firing: FiringId,
        error: RunError,
    },
    /// A trigger fired on the event with this sequence: a record for a durable run, and the message that executes the action.
    Triggered {
        sequence: u64,
        trigger: Arc<str>,
        then: Option<Box<SupervisorMsg>>,
    },
    /// Like [`Self::Fire`], for a firing whose action does not involve the thread.
    FireAlone {
        firing: Box<Firing>,
        taken: Answer<()>,
    },
    /// The journal is durable up to this step, or the write failed.
    Kept {
        step: u64,
        result: Result<(), RunError>,
    },
    /// The machine of a parked run was rebuilt, or could not be.
    Woken(Result<Box<RunMachine>, RunError>),
    /// The run is over; its actor stops.
    Over,
    /// The supervisor panicked outside of the actor's own handler.
    Lost(String),
}

impl actix::Message for SupervisorMsg {
    type Result = ();
}

impl SupervisorMsg {
    /// Returns the message to the starter of a run that has stopped in its engine.
    pub(crate) fn started_run_ended(firing: FiringId, end: RunEnd<'_>) -> Self {
        match end {
            RunEnd::Ended(report) => Self::Tell(Message::started_run_reported(firing, report)),
            RunEnd::Left(error) => Self::StartedRunLeft {
                firing,
                error: error.clone(),
            },
        }
    }

    /// Answers a message to a run that has ended, or that ends with `error`.
    pub(crate) fn refuse(self, error: Option<&RunError>) {
        match self {
            Self::AnswerInteraction(answer) => {
                (answer.taken)(Err(error.map_or(AnswerRefused::NotOpen, AnswerRefused::not_kept)));
            }
            Self::Say(said) => (said.taken)(Err(error.map_or(MessageRefused::Ended, MessageRefused::not_kept))),
            Self::AwaitKept(kept) => {
                let ended = || RunError::new(RunErrorCode::Cancelled, "the run has ended");
                kept(Err(error.cloned().unwrap_or_else(ended)));
            }
            // The callbacks of the other messages notify their callers when they are dropped.
            _ => {}
        }
    }

    /// Converts to a message of the run's machine. Queries are answered here and return none.
    pub(crate) fn for_machine(self, machine: &RunMachine) -> Option<Message> {
        let message = match self {
            Self::Tell(message) => return Some(message),
            Self::Control(control) => ToSupervisor::Control(control),
            Self::ControlThread {
                thread_id,
                control,
                trigger_depth,
                unknown,
            } => match machine.thread_of(&thread_id) {
                Some(thread) => ToSupervisor::ControlThread {
                    thread,
                    control,
                    trigger_depth,
                },
                None => ToSupervisor::FollowUp(unknown),
            },
            Self::Assign { scope, assignment } => {
                let Assignment {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                    taken,
                    thread_id,
                } = *assignment;
                let Some(thread) = machine.thread_of(&thread_id) else {
                    taken.give(Err(thread_has_ended(&name)));
                    return None;
                };
                // From here on the run itself reports a failure.
                taken.give(Ok(()));
                ToSupervisor::Assign(Box::new(pirn_core::run::Assignment {
                    thread,
                    scope,
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                }))
            }
            Self::Pin(section, value) => ToSupervisor::Pin(section, value),
            Self::Raise(batch) => ToSupervisor::Raise(batch.take()),
            Self::Status(answer) => {
                answer(machine.status());
                return None;
            }
            Self::Fire(firing) => ToSupervisor::Fire(firing),
            Self::FireAlone { firing, taken } => {
                // The drop of an unused `taken` would start the action without the run.
                taken.give(());
                ToSupervisor::FireAlone(firing)
            }
            Self::Interactions(answer) => {
                answer(machine.interactions());
                return None;
            }
            // The mailbox handles these itself: they are no inputs of the machine.
            Self::Begin
            | Self::AnswerInteraction(_)
            | Self::Say(_)
            | Self::AwaitKept(_)
            | Self::Closing
            | Self::KeepTriggers(_)
            | Self::Over
            | Self::Woken(_)
            | Self::Lost(_)
            | Self::StartedRunLeft { .. }
            | Self::Triggered { .. }
            | Self::Kept { .. }
            | Self::Subscribe { .. } => return None,
        };
        Some(Message::Supervisor(message))
    }
}

/// The way in which a run stopped in its engine.
#[derive(Clone, Copy, Debug)]
pub enum RunEnd<'a> {
    /// The run has ended with this outcome.
    Ended(&'a RunReport),
    /// The run has left the engine without an outcome, for this reason. If it is stored, any process can resume it.
    Left(&'a RunError),
}

/// [`SupervisorHandle::began_at`] of a run that has not begun. No time has its highest bit, which is [`HAS_LEFT`].
const NOT_BEGUN: u64 = u64::MAX >> 1;
const HAS_LEFT: u64 = 1 << 63;

/// Address of a run. Messages are delivered in FIFO order. Consecutive events are batched into one message as long as no other
/// message is sent between them.
pub(crate) struct SupervisorHandle {
    address: Recipient<SupervisorMsg>,
    /// Numbers of messages sent and of messages handled. Both wrap around.
    sent: AtomicU32,
    handled: AtomicU32,
    /// Created on the first external event, because most runs receive none.
    raised: OnceLock<Batches<RaisedEvent>>,
    /// Metadata from the caller that started the run.
    metadata: Option<Arc<Map<String, Value>>>,
    /// Time when the run began, in milliseconds since the Unix epoch; [`NOT_BEGUN`] before, and for a resumed run. [`HAS_LEFT`] is
    /// added when the engine removes the run: a field for it would increase each waiting run.
    began_at: AtomicU64,
    /// Resolve with the run's outcome, and once the run and everything that it started have ended.
    pub(crate) ends: (Completion<Arc<RunReport>>, Completion<()>),
}

impl SupervisorHandle {
    pub(crate) fn new(
        address: Recipient<SupervisorMsg>,
        metadata: Option<Arc<Map<String, Value>>>,
        ends: (Completion<Arc<RunReport>>, Completion<()>),
    ) -> Self {
        Self {
            address,
            sent: AtomicU32::new(0),
            handled: AtomicU32::new(0),
            raised: OnceLock::new(),
            metadata,
            began_at: AtomicU64::new(NOT_BEGUN),
            ends,
        }
    }

    /// Records the time when the run began. Called on the run's own thread only.
    pub(crate) fn begin_at(&self, now: Millis) {
        self.began_at.store(now, Ordering::Relaxed);
    }

    /// Time when the run began; `None` before, and for a resumed run.
    pub(crate) fn began_at(&self) -> Option<Millis> {
        Some(self.began_at.load(Ordering::Relaxed) & !HAS_LEFT).filter(|at| *at != NOT_BEGUN)
    }

    /// Marks the run as removed from its engine.
    pub(crate) fn leaves(&self) {
        self.began_at.fetch_or(HAS_LEFT, Ordering::Relaxed);
    }

    /// True if the engine has removed the run, which has ended or left. Exact on the run's own thread, which removes it.
    pub(crate) fn has_left(&self) -> bool {
        self.began_at.load(Ordering::Relaxed) & HAS_LEFT != 0
    }

    /// Metadata from the caller that started the run.
    pub(crate) fn metadata(&self) -> Option<&Arc<Map<String, Value>>> {
        self.metadata.as_ref()
    }

    /// True once a message was sent to the run. A concurrent send may or may not be counted.
    pub(crate) fn is_sent_to(&self) -> bool {
        self.sent.load(Ordering::Relaxed) > 0
    }

    /// Counts a message as handled. Called on the run's own thread only.
    pub(crate) fn count_handled(&self) {
        // A load and a store suffice, because only one thread writes. `Release` pairs with the `Acquire` of `waiting`.
        let handled = self.handled.load(Ordering::Relaxed);
        self.handled.store(handled.wrapping_add(1), Ordering::Release);
    }

    /// Number of messages in the run's mailbox.
    pub(crate) fn waiting(&self) -> u32 {
        // `handled` is read first: every handled message was sent before, so the difference is never negative.
        let handled = self.handled.load(Ordering::Acquire);
        self.sent.load(Ordering::Relaxed).wrapping_sub(handled)
    }

    pub(crate) fn do_send(&self, message: SupervisorMsg) {
        // Counted before the send, so that `handled` never exceeds `sent`.
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.address.do_send(message);
        if let Some(raised) = self.raised.get() {
            // A later event must not join a batch that was sent before this message: it would be delivered too early.
            raised.seal();
        }
    }

    pub(crate) fn raise(&self, event: RaisedEvent) {
        let raised = self.raised.get_or_init(|| Batches::new(MAX_EVENTS_AT_ONCE));
        raised.put(event, |batch| {
            // Counts messages: an event that joins an open batch does not come here.
            self.sent.fetch_add(1, Ordering::Relaxed);
            self.address.do_send(SupervisorMsg::Raise(batch));
        });
    }
}

/// Callback with the result of an answer.
pub(crate) type HearTaken = Box<dyn FnOnce(Result<(), AnswerRefused>) + Send>;

/// A person's answer to a question.
pub(crate) struct InteractionAnswer {
    pub(crate) id: String,
    pub(crate) answer: Arc<Value>,
    pub(crate) by: Option<Arc<str>>,
    pub(crate) taken: HearTaken,
}

impl InteractionAnswer {
    /// Validates the answer against the open question. Returns the machine's message and the callback for when it is durable; a
    /// refusal is reported through the callback.
    pub(crate) fn check(self, machine: &RunMachine, fits: Fits, at: Millis) -> Option<(Message, HearTaken)> {
        let Self { id, answer, by, taken } = self;
        let answer = PersonsAnswer { answer, by, at };
        // A panic of the validator refuses this answer; the run continues.
        let checked = contained(|| machine.accept_answer(&id, answer, fits));
        match checked {
            Ok(Ok(message)) => Some((message, taken)),
            Ok(Err(refused)) => {
                taken(Err(refused));
                None
            }
            Err(_) => {
                let reason = "its schema cannot be checked".to_owned();
                taken(Err(AnswerRefused::Invalid { reason }));
                None
            }
        }
    }
}

/// Callback with the result of a message.
pub(crate) type HearSaid = Box<dyn FnOnce(Result<(), MessageRefused>) + Send>;

/// A person's message to the run's model.
pub(crate) struct SaidMessage {
    pub(crate) id: Option<Arc<str>>,
    pub(crate) text: Arc<str>,
    pub(crate) when: When,
    pub(crate) taken: HearSaid,
}

impl SaidMessage {
    /// Returns the machine's message, unless the run has it already, and the callback for when it is durable. A refusal is reported
    /// through the callback.
    pub(crate) fn check(self, machine: &RunMachine) -> Option<(Option<Message>, HearSaid)> {
        let Self { id, text, when, taken } = self;
        match machine.accept_message(id, text, when) {
            Ok(message) => Some((message, taken)),
            Err(refused) => {
                taken(Err(refused));
                None
            }
        }
    }
}

/// An assignment by a trigger.
pub(crate) struct Assignment {
    /// The thread that raised the event.
    pub(crate) thread_id: Arc<str>,
    pub(crate) trigger_id: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) value: Arc<Value>,
    pub(crate) trigger_depth: u32,
    /// Confirms that the run received the assignment. Dropping it reports that the run is gone.
    pub(crate) taken: Answer<Result<(), RunError>>,
}

impl Assignment {
    /// The assignment of `trigger` on `event`. `refused` is called with the reason if the assignment fails, also if the run is
    /// gone. A durable run that is gone matches the event again once it is resumed, so that nothing has failed.
    pub(crate) fn new(
        trigger: &TriggerDefinition,
        event: &Event,
        name: &str,
        value: Arc<Value>,
        (is_durable, refused): (bool, impl FnOnce(&RunError) + Send + 'static),
    ) -> Self {
        let name: Arc<str> = name.into();
        let lost = Arc::clone(&name);
        Self {
            thread_id: Arc::clone(&event.thread_id),
            trigger_id: trigger.id.as_str().into(),
            name,
            value,
            trigger_depth: event.raised.trigger_depth + 1,
            taken: Answer::new(move |taken: Result<Result<(), RunError>, Lost>| match taken {
                Ok(Ok(())) => {}
                Ok(Err(error)) => refused(&error),
                Err(Lost) if is_durable => {}
                Err(Lost) => refused(&thread_has_ended(&lost)),
            }),
        }
    }

    pub(crate) fn in_scope(self, scope: VariableScope) -> SupervisorMsg {
        let assignment = Box::new(self);
        SupervisorMsg::Assign { scope, assignment }
    }
}

/// The error of an assignment to an ended thread.
fn thread_has_ended(name: &str) -> RunError {
    let message = format!("the thread that was to have variable {name} has ended");
    RunError::new(RunErrorCode::Cancelled, message)
}
