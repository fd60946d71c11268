//! A search for a definition that `migrate --check` accepts although the run would have taken another way under it.
//!
//! A run of a random workflow is interrupted. The workflow is edited at random, and the check is compared with a run of the edited
//! workflow from its start with equal inputs.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::{BoxFuture, ready};
use pirn::store::MemoryStore;
use pirn::{Engine, Model, ModelCall, ModelReply, RunError, RunHandle, RunView, SourceFile};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Assignments of `x`. The third one is equal to the first, the last two are evaluated by a script thread.
const EXPRESSIONS: [&str; 5] = [
    "x + 1",
    "x * 2",
    "1 + x",
    "[x].map(n => n + 1)[0]",
    "[x].map(n => n + 2)[0]",
];
const EDGES: [&str; 5] = ["x > 1", "x > 3", "x % 2 == 0", "seen == 'yes'", "[x].some(n => n > 2)"];
const TRIGGERS: [&str; 6] = [
    "event.nodeId === 'n0'",
    "event.nodeType === 'VARIABLE'",
    "event.output === 2",
    "event.nodeId === 'n2' && event.output > 1",
    "['n1', 'n3'].includes(event.nodeId)",
    "event.nodeId === 'none'",
];
const VALUES: [&str; 3] = ["'yes'", "'y' + 'es'", "'no'"];
const EVENTS: [&str; 2] = ["go", "stop"];
const PROFILES: [&str; 2] = ["p", "q"];

/// Part of a workflow. Numbers are indexes in the lists above.
#[derive(Clone, Debug)]
enum Part {
    Assign(usize),
    Call(usize),
    /// Two ways to the next part, by a condition.
    Choose(usize),
    Speak(usize),
    Wait(usize),
}

#[derive(Clone, Debug)]
struct Flow {
    parts: Vec<Part>,
    /// Condition and value of each trigger.
    triggers: Vec<(usize, usize)>,
    first: i64,
    output: usize,
}

#[derive(Clone, Debug)]
enum Edit {
    Replace(usize, Part),
    Add(usize, Part),
    Remove(usize),
    Trigger(usize, (usize, usize)),
    AddTrigger((usize, usize)),
    RemoveTrigger(usize),
    First(i64),
    Output(usize),
}

impl Flow {
    fn edit(&mut self, edit: &Edit) {
        let at = |index: usize, len: usize| index % len.max(1);
        let (parts, triggers) = (self.parts.len(), self.triggers.len());
        match edit.clone() {
            Edit::Replace(index, part) => self.parts[at(index, parts)] = part,
            Edit::Add(index, part) => self.parts.insert(at(index, parts + 1), part),
            Edit::Remove(index) => drop(self.parts.remove(at(index, parts))),
            Edit::Trigger(index, trigger) if triggers > 0 => self.triggers[at(index, triggers)] = trigger,
            Edit::AddTrigger(trigger) => self.triggers.push(trigger),
            Edit::RemoveTrigger(index) if triggers > 0 => drop(self.triggers.remove(at(index, triggers))),
            Edit::Trigger(..) | Edit::RemoveTrigger(_) => {}
            Edit::First(first) => self.first = first,
            Edit::Output(output) => self.output = output,
        }
        if self.parts.is_empty() {
            self.parts.push(Part::Wait(0));
        }
    }

    /// Returns the bundle. The ids of nodes are numbered, so that an added node changes the ids of those after it.
    fn definition(&self) -> Value {
        let mut nodes = vec![json!({"id": "s", "type": "START"})];
        let (mut edges, mut before) = (Vec::new(), vec!["s".to_owned()]);
        let set = |id: &str, name: &str, expression: &str| json!({"id": id, "type": "VARIABLE", "config": {"variableName": name, "expression": expression}});
        for (number, part) in self.parts.iter().enumerate() {
            let id = format!("n{number}");
            edges.extend(before.drain(..).map(|from| json!({"from": from, "to": id})));
            nodes.push(match part {
                Part::Assign(index) => set(&id, "x", EXPRESSIONS[*index]),
                Part::Call(n) => json!({"id": id, "type": "CODE", "config": {"function": "f", "input": {"n": n}}}),
                Part::Choose(_) => set(&id, "y", "x"),
                Part::Speak(index) => {
                    json!({"id": id, "type": "LLM", "config": {"prompt": "about {{x}}", "profileId": PROFILES[*index]}})
                }
                Part::Wait(index) => json!({"id": id, "type": "WAIT", "config": {"event": EVENTS[*index]}}),
            });
            let Part::Choose(index) = part else {
                before.push(id);
                continue;
            };
            for (side, weight, condition) in [("a", 1, EDGES[*index]), ("b", 0, "true")] {
                let way = format!("{id}{side}");
                edges.push(json!({"from": id, "to": way, "condition": condition, "weight": weight}));
                nodes.push(set(&way, "way", &format!("[...way, '{way}']")));
                before.push(way);
            }
        }
        edges.extend(before.iter().map(|from| json!({"from": from, "to": "e"})));
        let output = ["[x, way, seen]", "[seen, way, x]"][self.output];
        nodes.push(json!({"id": "e", "type": "END", "config": {"output": output}}));
        let triggers = self.triggers.iter().enumerate().map(|(number, (condition, value))| {
            json!({"id": format!("t{number}"),
                "condition": {"eventType": "NODE_COMPLETED", "expression": TRIGGERS[*condition]},
                "action": {"type": "SET_VARIABLE", "parameters": {"variableName": "seen", "expression": VALUES[*value]}}})
        });
        let triggers: Vec<Value> = triggers.collect();
        let variables = json!([{"name": "x", "value": self.first}, {"name": "y", "value": 0}, {"name": "way", "value": []},
            {"name": "seen", "value": "", "scope": "global"}]);
        let profiles = PROFILES.map(|id| json!({"id": id, "provider": "repeats", "model": id}));
        json!({"workflows": [{"id": "main", "variables": variables, "nodes": nodes, "edges": edges, "triggers": triggers}],
            "profiles": profiles})
    }
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        3 => (0..EXPRESSIONS.len()).prop_map(Part::Assign),
        1 => (0..2_usize).prop_map(Part::Call),
        2 => (0..EDGES.len()).prop_map(Part::Choose),
        1 => (0..PROFILES.len()).prop_map(Part::Speak),
        2 => (0..EVENTS.len()).prop_map(Part::Wait),
    ]
}

fn trigger() -> impl Strategy<Value = (usize, usize)> {
    (0..TRIGGERS.len(), 0..VALUES.len())
}

fn flow() -> impl Strategy<Value = Flow> {
    let triggers = prop::collection::vec(trigger(), 0..3);
    (prop::collection::vec(part(), 1..8), triggers, 0..3_i64, 0..2_usize).prop_map(
        |(mut parts, triggers, first, output)| {
            // Every run waits at least once.
            parts.push(Part::Wait(0));
            Flow {
                parts,
                triggers,
                first,
                output,
            }
        },
    )
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = || 0..8_usize;
    prop_oneof![
        3 => (index(), part()).prop_map(|(index, part)| Edit::Replace(index, part)),
        1 => (index(), part()).prop_map(|(index, part)| Edit::Add(index, part)),
        1 => index().prop_map(Edit::Remove),
        3 => (index(), trigger()).prop_map(|(index, trigger)| Edit::Trigger(index, trigger)),
        1 => trigger().prop_map(Edit::AddTrigger),
        1 => index().prop_map(Edit::RemoveTrigger),
        1 => (0..3_i64).prop_map(Edit::First),
        1 => (0..2_usize).prop_map(Edit::Output),
    ]
}

/// Model that replies with its name, which the profile sets.
struct Named;

impl Model for Named {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let last = call
            .request
            .messages
            .last()
            .map(|message| message.content.as_str().to_owned());
        ready(Ok(ModelReply {
            content: last.unwrap_or_default(),
            ..ModelReply::default()
        }))
        .boxed()
    }
}

fn engine(store: &MemoryStore, definition: &Value) -> Engine {
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(definition.to_string())
        .model("repeats", Arc::new(Named))
        .async_function("f", |_| std::future::ready(Ok(json!("called"))));
    engine.build().expect("builds")
}

fn emit(engine: &Engine, run: &RunHandle, events: &[usize]) {
    for event in events {
        run.emit(EVENTS[*event], [("n", json!(1))]);
        engine.wait_idle();
    }
}

/// Starts a run, and sends it these events, each when nothing else happens.
fn play(engine: &Engine, events: &[usize]) -> RunHandle {
    let run = engine.run("main").run_id("r").start().expect("starts");
    engine.wait_idle();
    emit(engine, &run, events);
    run
}

fn view(engine: &Engine) -> RunView {
    block_on(engine.view("r", None)).expect("is replayed")
}

/// Returns the decisions of a run: its events without their times.
fn decisions(view: &RunView) -> Vec<Value> {
    let events = view.events.iter().map(|event| {
        let mut event = event.to_json();
        let fields = event.as_object_mut().expect("an object");
        fields.remove("timestamp");
        fields.remove("durationMs");
        event
    });
    events.collect()
}

/// Returns the outcome of a run after enough events for each of its waits.
fn outcome(engine: &Engine, run: &RunHandle) -> (Value, Value) {
    for _ in 0..12 {
        emit(engine, run, &[0, 1]);
    }
    let report = view(engine).report;
    (json!(report.status), report.output)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_definition_that_fits_makes_the_recorded_decisions_and_the_run_ends_as_one_from_the_start(
        flow in flow(), edits in prop::collection::vec(edit(), 1..3), sent in prop::collection::vec(0..2_usize, 0..4)
    ) {
        let own = flow.definition();
        let mut other = flow;
        for edit in &edits {
            other.edit(edit);
        }
        let other = other.definition();
        let store = MemoryStore::new();
        let first = engine(&store, &own);
        let run = play(&first, &sent);
        let is_over = view(&first).run.status.is_final();
        let recorded = decisions(&view(&first));
        run.release();
        first.shutdown_blocking(Duration::from_secs(5));
        if is_over {
            return Ok(());
        }
        let second = engine(&store, &own);
        let files = [SourceFile::new("new.json", other.to_string())];
        let check = block_on(second.resume("r").check_migration(&files)).expect("is checked");
        // The same inputs from the start.
        let fresh = engine(&MemoryStore::new(), &other);
        let afresh = play(&fresh, &sent);
        let would = decisions(&view(&fresh));
        if !check.fits {
            return Ok(());
        }
        prop_assert_eq!(&recorded, &would);
        prop_assert!(block_on(second.resume("r").migrate(&files)).expect("is moved").fits);
        second.shutdown_blocking(Duration::from_secs(5));
        // Triggers are those of the engine, so the process that continues the run has the edited workflows.
        let third = engine(&store, &other);
        let resumed = block_on(third.resume("r").start()).expect("continues");
        third.wait_idle();
        let replayed = decisions(&view(&third));
        prop_assert_eq!(replayed.get(..recorded.len()), Some(&recorded[..]));
        prop_assert_eq!(outcome(&third, &resumed), outcome(&fresh, &afresh));
    }
}
