//! The trigger matcher actor: carries the [`TriggerMachine`] and starts the actions of what fires (SPEC section 5).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use actix::{Actor, ActorContext, Addr, Context, Handler};
use pirn_core::definition::{TriggerAction, TriggerDefinition};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{Event, EventType, RaisedEvent};
use pirn_core::graph::Evaluator;
use pirn_core::run::Firing;
use pirn_core::script::ScopeValues;
use pirn_core::thread::{FiringId, Outcome};
use pirn_core::trigger::{Fire, Owner, TriggerMachine, TriggerState, Watcher};
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::called::Called;
use crate::cause::{at_depth, work_at_depth};
use crate::contain::contained;
use crate::engine::EngineShared;
use crate::events::{BusMsg, Source};
use crate::firing::start_alone;
use crate::host::Host;
use crate::inbox::{Inbox, MatcherAddr};
use crate::input::firing_value;
use crate::ports::{Function, WorkFunction};
use crate::supervisor::{Assignment, Control, SupervisorMsg};

/// For how many events it is looked up at once who watches them.
const AT_ONCE: usize = 32;

/// A message to the matcher.
pub(crate) enum MatcherMsg {
    /// Events lie in the [`MatcherAddr`]'s inbox.
    Happened,
    /// Answers when all that was added, removed and changed before is.
    InPlace(Answer<()>),
    Settle {
        run_id: Arc<str>,
        thread_id: Arc<str>,
        answer: Answer<Outcome>,
    },
    Add {
        owner: Owner,
        definition: Arc<TriggerDefinition>,
        answer: Answer<Result<(), String>>,
    },
    Remove {
        owner: Owner,
        id: String,
    },
    Enable {
        owner: Owner,
        id: String,
        enabled: bool,
        answer: Answer<Option<bool>>,
    },
    States {
        owner: Owner,
        answer: Answer<Vec<TriggerState>>,
    },
    /// Answered by [`BusMsg::HeardOut`] after all that a run's triggers say.
    HearOut {
        run_id: Arc<str>,
        links: u32,
        answer: Answer<()>,
    },
    /// A run raises no more: answered by [`BusMsg::Close`] after all that its triggers say.
    RunEnded {
        run_id: Arc<str>,
    },
    /// Nothing more comes of a run.
    Forget {
        run_id: Arc<str>,
    },
    /// Says so to the bus, and `done` when that has stopped too.
    Stop(Box<dyn FnOnce() + Send>),
}

impl actix::Message for MatcherMsg {
    type Result = ();
}

pub(crate) struct TriggerMatcherActor {
    engine: Arc<OnceLock<Arc<EngineShared>>>,
    host: Host,
    machine: TriggerMachine,
    evaluator: Option<Box<dyn Evaluator>>,
    next_firing: FiringId,
    called: Called,
    /// Firings that hold a thread and that it has not been told of.
    holds: BTreeMap<(Arc<str>, Arc<str>), Vec<FiringId>>,
    inbox: Inbox,
    /// What was taken out of the inbox last; kept for its room.
    taken: Vec<Arc<Event>>,
    /// The same for who watched some events, and where those of each end.
    watching: Vec<Watcher>,
    ends: Vec<usize>,
}

impl TriggerMatcherActor {
    pub(crate) fn new(engine: Arc<OnceLock<Arc<EngineShared>>>, host: Host) -> Self {
        Self {
            engine,
            host,
            machine: TriggerMachine::default(),
            evaluator: None,
            next_firing: 0,
            called: Called::default(),
            holds: BTreeMap::new(),
            inbox: Inbox::default(),
            taken: Vec::new(),
            watching: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// How the bus reaches it, by the address that it will have.
    pub(crate) fn reached_by(&self, address: Addr<Self>) -> MatcherAddr {
        MatcherAddr::new(address, self.inbox.clone())
    }

    fn publish_interest(&self) {
        if let Some(engine) = self.engine.get() {
            engine
                .interest
                .set_triggers(self.machine.interest(), self.machine.holding());
        }
    }

    fn open_inbox(&mut self) {
        let mut events = self.inbox.take(std::mem::take(&mut self.taken));
        if let Some(engine) = self.engine.get().cloned() {
            for events in events.chunks(AT_ONCE) {
                self.happened(&engine, events);
            }
        }
        self.inbox.done_with(&mut events);
        self.taken = events;
    }

    /// Who watches is looked up for all of them before anything fires: what one event looks at is on its way from memory
    /// while the next one is looked up.
    fn happened(&mut self, engine: &Arc<EngineShared>, events: &[Arc<Event>]) {
        let (mut watching, mut ends) = (std::mem::take(&mut self.watching), std::mem::take(&mut self.ends));
        for event in events {
            self.machine.find(event, &mut watching);
            ends.push(watching.len());
        }
        let mut begin = 0;
        for (event, end) in events.iter().zip(ends.drain(..)) {
            for watcher in &watching[begin..end] {
                // A panic is this trigger's failure, not the end of all triggers.
                let considered = contained(|| self.consider(engine, *watcher, event));
                let failed = considered.unwrap_or_else(|_| {
                    self.evaluator = None;
                    Err("the trigger panicked".to_owned())
                });
                if let Err(message) = failed
                    && let Some(trigger) = self.machine.definition(*watcher)
                {
                    Self::raise(engine, event, failure(&trigger.id, &message));
                }
            }
            begin = end;
        }
        watching.clear();
        (self.watching, self.ends) = (watching, ends);
    }

    fn consider(&mut self, engine: &Arc<EngineShared>, watcher: Watcher, event: &Arc<Event>) -> Result<(), String> {
        if !watcher.is_answered && !self.holds_true(engine, watcher, event)? {
            return Ok(());
        }
        let fire = self.machine.fire(watcher.key, event);
        if let Fire::Fired { .. } = fire
            && let Some(called) = self.called.call(&self.machine, watcher, event)
        {
            return called;
        }
        let Some(trigger) = self.machine.definition(watcher).cloned() else {
            return Ok(());
        };
        match fire {
            Fire::Fired { .. } => self.action(engine, watcher, &trigger, event),
            Fire::Refused => Ok(()),
            Fire::TooDeep => Err(too_deep(&trigger, event).to_owned()),
        }
    }

    fn holds_true(&mut self, engine: &EngineShared, watcher: Watcher, event: &Event) -> Result<bool, String> {
        let Some(trigger) = self.machine.definition(watcher).cloned() else {
            return Ok(false);
        };
        let Some(expression) = &trigger.condition.expression else {
            return Ok(true);
        };
        self.evaluator(engine)
            .truth_of(expression, &event_scope(event))
            .map_err(|fault| RunError::from(fault).to_string())
    }

    fn evaluator(&mut self, engine: &EngineShared) -> &mut dyn Evaluator {
        &mut **self.evaluator.get_or_insert_with(|| (engine.ports.evaluator)())
    }

    fn action(
        &mut self,
        engine: &Arc<EngineShared>,
        watcher: Watcher,
        trigger: &Arc<TriggerDefinition>,
        event: &Arc<Event>,
    ) -> Result<(), String> {
        match &trigger.action {
            TriggerAction::StartWorkflow { .. } | TriggerAction::ExecuteTriggeredSubgraph(_) => {
                self.next_firing += 1;
                let firing = Firing {
                    id: self.next_firing,
                    trigger: Arc::clone(trigger),
                    event: Arc::clone(event),
                };
                if firing.is_alone() {
                    start_alone(firing, engine);
                    return Ok(());
                }
                if trigger.action.holds_the_thread() {
                    let thread = (Arc::clone(&event.run_id), Arc::clone(&event.thread_id));
                    self.holds.entry(thread).or_default().push(firing.id);
                }
                engine.tell_run(&event.run_id, SupervisorMsg::Fire(Box::new(firing)))
            }
            TriggerAction::StopThread { thread_id } => {
                let reason = format!("stopped by trigger {}", trigger.id);
                control(engine, trigger, event, thread_id.as_deref(), Control::Cancel(reason))
            }
            TriggerAction::PauseThread { thread_id } => {
                control(engine, trigger, event, thread_id.as_deref(), Control::Pause)
            }
            TriggerAction::ResumeThread { thread_id } => {
                control(engine, trigger, event, thread_id.as_deref(), Control::Resume)
            }
            TriggerAction::SetVariable {
                variable_name,
                value,
                expression,
                scope,
            } => {
                let value = match expression {
                    Some(expression) => {
                        let event = event_scope(event);
                        self.evaluator(engine)
                            .value_of(expression, &event)
                            .map_err(|fault| fault.to_string())?
                    }
                    None => Arc::new(value.clone()),
                };
                let (bus, id, cause) = (engine.bus.clone(), trigger.id.clone(), Arc::clone(event));
                let refused = move |error: &RunError| bus.do_send(raise(&cause, failed_with(&id, error)));
                let assignment = Assignment::new(trigger, event, variable_name, value, refused);
                // Where the run has ended the message is dropped, and with it the answer: it is refused.
                let _: Result<(), String> = engine.tell_run(&event.run_id, assignment.in_scope(*scope));
                Ok(())
            }
            TriggerAction::SendNotification { message, channel } => {
                let scope = event_scope(event);
                let text = self
                    .evaluator(engine)
                    .text_of(message, &scope)
                    .map_err(|fault| fault.to_string())?;
                let notify = || at_depth(depth_after(event), || (engine.ports.notify)(&text, channel.as_deref()));
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(notify))
                    .map_err(|_| "whoever is told of notifications panicked".to_owned())?;
                let raised = RaisedEvent::new(
                    EventType::Notification,
                    [("message", json!(text)), ("triggerId", json!(trigger.id))],
                );
                Self::raise(engine, event, raised);
                Ok(())
            }
            TriggerAction::Custom { function, parameters } => match engine.ports.functions.get(function) {
                Some(Function::Inline(own)) => {
                    let mark = self.called.mark(function, own);
                    self.machine.set_tag(watcher.key, mark);
                    let mut watcher = watcher;
                    watcher.tag = Some(mark);
                    self.called.call(&self.machine, watcher, event).unwrap_or(Ok(()))
                }
                Some(Function::Work(own)) => {
                    self.begin_work(engine, trigger, event, own, parameters);
                    Ok(())
                }
                None => Err(format!("no function is registered under the name {function}")),
            },
        }
    }

    fn begin_work(
        &mut self,
        engine: &Arc<EngineShared>,
        trigger: &Arc<TriggerDefinition>,
        event: &Arc<Event>,
        function: &Arc<WorkFunction>,
        parameters: &Map<String, Value>,
    ) {
        let input = firing_value(event, parameters);
        let future = work_at_depth(depth_after(event), || function(input));
        let (bus, trigger, event) = (engine.bus.clone(), Arc::clone(trigger), Arc::clone(event));
        let failed = Answer::new(move |result: Result<Result<Value, String>, _>| {
            let message = match result {
                Ok(Ok(_)) => return,
                Ok(Err(message)) => message,
                Err(lost) => lost.to_string(),
            };
            bus.do_send(raise(&event, failure(&trigger.id, &message)));
        });
        self.host
            .work(Box::pin(async move { failed.give(future.await) }))
            .detach();
    }

    pub(crate) fn raise(engine: &Arc<EngineShared>, event: &Event, raised: RaisedEvent) {
        if engine.interest.listening().contains(raised.event_type) {
            engine.bus.do_send(raise(event, raised));
        }
    }
}

/// What a trigger's texts see: the event, whole.
fn event_scope(event: &Event) -> ScopeValues {
    ScopeValues {
        event: Some(Arc::new(event.to_json())),
        ..ScopeValues::default()
    }
}

/// Says so in the log too, and how: what a trigger leaves undone stays so, and whoever can help must learn of it.
fn too_deep(trigger: &TriggerDefinition, event: &Event) -> &'static str {
    let message = if matches!(trigger.action, TriggerAction::ResumeThread { .. }) {
        "the chain of triggers is too deep: a paused thread stays paused until it is resumed from outside"
    } else {
        "the chain of triggers is too deep"
    };
    let (run_id, thread_id) = (&*event.run_id, &*event.thread_id);
    tracing::warn!(run_id, thread_id, event = event.raised.event_type.as_str(), message);
    message
}

pub(crate) fn failure(trigger_id: &str, message: &str) -> RaisedEvent {
    failed_with(trigger_id, &RunError::new(RunErrorCode::NodeFailed, message))
}

fn failed_with(trigger_id: &str, error: &RunError) -> RaisedEvent {
    RaisedEvent::new(
        EventType::TriggerFailed,
        [("triggerId", json!(trigger_id)), ("error", json!(error))],
    )
}

/// An event that follows from another, one link further down the chain.
fn raise(event: &Event, raised: RaisedEvent) -> BusMsg {
    BusMsg::Raise {
        follows: true,
        source: Source {
            run_id: Arc::clone(&event.run_id),
            workflow_id: Arc::clone(&event.workflow_id),
            thread_id: Arc::clone(&event.thread_id),
            timestamp: event.timestamp,
        },
        raised: RaisedEvent {
            trigger_depth: depth_after(event),
            ..raised
        },
    }
}

/// How many triggers stand between the run's own steps and what the event sets off.
pub(crate) fn depth_after(event: &Event) -> u32 {
    event.raised.trigger_depth + 1
}

/// Tells a thread of the event's run: the one named, or the one that raised the event.
fn control(
    engine: &EngineShared,
    trigger: &TriggerDefinition,
    event: &Arc<Event>,
    thread_id: Option<&str>,
    control: Control,
) -> Result<(), String> {
    let thread_id = thread_id.unwrap_or(&event.thread_id).to_owned();
    let message = format!("the run has no thread {thread_id}");
    let (bus, trigger_id, cause) = (engine.bus.clone(), trigger.id.clone(), Arc::clone(event));
    engine.tell_run(
        &event.run_id,
        SupervisorMsg::ControlThread {
            thread_id,
            control,
            trigger_depth: depth_after(event),
            unknown: Box::new(move || bus.do_send(raise(&cause, failure(&trigger_id, &message)))),
        },
    )
}

impl Actor for TriggerMatcherActor {
    type Context = Context<Self>;
}

impl Handler<MatcherMsg> for TriggerMatcherActor {
    type Result = ();

    fn handle(&mut self, message: MatcherMsg, context: &mut Context<Self>) {
        match message {
            MatcherMsg::Happened => self.open_inbox(),
            MatcherMsg::Settle {
                run_id,
                thread_id,
                answer,
            } => {
                answer.give(Outcome::Held(
                    self.holds.remove(&(run_id, thread_id)).unwrap_or_default(),
                ));
            }
            MatcherMsg::Add {
                owner,
                definition,
                answer,
            } => {
                let added = self
                    .machine
                    .add(owner, definition)
                    .map(|_| ())
                    .map_err(|exists| exists.to_string());
                self.publish_interest();
                answer.give(added);
            }
            MatcherMsg::Remove { owner, id } => {
                self.machine.remove(&owner, &id);
                self.publish_interest();
            }
            MatcherMsg::Enable {
                owner,
                id,
                enabled,
                answer,
            } => {
                let changed = self.machine.set_enabled(&owner, &id, enabled);
                self.publish_interest();
                answer.give(changed);
            }
            MatcherMsg::InPlace(answer) => answer.give(()),
            MatcherMsg::States { owner, answer } => answer.give(self.machine.states(&owner)),
            MatcherMsg::Stop(done) => {
                if let Some(engine) = self.engine.get() {
                    engine.bus.do_send(BusMsg::MatcherStopped(done));
                }
                context.stop();
            }
            MatcherMsg::Forget { run_id } => {
                self.machine.run_ended(&run_id);
                self.holds.retain(|(run, _), _| *run != run_id);
            }
            MatcherMsg::HearOut { run_id, links, answer } => {
                if let Some(engine) = self.engine.get() {
                    engine.bus.do_send(BusMsg::HeardOut { run_id, links, answer });
                }
            }
            MatcherMsg::RunEnded { run_id } => {
                // The notifications and failures above are on their way to the bus: this comes after them.
                if let Some(engine) = self.engine.get() {
                    engine.bus.do_send(BusMsg::Close { run_id });
                }
            }
        }
    }
}
