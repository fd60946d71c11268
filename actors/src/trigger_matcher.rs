//! The trigger matcher of an arbiter: runs the [`TriggerMachine`] and executes the actions of its firings.
//!
//! Expressions that need JavaScript are evaluated on a script thread. Until the result is there, all further work for that run is
//! queued ([`QueuedWork`]), because the triggers of a run act in the order of its events and of their definition. Other runs continue.
//! The watchers of an event are determined when the event arrives, not when it leaves the queue. A host that explores orders holds
//! an action that affects the run in the same way, until it chooses that the action arrives.
//!
//! Every arbiter has a matcher with all triggers. A workflow's trigger counts its firings per run, and a run is on one arbiter,
//! so no coordination is needed. A trigger that counts for the whole engine claims its firings from a [`Quota`] shared by the
//! arbiters.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use pirn_core::run::{CallTarget, Control, Firing, FollowUp, Matching, Message, ToSupervisor, TriggerCall};
use pirn_core::thread::{Outcome, ThreadId};
use pirn_definition::definition::{InDoubt, TriggerAction, TriggerDefinition};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{Evaluator, Unevaluated};
use pirn_definition::script::ScopeValues;
use pirn_events::event::{Event, RaisedEvent};
use pirn_events::trigger::{FireResult, Owner, TriggerKey, TriggerMachine, WatchingTrigger};
use pirn_sync::Quota;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::backlog::Backlog;
use crate::contain::contained;
use crate::host::{AwaitKind, Host, Label, WorkHandle};
use crate::ports::{CallContext, ExpectedKind, Function, Ports, TextJob, Texts, WorkFunction};
use crate::protocol::bus::{ArbiterSubscriptions, BusMsg, BusSender, ByRun, Quiesce, ResumedEvents, TriggerLimit};
use crate::protocol::engine::{EngineHandle, RunEnded};
use crate::protocol::mailbox::{Receiver, TurnEnd};
use crate::protocol::matcher::{EventBatch, MatcherMsg, MatcherSender, TriggerRefused};
use crate::protocol::supervisor::{Assignment, SupervisorMsg};
use crate::triggers::firing::fire_alone;
use crate::triggers::follow_up::{depth_after, failed_with, failure, raise};
use crate::triggers::function_table::FunctionTable;
use crate::triggers::trigger_call::{context_of, failed, notify, work};

pub(crate) struct TriggerMatcherActor {
    ports: Arc<Ports>,
    engine: Arc<dyn EngineHandle>,
    host: Host,
    interest: Rc<ArbiterSubscriptions>,
    backlog: Rc<Backlog>,
    bus: BusSender,
    machine: TriggerMachine,
    /// Quotas of the triggers with an engine-wide limit.
    quotas: BTreeMap<TriggerKey, Arc<Quota>>,
    evaluator: Option<Box<dyn Evaluator>>,
    functions: FunctionTable,
    /// Buffer for the watchers of an event, reused between events.
    watching: Vec<WatchingTrigger>,
    /// Sends messages to this actor.
    own: MatcherSender,
    turn_end: TurnEnd,
    /// Runs that wait for the evaluation of a trigger's text.
    held: ByRun<QueuedWork>,
    /// Number of the last evaluation on a script thread.
    evaluation: u64,
    /// Stop request; completed once no run waits.
    stopping: Option<Answer<()>>,
}

/// The queue of a run that waits for an evaluation.
#[derive(Default)]
struct QueuedWork {
    evaluation: u64,
    /// Use of the result. `None` once the result has arrived.
    then: Option<(WatchingTrigger, Arc<Event>, ResultUse)>,
    /// Dropping it stops the evaluation.
    work: Option<WorkHandle>,
    rest: VecDeque<QueuedItem>,
}

/// Work that is queued behind an evaluation.
enum QueuedItem {
    /// A trigger is matched with an event.
    Meets(WatchingTrigger, Arc<Event>, MatchMode),
    Settle(Answer<Outcome>),
    Quiesce(Quiesce),
}

/// Treatment of a trigger that watches an event.
#[derive(Clone, Copy)]
enum MatchMode {
    /// The trigger fires if its condition is true.
    Considered,
    /// The trigger fired in an earlier process of the run.
    HasFired,
}

/// Use of an evaluation's result.
enum ResultUse {
    Condition,
    /// Nothing was evaluated: an explorer chose that the action arrives at the run.
    Arrival(Arc<TriggerDefinition>),
    Variable(Arc<TriggerDefinition>),
    Notification(Arc<TriggerDefinition>),
}

/// The reason why a trigger cannot finish with an event at once.
enum Pending {
    Evaluation(ScriptEvaluation),
    /// An explorer chooses when the action arrives at the run.
    Arrival(Arc<TriggerDefinition>),
}

/// A text that must be evaluated on a script thread.
struct ScriptEvaluation {
    then: ResultUse,
    source: Arc<str>,
    want: ExpectedKind,
    scope: ScopeValues,
}

impl Pending {
    fn evaluation(then: ResultUse, (source, want): (&str, ExpectedKind), scope: ScopeValues) -> Self {
        Self::Evaluation(ScriptEvaluation {
            then,
            source: source.into(),
            want,
            scope,
        })
    }
}

/// `None` if the trigger is done with the event; otherwise what must happen first.
type MatchResult = Result<Option<Pending>, RunError>;

/// Maximum queue length of a run. At this length the run's turns are blocked, until the queue is half as long.
const MOST_WAITING: usize = 1_024;

/// Maximum number of queued items that are processed for a run in one turn.
const AT_ONCE: usize = 16;

impl TriggerMatcherActor {
    pub(crate) fn new(
        (ports, engine): (Arc<Ports>, Arc<dyn EngineHandle>),
        host: Host,
        (interest, backlog): (Rc<ArbiterSubscriptions>, Rc<Backlog>),
        bus: BusSender,
        (own, mail): (MatcherSender, Receiver<MatcherMsg>),
        context: &mut Context<Self>,
    ) -> Self {
        let turn_end = mail.turn_end();
        context.add_stream(mail);
        Self {
            ports,
            engine,
            host,
            interest,
            backlog,
            bus,
            machine: TriggerMachine::default(),
            quotas: BTreeMap::new(),
            evaluator: None,
            functions: FunctionTable::default(),
            watching: Vec::new(),
            own,
            turn_end,
            held: ByRun::default(),
            evaluation: 0,
            stopping: None,
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
    ) -> Result<(), TriggerRefused> {
        let key = self.machine.add(owner, definition)?;
        if let Some(quota) = quota {
            self.quotas.insert(key, quota);
        }
        // Before the answer, so that runs raise the events as soon as the caller knows of the trigger.
        self.publish_interest();
        Ok(())
    }

    fn happened(&mut self, event: &Arc<Event>) {
        self.meet(event, |_, _| Some(MatchMode::Considered));
    }

    /// Matches an event with every trigger that watches it. `how` chooses the way, or none to skip the trigger.
    fn meet(&mut self, event: &Arc<Event>, how: impl Fn(&Self, WatchingTrigger) -> Option<MatchMode>) {
        // Taken out, because a match borrows `self`; put back to reuse the allocation.
        let mut watching = std::mem::take(&mut self.watching);
        self.machine.find(event, &mut watching);
        // Once a trigger waits for an evaluation, the remaining ones are queued behind it and act in order.
        let mut left = watching.drain(..);
        // The first test saves a hash of the run id while no run waits.
        if self.held.is_empty() || !self.held.contains_key(&event.run_id) {
            for watcher in left.by_ref() {
                if let Some(meeting) = how(self, watcher)
                    && let Some(later) = self.meets(watcher, event, meeting)
                {
                    self.hold(watcher, event, later);
                    break;
                }
            }
        }
        for watcher in left {
            if let Some(meeting) = how(self, watcher)
                && let Some(held) = self.held.get_mut(&event.run_id)
            {
                held.rest
                    .push_back(QueuedItem::Meets(watcher, Arc::clone(event), meeting));
                // Turns of the run would add events faster than evaluations remove them. `proceed` unblocks the run at half.
                // At least: the messages of other kinds in the queue are not compared with the limit.
                if held.rest.len() >= MOST_WAITING {
                    self.interest.falls_behind(&event.run_id);
                }
            }
        }
        self.watching = watching;
    }

    /// Matches a trigger with an event. Returns what must happen first, if anything.
    fn meets(&mut self, watcher: WatchingTrigger, event: &Arc<Event>, meeting: MatchMode) -> Option<Pending> {
        self.contain(watcher, event, |matcher| match meeting {
            MatchMode::Considered => matcher.consider(watcher, event),
            MatchMode::HasFired => {
                matcher.fire(watcher, event);
                Ok(None)
            }
        })
    }

    /// Runs code for one trigger. A panic fails only this trigger, with TRIGGER_FAILED.
    fn contain(
        &mut self,
        watcher: WatchingTrigger,
        event: &Arc<Event>,
        what: impl FnOnce(&mut Self) -> MatchResult,
    ) -> Option<Pending> {
        let considered = contained(|| what(self)).unwrap_or_else(|_| {
            // Its state is unknown after a panic. The next text creates a new evaluator.
            self.evaluator = None;
            Err(failed("the trigger panicked"))
        });
        considered.unwrap_or_else(|error| {
            if let Some(trigger) = self.machine.definition(watcher) {
                self.raise(event, failed_with(&trigger.id, &error));
            }
            None
        })
    }

    /// Starts an evaluation on a script thread, or lets an explorer choose the arrival of an action, and queues all further work for
    /// the run. The time limit of scripts bounds the wait for an evaluation.
    fn hold(&mut self, watcher: WatchingTrigger, event: &Arc<Event>, later: Pending) {
        // Numbered, so that the result of an abandoned evaluation is ignored.
        self.evaluation += 1;
        let (evaluation, run_id) = (self.evaluation, Arc::clone(&event.run_id));
        let (own, of_run) = (self.own.clone(), Arc::clone(&run_id));
        // A lost answer is a failed evaluation: otherwise the run's queue would wait for ever.
        let answer = Answer::new(move |outcome: Result<Outcome, _>| {
            let lost = |_| {
                Outcome::Failed(RunError::new(
                    RunErrorCode::ScriptError,
                    "the expression was not evaluated",
                ))
            };
            own.do_send(MatcherMsg::Evaluated {
                run_id: of_run,
                evaluation,
                outcome: outcome.unwrap_or_else(lost),
            });
        });
        // Before the work starts: an explorer gives the result of an evaluation at once.
        let held = self.held.entry(Arc::clone(&run_id)).or_default();
        held.evaluation = evaluation;
        let work = match later {
            Pending::Evaluation(ScriptEvaluation {
                then,
                source,
                want,
                scope,
            }) => {
                held.then = Some((watcher, Arc::clone(event), then));
                let scope = Box::new(scope);
                let job = TextJob {
                    run_id,
                    texts: Texts::OfEvent { source, want, scope },
                };
                // The work has no label, because an explorer must not place other steps before the result of an evaluation.
                self.host.on_other_thread(
                    None,
                    |tell| self.ports.scripts.evaluate(job, tell),
                    move |outcome| answer.give(outcome),
                )
            }
            Pending::Arrival(trigger) => {
                let label = Label {
                    run: &run_id,
                    thread: ThreadId::number(&run_id, &event.thread_id).unwrap_or_default(),
                    node: &trigger.id,
                    awaits: AwaitKind::Trigger,
                };
                let arrive = async move { answer.give(Outcome::Value(Arc::new(Value::Null))) };
                let work = self.host.work(Some(label), Box::pin(arrive));
                held.then = Some((watcher, Arc::clone(event), ResultUse::Arrival(trigger)));
                work
            }
        };
        held.work = Some(work);
    }

    /// Continues a trigger with the result of its evaluation, then the queued work.
    fn evaluated(&mut self, run_id: &Arc<str>, evaluation: u64, outcome: Outcome) {
        let held = self.held.get_mut(run_id).filter(|held| held.evaluation == evaluation);
        let Some((watcher, event, then)) = held.and_then(|held| held.then.take()) else {
            return;
        };
        let value = match outcome {
            Outcome::Value(value) => Ok(value),
            Outcome::Failed(error) => Err(error),
            _ => Err(RunError::new(
                RunErrorCode::ScriptError,
                "the expression was not evaluated",
            )),
        };
        let later = self.contain(watcher, &event, |matcher| match then {
            ResultUse::Condition => match *value? {
                Value::Bool(true) => matcher.holds(watcher, &event),
                _ => Ok(None),
            },
            ResultUse::Arrival(trigger) => value.and_then(|_| matcher.action(watcher, &trigger, &event)),
            ResultUse::Variable(trigger) => {
                matcher.assign(watcher, &trigger, &event, value?);
                Ok(None)
            }
            ResultUse::Notification(trigger) => {
                let text = value.map(|text| text.as_str().unwrap_or_default().to_owned());
                matcher.notify(watcher, &trigger, &event, text).map(|()| None)
            }
        });
        match later {
            Some(later) => self.hold(watcher, &event, later),
            None => self.proceed(run_id),
        }
    }

    /// Processes the queued work of a run up to the next evaluation.
    fn proceed(&mut self, run_id: &Arc<str>) {
        for _ in 0..AT_ONCE {
            let Some(held) = self.held.get_mut(run_id).filter(|held| held.then.is_none()) else {
                return;
            };
            // The run is unblocked at half the limit, so that it is not blocked and unblocked for each event.
            if held.rest.len() == MOST_WAITING / 2 {
                for run in self.interest.caught_up(run_id) {
                    self.backlog.turn_later(run, &self.host);
                }
            }
            match held.rest.pop_front() {
                None => {
                    // Without an entry, later events of the run are matched at once.
                    self.held.remove(run_id);
                    return;
                }
                Some(QueuedItem::Meets(watcher, event, meeting)) => {
                    if let Some(later) = self.meets(watcher, &event, meeting) {
                        return self.hold(watcher, &event, later);
                    }
                }
                Some(QueuedItem::Settle(answer)) => settle(answer),
                Some(QueuedItem::Quiesce(round)) => self.bus.do_send(BusMsg::Quiesced(round)),
            }
        }
        // Yields, and continues with the next message.
        let run_id = Arc::clone(run_id);
        self.own.do_send(MatcherMsg::Proceed { run_id });
    }

    /// Queues work if the run waits for an evaluation. Returns it otherwise.
    fn after_text(&mut self, run_id: &Arc<str>, rest: QueuedItem) -> Option<QueuedItem> {
        if self.held.is_empty() {
            return Some(rest);
        }
        match self.held.get_mut(run_id) {
            Some(held) => {
                held.rest.push_back(rest);
                None
            }
            None => Some(rest),
        }
    }

    /// Matches the events of a resumed run: earlier firings are counted, and events without a recorded match are matched now.
    fn resumed(&mut self, resumed: &ResumedEvents) {
        let ResumedEvents {
            run_id,
            events,
            triggers,
            ..
        } = resumed;
        // An earlier process has reported the exhausted budget, which is reported once for each run.
        if events.iter().any(|event| reports_budget(event)) {
            self.machine.mark_budget_reported(run_id);
        }
        for event in events {
            if !self.machine.interest().contains(event.raised.event_type) {
                continue;
            }
            self.meet(event, |matcher, watcher| {
                let name = matcher.machine.name_of(watcher)?;
                match triggers.about(event.sequence, &name) {
                    Matching::Fired => Some(MatchMode::HasFired),
                    Matching::Over => None,
                    Matching::Open => Some(MatchMode::Considered),
                }
            });
        }
    }

    /// Starts the action of a firing that does not involve the thread. The event's run records it if it can.
    ///
    /// An ended run that is not durable cannot record it, and the action starts anyway. A durable run does not end before its
    /// triggers have acted, so a missing one continues in another process, which repeats the match.
    fn start_alone(&self, watcher: WatchingTrigger, firing: Firing) {
        let event = Arc::clone(&firing.event);
        let message = if self.ports.is_durable() {
            SupervisorMsg::Tell(Message::Supervisor(ToSupervisor::FireAlone(Box::new(firing))))
        } else {
            fire_alone(firing, &self.engine, self.bus.clone())
        };
        // If the run is gone, the message is dropped and the answer with it.
        let _: Result<(), RunEnded> = self.tell_run(watcher, &event, message);
    }

    /// Sends a firing's action to the event's run. A run that was resumed since matches its events itself, and receives none.
    fn tell_run(&self, watcher: WatchingTrigger, event: &Event, message: SupervisorMsg) -> Result<(), RunEnded> {
        let Some(run) = self.interest.run(&event.run_id) else {
            let run_id = event.run_id.to_string();
            return Err(RunEnded { run_id });
        };
        // A durable run records the firing together with its action.
        let message = if self.ports.is_durable() {
            self.triggered(watcher, event, Some(Box::new(message)))
        } else {
            message
        };
        run.do_send(message);
        Ok(())
    }

    /// Makes the event's durable run execute a call. A missing run continues in another process, together with its triggers.
    fn call_by_run(
        &self,
        watcher: WatchingTrigger,
        trigger: &TriggerDefinition,
        event: &Arc<Event>,
        (target, holds_outcome): (CallTarget, bool),
    ) {
        let call = TriggerCall {
            trigger_id: trigger.id.as_str().into(),
            event: Arc::clone(event),
            target,
            // By default repeated with its idempotency key, by which the receiver can detect the repetition.
            in_doubt: trigger.in_doubt.clone().unwrap_or(InDoubt::Keyed),
            holds_outcome,
        };
        let message = Message::Supervisor(ToSupervisor::CallTrigger(Arc::new(call)));
        let _: Result<(), RunEnded> = self.tell_run(watcher, event, SupervisorMsg::Tell(message));
    }

    /// Records a firing whose action does not involve the event's run.
    fn note_fired(&self, watcher: WatchingTrigger, event: &Event) {
        if self.ports.is_durable()
            && let Some(run) = self.interest.run(&event.run_id)
        {
            run.do_send(self.triggered(watcher, event, None));
        }
    }

    fn triggered(&self, watcher: WatchingTrigger, event: &Event, then: Option<Box<SupervisorMsg>>) -> SupervisorMsg {
        SupervisorMsg::Triggered {
            sequence: event.sequence,
            trigger: self.machine.name_of(watcher).unwrap_or_default(),
            then,
        }
    }

    /// Evaluates the condition of a trigger, and fires it if true.
    fn consider(&mut self, watcher: WatchingTrigger, event: &Arc<Event>) -> MatchResult {
        if watcher.is_answered {
            return self.holds(watcher, event);
        }
        // The trigger may have been removed while the event was queued.
        let Some(trigger) = self.machine.definition(watcher).cloned() else {
            return Ok(None);
        };
        let Some(expression) = &trigger.condition.expression else {
            return self.holds(watcher, event);
        };
        let scope = event_scope(event);
        match self.evaluator().truth_of(expression, &scope) {
            Ok(true) => self.holds(watcher, event),
            Ok(false) => Ok(None),
            Err(Unevaluated::Fault(fault)) => Err(fault.into()),
            Err(Unevaluated::Later) => Ok(Some(Pending::evaluation(
                ResultUse::Condition,
                (expression, ExpectedKind::Truth),
                scope,
            ))),
        }
    }

    /// Fires a trigger with a true condition, unless its limit is reached.
    fn holds(&mut self, watcher: WatchingTrigger, event: &Arc<Event>) -> MatchResult {
        let fire = self.fire(watcher, event);
        let from = || called_from(&*self.engine, event);
        // A function that the trigger has called before is found by its tag, without a lookup by name.
        if let FireResult::Fired { .. } = fire
            && let Some(called) = self.functions.call(&self.machine, watcher, event, &from)
        {
            return called.map(|()| None).map_err(failed);
        }
        let Some(trigger) = self.machine.definition(watcher).cloned() else {
            return Ok(None);
        };
        match fire {
            // Other hosts deliver the action in FIFO order, and results of the run's work arrive before or after it by chance.
            FireResult::Fired { .. } if self.host.explores() && affects_run(&trigger.action) => {
                Ok(Some(Pending::Arrival(trigger)))
            }
            FireResult::Fired { .. } => self.action(watcher, &trigger, event),
            FireResult::Refused => Ok(None),
            FireResult::TooDeep => Err(failed(too_deep(&trigger, event))),
            FireResult::Exhausted { most } => Err(RunError::new(
                RunErrorCode::TriggeredEventsExceeded,
                format!(
                    "triggers have fired {most} times for events caused by triggers in this run (`config.maxTriggeredEvents`): its \
                     chains end here"
                ),
            )),
        }
    }

    fn fire(&mut self, watcher: WatchingTrigger, event: &Event) -> FireResult {
        let Some(quota) = self.quotas.get(&watcher.key) else {
            return self.machine.fire(watcher.key, event);
        };
        let fire = self.machine.fire_claimed(watcher.key, event, &|| quota.claim());
        if let FireResult::Fired { count } = fire
            && count == quota.limit()
            && let Some(trigger) = self.machine.definition(watcher)
        {
            // Saves the matchers of other arbiters from evaluating conditions of a trigger that cannot fire.
            self.engine.disable_used_up(&trigger.id);
        }
        fire
    }

    fn evaluator(&mut self) -> &mut dyn Evaluator {
        // Created on first use, and again after a panic (`contain`).
        &mut **self.evaluator.get_or_insert_with(|| (self.ports.evaluator)())
    }

    fn action(
        &mut self,
        watcher: WatchingTrigger,
        trigger: &Arc<TriggerDefinition>,
        event: &Arc<Event>,
    ) -> MatchResult {
        match &trigger.action {
            TriggerAction::StartWorkflow { .. } | TriggerAction::ExecuteTriggeredSubgraph(_) => {
                let firing = Firing {
                    trigger: Arc::clone(trigger),
                    event: Arc::clone(event),
                };
                if firing.is_alone() {
                    self.start_alone(watcher, firing);
                    return Ok(None);
                }
                self.tell_run(watcher, event, SupervisorMsg::Fire(Box::new(firing)))
                    .map(|()| None)
                    .map_err(|ended| failed(ended.to_string()))
            }
            TriggerAction::StopThread { thread_id } => {
                let reason = format!("stopped by trigger {}", trigger.id);
                self.control(watcher, trigger, event, (thread_id.as_deref(), Control::Cancel(reason)))
                    .map(|()| None)
            }
            TriggerAction::PauseThread { thread_id } => self
                .control(watcher, trigger, event, (thread_id.as_deref(), Control::Pause))
                .map(|()| None),
            TriggerAction::ResumeThread { thread_id } => self
                .control(watcher, trigger, event, (thread_id.as_deref(), Control::Resume))
                .map(|()| None),
            TriggerAction::SetVariable { value, expression, .. } => {
                let Some(expression) = expression else {
                    self.assign(watcher, trigger, event, Arc::new(value.clone()));
                    return Ok(None);
                };
                let scope = event_scope(event);
                match self.evaluator().value_of(expression, &scope) {
                    Ok(value) => self.assign(watcher, trigger, event, value),
                    Err(Unevaluated::Fault(fault)) => return Err(fault.into()),
                    Err(Unevaluated::Later) => {
                        let then = ResultUse::Variable(Arc::clone(trigger));
                        return Ok(Some(Pending::evaluation(
                            then,
                            (expression, ExpectedKind::Value),
                            scope,
                        )));
                    }
                }
                Ok(None)
            }
            TriggerAction::SendNotification { message, .. } => {
                let scope = event_scope(event);
                let text = match self.evaluator().text_of(message, &scope) {
                    Ok(text) => Ok(text),
                    Err(Unevaluated::Fault(fault)) => Err(fault.into()),
                    Err(Unevaluated::Later) => {
                        let then = ResultUse::Notification(Arc::clone(trigger));
                        return Ok(Some(Pending::evaluation(then, (message, ExpectedKind::Text), scope)));
                    }
                };
                self.notify(watcher, trigger, event, text).map(|()| None)
            }
            TriggerAction::Custom { function, parameters } => match self.ports.functions.get(function) {
                // A durable run makes the calls of its triggers itself.
                Some(known) if self.ports.is_durable() => {
                    let target = CallTarget::Function {
                        name: function.clone(),
                        parameters: parameters.clone(),
                    };
                    let is_inline = matches!(known, Function::Inline(_));
                    self.call_by_run(watcher, trigger, event, (target, is_inline));
                    Ok(None)
                }
                Some(Function::Inline(own)) => {
                    // From the second firing on, `holds` finds the function by this tag.
                    let tag = self.functions.tag(function, own);
                    self.machine.set_tag(watcher.key, tag);
                    let mut watcher = watcher;
                    watcher.tag = Some(tag);
                    let from = || called_from(&*self.engine, event);
                    let done = self.functions.call(&self.machine, watcher, event, &from);
                    done.unwrap_or(Ok(())).map(|()| None).map_err(failed)
                }
                Some(Function::Work(own)) => {
                    self.begin_work(trigger, event, own, parameters);
                    Ok(None)
                }
                None => Err(failed(format!("no function is registered under the name {function}"))),
            },
        }
    }

    /// Assigns the variable of a SET_VARIABLE action.
    fn assign(&self, watcher: WatchingTrigger, trigger: &TriggerDefinition, event: &Arc<Event>, value: Arc<Value>) {
        let TriggerAction::SetVariable {
            variable_name, scope, ..
        } = &trigger.action
        else {
            return;
        };
        let (bus, id, cause) = (self.bus.clone(), trigger.id.clone(), Arc::clone(event));
        let refused = move |error: &RunError| bus.do_send(raise(&cause, failed_with(&id, error)));
        let assignment = Assignment::new(trigger, event, variable_name, value, (self.ports.is_durable(), refused));
        // If the run has ended, the message is dropped, and the drop of its answer reports the refusal.
        let _: Result<(), RunEnded> = self.tell_run(watcher, event, assignment.in_scope(*scope));
    }

    /// Sends the text of a SEND_NOTIFICATION action. A durable run sends it itself.
    fn notify(
        &self,
        watcher: WatchingTrigger,
        trigger: &TriggerDefinition,
        event: &Arc<Event>,
        text: Result<String, RunError>,
    ) -> Result<(), RunError> {
        let TriggerAction::SendNotification { channel, .. } = &trigger.action else {
            return Ok(());
        };
        if self.ports.is_durable() {
            // Without a call, the firing must be recorded separately.
            let message = text.inspect_err(|_| self.note_fired(watcher, event))?;
            let channel = channel.clone();
            let target = CallTarget::Notification { message, channel };
            self.call_by_run(watcher, trigger, event, (target, true));
            return Ok(());
        }
        let text = text?;
        // Before the event: a hook that panics raises TRIGGER_FAILED only.
        notify(&self.ports, event, None, &text, channel.as_deref())?;
        let raised = RaisedEvent::new(
            EventType::Notification,
            [("message", json!(text)), ("triggerId", json!(trigger.id))],
        );
        self.raise(event, raised);
        Ok(())
    }

    fn begin_work(
        &self,
        trigger: &Arc<TriggerDefinition>,
        event: &Arc<Event>,
        function: &Arc<WorkFunction>,
        parameters: &Map<String, Value>,
    ) {
        // Without an idempotency key, because a run that is not durable is never repeated.
        let future = work(function, event, parameters, called_from(&*self.engine, event), None);
        let (bus, trigger, event) = (self.bus.clone(), Arc::clone(trigger), Arc::clone(event));
        let failed = Answer::new(move |result: Result<Result<Value, String>, _>| {
            let message = match result {
                // The value of a trigger's function is not used.
                Ok(Ok(_)) => return,
                Ok(Err(message)) => message,
                Err(lost) => lost.to_string(),
            };
            bus.do_send(raise(&event, failure(&trigger.id, &message)));
        });
        // Detached, because the function may outlive the run.
        self.host
            .work(None, Box::pin(async move { failed.give(future.await) }))
            .detach();
    }

    /// Sends a control message to the action's thread in the event's run; by default the thread that raised the event.
    fn control(
        &self,
        watcher: WatchingTrigger,
        trigger: &TriggerDefinition,
        event: &Arc<Event>,
        (thread_id, control): (Option<&str>, Control),
    ) -> Result<(), RunError> {
        let thread_id = thread_id.unwrap_or(&event.thread_id).to_owned();
        let message = format!("the run has no thread {thread_id}");
        let unknown = FollowUp {
            thread: ThreadId::number(&event.run_id, &event.thread_id).unwrap_or_default(),
            event: failure(&trigger.id, &message).at_depth(depth_after(event)),
        };
        self.tell_run(
            watcher,
            event,
            SupervisorMsg::ControlThread {
                thread_id,
                control,
                trigger_depth: depth_after(event),
                unknown: Box::new(unknown),
            },
        )
        .map_err(|ended| failed(ended.to_string()))
    }

    fn raise(&self, event: &Event, raised: RaisedEvent) {
        // The bus has the listeners of the run, so it decides whether the event is needed.
        self.bus.do_send(raise(event, raised));
    }
}

/// True if the action changes threads or variables of the event's run.
fn affects_run(action: &TriggerAction) -> bool {
    match action {
        TriggerAction::ExecuteTriggeredSubgraph(_)
        | TriggerAction::StopThread { .. }
        | TriggerAction::PauseThread { .. }
        | TriggerAction::ResumeThread { .. }
        | TriggerAction::SetVariable { .. } => true,
        TriggerAction::StartWorkflow { .. } | TriggerAction::SendNotification { .. } | TriggerAction::Custom { .. } => {
            false
        }
    }
}

/// Answers with no firings: the run received its firings before this answer, because messages are delivered in FIFO order.
fn settle(answer: Answer<Outcome>) {
    answer.give(Outcome::HeldByFiring(Vec::new()));
}

/// Origin of a trigger's function call, with the metadata of the run's caller.
fn called_from(engine: &dyn EngineHandle, event: &Event) -> CallContext {
    CallContext {
        metadata: engine.metadata_of(&event.run_id).unwrap_or_default(),
        ..context_of(event)
    }
}

/// The scope of a trigger's texts, with the whole event.
fn event_scope(event: &Event) -> ScopeValues {
    ScopeValues {
        event: Some(Arc::new(event.to_json())),
        ..ScopeValues::default()
    }
}

/// True if the event reports that a run's budget for triggered events is exhausted.
fn reports_budget(event: &Event) -> bool {
    let code = || event.raised.fields.get("error")?.get("code")?.as_str();
    event.raised.event_type == EventType::TriggerFailed
        && code() == Some(RunErrorCode::TriggeredEventsExceeded.as_str())
}

/// Returns the error message and logs it: the skipped action is not retried, so an operator must be able to find it.
fn too_deep(trigger: &TriggerDefinition, event: &Event) -> &'static str {
    let message = if matches!(trigger.action, TriggerAction::ResumeThread { .. }) {
        "the chain of triggers is too deep: the paused thread stays paused until a caller resumes it"
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
        // First, because a new run with the id may have set limits and triggers since.
        if let MatcherMsg::Forget { run_id } = &message {
            // Nothing of the run is held here: the bus closes a run after a quiet round.
            if self.machine.run_ended(run_id) {
                self.publish_interest();
            }
        }
        // Limits are taken before the queued messages, so that they take effect regardless of the length of the queue.
        for (run_id, limit) in self.interest.take_trigger_limits() {
            match limit {
                TriggerLimit::AtMost(most) => self.machine.set_budget(&run_id, most),
                TriggerLimit::Ending => self.machine.run_ends(&run_id),
            }
        }
        let own = self.interest.take_own_triggers();
        if !own.is_empty() {
            for (run_id, workflows) in own {
                for (workflow, triggers) in workflows {
                    self.machine.set_own(&run_id, &workflow, triggers);
                }
            }
            self.publish_interest();
        }
        match message {
            MatcherMsg::Happened(EventBatch::One(event)) => self.happened(&event),
            MatcherMsg::Happened(EventBatch::Many(events)) => {
                for event in &events {
                    self.happened(event);
                }
                // Ends the turn after each batch: conditions and functions may be slow, and other actors share the thread.
                self.turn_end.set();
            }
            MatcherMsg::Resumed(resumed) => self.resumed(&resumed),
            MatcherMsg::Settle { run_id, answer } => {
                if let Some(QueuedItem::Settle(answer)) = self.after_text(&run_id, QueuedItem::Settle(answer)) {
                    settle(answer);
                }
            }
            MatcherMsg::Evaluated {
                run_id,
                evaluation,
                outcome,
            } => self.evaluated(&run_id, evaluation, outcome),
            MatcherMsg::Proceed { run_id } => {
                self.proceed(&run_id);
                self.turn_end.set();
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
            MatcherMsg::Quiesce(round) => {
                let run_id = Arc::clone(&round.run_id);
                if let Some(QueuedItem::Quiesce(round)) = self.after_text(&run_id, QueuedItem::Quiesce(round)) {
                    self.bus.do_send(BusMsg::Quiesced(round));
                }
            }
            // Handled above.
            MatcherMsg::Forget { .. } => {}
            MatcherMsg::Stop(done) => self.stopping = Some(done),
        }
        // The stop is delayed while a run waits for an evaluation: its queued work would be lost.
        if self.held.is_empty()
            && let Some(done) = self.stopping.take()
        {
            self.bus.do_send(BusMsg::MatcherStopped(done));
            context.stop();
        }
    }
}
