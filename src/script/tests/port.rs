//! Promises of the port that engines run CODE through.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use pirn_actors::ports::{ScriptAnswer, ScriptHandle, ScriptJob, Scripts};
use pirn_core::definition::WorkflowConfig;
use pirn_core::error::RunError;
use pirn_core::graph::{Graph, Snippet, SnippetKind};

use super::*;
use crate::script::{CodeLimits, HostFunctions, ScriptPort, evaluator};

type Answers = Receiver<Result<Arc<Value>, RunError>>;

fn graph(code: &str) -> Arc<Graph> {
    Arc::new(Graph {
        workflow_id: "w".into(),
        about: pirn_core::graph::About::default(),
        uid: u64::MAX,
        nodes: Vec::new(),
        start: 0,
        triggered: false,
        snippets: vec![Snippet {
            kind: SnippetKind::Code,
            source: code.into(),
        }],
        forks: Vec::new(),
        variables: Vec::new(),
        triggers: Vec::new(),
        config: WorkflowConfig::default(),
        by_id: std::collections::BTreeMap::new(),
    })
}

/// A port whose time limit a busy machine does not reach.
fn port() -> ScriptPort {
    ScriptPort::new(CodeLimits {
        time: Duration::from_mins(1),
        ..CodeLimits::default()
    })
}

fn start(port: &ScriptPort, code: &str, scope: &ScopeValues, inline: bool) -> (ScriptHandle, Answers) {
    let (told, heard) = channel();
    let answer: ScriptAnswer = Box::new(move |result| told.send(result).unwrap_or(()));
    let job = ScriptJob {
        graph: &graph(code),
        code: 0,
        input: Arc::new(json!({"of": "the node"})),
        scope,
        inline,
        seed: None,
    };
    (port.run(job, answer), heard)
}

fn inline(port: &ScriptPort, code: &str, variables: &Value) -> Result<Value, RunError> {
    let scope = scope(variables, &json!("of the thread"));
    let (_handle, heard) = start(port, code, &scope, true);
    let answer = heard
        .try_recv()
        .expect("an inline job is answered before the call returns");
    assert!(heard.recv().is_err(), "answered once");
    answer.map(|value| value.as_ref().clone())
}

#[test]
fn a_job_sees_the_nodes_input_and_the_scope() {
    let variables = json!({"n": 2});
    let code = "return [input.of, n]";
    let expected = json!(["the node", 2]);
    assert_eq!(inline(&port(), code, &variables), Ok(expected.clone()));

    let (_handle, heard) = start(&port(), code, &scope(&variables, &json!(0)), false);
    assert_eq!(heard.recv().unwrap(), Ok(Arc::new(expected)));
}

#[test]
fn an_error_keeps_its_code() {
    let error = inline(&port(), "throw new Error('no')", &json!({})).unwrap_err();
    assert_eq!(error.code, RunErrorCode::ScriptError);
}

#[test]
fn dropping_the_handle_stops_the_script() {
    let port = port();
    let (handle, heard) = start(&port, "for (;;) {}", &ScopeValues::default(), false);
    drop(handle);
    assert_eq!(heard.recv().unwrap().unwrap_err().code, RunErrorCode::Cancelled);
}

#[test]
fn too_many_waiting_jobs_are_refused_and_every_job_is_answered_once() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = Arc::clone(&gate);
    let functions = HostFunctions::default().with("hold", move |_| {
        let open = held.0.lock().unwrap();
        drop(held.1.wait_while(open, |open| !*open).unwrap());
        Ok(json!("held"))
    });
    let port = port().with_queue(1).with_functions(functions);
    // Each thread holds one, one waits: of two more than that, one must be refused.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs: Vec<_> = (0..cores + 2)
        .map(|_| start(&port, "return hold()", &ScopeValues::default(), false))
        .collect();
    let refused = jobs
        .iter()
        .filter_map(|(_, heard)| heard.try_recv().ok())
        .collect::<Vec<_>>();
    assert!(!refused.is_empty());
    assert!(
        refused
            .iter()
            .all(|answer| answer.as_ref().unwrap_err().code == RunErrorCode::Overloaded)
    );

    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let ended: Vec<_> = jobs.iter().filter_map(|(_, heard)| heard.recv().ok()).collect();
    assert!(ended.iter().all(|answer| *answer == Ok(Arc::new(json!("held")))));
    assert_eq!(ended.len() + refused.len(), cores + 2);
}

fn messages(count: usize) -> Value {
    let all = (0..count).map(|n| json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "content": format!("The storm hit bridge {n} again. Engineers came.")}));
    all.collect()
}

#[test]
fn compress_messages_takes_a_context_or_its_parts() {
    let config = json!({"strategy": "keep_recent", "parameters": {"count": 2}});
    let context = json!({"messages": messages(6), "markMap": null, "compressionConfig": config, "tokensUsed": 9, "triggerId": "t"});
    let variables = json!({ "compressionContext": context });
    let whole = inline(&port(), "return compressMessages(compressionContext)", &variables).unwrap();
    let parts = inline(
        &port(),
        "const { messages, markMap, compressionConfig } = compressionContext;
         return await compressMessages(messages, markMap, compressionConfig);",
        &variables,
    );
    assert_eq!(parts, Ok(whole.clone()));
    assert_eq!(
        (&whole["stats"]["originalCount"], &whole["stats"]["compressedCount"]),
        (&json!(6), &json!(2))
    );
    assert_eq!(whole["messages"][1]["content"], messages(6)[5]["content"]);

    let none = inline(
        &port(),
        "return compressMessages(compressionContext.messages)",
        &variables,
    )
    .unwrap();
    assert_eq!(none["messages"].as_array().unwrap().len(), 6);
}

#[test]
fn compress_messages_summarizes_offline() {
    let variables = json!({"all": messages(12)});
    let code = "return compressMessages(all, undefined, {strategy: 'summarize', parameters: {keepRecent: 2}})";
    let result = inline(&port(), code, &variables).unwrap();
    let shown = result["messages"].as_array().unwrap();
    assert_eq!(shown.len(), 3, "{result}");
    assert!(shown[0]["content"].as_str().unwrap().contains("storm"));
    assert_eq!(shown[0]["metadata"]["summaryOf"]["count"], json!(10));
    assert_eq!(inline(&port(), code, &variables), Ok(result));
}

#[test]
fn compress_messages_says_what_is_wrong_with_its_arguments() {
    for (call, part) in [
        ("compressMessages()", "CompressionContext"),
        ("compressMessages('x')", "CompressionContext"),
        ("compressMessages({})", "no `messages`"),
        ("compressMessages([{role: 'nobody'}])", "nobody"),
        ("compressMessages([], {currentBatch: 5, batchBoundaries: [9]})", ""),
        (
            "compressMessages([], null, {strategy: 'keep_recent', parameters: {count: 'x'}})",
            "count",
        ),
    ] {
        let error = inline(&port(), &format!("return {call}"), &json!({})).expect_err(call);
        assert!(
            error.code == RunErrorCode::ScriptError && error.message.contains(part),
            "{call}: {error}"
        );
    }
}

#[test]
fn an_evaluator_evaluates() {
    let scope = scope(&json!({"n": 20}), &json!(null));
    assert_eq!(
        evaluator()
            .value_of("n * 2 + 2", &scope)
            .map(|value| value.as_ref().clone()),
        Ok(json!(42))
    );
}
