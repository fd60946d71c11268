//! The workflows, each with the status it ends with if no host thread acts on it.

use std::sync::Arc;

use pirn::{Engine, ThreadStatus};
use serde_json::{Value, json};

use crate::world::{code, forked, line, node, say, wait, workflow};

/// A workflow, and the status that it ends with if no thread acts on it.
pub(super) struct Workload {
    pub(super) id: &'static str,
    pub(super) ends: ThreadStatus,
}

const fn ends(id: &'static str, ends: ThreadStatus) -> Workload {
    Workload { id, ends }
}

pub(super) const WORKLOADS: [Workload; 10] = [
    ends("leaf", ThreadStatus::Completed),
    ends("race", ThreadStatus::Completed),
    ends("all", ThreadStatus::Completed),
    ends("serial", ThreadStatus::Completed),
    ends("doomed", ThreadStatus::Failed),
    ends("late", ThreadStatus::Failed),
    ends("call", ThreadStatus::Completed),
    ends("loop", ThreadStatus::Completed),
    ends("chat", ThreadStatus::Completed),
    ends("gate", ThreadStatus::Completed),
];

/// An engine with all of the workflows, and a limit on concurrent runs.
pub(super) fn engine(max_runs: usize) -> Result<Engine, String> {
    Engine::builder()
        .arbiters(2)
        .max_runs(max_runs)
        .function("one", |_| Ok(json!(1)))
        .function("fails", |_| Err("on purpose".to_owned()))
        .async_function("work", |input| Box::pin(async move { Ok(input) }))
        .workflows(bundle().to_string())
        .on_notification(|_, _| ())
        .build()
        .map_err(|error| error.to_string())
}

fn bundle() -> Value {
    let call = |id: &str, function: &str| node(id, "CODE", json!({ "function": function }));
    let named = |id: &str, mut workflow: Value| {
        workflow["id"] = json!(id);
        workflow
    };
    let race = forked(
        &[
            vec![call("a", "one")],
            vec![call("b", "work"), wait("bw", 2)],
            vec![call("c", "fails")],
            vec![wait("d", 60_000)],
        ],
        false,
        &json!({ "joinStrategy": "ANY_COMPLETED" }),
    );
    let all = forked(
        &[
            vec![say("a", "from a"), call("aw", "work")],
            vec![say("b", "from b"), wait("bw", 1)],
            vec![node(
                "v",
                "VARIABLE",
                json!({ "variableName": "v", "expression": "1", "scope": "global" }),
            )],
        ],
        false,
        &json!({ "joinStrategy": "ALL_COMPLETED", "mergeVariables": "all" }),
    );
    let serial = forked(
        &[
            vec![call("a", "fails")],
            vec![call("b", "one")],
            vec![call("c", "one")],
            vec![wait("d", 60_000)],
        ],
        true,
        &json!({ "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2 }),
    );
    let doomed = forked(
        &[vec![call("a", "fails")], vec![wait("b", 60_000)]],
        false,
        &json!({ "joinStrategy": "ALL_COMPLETED" }),
    );
    let late = forked(
        &[vec![wait("a", 60_000)], vec![wait("b", 60_000)]],
        false,
        &json!({ "joinStrategy": "ANY_COMPLETED", "timeout": 0.005 }),
    );
    let mut notified = line("leaf", &[call("one", "one")]);
    notified["triggers"] = json!([{"id": "note", "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'one'"},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "done"}}}]);
    let count = |expression: &str| json!({ "variableName": "n", "expression": expression });
    let looping = workflow(
        "loop",
        &[
            node("start", "START", json!({})),
            node("zero", "VARIABLE", count("0")),
            node("more", "VARIABLE", count("n + 1")),
            node(
                "route",
                "ROUTE",
                json!({"routes": [{"condition": "n < 20", "targetNodeId": "more"}], "defaultTargetNodeId": "end"}),
            ),
            node("end", "END", json!({})),
        ],
        &["start>zero>more>route"],
    );
    let mut chat = line(
        "chat",
        &[
            say("long", &"many words ".repeat(60)),
            node("llm", "LLM", json!({ "prompt": "Go on" })),
        ],
    );
    chat["config"] =
        json!({ "tokenLimit": 60, "compression": { "strategy": "keep_recent", "parameters": { "count": 1 } } });
    chat["triggers"] = json!([{"id": "compress", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "shrink"}}}]);
    let shrink = workflow(
        "shrink",
        &[
            node("first", "START_FROM_TRIGGER", json!({})),
            node(
                "keep",
                "CONTEXT_PROCESSOR",
                json!({ "operation": "truncate", "keepLast": 1 }),
            ),
            node("last", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["first>keep>last"],
    );
    let mut gate = line(
        "gate",
        &[node("wait", "WAIT", json!({ "event": "go", "timeout": 0.02 }))],
    );
    gate["nodes"][1]["onError"] = json!({ "targetNodeId": "end" });
    json!({
        "workflows": [
            notified, named("race", race), named("all", all), named("serial", serial), named("doomed", doomed), named("late", late),
            line("call", &[node("sub", "SUBGRAPH", json!({ "subgraphId": "all" })), code("after", "return 1")]),
            looping, chat, shrink, gate,
        ],
        "profiles": [{ "id": "default", "provider": "echo" }],
    })
}

/// Engines of a round, shared by its threads.
pub(super) type Engines = Arc<Vec<Engine>>;
