//! Workflow definitions of the workloads.

use serde_json::{Value, json};

use crate::workload::WAITS;

/// Chain of calls of the function `next`, each with the output of the previous one.
pub fn chain(nodes: usize) -> Value {
    let node = json!({"type": "CODE", "config": {"function": "next", "input": "output"}});
    let mut workflow = line(&format!("chain-{nodes}"), nodes, &node);
    workflow["config"] = json!({"maxSteps": nodes + 2});
    workflow
}

/// Chain of expressions, prompts and scripts in turn: a large file like those that people write.
pub fn mixed(nodes: usize) -> Value {
    let kinds = [
        json!({"type": "VARIABLE", "config": {"variableName": "n", "expression": "(variables.n || 0) + 1"}}),
        json!({"type": "LLM", "config": {"prompt": "Step {{n}}: what is next after {{input.topic}}?", "system": "Be brief."}}),
        json!({"type": "CODE", "config": {"code": "const seen = (input || '') + '';\nreturn seen.length;"}}),
    ];
    let mut list = vec![json!({"id": "start", "type": "START"})];
    list.extend(
        kinds
            .iter()
            .cycle()
            .take(nodes.saturating_sub(2))
            .enumerate()
            .map(|(n, node)| named(node, &format!("n{n}"))),
    );
    linked("mixed", list)
}

/// Like [`mixed`], but with distinct texts, so that no result for one node can be reused for another.
pub fn varied(nodes: usize) -> Value {
    let list = (0..nodes.saturating_sub(2)).map(|n| {
        let node = match n % 3 {
            0 => json!({"type": "VARIABLE", "config": {"variableName": "n", "expression": format!("(variables.n || 0) + {n}")}}),
            1 => json!({"type": "LLM", "config": {"prompt": format!("Step {n} of {{{{n}}}}: what is next after {{{{input.topic}}}}?"), "system": "Be brief."}}),
            _ => json!({"type": "CODE", "config": {"code": format!("const seen = (input || '') + '{n}';\nreturn seen.length;")}}),
        };
        named(&node, &format!("n{n}"))
    });
    let start = json!({"id": "start", "type": "START"});
    linked("varied", std::iter::once(start).chain(list).collect())
}

/// Ten sequential waits of a millisecond.
pub fn waits() -> Value {
    line("waits", WAITS, &json!({"type": "WAIT", "config": {"seconds": 0.001}}))
}

/// Wait that does not end during the benchmark.
pub fn idle() -> Value {
    line("idle", 1, &json!({"type": "WAIT", "config": {"seconds": 100_000}}))
}

/// Workflow that calls its model `turns` times in a loop, calls `arrive`, and then waits.
pub fn turns(turns: u64) -> Value {
    let each = json!({"loopId": "l", "dataSource": {"iterable": turns}});
    let nodes = [
        json!({"id": "start", "type": "START"}),
        json!({"id": "each", "type": "LOOP_START", "config": each}),
        json!({"id": "ask", "type": "LLM", "config": {"prompt": "and now?"}}),
        json!({"id": "next", "type": "LOOP_END", "config": {"loopId": "l"}}),
        json!({"id": "arrive", "type": "CODE", "config": {"function": "arrive"}}),
        json!({"id": "wait", "type": "WAIT", "config": {"seconds": 100_000}}),
        json!({"id": "end", "type": "END"}),
    ];
    let edges: Vec<_> = nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    let config = json!({"maxSteps": 1_000_000});
    json!({"id": "turns", "config": config, "nodes": nodes, "edges": edges})
}

/// Question to a person.
pub fn asks() -> Value {
    line(
        "asks",
        1,
        &json!({"type": "USER_INTERACTION", "config": {"question": "On?"}}),
    )
}

/// Fork into branches that call `next` once.
pub fn fork(branches: usize) -> Value {
    let node = json!({"type": "CODE", "config": {"function": "next"}});
    forked(
        &format!("fork-{branches}"),
        &vec![node; branches],
        "ALL_COMPLETED",
        None,
    )
}

/// MAP over a list of items. Its workflow calls `next` once.
pub fn map(items: usize) -> Value {
    let id = format!("map-{items}");
    let config = json!({"items": vec![1; items], "subgraphId": "map-each", "maxItems": items});
    let over = linked(
        &id,
        vec![
            json!({"id": "start", "type": "START"}),
            json!({"id": "map", "type": "MAP", "config": config}),
        ],
    );
    let each = line("map-each", 1, &json!({"type": "CODE", "config": {"function": "next"}}));
    json!({"workflows": [over, each]})
}

/// Fork into branches that wait for the whole benchmark.
pub fn fork_of_idle(branches: usize) -> Value {
    let node = json!({"type": "WAIT", "config": {"seconds": 100_000}});
    forked("idle-fork", &vec![node; branches], "ALL_COMPLETED", None)
}

/// Fork into one branch that waits for the event `go` and `losers` that sleep. Calls `stamp` when the join is decided.
pub fn any(losers: usize) -> Value {
    let mut nodes = vec![json!({"type": "WAIT", "config": {"event": "go"}})];
    nodes.resize(losers + 1, json!({"type": "WAIT", "config": {"seconds": 1_000}}));
    forked(&format!("any-{losers}"), &nodes, "ANY_COMPLETED", Some("stamp"))
}

/// Fork into branches that each add a message.
pub fn talk(branches: usize) -> Value {
    let message = json!([{"role": "user", "content": "mine"}]);
    let node = json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "insert", "messages": message}});
    forked(
        &format!("talk-{branches}"),
        &vec![node; branches],
        "ALL_COMPLETED",
        None,
    )
}

/// Fork into branches that compute on the work threads.
pub fn cpu(branches: usize) -> Value {
    let node = json!({"type": "CODE", "config": {"function": "spin"}});
    forked(&format!("cpu-{branches}"), &vec![node; branches], "ALL_COMPLETED", None)
}

/// Wait for the event `over`.
pub fn source() -> Value {
    line("source", 1, &json!({"type": "WAIT", "config": {"event": "over"}}))
}

/// Ten triggers for each event name, each for one value of `v`, that call the function `hit`.
pub fn triggers(count: usize) -> Value {
    let names = count / 10;
    let list: Vec<Value> = (0..count)
        .map(|n| {
            json!({"id": format!("t{n}"), "type": "EVENT",
                "condition": {"eventType": "CUSTOM", "eventName": format!("E{}", n % names), "expression": format!("event.data.v === {}", n / names)},
                "action": {"type": "CUSTOM", "parameters": {"function": "hit"}}})
        })
        .collect();
    json!({"workflows": [source()], "triggers": list})
}

/// Chain of copies of a node.
pub fn line(id: &str, count: usize, node: &Value) -> Value {
    let mut nodes = vec![json!({"id": "start", "type": "START"})];
    nodes.extend((0..count).map(|n| named(node, &format!("n{n}"))));
    linked(id, nodes)
}

/// Connects nodes in a chain, and appends an END.
fn linked(id: &str, mut nodes: Vec<Value>) -> Value {
    nodes.push(json!({"id": "end", "type": "END"}));
    let edges: Vec<Value> = nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    json!({"id": id, "nodes": nodes, "edges": edges})
}

fn forked(id: &str, branches: &[Value], strategy: &str, after: Option<&str>) -> Value {
    let paths: Vec<String> = (0..branches.len()).map(|n| format!("p{n}")).collect();
    let children: Vec<String> = (0..branches.len()).map(|n| format!("b{n}")).collect();
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        json!({"id": "fork", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": children, "forkStrategy": "parallel"}}),
        json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": strategy}}),
        json!({"id": "end", "type": "END", "config": {"output": "0"}}),
    ];
    let mut edges = vec![json!({"from": "start", "to": "fork"})];
    match after {
        Some(function) => {
            nodes.push(json!({"id": "after", "type": "CODE", "config": {"function": function}}));
            edges.push(json!({"from": "join", "to": "after"}));
            edges.push(json!({"from": "after", "to": "end"}));
        }
        None => edges.push(json!({"from": "join", "to": "end"})),
    }
    for (child, node) in children.iter().zip(branches) {
        nodes.push(named(node, child));
        edges.push(json!({"from": "fork", "to": child}));
        edges.push(json!({"from": child, "to": "join"}));
    }
    json!({"id": id, "nodes": nodes, "edges": edges})
}

fn named(node: &Value, id: &str) -> Value {
    let mut node = node.clone();
    node["id"] = json!(id);
    node
}
