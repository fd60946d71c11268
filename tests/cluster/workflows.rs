//! The same workflows in a server and in memory: the same reports, the same events in the same order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pirn::store::{MemoryStore, Store};
use pirn::{Engine, Heard};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::dice::Dice;

const WORKFLOWS: usize = 200;
/// No workflow is nested deeper.
const DEEPEST: usize = 2;

/// Nodes and edges as they come to be.
#[derive(Default)]
struct Sketch {
    nodes: Vec<Value>,
    edges: Vec<Value>,
}

impl Sketch {
    fn node(&mut self, kind: &str, config: &Value) -> String {
        let id = format!("n{}", self.nodes.len());
        self.nodes.push(json!({"id": id, "type": kind, "config": config}));
        id
    }

    fn edge(&mut self, from: &str, to: &str) {
        self.edges.push(json!({"from": from, "to": to}));
    }

    /// Something that a path does: its first and its last node.
    fn part(&mut self, dice: &mut Dice, depth: usize) -> (String, String) {
        let alone = |id: String| (id.clone(), id);
        match dice.roll(if depth < DEEPEST { 8 } else { 6 }) {
            0 | 1 => alone(self.node("CODE", &json!({"function": "work"}))),
            2 => {
                let id = self.node("CODE", &json!({"function": "fail"}));
                if let Some(node) = self.nodes.last_mut() {
                    node["retry"] = json!({"maxAttempts": 1 + dice.roll(3), "initialDelayMs": 50});
                }
                alone(id)
            }
            3 | 4 => alone(self.node("WAIT", &json!({"seconds": 1 + dice.roll(9)}))),
            5 => alone(self.node("USER_INTERACTION", &json!({"question": "Well?", "timeoutMs": 500}))),
            _ => self.fork(dice, depth),
        }
    }

    fn fork(&mut self, dice: &mut Dice, depth: usize) -> (String, String) {
        let fork = self.node("FORK", &Value::Null);
        let at = self.nodes.len() - 1;
        let parts: Vec<(String, String)> = (0..2 + dice.roll(2)).map(|_| self.line(dice, depth + 1)).collect();
        let firsts: Vec<&String> = parts.iter().map(|(first, _)| first).collect();
        let order = ["parallel", "serial"][dice.roll(2)];
        self.nodes[at]["config"] = json!({"forkPathIds": firsts, "childNodeIds": firsts, "forkStrategy": order});
        let strategy = ["ALL_COMPLETED", "ANY_COMPLETED", "ALL_FAILED", "ANY_FAILED"][dice.roll(4)];
        let join = self.node("JOIN", &json!({"forkPathIds": firsts, "joinStrategy": strategy}));
        for (first, last) in &parts {
            self.edge(&fork, first);
            self.edge(last, &join);
        }
        (fork, join)
    }

    /// A few parts, one after the other.
    fn line(&mut self, dice: &mut Dice, depth: usize) -> (String, String) {
        let (first, mut last) = self.part(dice, depth);
        for _ in 0..dice.roll(3) {
            let (next, end) = self.part(dice, depth);
            self.edge(&last, &next);
            last = end;
        }
        (first, last)
    }
}

fn generated(dice: &mut Dice) -> String {
    let mut sketch = Sketch::default();
    let start = sketch.node("START", &json!({}));
    let (first, last) = sketch.line(dice, 0);
    let end = sketch.node("END", &json!({"output": "'done'"}));
    sketch.edge(&start, &first);
    sketch.edge(&last, &end);
    json!({"id": "main", "nodes": sketch.nodes, "edges": sketch.edges}).to_string()
}

/// The same without the times: a store that answers later takes longer.
fn timeless(mut told: Value) -> Value {
    match &mut told {
        Value::Object(fields) => {
            fields.retain(|name, _| !["elapsedMs", "durationMs", "timestamp", "at"].contains(&name.as_str()));
            fields.values_mut().for_each(|value| *value = timeless(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = timeless(item.take())),
        _ => {}
    }
    told
}

/// The report and the events of a run.
fn play(store: Arc<dyn Store>, workflow: &str, run_id: &str) -> (Value, Vec<Value>) {
    let engine = Engine::builder()
        .virtual_time(None)
        .shared_store(store)
        .workflows(workflow)
        .async_function("work", |input| std::future::ready(Ok(json!({"of": input}))))
        .async_function("fail", |_| std::future::ready(Err::<Value, _>("on purpose".to_owned())));
    let engine = engine.build().unwrap_or_else(|error| panic!("{error}: {workflow}"));
    let mut run = engine.run("main").run_id(run_id).input(json!({"ticket": 7}));
    let events = run.blocking_events(&[], 65_536);
    let run = run.start().expect("starts");
    let report = timeless(serde_json::to_value(&*run.outcome_blocking()).expect("is JSON"));
    run.settled_blocking();
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
    let events = events.map(|heard| match heard {
        Heard::Event(event) => timeless(serde_json::to_value(&*event).expect("is JSON")),
        missed => panic!("{missed:?}"),
    });
    (report, events.collect())
}

pub(crate) fn generated_workflows_come_to_the_same_as_in_memory(cluster: &Cluster) {
    let (store, memory) = (cluster.server.open(), MemoryStore::new());
    let mut dice = Dice(0x5eed_0002);
    let mut completed = 0;
    for number in 0..WORKFLOWS {
        let workflow = generated(&mut dice);
        let id = format!("generated-{number}");
        let expected = play(Arc::new(memory.clone()), &workflow, &id);
        let found = play(Arc::clone(&store), &workflow, &id);
        assert_eq!(found.0, expected.0, "the report of {workflow}");
        assert_eq!(found.1, expected.1, "the events of {workflow}");
        completed += usize::from(expected.0["status"] == "COMPLETED");
    }
    assert!((WORKFLOWS / 4..WORKFLOWS).contains(&completed), "{completed} complete");
}

/// Each example's files.
fn examples() -> Vec<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = [
        vec!["support-fork.json", "topic-of.json"],
        vec!["topic-of.json"],
        vec!["research.json"],
        vec!["refine.json"],
        vec!["nightly.json"],
        vec!["approval/workflow.json"],
        vec!["support-desk/workflow.json"],
        vec!["tutorial/0-first.json"],
        vec!["tutorial/1-model.json"],
        vec!["tutorial/2-route.json"],
        vec!["tutorial/3-fork.json"],
        vec!["tutorial/4-compress.json"],
    ];
    files
        .into_iter()
        .map(|files| files.into_iter().map(|file| root.join(file)).collect())
        .collect()
}

pub(crate) fn examples_come_to_the_same_as_in_a_file(cluster: &Cluster) {
    let mut completed = 0;
    for (number, files) in examples().iter().enumerate() {
        let files: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
        let run = |place: &[&str], events: &str| {
            let id = format!("example-{number}");
            let told = [
                "run",
                "--virtual-time",
                "--input",
                r#"{"ticket": "My parcel 7 is late, and wet", "topic": "tea", "draft": "tea is warm"}"#,
                "--approve",
                "none",
                "--output",
                "json",
                "--events",
                events,
                "--run-id",
                &id,
            ];
            let ended = cluster.pirn_in(place, &[&told[..], &files[..]].concat());
            let report: Value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
            (ended.status.code(), timeless(report))
        };
        let (local, shared) = (format!("local-{number}"), format!("shared-{number}"));
        let expected = run(&["--store", "local.db"], &local);
        let place = cluster.place();
        let place: Vec<&str> = place.iter().map(String::as_str).collect();
        assert_eq!(run(&place, &shared), expected, "{files:?}");
        let events = |name: &str| -> Vec<Value> {
            let lines = cluster.lines(name);
            let events = lines.iter().map(|line| serde_json::from_str(line).expect("is JSON"));
            events.map(timeless).collect()
        };
        assert_eq!(events(&shared), events(&local), "the events of {files:?}");
        completed += usize::from(expected.1["status"] == "COMPLETED");
    }
    assert!(completed >= 3, "{completed} complete");
}
