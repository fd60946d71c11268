//! The messages to a run from outside, and its handle.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use actix::Recipient;
use pirn_core::Millis;
use pirn_core::definition::{PinSection, TriggerDefinition, VariableScope};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{Event, EventMask, RaisedEvent};
use pirn_core::run::{AnswerRefused, Control, Firing, Fits, Message, RunMachine, RunReport, RunStatus, ToSupervisor};
use pirn_core::thread::{Interaction, PersonsAnswer};
use pirn_sync::{Batch, Batches, Completion};
use serde_json::{Map, Value};

use super::events::Deliver;
use crate::acknowledgements::Acknowledge;
use crate::answer::{Answer, Lost};
use crate::contain::contained;

/// The most events that a run takes in one message.
const MAX_EVENTS_AT_ONCE: usize = 256;

/// A message to a run.
pub(crate) enum SupervisorMsg {
    /// All that it was told before its first turn has been put into its queue.
    Begin,
    /// As its machine takes it: an answer, the end of something it started.
    Tell(Message),
    Control(Control),
    /// Its engine closes: it ends in this process when it waits for people or events alone and is kept.
    Closing,
    ControlThread {
        thread_id: String,
        control: Control,
        trigger_depth: u32,
        /// Told where the run has no such thread.
        unknown: Box<dyn FnOnce() + Send>,
    },
    /// A trigger assigns a variable.
    Assign {
        scope: VariableScope,
        assignment: Box<Assignment>,
    },
    Pin(PinSection, Value),
    /// Events from outside, in the main thread's name.
    Raise(Batch<RaisedEvent>),
    Status(Box<dyn FnOnce(RunStatus) + Send>),
    /// Asks for the questions that wait for a person.
    Interactions(Box<dyn FnOnce(Vec<Interaction>) + Send>),
    /// A person answers a question.
    AnswerInteraction(Box<InteractionAnswer>),
    /// Somebody waits until what was told before is kept.
    AwaitKept(Acknowledge),
    /// Somebody wants to hear the run's events from now on.
    Subscribe {
        mask: EventMask,
        deliver: Box<dyn Deliver>,
    },
    Fire(Box<Firing>),
    /// A trigger fired on the event with this sequence, of which the run keeps a record; and what it does.
    Triggered {
        sequence: u64,
        trigger: Arc<str>,
        then: Option<Box<SupervisorMsg>>,
    },
    /// As [`Self::Fire`], for a firing that needs nothing of its thread.
    FireAlone {
        firing: Box<Firing>,
        taken: Answer<()>,
    },
    /// The steps up to this one are kept, or cannot be.
    Kept {
        step: u64,
        result: Result<(), RunError>,
    },
    /// Its machine is there again, or cannot be.
    Woken(Result<Box<RunMachine>, RunError>),
    /// Nothing is left of it.
    Over,
    /// Its supervisor panicked outside of its own turn.
    Lost(String),
}

impl actix::Message for SupervisorMsg {
    type Result = ();
}

impl SupervisorMsg {
    /// It comes to a run that has ended, or ends with this error: who waits for a word is told so.
    pub(crate) fn refuse(self, error: Option<&RunError>) {
        match self {
            Self::AnswerInteraction(answer) => (answer.taken)(Err(match error {
                Some(error) => AnswerRefused::NotKept {
                    reason: error.to_string(),
                },
                None => AnswerRefused::NotOpen,
            })),
            Self::AwaitKept(kept) => {
                let ended = || RunError::new(RunErrorCode::Cancelled, "the run has ended");
                kept(Err(error.cloned().unwrap_or_else(ended)));
            }
            // Dropping it says so.
            _ => {}
        }
    }

    /// As the run's machine takes it; none where there is nothing to take.
    pub(crate) fn for_machine(self, machine: &RunMachine) -> Option<Message> {
        let message = match self {
            Self::Tell(message) => return Some(message),
            Self::Control(control) => ToSupervisor::Control(control),
            Self::ControlThread {
                thread_id,
                control,
                trigger_depth,
                unknown,
            } => {
                let Some(thread) = machine.thread_of(&thread_id) else {
                    unknown();
                    return None;
                };
                ToSupervisor::ControlThread {
                    thread,
                    control,
                    trigger_depth,
                }
            }
            Self::Assign { scope, assignment } => {
                let thread = machine.thread_of(&assignment.thread_id)?;
                let Assignment {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                    taken,
                    thread_id: _,
                } = *assignment;
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
                taken.give(());
                ToSupervisor::FireAlone(firing)
            }
            Self::Interactions(answer) => {
                answer(machine.interactions());
                return None;
            }
            Self::Begin
            | Self::AnswerInteraction(_)
            | Self::AwaitKept(_)
            | Self::Closing
            | Self::Over
            | Self::Woken(_)
            | Self::Lost(_)
            | Self::Triggered { .. }
            | Self::Kept { .. }
            | Self::Subscribe { .. } => return None,
        };
        Some(Message::Supervisor(message))
    }
}

/// A run for whoever is outside of it. The run hears what it is told in the order told. Events that were raised one after
/// another come as one message, where nothing else was told between them.
pub(crate) struct SupervisorHandle {
    address: Recipient<SupervisorMsg>,
    /// Number of messages that it was told, and of those that it has heard; both begin anew at their largest.
    told: AtomicU32,
    heard: AtomicU32,
    /// Most runs never hear an event from outside.
    raised: OnceLock<Batches<RaisedEvent>>,
    /// The metadata that the run's caller gave it.
    metadata: Option<Arc<Map<String, Value>>>,
    /// The run's outcome, and when nothing of it is left.
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
            told: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            raised: OnceLock::new(),
            metadata,
            ends,
        }
    }

    /// The metadata that the run's caller gave it.
    pub(crate) fn metadata(&self) -> Option<&Arc<Map<String, Value>>> {
        self.metadata.as_ref()
    }

    /// True once the supervisor was told anything. What another thread tells it just now may have come before or after.
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) > 0
    }

    /// The run has taken a message from its mailbox. Said on the run's own thread alone.
    pub(crate) fn has_heard(&self) {
        let heard = self.heard.load(Ordering::Relaxed);
        self.heard.store(heard.wrapping_add(1), Ordering::Release);
    }

    /// Number of messages that wait in the run's mailbox.
    pub(crate) fn waiting(&self) -> u32 {
        // Read first: what was heard had been told before.
        let heard = self.heard.load(Ordering::Acquire);
        self.told.load(Ordering::Relaxed).wrapping_sub(heard)
    }

    pub(crate) fn do_send(&self, message: SupervisorMsg) {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.address.do_send(message);
        if let Some(raised) = self.raised.get() {
            raised.seal();
        }
    }

    pub(crate) fn raise(&self, event: RaisedEvent) {
        let raised = self.raised.get_or_init(|| Batches::new(MAX_EVENTS_AT_ONCE));
        raised.put(event, |batch| {
            self.told.fetch_add(1, Ordering::Relaxed);
            self.address.do_send(SupervisorMsg::Raise(batch));
        });
    }
}

/// Hears whether an answer was taken.
pub(crate) type HearTaken = Box<dyn FnOnce(Result<(), AnswerRefused>) + Send>;

/// A person's answer to a question.
pub(crate) struct InteractionAnswer {
    pub(crate) id: String,
    pub(crate) answer: Arc<Value>,
    pub(crate) by: Option<Arc<str>>,
    pub(crate) taken: HearTaken,
}

impl InteractionAnswer {
    /// The answer as the run's machine takes it, and who is told once it is durable. One that is refused is told so here.
    pub(crate) fn check(self, machine: &RunMachine, fits: Fits, at: Millis) -> Option<(Message, HearTaken)> {
        let Self { id, answer, by, taken } = self;
        let answer = PersonsAnswer { answer, by, at };
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

/// An assignment that a trigger makes.
pub(crate) struct Assignment {
    /// The thread that raised the event.
    pub(crate) thread_id: Arc<str>,
    pub(crate) trigger_id: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) value: Arc<Value>,
    pub(crate) trigger_depth: u32,
    /// Tells if the run was there to take it: from then on it answers for it.
    pub(crate) taken: Answer<Result<(), RunError>>,
}

impl Assignment {
    /// The assignment of `trigger` on `event`. `refused` hears why it could not be, even where nobody is left.
    pub(crate) fn new(
        trigger: &TriggerDefinition,
        event: &Event,
        name: &str,
        value: Arc<Value>,
        refused: impl FnOnce(&RunError) + Send + 'static,
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
                Err(Lost) => {
                    let message = format!("the thread that was to have variable {lost} has ended");
                    refused(&RunError::new(RunErrorCode::Cancelled, message));
                }
            }),
        }
    }

    pub(crate) fn in_scope(self, scope: VariableScope) -> SupervisorMsg {
        let assignment = Box::new(self);
        SupervisorMsg::Assign { scope, assignment }
    }
}
