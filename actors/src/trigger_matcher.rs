//! The trigger matcher of an arbiter: carries the [`TriggerMachine`] and starts the actions of what fires there.
//!
//! Every arbiter has one, with all triggers. A workflow's trigger counts for each run, so one machine sees all that counts;
//! a trigger that counts for the engine claims its firings from a [`Quota`] that the arbiters share.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use pirn_core::definition::{InDoubt, TriggerAction, TriggerDefinition};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{Event, EventType, RaisedEvent};
use pirn_core::graph::{Evaluator, Unevaluated};
use pirn_core::run::{CallTarget, Control, Firing, Message, ToSupervisor, TriggerCall};
use pirn_core::script::ScopeValues;
use pirn_core::thread::{FiringId, Outcome};
use pirn_core::trigger::{Fire, Owner, TriggerKey, TriggerMachine, Watcher};
use pirn_sync::Quota;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::contain::contained;
use crate::firing::fire_alone;
use crate::follow_up::{depth_after, failed_with, failure, raise};
use crate::function_table::FunctionTable;
use crate::host::Host;
use crate::ports::{CallContext, Function, Ports, TextJob, Texts, Want, WorkFunction};
use crate::protocol::bus::{BusMsg, BusSender, Interest, ResumedEvents, TriggerLimit};
use crate::protocol::engine::EngineHandle;
use crate::protocol::mailbox::Receiver;
use crate::protocol::matcher::{Happened, MatcherMsg};
use crate::protocol::supervisor::{Assignment, SupervisorMsg};
use crate::trigger_call::{context_of, failed, notify, work};

pub(crate) struct TriggerMatcherActor {
    ports: Arc<Ports>,
    engine: Arc<dyn EngineHandle>,
    host: Host,
    interest: Rc<Interest>,
    bus: BusSender,
    machine: TriggerMachine,
    /// Of the triggers whose limit counts for the engine.
    quotas: BTreeMap<TriggerKey, Arc<Quota>>,
    evaluator: Option<Box<dyn Evaluator>>,
    next_firing: FiringId,
    functions: FunctionTable,
    /// Firings that hold a thread and that it has not been told of.
    holds: BTreeMap<(Arc<str>, Arc<str>), Vec<FiringId>>,
    /// The watchers of the event before; kept for its room.
    watching: Vec<Watcher>,
}

impl TriggerMatcherActor {
    pub(crate) fn new(
        (ports, engine): (Arc<Ports>, Arc<dyn EngineHandle>),
        host: Host,
        interest: Rc<Interest>,
        bus: BusSender,
        mail: Receiver<MatcherMsg>,
        context: &mut Context<Self>,
    ) -> Self {
        context.add_stream(mail);
        Self {
            ports,
            engine,
            host,
            interest,
            bus,
            machine: TriggerMachine::default(),
            quotas: BTreeMap::new(),
            evaluator: None,
            next_firing: 0,
            functions: FunctionTable::default(),
            holds: BTreeMap::new(),
            watching: Vec::new(),
        }
    }

    fn publish_interest(&self) {
        self.interest
            .set_triggers(self.machine.interest(), self.machine.holding());
    }

    fn add(
        &mut self,
        owner: Owner,
        definition: Arc<TriggerDefinition>,
        quota: Option<Arc<Quota>>,
    ) -> Result<(), String> {
        let key = self
            .machine
            .add(owner, definition)
            .map_err(|exists| exists.to_string())?;
        if let Some(quota) = quota {
            self.quotas.insert(key, quota);
        }
        self.publish_interest();
        Ok(())
    }

    fn happened(&mut self, event: &Arc<Event>) {
        self.meet(event, |matcher, watcher| Some(matcher.consider(watcher, event)));
    }

    /// Has every trigger that watches an event met with it.
    fn meet(&mut self, event: &Arc<Event>, mut with: impl FnMut(&mut Self, Watcher) -> Option<Result<(), RunError>>) {
        let mut watching = std::mem::take(&mut self.watching);
        self.machine.find(event, &mut watching);
        for watcher in watching.drain(..) {
            // A panic is this trigger's failure, not the end of all triggers.
            let considered = contained(|| with(self, watcher));
            let considered = considered.unwrap_or_else(|_| {
                self.evaluator = None;
                Some(Err(failed("the trigger panicked")))
            });
            if let Some(Err(error)) = considered
                && let Some(trigger) = self.machine.definition(watcher)
            {
                self.raise(event, failed_with(&trigger.id, &error));
            }
        }
        self.watching = watching;
    }

    /// A run goes on: what had fired there counts, and what had not been matched is.
    fn resumed(&mut self, resumed: &ResumedEvents) {
        let ResumedEvents {
            run_id,
            events,
            triggers,
            ..
        } = resumed;
        self.next_firing = self.next_firing.max(triggers.last_firing);
        for (thread_id, firings) in &triggers.holds {
            let thread = (Arc::clone(run_id), Arc::clone(thread_id));
            self.holds.entry(thread).or_default().extend(firings);
        }
        let last = triggers.fired.last().map_or(0, |(sequence, _)| *sequence);
        if events.iter().any(|event| tells_of_budget(event)) {
            self.machine.told_of_budget(run_id);
        }
        for event in events {
            if !self.machine.interest().contains(event.raised.event_type) {
                continue;
            }
            let is_matched = event.sequence <= triggers.matched || event.sequence < last;
            self.meet(event, |matcher, watcher| {
                let name = matcher.machine.name_of(watcher)?;
                if triggers.fired.contains(&(event.sequence, name)) {
                    matcher.fire(watcher, event);
                    return None;
                }
                (!is_matched).then(|| matcher.consider(watcher, event))
            });
        }
    }

    /// Has the event's run start what needs nothing of its thread, for its record. A run that is over has none to keep: it is
    /// started all the same. One that is kept is not over before its triggers have acted: where it is not there it goes on in
    /// another process.
    fn start_alone(&self, watcher: Watcher, firing: Firing) {
        let event = Arc::clone(&firing.event);
        let message = if self.ports.is_durable() {
            SupervisorMsg::Tell(Message::Supervisor(ToSupervisor::FireAlone(Box::new(firing))))
        } else {
            fire_alone(firing, &self.engine, self.bus.clone())
        };
        // Where the run is gone the message is dropped, and with it the answer.
        let _: Result<(), String> = self.tell_run(watcher, &event, message);
    }

    /// Tells the event's run what a trigger that fired does.
    fn tell_run(&self, watcher: Watcher, event: &Event, message: SupervisorMsg) -> Result<(), String> {
        let message = if self.ports.is_durable() {
            self.triggered(watcher, event, Some(Box::new(message)))
        } else {
            message
        };
        self.engine.tell_run(&event.run_id, message)
    }

    /// Has the event's run call something, where it is kept. One that is not there goes on in another process, and so do its
    /// triggers.
    fn call_by_run(
        &self,
        watcher: Watcher,
        trigger: &TriggerDefinition,
        event: &Arc<Event>,
        (target, holds_outcome): (CallTarget, bool),
    ) {
        let call = TriggerCall {
            trigger_id: trigger.id.as_str().into(),
            event: Arc::clone(event),
            target,
            in_doubt: trigger.in_doubt.clone().unwrap_or(InDoubt::Keyed),
            holds_outcome,
        };
        let message = Message::Supervisor(ToSupervisor::CallTrigger(Arc::new(call)));
        let _: Result<(), String> = self.tell_run(watcher, event, SupervisorMsg::Tell(message));
    }

    /// A trigger fired that does nothing in the event's run: it has a record of it all the same.
    fn note_fired(&self, watcher: Watcher, event: &Event) {
        if self.ports.is_durable() {
            // A run that has ended keeps nothing more.
            let _: Result<(), String> = self
                .engine
                .tell_run(&event.run_id, self.triggered(watcher, event, None));
        }
    }

    fn triggered(&self, watcher: Watcher, event: &Event, then: Option<Box<SupervisorMsg>>) -> SupervisorMsg {
        SupervisorMsg::Triggered {
            sequence: event.sequence,
            trigger: self.machine.name_of(watcher).unwrap_or_default(),
            then,
        }
    }

    fn consider(&mut self, watcher: Watcher, event: &Arc<Event>) -> Result<(), RunError> {
        if !watcher.is_answered && !self.holds_true(watcher, event)? {
            return Ok(());
        }
        let fire = self.fire(watcher, event);
        let from = || called_from(&*self.engine, event);
        if let Fire::Fired { .. } = fire
            && let Some(called) = self.functions.call(&self.machine, watcher, event, &from)
        {
            return called.map_err(failed);
        }
        let Some(trigger) = self.machine.definition(watcher).cloned() else {
            return Ok(());
        };
        match fire {
            Fire::Fired { .. } => self.action(watcher, &trigger, event),
            Fire::Refused => Ok(()),
            Fire::TooDeep => Err(failed(too_deep(&trigger, event))),
            Fire::Exhausted { most } => Err(RunError::new(
                RunErrorCode::TriggeredEventsExceeded,
                format!(
                    "triggers have fired {most} times for what triggers caused in this run (`config.maxTriggeredEvents`): its \
                     chains end here"
                ),
            )),
        }
    }

    fn fire(&mut self, watcher: Watcher, event: &Event) -> Fire {
        let Some(quota) = self.quotas.get(&watcher.key) else {
            return self.machine.fire(watcher.key, event);
        };
        let fire = self.machine.fire_claimed(watcher.key, event, &|| quota.claim());
        if let Fire::Fired { count } = fire
            && count == quota.limit()
            && let Some(trigger) = self.machine.definition(watcher)
        {
            // The other arbiters' need not look at what they will be refused.
            self.engine.disable_used_up(&trigger.id);
        }
        fire
    }

    fn holds_true(&mut self, watcher: Watcher, event: &Event) -> Result<bool, RunError> {
        let Some(trigger) = self.machine.definition(watcher).cloned() else {
            return Ok(false);
        };
        let Some(expression) = &trigger.condition.expression else {
            return Ok(true);
        };
        let scope = event_scope(event);
        let done = self.evaluator().truth_of(expression, &scope);
        let holds = |value: &Arc<Value>| **value == Value::Bool(true);
        self.or_later(done, event, (expression, Want::Truth), scope, holds)
    }

    /// The evaluated result; what the evaluator left for later is waited for, which takes no longer than a text may.
    fn or_later<R>(
        &self,
        done: Result<R, Unevaluated>,
        event: &Event,
        (source, want): (&str, Want),
        scope: ScopeValues,
        read: impl FnOnce(&Arc<Value>) -> R,
    ) -> Result<R, RunError> {
        match done {
            Ok(result) => return Ok(result),
            Err(Unevaluated::Fault(fault)) => return Err(fault.into()),
            Err(Unevaluated::Later) => {}
        }
        let texts = Texts::OfEvent {
            source: source.into(),
            want,
            scope: Box::new(scope),
        };
        let run_id = Arc::clone(&event.run_id);
        match self.ports.scripts.evaluate_here(TextJob { run_id, texts }) {
            Outcome::Value(value) => Ok(read(&value)),
            Outcome::Failed(error) => Err(error),
            _ => Err(RunError::new(RunErrorCode::ScriptError, "the text was not evaluated")),
        }
    }

    fn evaluator(&mut self) -> &mut dyn Evaluator {
        &mut **self.evaluator.get_or_insert_with(|| (self.ports.evaluator)())
    }

    fn action(
        &mut self,
        watcher: Watcher,
        trigger: &Arc<TriggerDefinition>,
        event: &Arc<Event>,
    ) -> Result<(), RunError> {
        match &trigger.action {
            TriggerAction::StartWorkflow { .. } | TriggerAction::ExecuteTriggeredSubgraph(_) => {
                self.next_firing += 1;
                let firing = Firing {
                    id: self.next_firing,
                    trigger: Arc::clone(trigger),
                    event: Arc::clone(event),
                };
                if firing.is_alone() {
                    self.start_alone(watcher, firing);
                    return Ok(());
                }
                if firing.holds() {
                    let thread = (Arc::clone(&event.run_id), Arc::clone(&event.thread_id));
                    self.holds.entry(thread).or_default().push(firing.id);
                }
                self.tell_run(watcher, event, SupervisorMsg::Fire(Box::new(firing)))
                    .map_err(failed)
            }
            TriggerAction::StopThread { thread_id } => {
                let reason = format!("stopped by trigger {}", trigger.id);
                self.control(watcher, trigger, event, (thread_id.as_deref(), Control::Cancel(reason)))
            }
            TriggerAction::PauseThread { thread_id } => {
                self.control(watcher, trigger, event, (thread_id.as_deref(), Control::Pause))
            }
            TriggerAction::ResumeThread { thread_id } => {
                self.control(watcher, trigger, event, (thread_id.as_deref(), Control::Resume))
            }
            TriggerAction::SetVariable {
                variable_name,
                value,
                expression,
                scope,
            } => {
                let value = match expression {
                    Some(expression) => {
                        let scope = event_scope(event);
                        let done = self.evaluator().value_of(expression, &scope);
                        self.or_later(done, event, (expression, Want::Value), scope, Arc::clone)?
                    }
                    None => Arc::new(value.clone()),
                };
                let (bus, id, cause) = (self.bus.clone(), trigger.id.clone(), Arc::clone(event));
                let refused = move |error: &RunError| bus.do_send(raise(&cause, failed_with(&id, error)));
                let assignment = Assignment::new(trigger, event, variable_name, value, refused);
                // Where the run has ended the message is dropped, and with it the answer: it is refused.
                let _: Result<(), String> = self.tell_run(watcher, event, assignment.in_scope(*scope));
                Ok(())
            }
            TriggerAction::SendNotification { message, channel } => {
                let scope = event_scope(event);
                let done = self.evaluator().text_of(message, &scope);
                let text = |value: &Arc<Value>| value.as_str().unwrap_or_default().to_owned();
                let text = self.or_later(done, event, (message, Want::Text), scope, text);
                if self.ports.is_durable() {
                    let message = text.inspect_err(|_| self.note_fired(watcher, event))?;
                    let channel = channel.clone();
                    let target = CallTarget::Notification { message, channel };
                    self.call_by_run(watcher, trigger, event, (target, true));
                    return Ok(());
                }
                let text = text?;
                notify(&self.ports, event, None, &text, channel.as_deref())?;
                let raised = RaisedEvent::new(
                    EventType::Notification,
                    [("message", json!(text)), ("triggerId", json!(trigger.id))],
                );
                self.raise(event, raised);
                Ok(())
            }
            TriggerAction::Custom { function, parameters } => match self.ports.functions.get(function) {
                Some(known) if self.ports.is_durable() => {
                    let target = CallTarget::Function {
                        name: function.clone(),
                        parameters: parameters.clone(),
                    };
                    let is_inline = matches!(known, Function::Inline(_));
                    self.call_by_run(watcher, trigger, event, (target, is_inline));
                    Ok(())
                }
                Some(Function::Inline(own)) => {
                    let tag = self.functions.tag(function, own);
                    self.machine.set_tag(watcher.key, tag);
                    let mut watcher = watcher;
                    watcher.tag = Some(tag);
                    let from = || called_from(&*self.engine, event);
                    let done = self.functions.call(&self.machine, watcher, event, &from);
                    done.unwrap_or(Ok(())).map_err(failed)
                }
                Some(Function::Work(own)) => {
                    self.begin_work(trigger, event, own, parameters);
                    Ok(())
                }
                None => Err(failed(format!("no function is registered under the name {function}"))),
            },
        }
    }

    fn begin_work(
        &self,
        trigger: &Arc<TriggerDefinition>,
        event: &Arc<Event>,
        function: &Arc<WorkFunction>,
        parameters: &Map<String, Value>,
    ) {
        let future = work(function, event, parameters, called_from(&*self.engine, event), None);
        let (bus, trigger, event) = (self.bus.clone(), Arc::clone(trigger), Arc::clone(event));
        let failed = Answer::new(move |result: Result<Result<Value, String>, _>| {
            let message = match result {
                Ok(Ok(_)) => return,
                Ok(Err(message)) => message,
                Err(lost) => lost.to_string(),
            };
            bus.do_send(raise(&event, failure(&trigger.id, &message)));
        });
        self.host
            .work(None, Box::pin(async move { failed.give(future.await) }))
            .detach();
    }

    /// Tells a thread of the event's run: the one named, or the one that raised the event.
    fn control(
        &self,
        watcher: Watcher,
        trigger: &TriggerDefinition,
        event: &Arc<Event>,
        (thread_id, control): (Option<&str>, Control),
    ) -> Result<(), RunError> {
        let thread_id = thread_id.unwrap_or(&event.thread_id).to_owned();
        let message = format!("the run has no thread {thread_id}");
        let (bus, trigger_id, cause) = (self.bus.clone(), trigger.id.clone(), Arc::clone(event));
        self.tell_run(
            watcher,
            event,
            SupervisorMsg::ControlThread {
                thread_id,
                control,
                trigger_depth: depth_after(event),
                unknown: Box::new(move || bus.do_send(raise(&cause, failure(&trigger_id, &message)))),
            },
        )
        .map_err(failed)
    }

    fn raise(&self, event: &Event, raised: RaisedEvent) {
        // The bus knows who listens to the run.
        self.bus.do_send(raise(event, raised));
    }
}

/// The place that the function of a trigger is called from, and what the run's caller said of it.
fn called_from(engine: &dyn EngineHandle, event: &Event) -> CallContext {
    CallContext {
        metadata: engine.metadata_of(&event.run_id).unwrap_or_default(),
        ..context_of(event)
    }
}

/// The scope of a trigger's texts: the event, whole.
fn event_scope(event: &Event) -> ScopeValues {
    ScopeValues {
        event: Some(Arc::new(event.to_json())),
        ..ScopeValues::default()
    }
}

/// True if an event tells a run that its budget is used up.
fn tells_of_budget(event: &Event) -> bool {
    let code = || event.raised.fields.get("error")?.get("code")?.as_str();
    event.raised.event_type == EventType::TriggerFailed
        && code() == Some(RunErrorCode::TriggeredEventsExceeded.as_str())
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

impl Actor for TriggerMatcherActor {
    type Context = Context<Self>;
}

impl StreamHandler<MatcherMsg> for TriggerMatcherActor {
    fn handle(&mut self, message: MatcherMsg, context: &mut Context<Self>) {
        for (run_id, limit) in self.interest.take_trigger_limits() {
            match limit {
                TriggerLimit::AtMost(most) => self.machine.set_budget(&run_id, most),
                TriggerLimit::Ending => self.machine.run_ends(&run_id),
            }
        }
        match message {
            MatcherMsg::Happened(Happened::One(event)) => self.happened(&event),
            MatcherMsg::Happened(Happened::Many(events)) => events.iter().for_each(|event| self.happened(event)),
            MatcherMsg::Resumed(resumed) => self.resumed(&resumed),
            MatcherMsg::Settle {
                run_id,
                thread_id,
                answer,
            } => {
                let held = self.holds.remove(&(run_id, thread_id)).unwrap_or_default();
                answer.give(Outcome::HeldByFiring(held));
            }
            MatcherMsg::Add {
                owner,
                definition,
                quota,
                answer,
            } => answer.give(self.add(owner, definition, quota)),
            MatcherMsg::Remove { owner, id } => {
                if let Some(key) = self.machine.remove(&owner, &id) {
                    self.quotas.remove(&key);
                }
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
            MatcherMsg::Quiesce(round) => self.bus.do_send(BusMsg::Quiesced(round)),
            MatcherMsg::Forget { run_id } => {
                self.machine.run_ended(&run_id);
                let from = (run_id, Arc::from(""));
                let held = self.holds.range(from.clone()..).map(|(held, _)| held);
                let held: Vec<_> = held.take_while(|(run, _)| *run == from.0).cloned().collect();
                for thread in held {
                    self.holds.remove(&thread);
                }
            }
            MatcherMsg::Stop(done) => {
                self.bus.do_send(BusMsg::MatcherStopped(done));
                context.stop();
            }
        }
    }
}
