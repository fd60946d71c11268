//! A stored run is determined by its journal in every process: viewed at each step, forked, exported, imported, viewed without
//! its profiles and tools, and resumed with different ones.

mod diverged;
mod generated;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::export::{export, import};
use pirn::store::{MemoryStore, Store};
use pirn::tools::tool_fn;
use pirn::{
    Engine, EventType, Interaction, Model, ModelCall, ModelReply, ModelRequest, Role, RunError, RunView,
    SubscriptionItem, ToolCall, ToolSpec, idempotency_key,
};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Map, Value, json};

use generated::everything;

const RUN: &str = "run-1";

/// The configuration of an engine, in addition to its workflows.
#[derive(Clone, Copy)]
struct Config {
    token_limit: u64,
    tokenizer: &'static str,
    /// Description of both tools.
    description: &'static str,
    /// True if the engine has the profile and the tools of the original run.
    is_whole: bool,
}

const OWN: Config = Config {
    token_limit: 120,
    tokenizer: "o200k_base",
    description: "looks something up in a place that nobody else has a key to",
    is_whole: true,
};

/// The configuration of a process without the profile file and the tools.
const BARE: Config = Config { is_whole: false, ..OWN };

const OTHERS: [Config; 3] = [
    Config { token_limit: 60, ..OWN },
    Config {
        tokenizer: "estimate",
        ..OWN
    },
    Config {
        description: "looks",
        token_limit: 100_000,
        ..OWN
    },
];

/// Returns the idempotency key of the current effect without the run's id.
fn effect(run: &str) -> String {
    let key = idempotency_key().expect("an effect has a key");
    key.strip_prefix(run).unwrap_or(&key).to_owned()
}

/// A request as the model of a live run received it.
struct ReceivedRequest {
    effect_id: String,
    request: Arc<ModelRequest>,
    parameters: Map<String, Value>,
    tools: Vec<ToolSpec>,
}

type Received = Arc<Mutex<Vec<ReceivedRequest>>>;

fn engine(bundle: &str, store: &MemoryStore, config: Config, run: &str) -> Engine {
    listening_engine(bundle, store, config, run, &Received::default())
}

/// Creates an engine whose model adds every request to `received`.
fn listening_engine(bundle: &str, store: &MemoryStore, config: Config, run: &str, received: &Received) -> Engine {
    let run = run.to_owned();
    let (work, look, list) = (run.clone(), run.clone(), run.clone());
    let mut engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(bundle)
        .async_function("work", move |_| std::future::ready(Ok(json!({"did": effect(&work)}))))
        .function("note", |_| Ok(Value::Null))
        .on_notification(|_, _| ());
    if config.is_whole {
        let looked = move |_: Value| std::future::ready(Ok::<_, String>(format!("looked {}", effect(&look))));
        let listed = move |_: Value| {
            let one = format!("{} is one of many. ", effect(&list));
            std::future::ready(Ok::<_, String>(one.repeat(5)))
        };
        let profile = json!({"id": "main", "provider": "speaker", "model": "m", "tokenLimit": config.token_limit,
            "tokenizer": config.tokenizer, "parameters": {"seed": 7, "topP": 1}});
        engine = engine
            .tool(tool_fn("look", config.description, json!({"type": "object"}), looked))
            .tool(tool_fn("list", config.description, json!({"type": "object"}), listed))
            .model("speaker", Arc::new(Speaker(run, Arc::clone(received))))
            .profiles([serde_json::from_value(profile).expect("a profile")]);
    }
    engine.build().unwrap_or_else(|error| panic!("{error}\n{bundle}"))
}

/// A model that calls a tool, and replies with a string once the tool has answered.
struct Speaker(String, Received);

impl Model for Speaker {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let key = effect(&self.0);
        self.1.lock().expect("whole").push(ReceivedRequest {
            effect_id: idempotency_key().expect("an effect has a key"),
            request: Arc::clone(&call.request),
            parameters: call.parameters.clone(),
            tools: call.tools.clone(),
        });
        let is_answered = call
            .request
            .messages
            .last()
            .is_some_and(|message| message.role == Role::Tool);
        let asks = !call.tools.is_empty() && !is_answered;
        let tool_calls = asks.then(|| ToolCall {
            id: format!("call-{key}"),
            name: call.tools[0].name.clone(),
            arguments: json!({}),
        });
        let reply = ModelReply {
            content: format!("says {key} and some more words, which make it long"),
            tool_calls: tool_calls.into_iter().collect(),
            ..ModelReply::default()
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

#[allow(clippy::unnecessary_wraps)] // as a run's questions are answered
fn answered(question: &Interaction) -> Option<Value> {
    Some(json!(format!("answer at {}", question.node_id)))
}

/// Returns a value with the run's id replaced by `RUN`, without times and durations.
fn unnamed(value: &Value, run: &str) -> Value {
    fn strip(value: &mut Value, run: &str) {
        match value {
            Value::String(text) => {
                if text.contains(run) {
                    *text = text.replace(run, "RUN");
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| strip(item, run)),
            Value::Object(fields) => {
                for name in ["timestamp", "at", "elapsedMs", "durationMs", "inDoubt", "repeated"] {
                    fields.remove(name);
                }
                fields.values_mut().for_each(|field| strip(field, run));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut value = value.clone();
    strip(&mut value, run);
    value
}

/// Returns the report, events, history and questions of a run, independent of its id.
fn shown(view: &RunView, run: &str) -> Value {
    let events: Vec<Value> = view.events.iter().map(|event| event.to_json()).collect();
    let history: Vec<Value> = view.history.iter().map(|step| json!(step)).collect();
    unnamed(
        &json!({"report": view.report, "events": events, "history": history, "waits": view.interactions}),
        run,
    )
}

/// The report and the events of a finished run, as received live.
struct Live {
    report: Value,
    events: Vec<Value>,
    requests: Vec<ReceivedRequest>,
}

fn play(bundle: &str, store: &MemoryStore) -> Live {
    let received = Received::default();
    let engine = listening_engine(bundle, store, OWN, RUN, &received);
    let mut run = engine
        .run("main")
        .run_id(RUN)
        .input(json!({"ticket": 7}))
        .answers(answered, |_, _| ());
    let events = run.blocking_events(&[], 65_536);
    let run = run.start().expect("starts");
    engine.cancel_if_deadlocked(&run);
    let report = json!(*run.outcome_blocking());
    run.wait_all_ended_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    // LLM_TOKEN events carry pieces of a reply while it streams. Journals hold whole replies, so a replay raises none.
    let events = events.filter_map(|heard| match heard {
        SubscriptionItem::Event(event) => (event.raised.event_type != EventType::LlmToken).then(|| event.to_json()),
        SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
    });
    Live {
        report,
        events: events.collect(),
        requests: std::mem::take(&mut *received.lock().expect("whole")),
    }
}

/// Resumes a run of the store, waits for its outcome and returns its report without its id.
fn end(engine: &Engine, run: pirn::ResumeBuilder, id: &str) -> Value {
    let run = run.answers(answered, |_, _| ());
    let run = block_on(run.start()).unwrap_or_else(|error| panic!("{id} does not go on: {error}"));
    engine.cancel_if_deadlocked(&run);
    let report = json!(*run.outcome_blocking());
    run.wait_all_ended_blocking();
    unnamed(&report, id)
}

fn exported(store: &MemoryStore, id: &str) -> Vec<u8> {
    let mut out = Vec::new();
    block_on(export(store, id, &mut out)).expect("is exported");
    out
}

/// Imports an exported run into a new store, under `id` if given.
fn copy(export: &[u8], id: Option<&str>) -> MemoryStore {
    let store = MemoryStore::new();
    block_on(import(&store, &mut &export[..], id)).expect("is imported");
    store
}

fn steps(store: &MemoryStore, id: &str) -> u64 {
    block_on(store.run(id)).expect("is read").expect("is there").steps
}

/// Returns true if a concurrent part of the bundle may finish in another order after a fork.
fn is_race(bundle: &str) -> bool {
    ["\"waitForCompletion\":false", "ANY_COMPLETED", "START_WORKFLOW"]
        .iter()
        .any(|word| bundle.contains(word))
}

/// Compares the requests that the model of the live run received with those that follow from the journal.
fn check_requests(own: &Engine, bare: &Engine, received: &[ReceivedRequest]) -> Result<(), TestCaseError> {
    let listed = block_on(own.view(RUN, None)).expect("is read").requests;
    let is_received = |id: &str| received.iter().any(|sent| sent.effect_id == id);
    for request in &listed {
        let is_answered = request.finish_reason.is_some();
        // The built-in model of a compression is not the one that listens.
        let is_its = request.profile_id.as_deref() == Some("main");
        prop_assert!(
            !is_answered || !is_its || is_received(&request.effect_id),
            "{:?}",
            request
        );
    }
    let read = |engine: &Engine, id: &str| block_on(engine.model_request(RUN, id));
    for sent in received {
        let id = &sent.effect_id;
        prop_assert!(
            listed.iter().any(|request| request.effect_id == *id),
            "{} is not listed",
            id
        );
        let shown = read(own, id).map_err(|error| TestCaseError::fail(format!("{id}: {error}")))?;
        prop_assert_eq!(&shown.request.messages, &sent.request.messages, "{}", id);
        prop_assert_eq!(&shown.request.parameters, &sent.parameters, "{}", id);
        let spec = |spec: &ToolSpec| json!({"name": spec.name, "description": spec.description, "parameters": spec.parameters});
        let tools: Vec<Value> = sent.tools.iter().map(spec).collect();
        prop_assert_eq!(&shown.request.tools, &tools, "{}", id);
        let pinned = shown.pinned.map(|block| (block.inserted_at, block.count));
        let expected = sent.request.inserted_at.map(|at| (at, sent.request.inserted));
        prop_assert_eq!(pinned, expected, "{}", id);
        let previous = shown.prefix.as_ref();
        let previous = previous.and_then(|prefix| received.iter().find(|before| before.effect_id == prefix.previous));
        // A request to the built-in model of a compression was not received.
        if let (Some(prefix), Some(before)) = (shown.prefix, previous) {
            let before = &before.request.messages;
            let common = prefix.comparison.same_messages;
            prop_assert_eq!(&before[..common], &sent.request.messages[..common], "{}", id);
            let differ = before.get(common) != sent.request.messages.get(common);
            prop_assert!(differ || common == before.len(), "{}", id);
        }
        let elsewhere = read(bare, id).map_err(|error| TestCaseError::fail(format!("bare, {id}: {error}")))?;
        prop_assert_eq!(&elsewhere.request.messages, &sent.request.messages, "{} elsewhere", id);
    }
    Ok(())
}

fn check(bundle: &str) -> Result<(), TestCaseError> {
    let store = MemoryStore::new();
    let live = play(bundle, &store);
    let (original, last) = (exported(&store, RUN), steps(&store, RUN));
    let live_report = unnamed(&live.report, RUN);

    // Views of each step, with the profile and the tools and without them.
    let (own, bare) = (engine(bundle, &store, OWN, RUN), engine(bundle, &store, BARE, RUN));
    for step in 0..=last {
        let view = block_on(own.view(RUN, Some(step)));
        let view = view.map_err(|error| TestCaseError::fail(format!("step {step}: {error}")))?;
        let events: Vec<Value> = view.events.iter().map(|event| event.to_json()).collect();
        prop_assert_eq!(&events[..], &live.events[..events.len()], "events at step {}", step);
        let elsewhere = block_on(bare.view(RUN, Some(step)));
        let elsewhere = elsewhere.map_err(|error| TestCaseError::fail(format!("bare, step {step}: {error}")))?;
        prop_assert_eq!(shown(&elsewhere, RUN), shown(&view, RUN), "step {} elsewhere", step);
    }
    check_requests(&own, &bare, &live.requests)?;
    let view = block_on(own.view(RUN, None)).expect("is read");
    prop_assert_eq!(unnamed(&json!(view.report), RUN), live_report.clone(), "at the end");
    prop_assert_eq!(view.events.len(), live.events.len(), "events at the end");

    // An import under another id, viewed without the profile and the tools.
    let other = "other-7";
    let there = copy(&original, Some(other));
    let view = block_on(engine(bundle, &there, BARE, other).view(other, None));
    let view = view.map_err(|error| TestCaseError::fail(format!("imported: {error}")))?;
    prop_assert_eq!(unnamed(&json!(view.report), other), live_report.clone(), "imported");
    prop_assert_eq!(
        exported(&copy(&original, None), RUN),
        original.clone(),
        "exported again"
    );

    for step in 0..=last {
        let there = copy(&original, None);
        let id = format!("fork-{step}");
        let forked = engine(bundle, &there, OWN, &id);
        let made = block_on(forked.fork(RUN, step).make(id.as_str()));
        let made = made.map_err(|error| TestCaseError::fail(format!("fork at {step}: {error}")))?;
        let report = end(&forked, made, &id);
        if !is_race(bundle) {
            prop_assert_eq!(report, live_report.clone(), "forked at step {}", step);
        }
        forked.shutdown_blocking(Duration::from_secs(5));

        // A fork at that step, executed with other profiles: the fork ends, and the original's export does not change.
        let config = OTHERS[step as usize % OTHERS.len()];
        let there = copy(&original, None);
        let id = format!("left-{step}");
        let other = engine(bundle, &there, config, &id);
        let made = block_on(other.fork(RUN, step).make(id.as_str()));
        let made = made.map_err(|error| TestCaseError::fail(format!("other profile at {step}: {error}")))?;
        end(&other, made, &id);
        other.shutdown_blocking(Duration::from_secs(5));
        let read = block_on(engine(bundle, &there, BARE, &id).view(&id, None));
        let read =
            read.map_err(|error| TestCaseError::fail(format!("read after another profile at {step}: {error}")))?;
        prop_assert!(read.report.status.is_final());
        prop_assert_eq!(&exported(&there, RUN), &original, "the original");
    }
    Ok(())
}

/// Number of generated workflows unless `PIRN_REPLAYS` is set.
const WORKFLOWS: u32 = 40;

#[test]
fn a_stored_run_is_determined_by_its_journal_under_every_configuration() {
    let cases = std::env::var("PIRN_REPLAYS").ok().and_then(|count| count.parse().ok());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases.unwrap_or(WORKFLOWS)));
    let ran = runner.run(&everything(), |everything| check(&everything.bundle().to_string()));
    if let Err(error) = ran {
        panic!("{error}");
    }
}
