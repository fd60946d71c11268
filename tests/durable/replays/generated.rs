//! Generated workflows of every node type, with triggers of every action, tools, questions, and a compression.

use pirn_tests::world::{code, line, node, say, wait, workflow};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The work of one node or of several nodes in sequence.
#[derive(Clone, Debug)]
enum Does {
    Script(u8),
    Work,
    Assign(u8),
    Global(u8),
    Say,
    Ask { tools: bool },
    Question,
    Wait(u8),
    WaitEvent,
    Call(&'static str),
    Context(&'static str),
    Tool,
    Route(u8),
    Map,
    Loop,
    Fork(Vec<Does>, Vec<Does>, &'static str),
}

fn simple() -> impl Strategy<Value = Does> {
    prop_oneof![
        2 => (0..9_u8).prop_map(Does::Script),
        2 => Just(Does::Work),
        2 => (0..3_u8).prop_map(Does::Assign),
        2 => (0..3_u8).prop_map(Does::Global),
        1 => Just(Does::Say),
        4 => any::<bool>().prop_map(|tools| Does::Ask { tools }),
        2 => Just(Does::Question),
        1 => (0..4_u8).prop_map(Does::Wait),
        1 => Just(Does::WaitEvent),
        2 => prop::sample::select(vec!["share", "fork", "none"]).prop_map(Does::Call),
        1 => prop::sample::select(vec!["keep_recent", "summarize", "clear"]).prop_map(Does::Context),
        1 => Just(Does::Tool),
        1 => (0..2_u8).prop_map(Does::Route),
        1 => Just(Does::Map),
        1 => Just(Does::Loop),
    ]
}

fn does() -> impl Strategy<Value = Does> {
    let path = || prop::collection::vec(simple(), 1..3);
    let strategies = prop::sample::select(vec!["ALL_COMPLETED", "ANY_COMPLETED"]);
    prop_oneof![
        7 => simple(),
        1 => (path(), path(), strategies).prop_map(|(one, other, strategy)| Does::Fork(one, other, strategy)),
    ]
}

/// Nodes in sequence and the edges between them.
#[derive(Default)]
struct Row {
    nodes: Vec<Value>,
    ways: Vec<String>,
    last: Option<String>,
}

impl Row {
    fn push(&mut self, node: Value) {
        let id = node["id"].as_str().expect("an id").to_owned();
        self.add_edge_to(&id);
        self.nodes.push(node);
        self.last = Some(id);
    }

    fn add_edge_to(&mut self, id: &str) {
        if let Some(last) = self.last.take() {
            self.ways.push(format!("{last}>{id}"));
        }
    }

    fn does(&mut self, id: &str, does: &Does) {
        let variable = |name: String, scope: &str, expression: String| {
            let config = json!({"variableName": name, "expression": expression, "scope": scope});
            node(id, "VARIABLE", config)
        };
        match does {
            Does::Script(n) => self.push(code(id, &format!("return {n} + 1"))),
            Does::Work => self.push(node(id, "CODE", json!({"function": "work"}))),
            Does::Assign(n) => self.push(variable(format!("thread{n}"), "thread", format!("'{id}'"))),
            Does::Global(n) => self.push(variable(
                format!("global{n}"),
                "global",
                format!("[output, '{id}'].length"),
            )),
            Does::Say => self.push(say(id, "some words that say little")),
            Does::Ask { tools } => {
                let tools = if *tools { json!(["look", "list"]) } else { json!([]) };
                let parameters = json!({"topP": 0.5});
                let config = json!({"prompt": format!("question {id}"), "tools": tools, "parameters": parameters});
                self.push(node(id, "LLM", config));
            }
            Does::Question => self.push(node(id, "USER_INTERACTION", json!({"question": format!("{id}?")}))),
            Does::Wait(n) => self.push(wait(id, u32::from(*n) * 5)),
            Does::WaitEvent => self.push(node(id, "WAIT", json!({"event": "GO", "timeout": 0.02}))),
            Does::Call(mode) => self.push(node(
                id,
                "SUBGRAPH",
                json!({"subgraphId": "called", "conversation": mode}),
            )),
            Does::Context("clear") => self.push(node(id, "CONTEXT_PROCESSOR", json!({"operation": "clear"}))),
            Does::Context(strategy) => {
                let parameters = json!({"count": 3, "keepRecent": 1});
                let config = json!({"operation": "compress", "strategy": strategy, "parameters": parameters});
                self.push(node(id, "CONTEXT_PROCESSOR", config));
            }
            Does::Tool => self.push(node(id, "TOOL", json!({"tool": "look", "arguments": {"of": id}}))),
            Does::Route(n) => {
                let (yes, no, after) = (format!("{id}y"), format!("{id}n"), format!("{id}z"));
                let routes = json!([{"condition": format!("{n} == 0"), "targetNodeId": yes}]);
                self.push(node(id, "ROUTE", json!({"routes": routes, "defaultTargetNodeId": no})));
                for branch in [&yes, &no] {
                    let config = json!({"variableName": "routed", "expression": format!("'{branch}'")});
                    self.nodes.push(node(branch, "VARIABLE", config));
                    self.ways.push(format!("{id}>{branch}>{after}"));
                }
                self.last = None;
                self.push(code(&after, "return 'routed'"));
            }
            Does::Map => self.push(node(id, "MAP", json!({"items": "[1, 2, 3]", "subgraphId": "item"}))),
            Does::Loop => {
                let data = json!({"iterable": 2, "variableName": format!("{id}n")});
                self.push(node(id, "LOOP_START", json!({"loopId": id, "dataSource": data})));
                self.push(node(&format!("{id}w"), "CODE", json!({"function": "work"})));
                self.push(node(&format!("{id}e"), "LOOP_END", json!({"loopId": id})));
            }
            Does::Fork(one, other, strategy) => {
                let join = format!("{id}j");
                let mut firsts = Vec::new();
                let before = self.nodes.len();
                let mut ways = Vec::new();
                for (name, path) in [("p", one), ("q", other)] {
                    let mut row = Row::default();
                    for (place, does) in path.iter().enumerate() {
                        row.does(&format!("{id}{name}{place}"), does);
                    }
                    let first = row.nodes[0]["id"].as_str().expect("an id").to_owned();
                    row.add_edge_to(&join);
                    ways.push(format!("{id}>{first}"));
                    ways.append(&mut row.ways);
                    firsts.push(first);
                    self.nodes.append(&mut row.nodes);
                }
                self.add_edge_to(id);
                let fork = json!({"forkPathIds": firsts, "childNodeIds": firsts});
                self.nodes.insert(before, node(id, "FORK", fork));
                self.ways.append(&mut ways);
                let config = json!({"forkPathIds": firsts, "joinStrategy": strategy, "mergeVariables": "all"});
                self.push(node(&join, "JOIN", config));
            }
        }
    }
}

/// The action of a trigger.
#[derive(Clone, Copy, Debug)]
enum Acts {
    Watch { waits: bool },
    Start,
    Set,
    Note,
    Notify,
}

fn acts() -> impl Strategy<Value = Acts> {
    prop_oneof![
        3 => any::<bool>().prop_map(|waits| Acts::Watch { waits }),
        1 => Just(Acts::Start),
        1 => Just(Acts::Set),
        1 => Just(Acts::Note),
        1 => Just(Acts::Notify),
    ]
}

/// A generated bundle.
#[derive(Clone, Debug)]
pub(crate) struct Everything {
    main: Vec<Does>,
    triggers: Vec<(usize, Acts)>,
    compresses: bool,
    has_pinned: bool,
}

pub(crate) fn everything() -> impl Strategy<Value = Everything> {
    let triggers = prop::collection::vec((0..4_usize, acts()), 0..3);
    let flags = (any::<bool>(), any::<bool>());
    (prop::collection::vec(does(), 1..6), triggers, flags).prop_map(|(main, triggers, (compresses, has_pinned))| {
        Everything {
            main,
            triggers,
            compresses,
            has_pinned,
        }
    })
}

impl Everything {
    /// Returns workflow `main` and the workflows that it starts. The engine provides the profile, the tools and the functions.
    pub(crate) fn bundle(&self) -> Value {
        let mut row = Row::default();
        row.push(node("start", "START", json!({})));
        for (place, does) in self.main.iter().enumerate() {
            row.does(&format!("n{place}"), does);
        }
        row.push(node("end", "END", json!({})));
        let ways: Vec<&str> = row.ways.iter().map(String::as_str).collect();
        let mut main = workflow("main", &row.nodes, &ways);
        let variables = (0..3)
            .map(|n| json!({"name": format!("global{n}"), "type": "number", "scope": "global", "defaultValue": 0}));
        main["variables"] = json!(variables.collect::<Vec<_>>());
        let mut triggers: Vec<Value> = self.triggers.iter().enumerate().map(Self::trigger).collect();
        if self.compresses {
            triggers.push(
                json!({"id": "compresses", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
                "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "compressor"}}}),
            );
        }
        main["triggers"] = json!(triggers);
        if self.has_pinned {
            main["config"] = json!({"pinned": {"role": "a clerk", "todo": "answer"}});
        }
        let called = line("called", &[wait("w", 4), say("s", "called")]);
        let item = line("item", &[node("f", "CODE", json!({"function": "work"}))]);
        let started = line("started", &[wait("w", 2)]);
        json!({"workflows": [main, watcher(), compressor(), called, item, started]})
    }

    fn trigger((number, (which, acts)): (usize, &(usize, Acts))) -> Value {
        let (event, condition) = [
            ("NODE_COMPLETED", "event.nodeId == 'n0' || event.nodeId == 'n2'"),
            ("MESSAGE_ADDED", "event.index < 3"),
            ("NODE_COMPLETED", "event.nodeId == 'n1'"),
            ("NODE_STARTED", "event.nodeId == 'n1'"),
        ][*which];
        let action = match acts {
            Acts::Watch { waits } => json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH",
                "parameters": {"triggeredWorkflowId": "watcher", "waitForCompletion": waits}}),
            Acts::Start => json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "started"}}),
            Acts::Set => json!({"type": "SET_VARIABLE", "parameters": {
                "variableName": "seen", "expression": "event.type", "scope": "global"}}),
            Acts::Note => json!({"type": "CUSTOM", "parameters": {"function": "note", "parameters": {"n": 1}}}),
            Acts::Notify => json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.type}}"}}),
        };
        json!({"id": format!("t{number}"), "condition": {"eventType": event, "expression": condition}, "action": action})
    }
}

fn watcher() -> Value {
    let back = json!({"variableCallback": {"includeVariables": ["thread0"]},
        "conversationHistoryCallback": {"lastN": 1}});
    let nodes = [
        node("begin", "START_FROM_TRIGGER", json!({})),
        node(
            "set",
            "VARIABLE",
            json!({"variableName": "thread0", "expression": "'watched'"}),
        ),
        wait("rest", 3),
        say("note", "watched"),
        node("back", "CONTINUE_FROM_TRIGGER", back),
    ];
    workflow("watcher", &nodes, &["begin>set>rest>note>back"])
}

fn compressor() -> Value {
    let compress = json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 2}});
    let nodes = [
        node("begin", "START_FROM_TRIGGER", json!({})),
        node("compress", "CONTEXT_PROCESSOR", compress),
        node("back", "CONTINUE_FROM_TRIGGER", json!({})),
    ];
    workflow("compressor", &nodes, &["begin>compress>back"])
}
