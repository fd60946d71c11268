//! A small environment for scenarios: one engine under virtual time, one run and all of its events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pirn::{Engine, EngineBuilder, Journal, RunBuilder, RunReport, SubscriptionItem, Tokenizer};
use pirn_core::status::ThreadStatus;
use pirn_definition::event_type::EventType;
use pirn_definition::message::{Message, Role};
use pirn_events::event::Event;
use serde_json::{Value, json};

use crate::rebuilt::Recorder;

/// More events than any scenario raises.
const EVENTS: usize = 1 << 20;

/// A finished run with its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Report of the run.
    pub report: RunReport,
    /// The run's events from the first one until it settled.
    pub events: Vec<Arc<Event>>,
}

/// Runs the first workflow of `bundle` under virtual time, until everything it started has ended.
///
/// # Panics
/// Panics if the bundle has faults, or the run is refused: the scenario is wrong then.
#[track_caller]
pub fn run(bundle: &Value, input: Value) -> Ran {
    run_seeded(bundle, input, 7)
}

/// Like [`run`], with a seed for the order of simultaneous events.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_seeded(bundle: &Value, input: Value, seed: u64) -> Ran {
    run_in(Engine::builder().virtual_time(Some(seed)), bundle, input, Vec::new())
}

/// Like [`run`], in an engine with more than the bundle and with an initial conversation. The run is then rebuilt from its
/// recorded inputs and must repeat its effects.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_in(builder: EngineBuilder, bundle: &Value, input: Value, conversation: Vec<Message>) -> Ran {
    let recorder = Arc::new(Recorder::default());
    let builder = builder.journal(Arc::clone(&recorder) as Arc<dyn Journal>);
    let (ran, engine) = play(builder, bundle, input, conversation);
    recorder.check(&engine);
    ran
}

/// Like [`run_in`], for scenarios with functions that store or count their calls: rebuilding would call them again.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_unrecorded(builder: EngineBuilder, bundle: &Value, input: Value, conversation: Vec<Message>) -> Ran {
    play(builder, bundle, input, conversation).0
}

#[track_caller]
fn play(builder: EngineBuilder, bundle: &Value, input: Value, conversation: Vec<Message>) -> (Ran, Engine) {
    let first = bundle.pointer("/workflows/0/id").or_else(|| bundle.get("id"));
    let id = first.and_then(Value::as_str).unwrap_or_default();
    plays_in(builder.workflows(bundle.to_string()), |engine| {
        engine.run(id).input(input).conversation(conversation)
    })
}

/// Runs the prepared run in an engine with its workflows until everything it started has ended.
///
/// # Panics
/// As [`run`](run()).
#[track_caller]
pub fn plays(builder: EngineBuilder, run: impl FnOnce(&Engine) -> RunBuilder) -> Ran {
    plays_in(builder, run).0
}

#[track_caller]
fn plays_in(builder: EngineBuilder, run: impl FnOnce(&Engine) -> RunBuilder) -> (Ran, Engine) {
    let engine = match builder.build() {
        Ok(engine) => engine,
        Err(error) => panic!("the scenario's workflows have faults: {error}"),
    };
    let mut run = run(&engine);
    let events = run.blocking_events(&[], EVENTS);
    let handle = match run.start() {
        Ok(handle) => handle,
        Err(error) => panic!("the run was refused: {error}"),
    };
    let report = (*handle.outcome_blocking()).clone();
    handle.wait_all_ended_blocking();
    let events: Vec<Arc<Event>> = events
        .map(|heard| match heard {
            SubscriptionItem::Event(event) => event,
            SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
        })
        .collect();
    // A detached run started by the end of this one may still be active; shutdown waits for it.
    let shutdown = engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!(
        (shutdown.runs_cancelled, shutdown.runs_left),
        (0, 0),
        "nothing is left under way"
    );
    let ran = Ran { report, events };
    ran.check();
    (ran, engine)
}

impl Ran {
    /// Checks every run: sequences without gaps; threads that change status by the table of SPEC section 1, and end.
    #[track_caller]
    fn check(&self) {
        let mut last = 0;
        for event in &self.events {
            // In durable runs a piece of a reply has the number of the event before it.
            if event.raised.event_type != EventType::LlmToken || event.sequence != last {
                assert_eq!(event.sequence, last + 1, "sequence is gapless from 1");
            }
            last = event.sequence;
        }
        let mut statuses: BTreeMap<&str, ThreadStatus> = BTreeMap::new();
        for event in &self.events {
            let next = match event.raised.event_type {
                EventType::ThreadStarted | EventType::ThreadResumed => ThreadStatus::Running,
                EventType::ThreadPaused => ThreadStatus::Paused,
                EventType::ThreadCompleted => ThreadStatus::Completed,
                EventType::ThreadCancelled => ThreadStatus::Cancelled,
                EventType::ThreadFailed if event.raised.fields.get("status") == Some(&json!("TIMEOUT")) => {
                    ThreadStatus::Timeout
                }
                EventType::ThreadFailed => ThreadStatus::Failed,
                _other => continue,
            };
            let before = statuses.insert(&event.thread_id, next).unwrap_or(ThreadStatus::Created);
            assert!(
                before.may_become(next),
                "thread {}: {before:?} to {next:?}",
                event.thread_id
            );
        }
        let live: Vec<_> = statuses.iter().filter(|(_, status)| !status.is_final()).collect();
        assert!(live.is_empty(), "threads that never ended: {live:?}");
    }

    /// The events of one type.
    pub fn of(&self, event_type: EventType) -> Vec<&Event> {
        self.events
            .iter()
            .filter(|event| event.raised.event_type == event_type)
            .map(|event| &**event)
            .collect()
    }

    /// The error's code, or the empty string.
    pub fn code(&self) -> &'static str {
        self.report.error.as_ref().map_or("", |error| error.code.as_str())
    }

    /// The nodes the main thread entered, in order.
    pub fn nodes(&self) -> Vec<&str> {
        self.report.nodes.iter().map(|node| &*node.node_id).collect()
    }

    /// The roles in the run's conversation, message by message.
    pub fn roles(&self) -> Vec<Role> {
        let messages = self.report.conversation.messages.iter();
        messages.map(|message| message.role).collect()
    }

    /// The contents of the messages a model would see.
    pub fn visible(&self) -> Vec<&str> {
        let conversation = &self.report.conversation;
        let marks = &conversation.mark_map;
        let batch = marks
            .boundary_to_batch
            .iter()
            .rposition(|batch| *batch == marks.current_batch);
        let from = batch.map_or(0, |place| marks.batch_boundaries[place]);
        conversation
            .messages
            .iter()
            .skip(from)
            .map(|message| message.content.as_str())
            .collect()
    }

    /// The end of a path's thread, by its events: the report freezes with the outcome, losers end after it.
    pub fn path_end(&self, path: &str) -> Option<ThreadStatus> {
        let ends = [
            EventType::ThreadCompleted,
            EventType::ThreadFailed,
            EventType::ThreadCancelled,
        ];
        self.events
            .iter()
            .filter(|event| ends.contains(&event.raised.event_type))
            .find(|event| event.raised.fields.get("pathId") == Some(&json!(path)))
            .and_then(|event| serde_json::from_value(event.raised.fields.get("status")?.clone()).ok())
    }

    /// Virtual time of the first event of a type, in milliseconds.
    pub fn at_ms(&self, event_type: EventType) -> Option<u64> {
        self.of(event_type).first().map(|event| event.timestamp)
    }
}

/// A node: `node("a", "CODE", json!({"code": "return 1"}))`.
#[allow(clippy::needless_pass_by_value)] // `json!` makes values, a borrow at every call says nothing
pub fn node(id: &str, kind: &str, config: Value) -> Value {
    json!({ "id": id, "type": kind, "config": config })
}

/// A workflow of nodes and edges; an edge is `a>b`.
pub fn workflow(id: &str, nodes: &[Value], edges: &[&str]) -> Value {
    let edges: Vec<Value> = edges
        .iter()
        .flat_map(|way| {
            let stops: Vec<&str> = way.split('>').collect();
            stops
                .windows(2)
                .map(|pair| json!({ "from": pair[0], "to": pair[1] }))
                .collect::<Vec<_>>()
        })
        .collect();
    json!({ "id": id, "nodes": nodes, "edges": edges })
}

/// Returns a workflow with the nodes in a row, between START and END.
pub fn line(id: &str, nodes: &[Value]) -> Value {
    let mut all = vec![node("start", "START", json!({}))];
    all.extend(nodes.iter().cloned());
    all.push(node("end", "END", json!({})));
    let way: Vec<&str> = all.iter().filter_map(|node| node["id"].as_str()).collect();
    workflow(id, &all, &[&way.join(">")])
}

/// A JavaScript node.
pub fn code(id: &str, code: &str) -> Value {
    node(id, "CODE", json!({ "code": code }))
}

/// A timer node.
pub fn wait(id: &str, ms: u32) -> Value {
    node(id, "WAIT", json!({ "seconds": f64::from(ms) / 1000.0 }))
}

/// A node that adds a user message.
pub fn say(id: &str, text: &str) -> Value {
    node(
        id,
        "CONTEXT_PROCESSOR",
        json!({ "operation": "insert", "messages": [{ "role": "user", "content": text }] }),
    )
}

/// A workflow `start > fork > (each branch's nodes in a row) > join > after > end`: path `i` is named `p<i>`.
pub fn forked(branches: &[Vec<Value>], serial: bool, join: &Value) -> Value {
    let paths: Vec<String> = (0..branches.len()).map(|place| format!("p{place}")).collect();
    let firsts: Vec<Value> = branches.iter().map(|branch| branch[0]["id"].clone()).collect();
    let strategy = if serial { "serial" } else { "parallel" };
    let mut join = join.clone();
    join["forkPathIds"] = json!(paths);
    let mut nodes = vec![
        node("start", "START", json!({})),
        node(
            "fork",
            "FORK",
            json!({ "forkPathIds": paths, "childNodeIds": firsts, "forkStrategy": strategy }),
        ),
        node("join", "JOIN", join),
        node("end", "END", json!({})),
    ];
    let mut ways = vec!["start>fork".to_owned(), "join>end".to_owned()];
    for branch in branches {
        let ids: Vec<&str> = branch.iter().filter_map(|node| node["id"].as_str()).collect();
        ways.push(format!("fork>{}>join", ids.join(">")));
        nodes.extend(branch.iter().cloned());
    }
    let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
    workflow("forked", &nodes, &ways)
}

/// A system message, and far more turns than a limit of some hundred tokens allows.
pub fn long_conversation() -> Vec<Message> {
    let mut messages = vec![Message::new(Role::System, "You are kind.")];
    for turn in 0..10 {
        let words = "many words of no weight at all ".repeat(4);
        messages.push(Message::new(Role::User, format!("asked {turn}: {words}")));
        messages.push(Message::new(Role::Assistant, format!("answered {turn}: {words}")));
    }
    messages
}

/// Counts letters; panics on the text `boom`.
pub struct Touchy;

impl Tokenizer for Touchy {
    fn name(&self) -> &'static str {
        "touchy"
    }
    fn count(&self, text: &str) -> u64 {
        assert!(!text.contains("boom"), "a tokenizer that panics on purpose");
        text.len() as u64
    }
}
