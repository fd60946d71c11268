//! A run with its environment: records inputs and effects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use pirn_conversation::conversation::Conversation;
use pirn_core::run::{
    AnswerRefused, CallNo, Control, Effect, Message, Origin, RunEnvironment, RunMachine, RunReport, RunSeed,
    SummaryRules, ThreadNo, Timer, ToSupervisor, ToThread,
};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{self, ConsentRequest, EffectId, Input, Outcome, PersonsAnswer, ToolResult};
use pirn_definition::definition::Pinned;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::NodeIx;
use pirn_definition::value::SchemaMismatch;
use pirn_events::event::RaisedEvent;
use serde_json::{Value, json};

use super::fixtures::Workflows;

/// A person's answer.
pub(crate) fn answer(answer: Value) -> PersonsAnswer {
    PersonsAnswer {
        answer: Arc::new(answer),
        by: None,
        at: 0,
    }
}

/// A tool's approval request.
pub(crate) fn consent() -> ConsentRequest {
    ConsentRequest {
        reason: "always".into(),
        arguments: json!({}),
        schema: json!({}),
        timeout_ms: Some(500),
    }
}

/// Accepts every answer.
fn fits(_: &Value, answer: &Value) -> Result<(), SchemaMismatch> {
    if answer.is_null() {
        Err(SchemaMismatch::new("nothing"))
    } else {
        Ok(())
    }
}

/// Observed step of a model call.
#[derive(Debug)]
pub(crate) enum ModelStep {
    /// Started: the node, and the number of tokens sent.
    Begins(ThreadNo, EffectId, NodeIx, u64),
    /// Cancelled, like any effect that the thread awaited.
    Dropped(ThreadNo, EffectId),
    /// The thread has ended: its calls are cancelled.
    Ended(ThreadNo),
    /// Refused by a budget.
    Refused(ThreadNo, Value),
}

/// A run with its environment.
pub(crate) struct Harness {
    pub(crate) machine: RunMachine,
    pub(crate) world: Workflows,
    now: u64,
    /// External inputs with their times.
    pub(crate) inputs: Vec<(u64, Message)>,
    /// Effects so far, formatted.
    pub(crate) effect_log: String,
    /// Effect of an asynchronous function or a tool, by thread.
    pub(crate) works: BTreeMap<ThreadNo, EffectId>,
    /// Threads in `works` that wait for a tool.
    tools: BTreeSet<ThreadNo>,
    /// Effect of a thread's question and timer of its time limit, by thread.
    asks: BTreeMap<ThreadNo, (EffectId, Option<EffectId>)>,
    /// Events of each question, by id.
    questions: BTreeMap<String, Vec<EventType>>,
    pub(crate) timers: Vec<Timer>,
    /// Steps of model calls, in order.
    pub(crate) models: Vec<ModelStep>,
    /// Starter of each thread, by thread.
    pub(crate) parents: Vec<Option<ThreadNo>>,
    /// Trigger calls, open or ended.
    pub(crate) calls: Vec<CallNo>,
    pub(crate) ended: Vec<ThreadNo>,
    pub(crate) report: Option<RunReport>,
    pub(crate) is_settled: bool,
    /// True to serialize and deserialize the run after every input.
    pub(crate) is_stored: bool,
}

impl Harness {
    pub(crate) fn of(bundle: &Value) -> Self {
        Self::with(bundle, true)
    }

    pub(crate) fn with(bundle: &Value, merges_assignments: bool) -> Self {
        let mut world = Workflows::of(&bundle.to_string());
        let graph = world.graph("main").expect("the bundle has a workflow main");
        let mut effects = Vec::new();
        let seed = RunSeed {
            run_id: "r".into(),
            graph,
            input: Arc::new(json!({})),
            conversation: Conversation::new(),
            pinned: Pinned::default(),
            metadata: None,
            is_unlimited: false,
            trigger_depth: 0,
            deadline_ms: None,
            seed: 7,
            picks_starts: false,
            merges_assignments,
            run_bytes: pirn_core::run::DEFAULT_RUN_BYTES,
            session: None,
            client_tools: None,
            summaries: SummaryRules::new(None),
            gaps: Vec::new(),
        };
        let machine = RunMachine::new(0, seed, &mut world, &mut effects);
        let mut harness = Self {
            machine,
            world,
            now: 0,
            inputs: Vec::new(),
            effect_log: String::new(),
            works: BTreeMap::new(),
            tools: BTreeSet::new(),
            asks: BTreeMap::new(),
            questions: BTreeMap::new(),
            timers: Vec::new(),
            models: Vec::new(),
            parents: Vec::new(),
            calls: Vec::new(),
            ended: Vec::new(),
            report: None,
            is_settled: false,
            is_stored: false,
        };
        harness.execute(effects);
        harness.run_until_idle();
        harness
    }

    /// Creates the run again from its inputs.
    pub(crate) fn rebuilt(bundle: &Value, inputs: &[(u64, Message)], is_stored: bool) -> Self {
        let mut harness = Self::of(bundle);
        harness.is_stored = is_stored;
        for (now, message) in inputs {
            harness.now = *now;
            harness.send(message.clone());
        }
        harness
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.inputs.push((self.now, message.clone()));
        if let Message::Thread(thread, ToThread::Input(Input::Answer { effect, .. })) = &message {
            self.is_over(*thread, *effect);
        }
        self.machine.receive(message);
        self.run_until_idle();
        self.now += 1;
        if self.is_stored {
            let text = serde_json::to_string(&self.machine).unwrap();
            let mut machine: RunMachine = serde_json::from_str(&text).unwrap();
            machine.attach(&self.world).unwrap();
            self.machine = machine;
        }
    }

    fn run_until_idle(&mut self) {
        let mut steps = 0;
        while let Some(message) = self.machine.next_message() {
            let mut effects = Vec::new();
            self.machine.step(self.now, message, &mut self.world, &mut effects);
            self.execute(effects);
            steps += 1;
            assert!(steps < 100_000, "the run does not come to rest");
        }
    }

    fn execute(&mut self, effects: Vec<Effect>) {
        while self.parents.len() < self.machine.len() {
            let thread = self.parents.len() as ThreadNo;
            let (origin, _) = self.machine.origin(thread).expect("it was started");
            self.parents.push(match origin {
                Origin::Main | Origin::Triggered { .. } => None,
                Origin::Called { parent, .. } => Some(parent),
                Origin::Branch { fork, .. } | Origin::Item { fork, .. } => {
                    self.machine.fork_parent(fork).map(|(parent, _)| parent)
                }
            });
        }
        for effect in effects {
            assert!(!self.is_settled, "nothing follows: {effect:?}");
            writeln!(self.effect_log, "{effect:?}").unwrap();
            match effect {
                Effect::Thread {
                    thread,
                    effect: thread::Effect::Function { id, .. },
                } => {
                    assert!(!self.ended.contains(&thread));
                    assert_eq!(self.works.insert(thread, id), None, "a thread does one thing at a time");
                }
                Effect::Thread {
                    thread,
                    effect: thread::Effect::Tool { id, is_consented, .. },
                } => {
                    if is_consented {
                        self.tools.insert(thread);
                        assert_eq!(self.works.insert(thread, id), None, "a thread does one thing at a time");
                    } else {
                        let outcome = Outcome::NeedsConsent(Box::new(consent()));
                        let input = Input::Answer { effect: id, outcome };
                        self.machine.receive(Message::Thread(thread, ToThread::Input(input)));
                    }
                }
                Effect::Thread {
                    thread,
                    effect: thread::Effect::Ask { id, .. },
                } => {
                    assert_eq!(
                        self.asks.insert(thread, (id, None)),
                        None,
                        "a thread asks one thing at a time"
                    );
                }
                Effect::Thread {
                    thread,
                    effect: thread::Effect::Timer { id, .. },
                } => {
                    if let Some((_, timer)) = self.asks.get_mut(&thread) {
                        *timer = Some(id);
                    }
                }
                Effect::Thread {
                    thread,
                    effect: thread::Effect::Model { id, node, request, .. },
                } => self.models.push(ModelStep::Begins(thread, id, node, request.tokens())),
                Effect::Drop { thread, effect } => {
                    self.is_over(thread, effect);
                    self.models.push(ModelStep::Dropped(thread, effect));
                }
                Effect::Emit { event, thread_id, .. } => {
                    let is_refused = event.event_type == EventType::NodeFailed
                        && event.fields["error"]["code"] == "TOKEN_BUDGET_EXCEEDED";
                    if is_refused {
                        let thread = self.machine.thread_of(&thread_id).expect("a thread of the run");
                        let details = event.fields["error"]["details"].clone();
                        self.models.push(ModelStep::Refused(thread, details));
                    }
                    self.record(&event);
                }
                Effect::EmitAll { events, .. } => events.iter().for_each(|event| self.record(event)),
                Effect::ThreadEnded { thread } => {
                    assert!(!self.ended.contains(&thread), "a thread ends once");
                    self.ended.push(thread);
                    self.models.push(ModelStep::Ended(thread));
                    self.works.remove(&thread);
                    self.tools.remove(&thread);
                    self.asks.remove(&thread);
                }
                Effect::SetTimer { timer, .. } => self.timers.push(timer),
                Effect::StopTimer { timer } => self.timers.retain(|other| *other != timer),
                Effect::Report(report) => {
                    assert!(
                        self.report.replace(Arc::unwrap_or_clone(report)).is_none(),
                        "the outcome is told once"
                    );
                }
                Effect::Settled => self.is_settled = true,
                Effect::CallTrigger { call, .. } => self.calls.push(call),
                Effect::QuiesceTriggers => {
                    self.machine.receive(Message::Supervisor(ToSupervisor::TriggersQuiet));
                }
                Effect::Begin { .. }
                | Effect::AwaitSession
                | Effect::LeaveSession(_)
                | Effect::Thread { .. }
                | Effect::AwaitTriggers { .. }
                | Effect::StartRun(_) => {}
            }
        }
    }

    /// Removes an effect that was answered or cancelled.
    fn is_over(&mut self, thread: ThreadNo, effect: EffectId) {
        if self.works.get(&thread) == Some(&effect) {
            self.works.remove(&thread);
            self.tools.remove(&thread);
        }
        self.asks
            .retain(|of, (ask, timer)| *of != thread || (*ask != effect && *timer != Some(effect)));
    }

    fn record(&mut self, event: &RaisedEvent) {
        if event.event_type.as_str().starts_with("INTERACTION_") {
            let id = event.fields["interactionId"].as_str().unwrap_or_default().to_owned();
            self.questions.entry(id).or_default().push(event.event_type);
        }
    }

    /// Ends the current effect of a thread: its work, or its question.
    pub(crate) fn end_effect(&mut self, thread: ThreadNo, succeeds: bool) {
        if let Some(effect) = self.works.get(&thread).copied() {
            let outcome = match (self.tools.contains(&thread), succeeds) {
                (true, _) => Outcome::Tool(Box::new(ToolResult {
                    failed: !succeeds,
                    ..ToolResult::default()
                })),
                (false, true) => Outcome::Value(Arc::new(json!(thread))),
                (false, false) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "on purpose")),
            };
            return self.answer(thread, effect, outcome);
        }
        let Some((ask, timer)) = self.asks.get(&thread).copied() else {
            return;
        };
        if !succeeds {
            return self.answer(thread, timer.expect("a question has its time"), Outcome::Elapsed);
        }
        let id = format!("{}.{ask}", self.machine.thread_id(thread));
        let taken = self.machine.accept_answer(&id, answer(json!("allow")), fits);
        self.send(taken.expect("the question waits"));
        let again = self.machine.accept_answer(&id, answer(json!("allow")), fits);
        assert_eq!(again.err(), Some(AnswerRefused::NotOpen), "it was used");
    }

    /// Returns the threads with open questions, as the public API reports them.
    pub(crate) fn asking(&self) -> Vec<usize> {
        let open = self.machine.interactions();
        let threads = (0..self.machine.len()).filter(|no| {
            let id = self.machine.thread_id(*no as ThreadNo);
            open.iter().any(|question| question.thread_id == id)
        });
        threads.collect()
    }

    /// Asserts that every question was opened once and closed once.
    pub(crate) fn check_questions(&self) {
        for (id, events) in &self.questions {
            let [EventType::InteractionRequested, end] = events[..] else {
                panic!("{id}: {events:?}");
            };
            assert_ne!(end, EventType::InteractionRequested, "{id}");
            let late = self.machine.accept_answer(id, answer(json!("allow")), fits);
            assert_eq!(late.err(), Some(AnswerRefused::NotOpen), "{id}");
        }
    }

    pub(crate) fn answer(&mut self, thread: ThreadNo, effect: EffectId, outcome: Outcome) {
        let input = Input::Answer { effect, outcome };
        self.send(Message::Thread(thread, ToThread::Input(input)));
    }

    pub(crate) fn cancel(&mut self) {
        let control = Control::Cancel("enough".into());
        self.send(Message::Supervisor(ToSupervisor::Control(control)));
    }

    pub(crate) fn cancel_thread(&mut self, thread: ThreadNo) {
        self.send(Message::Supervisor(ToSupervisor::ControlThread {
            thread,
            control: Control::Cancel("enough of it".into()),
            trigger_depth: 0,
        }));
    }

    pub(crate) fn elapse(&mut self, timer: Timer) {
        self.timers.retain(|other| *other != timer);
        self.send(Message::Supervisor(ToSupervisor::Elapsed(timer)));
    }

    /// Returns the threads whose JOIN has an active time limit.
    pub(crate) fn joining(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.joins().map(|(thread, _)| thread as usize).collect();
        threads.sort_unstable();
        threads
    }

    pub(crate) fn join_elapses(&mut self, thread: ThreadNo) {
        let timer = self.joins().find(|(of, _)| *of == thread);
        self.elapse(timer.expect("its JOIN's time runs").1);
    }

    fn joins(&self) -> impl Iterator<Item = (ThreadNo, Timer)> {
        self.timers.iter().filter_map(|timer| match timer {
            Timer::Join { fork, .. } => Some((self.machine.fork_parent(*fork)?.0, *timer)),
            Timer::Thread { .. } | Timer::Firing(_) => None,
        })
    }

    /// Returns the status of every thread.
    pub(crate) fn statuses(&self) -> Vec<ThreadStatus> {
        self.machine
            .status()
            .threads
            .iter()
            .map(|thread| thread.status)
            .collect()
    }
}
