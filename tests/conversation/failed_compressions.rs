//! SPEC sections 6 and 7: if any part of a triggered compression fails, the conversation is unchanged, the thread continues
//! (or ends as it would have), and the compression and its firing each have one outcome.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{
    Engine, EventType, FiringOutcome, Message, Model, ModelCall, ModelReply, RunError, RunReport, SubscriptionItem,
    ThreadStatus,
};
use pirn_events::event::Event;
use pirn_tests::world::{code, line, long_conversation, node, run_in, say, wait, workflow};
use serde_json::{Value, json};

/// Panics when called.
struct Panics;

impl Model for Panics {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        async { panic!("a model that panics on purpose") }.boxed()
    }
}

fn profiles() -> Value {
    json!([
        {"id": "main", "provider": "echo"},
        {"id": "panics", "provider": "panics"},
        {"id": "fails", "provider": "scripted", "responses": [{"error": "no"}]},
        {"id": "hangs", "provider": "scripted", "responses": [{"content": "SUMMARY", "delayMs": 100_000}]},
    ])
}

fn ask(id: &str, profile: &str) -> Value {
    node(
        id,
        "LLM",
        json!({"profileId": profile, "prompt": format!("question {id}")}),
    )
}

fn main_workflow() -> Value {
    let mut main = line("main", &[ask("A", "main"), wait("rest", 5_000), ask("B", "main")]);
    main["config"] = json!({"tokenLimit": 200});
    main
}

/// A way to compress: the workflow that does it, and the trigger that starts it.
struct Way {
    name: &'static str,
    workflow: Value,
    action: Value,
    /// True if the compression fails.
    fails: bool,
}

fn triggered(name: &'static str, nodes: &[Value], end: Value, more: &Value) -> Way {
    let mut all = vec![node("s", "START_FROM_TRIGGER", json!({}))];
    all.extend(nodes.iter().cloned());
    all.push(node("c", "CONTINUE_FROM_TRIGGER", end));
    let way: Vec<&str> = all.iter().filter_map(|node| node["id"].as_str()).collect();
    let mut parameters = json!({"triggeredWorkflowId": "sub", "timeout": 2});
    for (key, value) in more.as_object().into_iter().flatten() {
        parameters[key] = value.clone();
    }
    Way {
        name,
        workflow: workflow("sub", &all, &[&way.join(">")]),
        action: json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": parameters}),
        fails: true,
    }
}

fn detached(name: &'static str, nodes: &[Value]) -> Way {
    Way {
        name,
        workflow: line("sub", nodes),
        action: json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "sub"}}),
        fails: true,
    }
}

fn ways() -> Vec<Way> {
    let alongside = json!({"waitForCompletion": false});
    let compress = |profile: &str| {
        node(
            "compress",
            "CONTEXT_PROCESSOR",
            json!({"operation": "compress", "strategy": "summarize", "parameters": {"profileId": profile, "keepRecent": 2}}),
        )
    };
    let broken_map = "return {messages: input.messages.slice(0, 2), \
                      markMap: {originalIndices: [0, 1], batchBoundaries: [7], boundaryToBatch: [0], currentBatch: 0}, \
                      stats: {originalCount: 21, compressedCount: 2, tokensSaved: 1}}";
    let unset = json!({"variableCallback": {"includeVariables": ["nobody"]}});
    let mut list = Vec::new();
    for more in [json!({}), alongside] {
        list.extend([
            triggered("its model panics", &[ask("m", "panics")], json!({}), &more),
            triggered("its model fails", &[ask("m", "fails")], json!({}), &more),
            triggered("its summary fails", &[compress("fails")], json!({}), &more),
            triggered("its summary panics", &[compress("panics")], json!({}), &more),
            triggered("it takes too long", &[ask("m", "hangs")], json!({}), &more),
            triggered("its summary takes too long", &[compress("hangs")], json!({}), &more),
            triggered(
                "its script throws",
                &[code("x", "throw new Error('no')")],
                json!({}),
                &more,
            ),
            triggered(
                "what it hands back was never set",
                &[say("x", "hello")],
                unset.clone(),
                &more,
            ),
            Way {
                fails: false,
                ..triggered("it changes nothing", &[code("x", "return 1")], json!({}), &more)
            },
        ]);
    }
    list.extend([
        detached("a run whose model panics", &[ask("m", "panics")]),
        detached("a run whose model fails", &[ask("m", "fails")]),
        detached("a run with a broken mark map", &[code("x", broken_map)]),
        detached(
            "a run that gives no mark map",
            &[code("x", "return {messages: input.messages.slice(0, 2)}")],
        ),
        detached("a run that throws", &[code("x", "throw new Error('no')")]),
    ]);
    list
}

fn bundle(way: &Way) -> Value {
    let trigger = json!({"id": "t", "type": "EVENT", "workflowId": "main",
        "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"}, "action": way.action, "maxTriggers": 1});
    json!({"workflows": [main_workflow(), way.workflow], "triggers": [trigger], "profiles": profiles()})
}

fn here<'a>(events: &'a [Arc<Event>], thread: &'a str, event_type: EventType) -> Vec<&'a Arc<Event>> {
    let of = events.iter().filter(|event| event.raised.event_type == event_type);
    of.filter(|event| *event.thread_id == *thread).collect()
}

/// Checks that the only firing has its outcome, and that the compression of the run's thread has exactly one.
#[track_caller]
fn accounted(name: &str, report: &RunReport, events: &[Arc<Event>], fails: bool) {
    assert_eq!(report.firings.len(), 1, "{name}");
    let firing = &report.firings[0];
    let outcome = if fails {
        FiringOutcome::Failed
    } else {
        FiringOutcome::Completed
    };
    assert_eq!(firing.outcome, outcome, "{name}: {firing:?}");
    assert_eq!(firing.error.is_some(), fails, "{name}: {firing:?}");
    let completed = here(events, &report.thread_id, EventType::CompressionCompleted);
    let failed = here(events, &report.thread_id, EventType::CompressionFailed);
    assert_eq!(
        (completed.len(), failed.len()),
        (usize::from(!fails), usize::from(fails)),
        "{name}"
    );
    for event in completed {
        assert_eq!(event.raised.fields["changed"], json!(false), "{name}");
    }
}

#[test]
fn if_any_part_of_a_compression_fails_the_conversation_is_unchanged_and_the_thread_continues() {
    let plain = {
        let bundle = json!({"workflows": [main_workflow()], "profiles": profiles()});
        run_in(engine(1), &bundle, Value::Null, long_conversation())
    };
    for way in ways() {
        let name = format!("{} {}", way.name, way.action["parameters"]);
        for seed in 0..5 {
            let ran = run_in(engine(seed), &bundle(&way), Value::Null, long_conversation());
            assert_eq!(ran.code(), "", "{name}: {:?}", ran.report.error);
            assert_eq!(ran.nodes(), plain.nodes(), "{name}");
            assert_eq!(ran.visible(), plain.visible(), "{name}");
            assert_eq!(
                ran.report.conversation.mark_map, plain.report.conversation.mark_map,
                "{name}"
            );
            accounted(&name, &ran.report, &ran.events, way.fails);
        }
    }
}

#[test]
fn a_detached_run_that_compresses_nothing_does_not_disarm_the_token_limit() {
    for returned in ["return null", "return {messages: input.messages.slice(0, 2)}"] {
        let way = detached("", &[code("x", returned)]);
        let mut bundle = bundle(&way);
        bundle["triggers"][0]["maxTriggers"] = json!(10);
        let ran = run_in(engine(1), &bundle, Value::Null, long_conversation());
        assert_eq!(ran.code(), "", "{returned}");
        // Once before each of the two requests, which both exceed the limit.
        assert_eq!(ran.of(EventType::TokenLimitExceeded).len(), 2, "{returned}");
        assert_eq!(ran.report.firings.len(), 2, "{returned}");
    }
}

fn engine(seed: u64) -> pirn::EngineBuilder {
    Engine::builder()
        .virtual_time(Some(seed))
        .model("panics", Arc::new(Panics))
}

/// A stop of a run in the middle of a compression.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Cancel,
    Shutdown,
    RunTimeout,
}

/// Starts a run on the real clock and stops it after its compression has started; returns its report and events.
fn stopped(way: &Way, stop: Stop) -> (Arc<RunReport>, Vec<Arc<Event>>) {
    let mut bundle = bundle(way);
    if stop == Stop::RunTimeout {
        bundle["workflows"][0]["config"]["timeoutMs"] = json!(50);
    }
    let engine = Engine::builder()
        .arbiters(1)
        .model("panics", Arc::new(Panics))
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut run = engine.run("main").conversation(long_conversation());
    let mut events = run.blocking_events(&[], 1 << 16);
    let handle = run.start().unwrap_or_else(|error| panic!("{error}"));
    let mut heard = Vec::new();
    let mut shutdown = None;
    for next in &mut events {
        let SubscriptionItem::Event(event) = next else {
            panic!("events were missed")
        };
        let is_begun = event.raised.event_type == EventType::NodeStarted
            && *event.thread_id != *(handle.run_id().to_owned() + ".0");
        heard.push(event);
        if !is_begun || shutdown.is_some() {
            continue;
        }
        match stop {
            Stop::Cancel => handle.cancel("enough"),
            Stop::Shutdown => shutdown = Some(engine.shutdown_blocking(Duration::ZERO)),
            Stop::RunTimeout => {}
        }
    }
    let report = handle.outcome_blocking();
    engine.shutdown_blocking(Duration::ZERO);
    (report, heard)
}

#[test]
fn a_run_stopped_during_a_compression_ends_with_an_unchanged_conversation() {
    let hangs = |more: &Value| triggered("hangs", &[ask("m", "hangs")], json!({}), more);
    let summary = node(
        "compress",
        "CONTEXT_PROCESSOR",
        json!({"operation": "compress", "strategy": "summarize", "parameters": {"profileId": "hangs", "keepRecent": 2}}),
    );
    let long = json!({"timeout": 30});
    let alongside = json!({"timeout": 30, "waitForCompletion": false});
    let ways = [
        hangs(&long),
        hangs(&alongside),
        triggered("summary", std::slice::from_ref(&summary), json!({}), &long),
        triggered("summary", &[summary], json!({}), &alongside),
    ];
    for way in &ways {
        for (stop, status) in [
            (Stop::Cancel, ThreadStatus::Cancelled),
            (Stop::Shutdown, ThreadStatus::Cancelled),
            (Stop::RunTimeout, ThreadStatus::Timeout),
        ] {
            let name = format!("{} {stop:?} {}", way.name, way.action["parameters"]);
            let (report, events) = stopped(way, stop);
            assert_eq!(report.status, status, "{name}: {:?}", report.error);
            let messages: Vec<Message> = report
                .conversation
                .messages
                .iter()
                .map(|message| (**message).clone())
                .collect();
            let before = long_conversation();
            assert_eq!(messages[..before.len()], before[..], "{name}");
            assert!(
                report.conversation.mark_map.batch_boundaries.len() <= 1,
                "{name}: nothing was archived"
            );
            accounted(&name, &report, &events, true);
        }
    }
}

#[test]
fn a_refused_compression_also_raises_compression_failed() {
    let sub = triggered("", &[], json!({}), &json!({})).workflow;
    let mut main = line("main", &[ask("A", "main"), wait("rest", 10)]);
    main["config"] = json!({"tokenLimit": 200});
    // One compression runs and fifteen are queued, so one of 17 is refused.
    let trigger = |no: usize| {
        json!({"id": format!("t{no}"), "type": "EVENT", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
            "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}})
    };
    let triggers: Vec<Value> = (0..17).map(trigger).collect();
    let bundle = json!({"workflows": [main, sub], "triggers": triggers, "profiles": profiles()});
    let engine = Engine::builder()
        .virtual_time(Some(3))
        .model("panics", Arc::new(Panics));
    let ran = run_in(engine, &bundle, Value::Null, long_conversation());
    assert_eq!(ran.report.status, ThreadStatus::Completed);
    let refused = ran
        .report
        .firings
        .iter()
        .filter(|firing| firing.outcome == FiringOutcome::Refused);
    assert_eq!((ran.report.firings.len(), refused.count()), (17, 1));
    let count = |event_type| ran.of(event_type).len();
    assert_eq!(count(EventType::TokenLimitExceeded), 1);
    assert_eq!(
        (
            count(EventType::CompressionCompleted),
            count(EventType::CompressionFailed)
        ),
        (16, 1)
    );
}

#[test]
fn the_event_of_the_limit_reports_a_current_turn_that_alone_exceeds_it() {
    for (prompt, is_above) in [("word ".repeat(300), true), ("short".to_owned(), false)] {
        let ask = node("ask", "LLM", json!({"profileId": "main", "prompt": prompt}));
        let mut main = line("main", &[ask]);
        main["config"] = json!({"tokenLimit": 200});
        let bundle = json!({"workflows": [main], "profiles": profiles()});
        let ran = run_in(engine(1), &bundle, Value::Null, long_conversation());
        let exceeded = ran.of(EventType::TokenLimitExceeded);
        assert_eq!(exceeded.len(), 1, "{is_above}");
        let fields = &exceeded[0].raised.fields;
        let turn = fields.get("currentTurnTokens").and_then(Value::as_u64);
        assert_eq!(turn.is_some_and(|turn| turn > 200), is_above, "{fields:?}");
        assert!(turn <= fields.get("tokensUsed").and_then(Value::as_u64), "{fields:?}");
    }
}
