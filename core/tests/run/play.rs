//! A run and the world around it: what it asked for, and what it was told.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use pirn_core::conversation::{Conversation, Estimator, Tokenizer};
use pirn_core::definition::{Pinned, SourceFile, load};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventMask;
use pirn_core::graph::{CompileContext, Graph, NodeIx, compile_loaded};
use pirn_core::run::{
    CallNo, Called, Control, Effect, Listening, Message, RunMachine, RunReport, RunSeed, ThreadNo, Timer, ToSupervisor,
    ToThread, World,
};
use pirn_core::script::Scope;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{self, EffectId, Evaluation, Input, Outcome, Output, ThreadMachine, ThreadScope};
use serde_json::{Value, json};

/// Workflows, and answers that depend on nothing.
pub(crate) struct Outside(pub(crate) BTreeMap<String, Arc<Graph>>);

impl Outside {
    pub(crate) fn of(bundle: &Value) -> Self {
        let loaded = load(&SourceFile::new("test.json", bundle.to_string()));
        let compiled = compile_loaded(&loaded, &CompileContext::default());
        assert!(compiled.faults.is_empty(), "{:?}", compiled.faults);
        let graphs = compiled.graphs.into_iter();
        Self(graphs.map(|graph| (graph.workflow_id.to_string(), graph)).collect())
    }
}

impl World for Outside {
    fn listening(&self) -> Listening {
        Listening {
            interest: EventMask::ALL,
            watched: EventMask::NONE,
            holding: EventMask::NONE,
        }
    }
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.0.get(workflow_id).cloned()
    }
    fn token_limit(&self, _: &Graph) -> Option<u64> {
        None
    }
    fn tokenizer(&self, _: &Graph) -> Arc<dyn Tokenizer> {
        Arc::new(Estimator)
    }
    fn message_rules(&self, _: Option<&str>) -> pirn_core::conversation::MessageRules {
        pirn_core::conversation::MessageRules::default()
    }

    fn tool_tokens(&self, _: &[Arc<str>], _: &dyn Tokenizer) -> u64 {
        0
    }
    fn evaluate(&mut self, _: &Arc<Graph>, _: NodeIx, what: Evaluation, scope: &ThreadScope<'_>) -> Option<Outcome> {
        Some(match what {
            Evaluation::Edges | Evaluation::Routes => Outcome::Choice(Some(0)),
            Evaluation::Value(_) | Evaluation::Input | Evaluation::Pin | Evaluation::Folds(_) => {
                Outcome::Value(scope.output())
            }
            Evaluation::Prompt | Evaluation::Texts => Outcome::Texts(vec![Some("text".into()), None]),
        })
    }
    fn call(&mut self, function: &str, _: &Output, _: &ThreadMachine) -> Called {
        match function {
            "work" => Called::TakesTime,
            name => Called::Done(Ok(json!(name))),
        }
    }
}

/// A run under way.
pub(crate) struct Play {
    pub(crate) machine: RunMachine,
    pub(crate) world: Outside,
    now: u64,
    /// The messages it was told from outside, and when.
    pub(crate) told: Vec<(u64, Message)>,
    /// Everything it wanted done, in words.
    pub(crate) did: String,
    /// By thread: what it awaits of a function that takes its time.
    pub(crate) works: BTreeMap<ThreadNo, EffectId>,
    pub(crate) timers: Vec<Timer>,
    /// Calls of triggers, ended or not.
    pub(crate) calls: Vec<CallNo>,
    pub(crate) ended: Vec<ThreadNo>,
    pub(crate) report: Option<RunReport>,
    pub(crate) is_settled: bool,
    /// Writes the run down and reads it back after everything that it is told.
    pub(crate) is_stored: bool,
}

impl Play {
    pub(crate) fn of(bundle: &Value) -> Self {
        let mut world = Outside::of(bundle);
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
            session: None,
        };
        let machine = RunMachine::new(0, seed, &mut world, &mut effects);
        let mut play = Self {
            machine,
            world,
            now: 0,
            told: Vec::new(),
            did: String::new(),
            works: BTreeMap::new(),
            timers: Vec::new(),
            calls: Vec::new(),
            ended: Vec::new(),
            report: None,
            is_settled: false,
            is_stored: false,
        };
        play.carry(effects);
        play.serve();
        play
    }

    /// The same run, told the same.
    pub(crate) fn rebuilt(bundle: &Value, told: &[(u64, Message)], is_stored: bool) -> Self {
        let mut play = Self::of(bundle);
        play.is_stored = is_stored;
        for (now, message) in told {
            play.now = *now;
            play.tell(message.clone());
        }
        play
    }

    pub(crate) fn tell(&mut self, message: Message) {
        self.told.push((self.now, message.clone()));
        self.machine.tell(message);
        self.serve();
        self.now += 1;
        if self.is_stored {
            let text = serde_json::to_string(&self.machine).unwrap();
            let mut machine: RunMachine = serde_json::from_str(&text).unwrap();
            let graphs = &self.world.0;
            machine.attach(&|id| graphs.get(id).cloned()).unwrap();
            self.machine = machine;
        }
    }

    fn serve(&mut self) {
        let mut steps = 0;
        while let Some(message) = self.machine.next_message() {
            let mut effects = Vec::new();
            self.machine.step(self.now, message, &mut self.world, &mut effects);
            self.carry(effects);
            steps += 1;
            assert!(steps < 100_000, "the run does not come to rest");
        }
    }

    fn carry(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            assert!(!self.is_settled, "nothing follows: {effect:?}");
            writeln!(self.did, "{effect:?}").unwrap();
            match effect {
                Effect::Thread {
                    thread,
                    effect: thread::Effect::Function { id, .. },
                } => {
                    assert!(!self.ended.contains(&thread));
                    assert_eq!(self.works.insert(thread, id), None, "a thread does one thing at a time");
                }
                Effect::Drop { thread, effect } => {
                    if self.works.get(&thread) == Some(&effect) {
                        self.works.remove(&thread);
                    }
                }
                Effect::ThreadEnded { thread } => {
                    assert!(!self.ended.contains(&thread), "a thread ends once");
                    self.ended.push(thread);
                    self.works.remove(&thread);
                }
                Effect::SetTimer { timer, .. } => self.timers.push(timer),
                Effect::StopTimer { timer } => self.timers.retain(|other| *other != timer),
                Effect::Report(report) => {
                    assert!(self.report.replace(*report).is_none(), "the outcome is told once");
                }
                Effect::Settled => self.is_settled = true,
                Effect::CallTrigger { call, .. } => self.calls.push(call),
                Effect::QuiesceTriggers => {
                    self.machine.tell(Message::Supervisor(ToSupervisor::TriggersQuiet));
                }
                Effect::Begin { .. }
                | Effect::AwaitSession
                | Effect::LeaveSession(_)
                | Effect::Thread { .. }
                | Effect::AwaitTriggers { .. }
                | Effect::Emit { .. }
                | Effect::EmitAll { .. }
                | Effect::StartRun(_) => {}
            }
        }
    }

    /// A thread's work ends, well or not.
    pub(crate) fn work_ends(&mut self, thread: ThreadNo, well: bool) {
        let Some(effect) = self.works.remove(&thread) else {
            return;
        };
        let outcome = if well {
            Outcome::Value(Arc::new(json!(thread)))
        } else {
            Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "on purpose"))
        };
        self.answer(thread, effect, outcome);
    }

    pub(crate) fn answer(&mut self, thread: ThreadNo, effect: EffectId, outcome: Outcome) {
        let input = Input::Answer { effect, outcome };
        self.tell(Message::Thread(thread, ToThread::Input(input)));
    }

    pub(crate) fn cancel(&mut self) {
        let control = Control::Cancel("enough".into());
        self.tell(Message::Supervisor(ToSupervisor::Control(control)));
    }

    pub(crate) fn cancel_thread(&mut self, thread: ThreadNo) {
        self.tell(Message::Supervisor(ToSupervisor::ControlThread {
            thread,
            control: Control::Cancel("enough of it".into()),
            trigger_depth: 0,
        }));
    }

    pub(crate) fn elapse(&mut self, timer: Timer) {
        self.timers.retain(|other| *other != timer);
        self.tell(Message::Supervisor(ToSupervisor::Elapsed(timer)));
    }

    /// The status of every thread.
    pub(crate) fn statuses(&self) -> Vec<ThreadStatus> {
        self.machine
            .status()
            .threads
            .iter()
            .map(|thread| thread.status)
            .collect()
    }
}
