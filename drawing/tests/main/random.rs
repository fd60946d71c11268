//! Random workflows of all node types: valid ones, and the same workflows with additional arbitrary edges.

use pirn_definition::definition::{Loaded, SourceFile};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert_eq, prop_oneof};
use proptest::test_runner::Config;
use serde_json::{Value, json};

use crate::checks::check;
use crate::examples::drawn;

/// A part of a workflow with one entry and one exit.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// A node, by the index of its type.
    Node(usize, usize),
    Sequence(Vec<Piece>),
    /// A ROUTE to several pieces that continue at one node.
    Route(Vec<Piece>),
    Fork(Vec<Piece>, bool),
    Loop(Box<Piece>),
    /// A node whose error edge skips the piece.
    Guarded(Box<Piece>),
}

pub(super) fn pieces() -> impl Strategy<Value = Piece> {
    let node = (0..NODES, 0..LABELS.len()).prop_map(|(kind, label)| Piece::Node(kind, label));
    node.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            3 => vec(inner.clone(), 0..5).prop_map(Piece::Sequence),
            2 => vec(inner.clone(), 1..5).prop_map(Piece::Route),
            3 => (vec(inner.clone(), 1..6), any::<bool>()).prop_map(|(paths, serial)| Piece::Fork(paths, serial)),
            2 => inner.clone().prop_map(|body| Piece::Loop(Box::new(body))),
            1 => inner.prop_map(|body| Piece::Guarded(Box::new(body))),
        ]
    })
}

const LABELS: [&str; 8] = [
    "a",
    "output.value > 3",
    "a long condition that is true if nothing else is, output.outputs.finance.answer == 'approve' && user.role != 'guest'",
    "SUCCESS_COUNT_THRESHOLD_WITHOUT_ANY_SPACE_TO_BREAK_A_LINE_AT_WHICH_IS_TOO_LONG_FOR_A_BOX",
    "漢字と仮名の長いラベルは幅が広い",
    "🙂🙃 emoji",
    "مرحبا بالعالم",
    "<b>&\"'\u{202E}\n\t",
];

/// Number of types of simple nodes.
const NODES: usize = 11;

fn simple(kind: usize, label: &str) -> (&'static str, Value) {
    match kind {
        0 => ("VARIABLE", json!({"variableName": "v", "expression": label})),
        1 => ("LLM", json!({"profileId": label, "prompt": label, "tools": ["x", "y"]})),
        2 => ("CODE", json!({"code": "return 1"})),
        3 => ("CODE", json!({"function": label})),
        4 => ("SUBGRAPH", json!({"subgraphId": "other"})),
        5 => (
            "MAP",
            json!({"items": "[1]", "subgraphId": "other", "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 1, "timeout": 5}),
        ),
        6 => (
            "CONTEXT_PROCESSOR",
            json!({"operation": "compress", "strategy": "summarize", "parameters": {}}),
        ),
        7 => ("WAIT", json!({"event": label, "timeout": 10})),
        8 => ("TOOL", json!({"tool": label, "assignTo": "t"})),
        9 => ("USER_INTERACTION", json!({"question": label, "timeoutMs": 1500})),
        _ => ("WAIT", json!({"seconds": 1.5})),
    }
}

/// Builds a workflow file.
#[derive(Default)]
struct Builder {
    nodes: Vec<Value>,
    edges: Vec<Value>,
    paths: usize,
}

impl Builder {
    fn node(&mut self, kind: &str, config: Value, label: &str) -> String {
        let id = format!("n{}", self.nodes.len());
        let mut node = json!({"id": id, "type": kind});
        node["config"] = config;
        if self.nodes.len() % 3 == 1 {
            node["name"] = label.into();
        }
        self.nodes.push(node);
        id
    }

    fn edge(&mut self, from: &str, to: &str, condition: Option<&str>) {
        let mut edge = json!({"from": from, "to": to});
        if let Some(condition) = condition {
            edge["condition"] = condition.into();
        }
        self.edges.push(edge);
    }

    /// Adds a piece. Returns its first and its last node.
    fn piece(&mut self, piece: &Piece) -> [String; 2] {
        match piece {
            Piece::Node(kind, label) => {
                let (kind, config) = simple(*kind, LABELS[*label]);
                let id = self.node(kind, config, LABELS[*label]);
                [id.clone(), id]
            }
            Piece::Sequence(parts) => {
                let first = self.node("CODE", json!({"code": "return 1"}), "first");
                let mut last = first.clone();
                for part in parts {
                    let [start, end] = self.piece(part);
                    self.edge(&last, &start, None);
                    last = end;
                }
                [first, last]
            }
            Piece::Route(parts) => {
                let place = self.nodes.len();
                let route = self.node("ROUTE", json!({}), "route");
                let after = self.node("CODE", json!({"code": "return 1"}), "after");
                let mut routes = Vec::new();
                for (at, part) in parts.iter().enumerate() {
                    let [start, end] = self.piece(part);
                    self.edge(&route, &start, None);
                    self.edge(&end, &after, None);
                    routes.push(json!({"condition": LABELS[at % LABELS.len()], "targetNodeId": start}));
                }
                self.edge(&route, &after, None);
                self.nodes[place]["config"] = json!({"routes": routes, "defaultTargetNodeId": after});
                [route, after]
            }
            Piece::Fork(parts, serial) => {
                let place = self.nodes.len();
                let fork = self.node("FORK", json!({}), "fork");
                let (mut ids, mut children) = (Vec::new(), Vec::new());
                let mut ends = Vec::new();
                for part in parts {
                    ids.push(format!("{} {}", LABELS[self.paths % LABELS.len()], self.paths));
                    self.paths += 1;
                    // An empty path starts at its JOIN.
                    if matches!(part, Piece::Sequence(parts) if parts.is_empty()) {
                        children.push(None);
                        continue;
                    }
                    let [start, end] = self.piece(part);
                    self.edge(&fork, &start, None);
                    children.push(Some(start));
                    ends.push(end);
                }
                let join = self.node(
                    "JOIN",
                    json!({"forkPathIds": ids, "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 1, "timeout": 30}),
                    "join",
                );
                for end in ends {
                    self.edge(&end, &join, None);
                }
                let strategy = if *serial { "serial" } else { "parallel" };
                let children: Vec<String> = children
                    .into_iter()
                    .map(|child| child.unwrap_or_else(|| join.clone()))
                    .collect();
                if children.contains(&join) {
                    self.edge(&fork, &join, None);
                }
                self.nodes[place]["config"] =
                    json!({"forkPathIds": ids, "childNodeIds": children, "forkStrategy": strategy});
                [fork, join]
            }
            Piece::Loop(body) => {
                let id = format!("loop {}", self.nodes.len());
                let start = self.node("LOOP_START", json!({"loopId": id, "maxIterations": 3}), "start");
                let [first, last] = self.piece(body);
                let end = self.node("LOOP_END", json!({"loopId": id, "breakCondition": "output > 3"}), "end");
                self.edge(&start, &first, None);
                self.edge(&last, &end, None);
                [start, end]
            }
            Piece::Guarded(body) => {
                let place = self.nodes.len();
                let guard = self.node("TOOL", json!({"tool": "t"}), "guard");
                let [first, last] = self.piece(body);
                let after = self.node("CODE", json!({"code": "return 1"}), "after");
                self.edge(&guard, &first, Some(LABELS[2]));
                self.edge(&last, &after, None);
                self.nodes[place]["onError"] = json!({"targetNodeId": after});
                [guard, after]
            }
        }
    }
}

/// Returns a file with a workflow of this piece, another one that it calls, and triggers. `extra` are more edges, by the indices of
/// their nodes.
pub(super) fn file(piece: &Piece, extra: &[(usize, usize, usize)]) -> (Value, usize) {
    let mut builder = Builder::default();
    let start = builder.node("START", json!({}), "start");
    let [first, last] = builder.piece(piece);
    let end = builder.node("END", json!({"output": LABELS[2]}), "end");
    builder.edge(&start, &first, None);
    builder.edge(&last, &end, None);
    let count = builder.nodes.len();
    for (from, to, label) in extra {
        builder.edge(
            &format!("n{}", from % count),
            &format!("n{}", to % count),
            Some(LABELS[label % LABELS.len()]),
        );
    }
    let trigger = json!({"id": "t", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "short"}}});
    let paths = builder.paths;
    let file = json!({"workflows": [
        {"id": "main", "nodes": builder.nodes, "edges": builder.edges, "triggers": [trigger]},
        {"id": "other", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]},
        {"id": "short", "nodes": [{"id": "s", "type": "START_FROM_TRIGGER"}, {"id": "e", "type": "CONTINUE_FROM_TRIGGER"}],
         "edges": [{"from": "s", "to": "e"}]}],
        "triggers": [
            {"id": "stop", "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "STOP_THREAD", "parameters": {}}},
            {"id": "unknown", "condition": {"eventType": "NODE_FAILED"},
             "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "nowhere"}}}]});
    (file, paths)
}

pub(super) fn loaded(file: &Value) -> Loaded {
    let loaded = Loaded::of(&[SourceFile::new("random.json", file.to_string())]);
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    loaded
}

fn config() -> Config {
    Config {
        cases: 200,
        ..Config::default()
    }
}

proptest::proptest! {
    #![proptest_config(config())]

    #[test]
    fn pictures_of_valid_workflows_meet_all_rules(piece in pieces()) {
        let (file, paths) = file(&piece, &[]);
        let loaded = loaded(&file);
        let drawing = drawn(&loaded);
        check(&drawing);
        prop_assert_eq!(drawing.lanes.len(), paths);
        // A picture of one workflow has its plain ids.
        let triggers: Vec<_> = loaded.triggers.iter().map(|one| &one.value).collect();
        let single = pirn_drawing::draw(&[&loaded.workflows[0].value], &triggers);
        check(&single);
        prop_assert_eq!(single.lanes.len(), paths);
        prop_assert_eq!(&single.nodes[0].id, "n0");
    }

    #[test]
    fn pictures_of_workflows_with_any_edges_meet_all_rules(
        piece in pieces(),
        extra in vec((0_usize..1000, 0_usize..1000, 0_usize..8), 0..12),
    ) {
        let (file, _) = file(&piece, &extra);
        check(&drawn(&loaded(&file)));
    }

    #[test]
    fn the_same_workflow_has_the_same_picture(piece in pieces()) {
        let (file, _) = file(&piece, &[]);
        prop_assert_eq!(drawn(&loaded(&file)), drawn(&loaded(&file)));
    }
}
