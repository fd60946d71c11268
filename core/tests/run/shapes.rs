//! Small trees of threads, and the workflows that produce them.

use serde_json::{Value, json};

/// Behaviour of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    /// Calls an asynchronous function.
    Work,
    /// Starts branches and waits for the join.
    Fork(Strategy, &'static [Does]),
    /// Calls a workflow and waits for its end.
    Call(&'static Does),
    /// Runs a workflow for each of several items, and waits for the join.
    Map(Strategy, usize, &'static Does),
    /// Asks a person, who answers or lets the time limit pass.
    Ask,
    /// Calls an asynchronous tool that needs approval.
    Consent,
    /// Repeats, up to a number of times, until a failure.
    Repeat(u32, &'static Does),
    /// Calls an asynchronous function while a sub-workflow of a trigger runs. Does not wait for the sub-workflow.
    Triggered(&'static Does),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    AllCompleted,
    AnyCompleted,
    AllFailed,
    AnyFailed,
    /// `ANY_COMPLETED` with detached losers.
    AnyDetached,
    TwoCompleted,
}

use Does::{Ask, Call, Consent, Fork, Map, Repeat, Triggered, Work};
use Strategy::{AllCompleted, AllFailed, AnyCompleted, AnyDetached, AnyFailed, TwoCompleted};

/// Trees of up to five threads.
pub(crate) const SHAPES: &[Does] = &[
    Work,
    Call(&Work),
    Call(&Call(&Work)),
    Fork(AllCompleted, &[Work, Work, Work]),
    Fork(AnyCompleted, &[Work, Work, Work]),
    Fork(AllFailed, &[Work, Work]),
    Fork(AllCompleted, &[Work, Work, Work, Work]),
    Fork(AnyFailed, &[Fork(AllFailed, &[Work, Work]), Work]),
    Fork(AnyDetached, &[Fork(AnyDetached, &[Work, Work]), Work]),
    Fork(AnyFailed, &[Work, Work]),
    Fork(AnyDetached, &[Work, Work, Work]),
    Fork(AllCompleted, &[Fork(AnyCompleted, &[Work, Work]), Work]),
    Fork(AnyCompleted, &[Fork(AllCompleted, &[Work, Work]), Work]),
    Fork(AnyDetached, &[Fork(AllCompleted, &[Work, Work]), Work]),
    Fork(AnyCompleted, &[Call(&Work), Work]),
    Fork(AllFailed, &[Call(&Work), Call(&Work)]),
    Fork(AnyDetached, &[Call(&Work), Work]),
    Call(&Fork(AnyFailed, &[Work, Work])),
    Call(&Fork(AnyDetached, &[Work, Work])),
    Triggered(&Work),
    Triggered(&Call(&Work)),
    Triggered(&Fork(AnyCompleted, &[Work, Work])),
    Call(&Triggered(&Work)),
];

/// Maps, questions, calls that need approval, and loops.
pub(crate) const MORE_SHAPES: &[Does] = &[
    Ask,
    Consent,
    Call(&Ask),
    Call(&Consent),
    Repeat(3, &Work),
    Repeat(3, &Ask),
    Repeat(2, &Consent),
    Repeat(2, &Fork(AnyCompleted, &[Work, Work])),
    Repeat(2, &Fork(AllCompleted, &[Ask, Work])),
    Repeat(2, &Fork(AnyFailed, &[Ask, Ask])),
    Repeat(2, &Map(AnyCompleted, 2, &Work)),
    Repeat(2, &Map(AllFailed, 2, &Ask)),
    Map(AllCompleted, 3, &Work),
    Map(AnyCompleted, 3, &Ask),
    Map(AllFailed, 2, &Ask),
    Map(AnyFailed, 2, &Consent),
    Map(AnyDetached, 3, &Ask),
    Map(TwoCompleted, 3, &Work),
    Map(TwoCompleted, 3, &Ask),
    Map(AllCompleted, 2, &Repeat(2, &Work)),
    Map(AnyCompleted, 2, &Fork(AllCompleted, &[Ask, Work])),
    Map(AllCompleted, 2, &Call(&Ask)),
    Fork(AllCompleted, &[Ask, Ask, Work]),
    Fork(AnyCompleted, &[Ask, Consent]),
    Fork(AnyDetached, &[Ask, Work]),
    Fork(TwoCompleted, &[Ask, Work, Ask]),
    Fork(AnyCompleted, &[Map(AllCompleted, 2, &Ask), Work]),
    Call(&Map(AnyDetached, 2, &Ask)),
    Triggered(&Ask),
];

/// Builds the workflows of a shape. `main` has this time limit.
pub(crate) fn bundle(shape: Does, timeout_ms: u64) -> Value {
    let mut workflows = Vec::new();
    let mut main = workflow("main", shape, false, &mut workflows);
    main["config"] = json!({ "timeoutMs": timeout_ms });
    workflows.insert(0, main);
    json!({ "workflows": workflows })
}

fn workflow(id: &str, does: Does, is_triggered: bool, more: &mut Vec<Value>) -> Value {
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    let last = add(id, "n", does, &mut nodes, &mut edges, more);
    let (first, end) = if is_triggered {
        ("START_FROM_TRIGGER", "CONTINUE_FROM_TRIGGER")
    } else {
        ("START", "END")
    };
    nodes.push(json!({"id": "start", "type": first}));
    nodes.push(json!({"id": "end", "type": end}));
    edges.push(json!({"from": "start", "to": "n"}));
    edges.push(json!({"from": last, "to": "end"}));
    json!({"id": id, "nodes": nodes, "edges": edges})
}

/// Adds nodes for a behaviour, starting at `id`, and returns the last node.
fn add(
    workflow_id: &str,
    id: &str,
    does: Does,
    nodes: &mut Vec<Value>,
    edges: &mut Vec<Value>,
    more: &mut Vec<Value>,
) -> String {
    match does {
        Work | Triggered(_) => {
            nodes.push(json!({"id": id, "type": "CODE", "config": {"function": "work"}}));
            if let Triggered(child) = does {
                let name = triggered_by(workflow_id);
                let child = workflow(&name, *child, true, more);
                more.push(child);
            }
            id.to_owned()
        }
        Call(child) => {
            let name = format!("{workflow_id}-{id}");
            let child = workflow(&name, *child, false, more);
            more.push(child);
            nodes.push(json!({"id": id, "type": "SUBGRAPH", "config": {"subgraphId": name}}));
            id.to_owned()
        }
        Ask => {
            nodes
                .push(json!({"id": id, "type": "USER_INTERACTION", "config": {"question": "Well?", "timeoutMs": 500}}));
            id.to_owned()
        }
        Consent => {
            nodes.push(json!({"id": id, "type": "TOOL", "config": {"tool": "look", "arguments": {}}}));
            id.to_owned()
        }
        Repeat(times, body) => {
            let (first, end) = (format!("{id}-body"), format!("{id}-end"));
            nodes.push(json!({"id": id, "type": "LOOP_START",
                "config": {"loopId": id, "maxIterations": times, "onLimit": "finish"}}));
            nodes.push(json!({"id": end, "type": "LOOP_END", "config": {"loopId": id}}));
            let last = add(workflow_id, &first, *body, nodes, edges, more);
            edges.push(json!({"from": id, "to": first}));
            edges.push(json!({"from": last, "to": end}));
            end
        }
        Map(strategy, count, item) => {
            let name = format!("{workflow_id}-{id}");
            let item = workflow(&name, *item, false, more);
            more.push(item);
            let mut config = strategy_of(strategy);
            config["subgraphId"] = json!(name);
            // A literal list: it is evaluated without JavaScript, which this test does not have.
            config["items"] = json!(format!("{:?}", vec![0; count]));
            config["maxItems"] = json!(count);
            nodes.push(json!({"id": id, "type": "MAP", "config": config}));
            id.to_owned()
        }
        Fork(strategy, paths) => {
            let join = format!("{id}-join");
            let ids: Vec<String> = (0..paths.len()).map(|path| format!("{id}{path}")).collect();
            nodes.push(json!({"id": id, "type": "FORK",
                "config": {"forkPathIds": ids, "childNodeIds": ids, "forkStrategy": "parallel"}}));
            let mut config = strategy_of(strategy);
            config["forkPathIds"] = json!(ids);
            nodes.push(json!({"id": join, "type": "JOIN", "config": config}));
            for (path, does) in ids.iter().zip(paths) {
                let last = add(workflow_id, path, *does, nodes, edges, more);
                edges.push(json!({"from": id, "to": path}));
                edges.push(json!({"from": last, "to": join}));
            }
            join
        }
    }
}

fn strategy_of(strategy: Strategy) -> Value {
    let (name, on_decided) = match strategy {
        AllCompleted => ("ALL_COMPLETED", "cancel"),
        AnyCompleted => ("ANY_COMPLETED", "cancel"),
        AllFailed => ("ALL_FAILED", "cancel"),
        AnyFailed => ("ANY_FAILED", "cancel"),
        AnyDetached => ("ANY_COMPLETED", "detach"),
        TwoCompleted => ("SUCCESS_COUNT_THRESHOLD", "cancel"),
    };
    let mut config = json!({"joinStrategy": name, "onDecided": on_decided, "timeout": 0.2});
    if strategy == TwoCompleted {
        config["threshold"] = json!(2);
    }
    config
}

/// Returns the id of the workflow that a trigger starts for a thread of this one.
pub(crate) fn triggered_by(workflow_id: &str) -> String {
    format!("{workflow_id}-triggered")
}
