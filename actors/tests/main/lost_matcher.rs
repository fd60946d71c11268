//! Loss of the trigger matcher by a panic: triggers stop firing, runs complete as without triggers, and subscribers receive the
//! end of a run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::engine::{EngineParts, EngineShared, RunRequest, Spawner, StartJob};
use pirn_actors::events::{Deliver, Delivery, Subscription, Undelivered};
use pirn_actors::host::{Host, SimulatedHost, WorkClock};
use pirn_actors::ports::{
    AskedCall, Function, Input, Model, ModelCall, Models, Ports, ScriptAnswer, ScriptEnd, ScriptHandle, ScriptJob,
    Scripts, TextAnswer, TextJob, ToolOutcome, ToolSpec, Tools,
};
use pirn_conversation::conversation::Estimator;
use pirn_core::run::RunReport;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{ModelReply, Outcome, ScriptLogs, ToolResult};
use pirn_definition::definition::{Loaded, Profile, SourceFile};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{CompileContext, Evaluator, Graph, SnippetIx, Unevaluated, compile_loaded};
use pirn_definition::script::{Scope, ScriptFault};
use serde_json::{Value, json};

/// A workflow with a trigger that would hold its thread at every node.
const BUNDLE: &str = r#"{"workflows": [
    {"id": "main",
     "nodes": [{"id": "start", "type": "START"}, {"id": "a", "type": "CODE", "config": {"function": "f"}},
        {"id": "w", "type": "WAIT", "config": {"seconds": 1}}, {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "a"}, {"from": "a", "to": "w"}, {"from": "w", "to": "end"}],
     "triggers": [{"id": "t", "type": "EVENT", "condition": {"eventType": "NODE_STARTED", "expression": "event.x"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}}]},
    {"id": "sub",
     "nodes": [{"id": "s", "type": "START_FROM_TRIGGER"}, {"id": "c", "type": "CONTINUE_FROM_TRIGGER"}],
     "edges": [{"from": "s", "to": "c"}]}]}"#;

#[test]
fn runs_end_and_notify_their_subscribers_after_the_matcher_panics() {
    let simulated = SimulatedHost::new(Some(1));
    let engine = started(&simulated);
    for _ in 0..2 {
        let (report, heard) = played(&engine, &simulated);
        assert_eq!((report.status, report.error), (ThreadStatus::Completed, None));
        let heard = heard.lock().expect("no panic");
        assert!(heard.types.contains(&EventType::NodeCompleted), "{:?}", heard.types);
        assert_eq!(heard.types.last(), Some(&EventType::ThreadCompleted));
        assert!(heard.is_over, "the subscription is closed");
    }
    let stopped = engine.stop();
    simulated.run_until_idle();
    assert_eq!(stopped[0].peek(), Some(Ok(())), "the bus stops without it");
}

fn played(engine: &Arc<EngineShared>, simulated: &SimulatedHost) -> (RunReport, Arc<Mutex<Heard>>) {
    let heard = Arc::new(Mutex::new(Heard::default()));
    let request = RunRequest {
        workflow_id: "main".to_owned(),
        ..RunRequest::default()
    };
    let subscription = Subscription {
        types: Vec::new(),
        after: 0,
        deliver: Box::new(Listener(Arc::clone(&heard))),
    };
    let (started, admitted) = engine
        .admit_run(engine.next_run_id(), request, vec![subscription])
        .expect("there is room");
    admitted.go().expect("there is a host");
    simulated.run_until_idle();
    let report = started.outcome.peek().expect("it has ended").expect("it is not lost");
    ((*report).clone(), heard)
}

thread_local! {
    static HERE: RefCell<Option<Host>> = const { RefCell::new(None) };
}

struct Here;

impl Spawner for Here {
    fn arbiters(&self) -> usize {
        1
    }

    fn start_on(&self, _: usize, job: StartJob) -> Result<(), RunError> {
        self.start(job)
    }

    fn start(&self, job: StartJob) -> Result<(), RunError> {
        job(&HERE.with_borrow(Clone::clone).expect("a host was entered"), None);
        Ok(())
    }
}

fn started(simulated: &SimulatedHost) -> Arc<EngineShared> {
    HERE.set(Some(simulated.host()));
    let engine = EngineShared::start(EngineParts {
        ports: ports(),
        max_runs: 10,
        spawner: Box::new(Here),
        run_id_seed: 0,
        seed: None,
        max_waiting: 0,
        first_number: 0,
    })
    .expect("it starts");
    let loaded = Loaded::of(&[SourceFile::new("test", BUNDLE)]);
    let graphs = compile_loaded(&loaded, &CompileContext::default()).into_result();
    for graph in graphs.expect("no faults") {
        engine.register(&graph);
    }
    simulated.run_until_idle();
    engine
}

#[derive(Default)]
struct Heard {
    types: Vec<EventType>,
    is_over: bool,
}

struct Listener(Arc<Mutex<Heard>>);

impl Deliver for Listener {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        if let (Delivery::Event(event), Ok(mut heard)) = (delivery, self.0.lock()) {
            heard.types.push(event.raised.event_type);
        }
        Ok(())
    }

    fn end(&mut self, _: u64) {}

    fn another(&self) -> Box<dyn Deliver> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Ok(mut heard) = self.0.lock() {
            heard.is_over = true;
        }
    }
}

/// An evaluator that panics when it evaluates a condition, and again when it is dropped. The second panic is not contained by the
/// matcher and ends it.
struct PanickingEvaluator(Rc<RefCell<bool>>);

impl Drop for PanickingEvaluator {
    fn drop(&mut self) {
        assert!(!*self.0.borrow(), "an evaluator that panics when it is dropped");
    }
}

fn fault<T>() -> Result<T, Unevaluated> {
    Err(ScriptFault::error("nothing is evaluated here").into())
}

impl Evaluator for PanickingEvaluator {
    fn value(&mut self, _: &Graph, _: SnippetIx, _: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        fault()
    }
    fn truth(&mut self, _: &Graph, _: SnippetIx, _: &dyn Scope) -> Result<bool, Unevaluated> {
        fault()
    }
    fn text(&mut self, _: &Graph, _: SnippetIx, _: &dyn Scope) -> Result<String, Unevaluated> {
        fault()
    }
    fn template_value(&mut self, _: &Graph, _: SnippetIx, _: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        fault()
    }
    fn value_of(&mut self, _: &str, _: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        fault()
    }
    fn truth_of(&mut self, _: &str, _: &dyn Scope) -> Result<bool, Unevaluated> {
        *self.0.borrow_mut() = true;
        panic!("an evaluator that panics on purpose")
    }
    fn text_of(&mut self, _: &str, _: &dyn Scope) -> Result<String, Unevaluated> {
        fault()
    }
}

struct NoModel;

impl Model for NoModel {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        async { Err(RunError::new(RunErrorCode::ModelError, "no model is here")) }.boxed()
    }
}

impl Models for NoModel {
    fn choose(&self, _: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        let profile = json!({"id": "none", "provider": "none"});
        let profile = serde_json::from_value(profile).expect("a profile");
        (Arc::new(profile), Arc::new(Self))
    }
}

impl Tools for NoModel {
    fn specs(&self, _: &[Arc<str>]) -> Vec<ToolSpec> {
        Vec::new()
    }
    fn is_external(&self, _: &str) -> bool {
        false
    }
    fn call(&self, _: &[Arc<str>], _: AskedCall, _: WorkClock) -> BoxFuture<'static, ToolOutcome> {
        async {
            ToolOutcome::Result(ToolResult {
                failed: true,
                ..ToolResult::default()
            })
        }
        .boxed()
    }
}

impl Scripts for NoModel {
    fn run(&self, _: ScriptJob<'_>, answer: ScriptAnswer) -> ScriptHandle {
        let error = RunError::new(RunErrorCode::ScriptError, "no script runs here");
        answer(ScriptEnd {
            result: Err(error),
            logs: ScriptLogs::default(),
        });
        ScriptHandle::new(|| ())
    }
    fn evaluate(&self, _: TextJob, answer: TextAnswer) -> ScriptHandle {
        let error = RunError::new(RunErrorCode::ScriptError, "no text is evaluated here");
        answer(Outcome::Failed(error));
        ScriptHandle::new(|| ())
    }
}

fn ports() -> Ports {
    let function = Function::Inline(Arc::new(|input: &Input<'_>| Ok(input.clone())));
    Ports {
        schedules: None,
        journal: None,
        models: Arc::new(NoModel),
        tools: Arc::new(NoModel),
        functions: Arc::new(BTreeMap::from([("f".to_owned(), function)])),
        scripts: Arc::new(NoModel),
        evaluator: Arc::new(|| Box::new(PanickingEvaluator(Rc::default()))),
        compile: Arc::new(|_, _| Err(Vec::new())),
        tokenizer: Arc::new(|_| Arc::new(Estimator)),
        speculative_at: None,
        run_bytes: pirn_core::run::DEFAULT_RUN_BYTES,
        notify: Arc::new(|_, _| ()),
        fits: |_, _| Ok(()),
        schema_fault: |_| None,
        sessions: Arc::new(pirn_actors::sessions::MemorySessions::default()),
    }
}
