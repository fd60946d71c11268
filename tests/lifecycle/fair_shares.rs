//! Runs that compete for one resource take turns, however many requests each of them has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::script::{CodeLimits, HostFunctions, ScriptPort, ScriptSettings};
use pirn::tools::{ToolOptions, ToolRegistry};
use pirn::{Engine, EngineBuilder, Model, ModelCall, ModelReply, RunError, Tool, ToolContext, ToolSpec};
use pirn_actors::host::WorkClock;
use pirn_definition::message::Part;
use pirn_tests::world::{code, line, node, run_in};
use serde_json::{Value, json};

/// Branches of the run with many requests.
const MANY: usize = 200;

/// A run with many branches that each do `work`; after the first one, a second run starts that does it once.
fn bundle(work: &Value, profiles: &[Value]) -> Value {
    let items: Vec<usize> = (0..MANY).collect();
    let map = node("map", "MAP", json!({"items": items, "subgraphId": "branch"}));
    json!({
        "workflows": [line("main", &[map]), line("branch", std::slice::from_ref(work)), line("one", std::slice::from_ref(work))],
        "triggers": [{"id": "first", "type": "EVENT", "workflowId": "branch", "maxTriggers": 1,
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'work'"},
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "one"}}}],
        "profiles": profiles,
    })
}

/// The runs that were served, in order.
#[derive(Clone, Default)]
struct Served(Arc<Mutex<Vec<Arc<str>>>>);

impl Served {
    fn one(&self, run: &Arc<str>) {
        self.0.lock().unwrap().push(Arc::clone(run));
    }

    /// Checks that the single run was served fourth, after three calls of `main`, two of which were made before it started.
    fn assert_in_turn(&self) {
        let served = self.0.lock().unwrap();
        assert_eq!(served.len(), MANY + 1);
        let main = &served[0];
        let place = served.iter().position(|run| run != main);
        assert_eq!(place, Some(3));
    }
}

impl Model for Served {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        self.one(&call.context.run_id);
        async move {
            call.clock.sleep(1_000).await;
            Ok(ModelReply {
                content: "done".into(),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

impl Tool for Served {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "listed".to_owned(),
            description: "Lists who calls it".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(&self, _: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        unreachable!("it is called with who asks")
    }

    fn call_in(&self, _: Value, context: ToolContext) -> BoxFuture<'static, Result<(String, Vec<Part>), String>> {
        self.one(&context.caller.expect("it is called in a run").run_id);
        async move {
            context.clock.sleep(1_000).await;
            Ok((String::new(), Vec::new()))
        }
        .boxed()
    }

    fn is_external(&self) -> bool {
        false
    }
}

fn virtual_time() -> EngineBuilder {
    Engine::builder().virtual_time(Some(3))
}

#[test]
fn runs_take_turns_in_the_request_queue_of_a_profile() {
    let served = Served::default();
    let ask = node("work", "LLM", json!({"profileId": "narrow", "prompt": "go"}));
    let builder = virtual_time().model("listed", Arc::new(served.clone()));
    let narrow = json!({"id": "narrow", "provider": "listed", "limits": {"requestsAtOnce": 1}});
    run_in(builder, &bundle(&ask, &[narrow]), Value::Null, Vec::new());
    served.assert_in_turn();
}

#[test]
fn runs_take_turns_in_the_queue_of_tool_calls() {
    let call = node("work", "TOOL", json!({"tool": "listed", "arguments": {}}));
    let of_the_tool = ToolOptions {
        max_parallel: Some(1),
        ..ToolOptions::default()
    };
    for (options, of_all) in [(of_the_tool, 256), (ToolOptions::default(), 1)] {
        let served = Served::default();
        let mut tools = ToolRegistry::new();
        tools.register_with(Arc::new(served.clone()), options);
        tools.set_max_calls(of_all);
        run_in(
            virtual_time().tools(tools),
            &bundle(&call, &[]),
            Value::Null,
            Vec::new(),
        );
        served.assert_in_turn();
    }
}

#[test]
fn a_run_with_one_script_waits_for_at_most_one_script_of_another_run() {
    const SCRIPTS: usize = 5_000;
    let (gate, begun) = (
        Arc::new((Mutex::new(false), Condvar::new())),
        Arc::new(AtomicU64::new(0)),
    );
    let (closed, count) = (Arc::clone(&gate), Arc::clone(&begun));
    let functions = HostFunctions::default().with("hold", move |_| {
        let before = count.fetch_add(1, Ordering::SeqCst);
        let open = closed.0.lock().unwrap();
        drop(closed.1.wait_while(open, |open| !*open).unwrap());
        Ok(json!(before))
    });
    let settings = ScriptSettings {
        threads: 1,
        code: CodeLimits {
            time: Duration::from_mins(5),
            ..CodeLimits::default()
        },
        ..ScriptSettings::default()
    };
    let map = node(
        "map",
        "MAP",
        json!({"items": "input", "subgraphId": "one", "maxItems": SCRIPTS}),
    );
    let bundle = json!({"workflows": [line("main", &[map]), line("one", &[code("work", "return (typeof hold === 'function' && hold)()")])]});
    let engine = Engine::builder()
        .workflows(bundle.to_string())
        .scripts(ScriptPort::new(settings).with_functions(functions))
        .build();
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let items: Vec<usize> = (0..SCRIPTS).collect();
    let many = engine.start("main", json!(items)).expect("it starts");
    let all_wait = |count| {
        while engine.script_stats().waiting != count {
            std::thread::yield_now();
        }
    };
    all_wait(SCRIPTS - 1);
    let one = engine.start("one", Value::Null).expect("it starts");
    all_wait(SCRIPTS);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let before = one.outcome_blocking().output.clone();
    assert_eq!(before, json!(2), "the one that held the thread, and the next");
    many.cancel("enough");
    engine.shutdown_blocking(Duration::from_secs(5));
}
