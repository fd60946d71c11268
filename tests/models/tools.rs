//! Tool calls in a run: each is answered once and dropped promptly, and none ends its run.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::tools::{Approval, ApprovalRequest, ToolOptions, ToolRegistry, Verdict, tool_fn};
use pirn::{Engine, EngineBuilder, EventType, Role, ThreadStatus, Tool, ToolSpec};
use pirn_actors::host::WorkClock;
use pirn_tests::world::{Ran, code, forked, line, node, run_in, run_unrecorded, wait};
use serde_json::{Value, json};

/// Returns `slept` after the given milliseconds, by the host's clock.
struct Sleep;

impl Tool for Sleep {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "sleep".to_owned(),
            description: "Sleeps".to_owned(),
            parameters: json!({"type": "object", "properties": {"ms": {"type": "integer", "minimum": 1}}, "required": ["ms"]}),
        }
    }
    fn call(&self, arguments: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        async move {
            clock.sleep(arguments["ms"].as_u64().unwrap_or(0)).await;
            Ok("slept".to_owned())
        }
        .boxed()
    }
    fn is_external(&self) -> bool {
        false
    }
}

/// Never ends; reports its start and its drop.
struct Endless {
    told: Sender<&'static str>,
    external: bool,
}

struct Told(Sender<&'static str>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send("dropped").expect("somebody listens");
    }
}

impl Tool for Endless {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "endless".to_owned(),
            description: "Never ends".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }
    fn call(&self, _: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let told = Told(self.told.clone());
        async move {
            told.0.send("begun").expect("somebody listens");
            std::future::pending::<()>().await;
            drop(told);
            Ok(String::new())
        }
        .boxed()
    }
    fn is_external(&self) -> bool {
        self.external
    }
}

fn calls(calls: &[(&str, Value)]) -> Value {
    let calls = calls.iter().enumerate();
    let calls: Vec<Value> = calls
        .map(|(place, (name, arguments))| json!({"id": format!("call-{place}"), "name": name, "arguments": arguments}))
        .collect();
    json!({ "toolCalls": calls })
}

/// A node with a model that makes these calls in one reply, then replies `done`.
fn ask(tools: &[&str], made: &[(&str, Value)]) -> (Value, Value) {
    let profile = json!({"id": "script", "provider": "scripted", "responses": [calls(made), {"content": "done"}]});
    let ask = node(
        "ask",
        "LLM",
        json!({"profileId": "script", "prompt": "go", "tools": tools}),
    );
    (ask, profile)
}

fn bundle(workflow: &Value, profile: &Value) -> Value {
    json!({"workflows": [workflow], "profiles": [profile]})
}

fn virtual_time() -> EngineBuilder {
    Engine::builder().virtual_time(Some(7))
}

/// Runs one node that calls tools; returns the run and the result of each call, in order.
fn answers(builder: EngineBuilder, tools: &[&str], made: &[(&str, Value)]) -> (Ran, Vec<String>) {
    let (ask, profile) = ask(tools, made);
    let ran = run_in(
        builder,
        &bundle(&line("main", &[ask]), &profile),
        json!(null),
        Vec::new(),
    );
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    let messages = ran.report.conversation.messages.iter();
    let results = messages.filter(|message| message.role == Role::Tool);
    let contents = results.map(|message| message.content.clone()).collect();
    (ran, contents)
}

fn three_sleeps() -> Vec<(&'static str, Value)> {
    vec![("sleep", json!({"ms": 1000})); 3]
}

#[test]
fn tool_calls_of_one_reply_run_concurrently() {
    let (ran, said) = answers(virtual_time().tool(Arc::new(Sleep)), &["sleep"], &three_sleeps());
    assert_eq!(said, ["slept"; 3]);
    assert_eq!(ran.report.elapsed_ms, 1_000);
    assert_eq!(ran.of(EventType::ToolCallStarted).len(), 3);
    assert_eq!(ran.of(EventType::ToolCallCompleted).len(), 3);
}

#[test]
fn concurrent_tool_calls_are_limited_per_tool_and_per_engine() {
    let mut one_place = ToolRegistry::new();
    let options = ToolOptions {
        max_parallel: Some(1),
        // The wait for a free slot does not count toward the time limit.
        timeout: 1_500,
        ..ToolOptions::default()
    };
    one_place.register_with(Arc::new(Sleep), options);
    let (ran, said) = answers(virtual_time().tools(one_place), &["sleep"], &three_sleeps());
    assert_eq!(said, ["slept"; 3]);
    assert_eq!(ran.report.elapsed_ms, 3_000);

    let mut two_places = ToolRegistry::new().with(Arc::new(Sleep));
    two_places.set_max_calls(2);
    let (ran, _) = answers(virtual_time().tools(two_places), &["sleep"], &three_sleeps());
    assert_eq!(ran.report.elapsed_ms, 2_000);
}

#[test]
fn a_failed_tool_call_answers_the_model() {
    let fails = tool_fn("fails", "Fails", json!({"type": "object"}), |_| async {
        Err("no luck".to_owned())
    });
    let panics = tool_fn("panics", "Panics", json!({"type": "object"}), |_| async {
        panic!("it broke")
    });
    let builder = virtual_time().tool(Arc::new(Sleep)).tool(fails).tool(panics);
    let made = [
        ("nothing", json!({})),
        ("sleep", json!({"ms": "x"})),
        ("sleep", json!({"ms": 0})),
        ("sleep", json!({"ms": 70_000})),
        ("fails", json!({})),
        ("panics", json!({})),
    ];
    let (ran, said) = answers(builder, &["sleep", "fails", "panics"], &made);
    assert_eq!(said.len(), 6);
    for (said, part) in said.iter().zip([
        "there is no tool `nothing`; there are: sleep, fails, panics",
        "arguments.ms must be of type integer",
        "less than the minimum of 1",
        "longer than 60000 ms",
        "no luck",
        "the tool `panics` panicked: it broke",
    ]) {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(ran.of(EventType::ToolCallFailed).len(), 6);
    assert_eq!(ran.report.output["content"], "done");
}

#[test]
fn a_name_that_ends_with_a_star_offers_every_tool_with_that_prefix() {
    let said = |name: &str| {
        tool_fn(name, "Says it", json!({"type": "object"}), |_| async {
            Ok("said".to_owned())
        })
    };
    let builder = virtual_time()
        .tool(said("a_one"))
        .tool(said("a_two"))
        .tool(said("b_one"));
    let made = [("a_two", json!({})), ("b_one", json!({}))];
    let (_, said) = answers(builder, &["a_*"], &made);
    assert_eq!(said, ["said", "there is no tool `b_one`; there are: a_one, a_two"]);
}

#[test]
fn every_call_needs_approval_and_the_model_receives_the_reason_of_a_refusal() {
    let decide = |request: &ApprovalRequest| match request.arguments["ms"].as_u64() {
        Some(1) => Verdict::Allow,
        Some(3) => panic!("the hook broke"),
        _other => Verdict::Refuse(format!("{} is too long", request.arguments)),
    };
    let made = [1, 2, 3].map(|ms| ("sleep", json!({ "ms": ms })));
    let builder = virtual_time().tool(Arc::new(Sleep)).approve_tools(decide);
    let (_, said) = answers(builder, &["sleep"], &made);
    assert_eq!(said[0], "slept");
    assert_eq!(said[1], r#"the call of `sleep` was refused: {"ms":2} is too long"#);
    assert!(said[2].contains("panicked"), "{}", said[2]);
}

#[test]
fn an_approval_request_names_the_run_thread_and_node_of_the_call() {
    let (told, heard) = channel();
    let decide = move |request: &ApprovalRequest| {
        told.send(request.caller.clone()).expect("somebody listens");
        Verdict::Allow
    };
    let branch = |id: &str, ms: u64| {
        let made = [("sleep", json!({ "ms": ms }))];
        let (_, mut profile) = ask(&["sleep"], &made);
        profile["id"] = json!(id);
        let config = json!({"profileId": id, "prompt": "go", "tools": ["sleep"]});
        (node(id, "LLM", config), profile)
    };
    let ((left, one), (right, two)) = (branch("left", 5), branch("right", 9));
    let workflow = forked(
        &[vec![left], vec![right]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    let builder = virtual_time().tool(Arc::new(Sleep)).approve_tools(decide);
    let bundle = json!({"workflows": [workflow], "profiles": [one, two]});
    let ran = run_in(builder, &bundle, json!(null), Vec::new());
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    let mut asked: Vec<(String, String)> = heard
        .iter()
        .map(|caller| {
            let caller = caller.expect("a node asks");
            assert_eq!(
                (&*caller.run_id, &*caller.workflow_id),
                (ran.report.run_id.as_str(), "forked")
            );
            (
                caller.node_id.as_deref().unwrap_or_default().to_owned(),
                caller.thread_id.to_string(),
            )
        })
        .collect();
    asked.sort();
    let thread_of = |path: &str| {
        let mut threads = ran.report.threads.iter();
        let found = threads.find(|thread| thread.path_id.as_deref() == Some(path));
        found.expect("a branch").thread_id.to_string()
    };
    assert_eq!(
        asked,
        [
            ("left".to_owned(), thread_of("p0")),
            ("right".to_owned(), thread_of("p1"))
        ]
    );
}

#[test]
fn an_async_approval_request_shows_that_the_tool_is_marked() {
    let mut tools = ToolRegistry::new();
    let options = ToolOptions {
        approval: Approval::Ask,
        ..ToolOptions::default()
    };
    tools.register_with(Arc::new(Sleep), options);
    let later = virtual_time().tools(tools).approve_tools_async(|request| {
        assert!(request.is_marked);
        async { Verdict::Allow }.boxed()
    });
    let (_, said) = answers(later, &["sleep"], &[("sleep", json!({"ms": 1}))]);
    assert_eq!(said, ["slept"]);
}

const CANCELLED: &str = "The tool call was cancelled before it had a result.";

#[test]
fn a_running_tool_call_is_dropped_when_its_branch_loses() {
    for external in [false, true] {
        let (told, heard) = channel();
        let (ask, profile) = ask(&["endless"], &[("endless", json!({}))]);
        let branches = [vec![ask], vec![wait("win", 50), code("won", "return 'won'")]];
        let workflow = forked(&branches, false, &json!({"joinStrategy": "ANY_COMPLETED"}));
        // External work would stop a virtual clock before the winner's timer.
        let builder = if external { Engine::builder() } else { virtual_time() };
        let builder = builder.tool(Arc::new(Endless { told, external }));
        // On the real clock a rebuilt run may take another millisecond, so its report would differ.
        let play = if external { run_unrecorded } else { run_in };
        let ran = play(builder, &bundle(&workflow, &profile), json!(null), Vec::new());
        assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
        assert_eq!(ran.report.output["outputs"], json!({"p1": "won"}));
        assert_eq!(ran.path_end("p0"), Some(ThreadStatus::Cancelled));
        // The engine is dropped, and with it every sender of the channel.
        assert_eq!(heard.iter().collect::<Vec<_>>(), ["begun", "dropped"]);
        let added = ran.of(EventType::MessageAdded);
        let results: Vec<_> = added
            .iter()
            .filter(|event| event.raised.fields["message"]["role"] == "tool")
            .collect();
        assert_eq!(results.len(), 1, "the call is answered once: {added:#?}");
        assert_eq!(results[0].raised.fields["message"]["content"], CANCELLED);
    }
}

#[test]
fn a_cancelled_run_drops_its_tool_call_and_records_a_result_for_it() {
    let (told, heard) = channel();
    let (ask, profile) = ask(&["endless"], &[("endless", json!({}))]);
    let engine = Engine::builder()
        .tool(Arc::new(Endless { told, external: true }))
        .workflows(bundle(&line("main", &[ask]), &profile).to_string())
        .build()
        .expect("valid");
    let run = engine.start("main", json!(null)).expect("admitted");
    assert_eq!(heard.recv(), Ok("begun"));
    run.cancel("enough");
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Cancelled);
    assert_eq!(heard.recv(), Ok("dropped"));
    let last = report.conversation.messages.last().expect("messages");
    assert_eq!(
        (last.role, last.tool_call_id.as_deref(), last.content.as_str()),
        (Role::Tool, Some("call-0"), CANCELLED)
    );
    let left = engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!((left.work_left, left.tasks_left), (0, 0));
}
