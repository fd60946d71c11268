//! A run that exceeds its memory limit ends with an error that names its largest part; the process continues.

use futures::executor::block_on_stream;
use pirn::{Engine, EngineBuilder, Events, RunErrorCode, RunReport, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{code, forked, node, run_in, workflow};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn engine() -> EngineBuilder {
    Engine::builder().virtual_time(Some(1))
}

/// Runs a bundle, also rebuilt from its recorded inputs, which must fail at that step too.
fn run(bundle: &Value, input: Value) -> RunReport {
    run_in(engine(), bundle, input, Vec::new()).report
}

#[track_caller]
fn assert_exceeded(report: &RunReport, largest: &str) {
    assert_eq!(report.status, ThreadStatus::Failed);
    let error = report.error.as_ref().expect("an error");
    assert_eq!(error.code, RunErrorCode::MemoryLimitExceeded, "{error}");
    assert!(error.message.contains(largest), "{error}");
}

fn limited(mut workflow: Value, bytes: u64) -> Value {
    workflow["config"] = json!({ "maxSteps": 1_000_000, "limits": { "runBytes": bytes } });
    workflow
}

#[test]
fn a_list_that_a_join_doubles_ends_at_a_limit() {
    let mut doubles = forked(
        &[
            vec![node(
                "a",
                "VARIABLE",
                json!({"variableName": "acc", "expression": "src"}),
            )],
            vec![node(
                "b",
                "VARIABLE",
                json!({"variableName": "acc", "expression": "src"}),
            )],
        ],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": "all"}),
    );
    doubles["variables"] = json!([
        {"name": "acc", "value": null, "reduce": "append"},
        {"name": "src", "value": [1]},
    ]);
    let nodes = doubles["nodes"].as_array_mut().expect("nodes");
    nodes.push(node(
        "reset",
        "VARIABLE",
        json!({"variableName": "acc", "expression": "null"}),
    ));
    nodes.push(node(
        "keep",
        "VARIABLE",
        json!({"variableName": "src", "expression": "acc"}),
    ));
    doubles["edges"] = json!([
        {"from": "start", "to": "reset"}, {"from": "reset", "to": "fork"},
        {"from": "fork", "to": "a"}, {"from": "fork", "to": "b"},
        {"from": "a", "to": "join"}, {"from": "b", "to": "join"},
        {"from": "join", "to": "keep"}, {"from": "keep", "to": "reset", "weight": 2},
        {"from": "keep", "to": "end", "condition": "false"},
    ]);
    let report = run(&limited(doubles, MIB), Value::Null);
    assert_exceeded(&report, "the largest part is the ");
}

/// Calls a workflow `times` times that returns `bytes` bytes.
fn calls(times: u64, bytes: usize, runs: &Value) -> Value {
    let mut caller = workflow(
        "caller",
        &[
            node("start", "START", json!({})),
            node(
                "each",
                "LOOP_START",
                json!({"loopId": "l", "dataSource": {"iterable": times}}),
            ),
            node("call", "SUBGRAPH", json!({"subgraphId": "callee"})),
            node("forget", "CODE", json!({"function": "forget"})),
            node("next", "LOOP_END", json!({"loopId": "l"})),
            node("end", "END", json!({"output": "'done'"})),
        ],
        &["start>each>call>forget>next>end"],
    );
    caller["config"] = json!({"maxSteps": 1_000_000, "limits": {"runBytes": runs}});
    let inner = workflow(
        "callee",
        &[
            node("start", "START", json!({})),
            node("make", "CODE", json!({"function": "make", "input": bytes})),
            node("end", "END", json!({})),
        ],
        &["start>make>end"],
    );
    json!({ "workflows": [caller, inner] })
}

fn makes() -> EngineBuilder {
    let text = |input: &Value| Value::from("x".repeat(input.as_u64().unwrap_or(0) as usize));
    engine()
        .function("make", move |input| Ok(text(input)))
        .function("forget", |_| Ok(Value::Null))
}

#[test]
fn outputs_of_called_workflows_are_released() {
    let bundle = calls(500, 64 << 10, &json!(2 * MIB));
    let engine = makes().workflows(bundle.to_string()).build().expect("an engine");
    let run = engine.start("caller", Value::Null).expect("a run");
    let report = run.outcome_blocking();
    assert_eq!(report.output, json!("done"), "{:?}", report.error);
}

#[test]
fn a_shared_value_counts_once() {
    // A hundred branches with a variable each hold one value.
    let branches: Vec<Vec<Value>> = (0..100)
        .map(|no| {
            let assign = json!({"variableName": format!("v{no}"), "expression": "input"});
            vec![node(&format!("n{no}"), "VARIABLE", assign)]
        })
        .collect();
    let join = json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": "none"});
    let input = || Value::from("x".repeat(100_000));
    let joined = |strategy: &Value| {
        let mut workflow = limited(forked(&branches, false, strategy), MIB);
        let nodes = workflow["nodes"].as_array_mut().expect("nodes");
        nodes.push(code("after", "return 1"));
        let edges = workflow["edges"].as_array_mut().expect("edges");
        edges.retain(|edge| edge["from"] != "join");
        edges.extend([
            json!({"from": "join", "to": "after"}),
            json!({"from": "after", "to": "end"}),
        ]);
        run(&workflow, input())
    };
    // The output of the JOIN is a hundred copies.
    assert_exceeded(&joined(&join), "the output of `join`");
    let report = joined(&json!({"joinStrategy": "ANY_COMPLETED"}));
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
}

#[test]
fn values_of_all_variables_of_a_thread_count_toward_one_limit() {
    // Each value is small, their sum is not.
    let vars: Vec<Value> = (0..40)
        .map(|no| {
            let expression = format!("'{no}'.concat('x'.repeat(20000))");
            node(
                &format!("n{no}"),
                "VARIABLE",
                json!({"variableName": format!("v{no}"), "expression": expression}),
            )
        })
        .collect();
    let ids: Vec<String> = (0..40).map(|no| format!("n{no}")).collect();
    let mut nodes = vec![node("start", "START", json!({}))];
    nodes.extend(vars);
    nodes.push(node("end", "END", json!({})));
    let way = format!("start>{}>end", ids.join(">"));
    let gathers = workflow("gathers", &nodes, &[&way]);
    assert_exceeded(&run(&limited(gathers.clone(), MIB / 4), Value::Null), "`");
    let report = run(&limited(gathers, 64 * MIB), Value::Null);
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
}

#[test]
fn an_exceeded_limit_names_the_conversation_that_grew() {
    let mut talks = workflow(
        "talks",
        &[
            node("start", "START", json!({})),
            node(
                "say",
                "CONTEXT_PROCESSOR",
                json!({"operation": "insert", "messages": [{"role": "user", "content": "{{input}}"}]}),
            ),
            node("end", "END", json!({})),
        ],
        &[],
    );
    talks["edges"] = json!([
        {"from": "start", "to": "say"}, {"from": "say", "to": "say", "weight": 2},
        {"from": "say", "to": "end", "condition": "false"},
    ]);
    let report = run(&limited(talks, MIB), Value::from("x".repeat(20_000)));
    assert_exceeded(&report, "the conversation");
}

#[test]
fn messages_before_a_join_count_toward_the_limit() {
    let assign = |id: &str| node(id, "VARIABLE", json!({"variableName": "v", "expression": "1"}));
    let join = json!({"joinStrategy": "ALL_COMPLETED"});
    let mut talks = forked(&[vec![assign("a")], vec![assign("b")]], false, &join);
    let say = json!({"operation": "insert", "messages": [{"role": "user", "content": "{{input}}"}]});
    let nodes = talks["nodes"].as_array_mut().expect("nodes");
    nodes.push(node("say", "CONTEXT_PROCESSOR", say));
    talks["edges"] = json!([
        {"from": "start", "to": "say"}, {"from": "say", "to": "fork"},
        {"from": "fork", "to": "a"}, {"from": "fork", "to": "b"},
        {"from": "a", "to": "join"}, {"from": "b", "to": "join"},
        {"from": "join", "to": "say", "weight": 2}, {"from": "join", "to": "end", "condition": "false"},
    ]);
    let mut talks = limited(talks, MIB);
    talks["config"]["maxSteps"] = json!(1_000);
    let report = run(&talks, Value::from("x".repeat(20_000)));
    assert_exceeded(&report, "the conversation");
}

#[test]
fn the_engines_limit_applies_to_runs_without_one() {
    let doubles = workflow(
        "makes",
        &[
            node("start", "START", json!({})),
            code("make", "return 'x'.repeat(300000)"),
            code("after", "return 1"),
            node("end", "END", json!({})),
        ],
        &["start>make>after>end"],
    );
    let ran = run_in(engine().max_run_bytes(MIB / 4), &doubles, Value::Null, Vec::new());
    assert_exceeded(&ran.report, "the output of `make`");
    let ran = run_in(
        engine().max_run_bytes(MIB / 4),
        &limited(doubles, 64 * MIB),
        Value::Null,
        Vec::new(),
    );
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
}

/// Returns a workflow that assigns its input to a variable `times` times.
fn assigns_texts(times: usize) -> Value {
    let mut looping = workflow(
        "texts",
        &[
            node("s", "START", json!({})),
            node(
                "text",
                "VARIABLE",
                json!({"variableName": "text", "expression": "input"}),
            ),
            node("count", "VARIABLE", json!({"variableName": "n", "expression": "n + 1"})),
            node(
                "again",
                "ROUTE",
                json!({"routes": [{"condition": format!("n < {times}"), "targetNodeId": "text"}], "defaultTargetNodeId": "e"}),
            ),
            node("e", "END", json!({"output": "n"})),
        ],
        &["s>text>count>again"],
    );
    looping["variables"] = json!([{"name": "text", "value": ""}, {"name": "n", "value": 0}]);
    limited(looping, 100 * MIB)
}

/// Reads a stream to its end. Returns the memory of its events in bytes, their number, and the number of those that were dropped.
fn read(events: Events) -> (u64, u64, u64) {
    block_on_stream(events).fold((0, 0, 0), |(bytes, events, missed), item| match item {
        SubscriptionItem::Event(event) => (bytes + event.raised.fields.memory(), events + 1, missed),
        SubscriptionItem::Lagged(count) => (bytes, events, missed + count),
    })
}

#[test]
fn events_that_nobody_reads_use_limited_memory_and_the_dropped_ones_are_counted() {
    let engine = engine()
        .workflows(assigns_texts(100).to_string())
        .build()
        .expect("builds");
    let mut run = engine.run("texts").input(json!("x".repeat(1 << 20)));
    let streams: Vec<Events> = (0..8).map(|_| run.events(&[], 1_000_000)).collect();
    let run = run.start().expect("starts");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    // The bus delivers events after the run has ended; an event that arrives during the reading finds released memory.
    engine.wait_idle();
    let read_streams: Vec<_> = streams.into_iter().map(read).collect();
    let events = read_streams[0].1 + read_streams[0].2;
    for (bytes, received, missed) in &read_streams {
        assert!(*bytes <= 66 * MIB, "{bytes} bytes in one stream");
        assert!(*bytes >= MIB, "{bytes} bytes: a stream has memory of its own");
        assert_eq!(received + missed, events);
    }
    let bytes: u64 = read_streams.iter().map(|(bytes, ..)| bytes).sum();
    assert!(bytes <= (256 + 2 * 8) * MIB, "{bytes} bytes in all streams");
    // All memory has been released: a subscriber receives at least the events that fit into the limit of its stream, even if it reads
    // none until the run has ended. These are 63, because an event is larger than its text of 1 MiB.
    let mut run = engine.run("texts").input(json!("x".repeat(1 << 20)));
    let stream = run.events(&[], 1_000_000);
    let reader = std::thread::spawn(move || read(stream));
    let run = run.start().expect("starts");
    run.wait_all_ended_blocking();
    let (bytes, received, missed) = reader.join().expect("ends");
    assert!(bytes >= 63 * MIB, "{bytes} bytes");
    assert_eq!(received + missed, events);
}
