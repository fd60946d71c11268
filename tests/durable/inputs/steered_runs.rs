//! Messages of people to a run that is compressed, paused, pinned, parked and cancelled at random moments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::MemoryStore;
use pirn::{
    BlockingEvents, Engine, EventType, Model, ModelCall, ModelReply, Role, RunCommand, RunError, RunHandle, RunReport,
    SubscriptionItem, ToolCall, When,
};
use pirn_definition::definition::PinSection;
use pirn_events::event::Event;
use pirn_tests::world::{line, node, wait, workflow};
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};

use super::messages::{Look, assert_blocks_are_whole};
use crate::durable::faults::external_effects::RUN;

/// Milliseconds of a model call and of a tool call.
const PART: u64 = 10;

/// An input to the run.
#[derive(Clone, Debug)]
enum Input {
    Say(When),
    Pause,
    Unpause,
    Pin,
    Cancel,
}

/// A random run: its inputs with their times, and how its conversation is compressed.
#[derive(Clone, Debug)]
struct Case {
    /// Ascending times in milliseconds.
    inputs: Vec<(u64, Input)>,
    waits_for_compression: bool,
    speculative_at: Option<f64>,
    token_limit: u64,
    parks: bool,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let input = prop_oneof![
        8 => prop_oneof![Just(When::BeforeNextRequest), Just(When::WhenIdle)].prop_map(Input::Say),
        1 => Just(Input::Pause),
        2 => Just(Input::Unpause),
        2 => Just(Input::Pin),
        2 => Just(Input::Cancel),
    ];
    let inputs = prop::collection::vec((0..400_u64, input), 1..14);
    let limits = (any::<bool>(), prop_oneof![Just(None), Just(Some(0.5))], 150..600_u64);
    (inputs, limits, any::<bool>(), 0..1_000_u64).prop_map(
        |(mut inputs, (waits, speculative_at, token_limit), parks, seed)| {
            inputs.sort_by_key(|(at, _)| *at);
            // A run that stays paused never ends.
            inputs.push((600, Input::Unpause));
            Case {
                inputs,
                waits_for_compression: waits,
                speculative_at,
                token_limit,
                parks,
                seed,
            }
        },
    )
}

fn said(number: usize) -> String {
    format!("<message {number}>")
}

/// Returns the numbers of the messages in a text, in order, each once: a compressed message may quote and summarize one.
fn numbers(text: &str) -> Vec<usize> {
    let parts = text.split("<message ").skip(1);
    let mut listed = BTreeSet::new();
    let numbers = parts.filter_map(|part| part.split('>').next()?.parse().ok());
    numbers.filter(|number| listed.insert(*number)).collect()
}

/// Numbers of the messages in each request of the run's main conversation.
type Requests = Arc<Mutex<Vec<Vec<usize>>>>;

/// Calls `look` in every other request, and lists the messages of people in its summaries.
struct Echo(Requests);

impl Model for Echo {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let messages = &call.request.messages;
        assert_blocks_are_whole(messages);
        let found: Vec<usize> = messages
            .iter()
            .flat_map(|message| numbers(message.content.as_str()))
            .collect();
        let is_summary = call.profile.id.as_str() == "summary";
        let content = if is_summary {
            found.iter().map(|number| said(*number)).collect::<String>()
        } else {
            let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            requests.push(found);
            format!("reply {}: {}", requests.len(), "words of no weight ".repeat(6))
        };
        let last = messages.last().map(|last| last.role);
        let calls = !is_summary && !call.tools.is_empty() && last != Some(Role::Tool);
        let tool_call = ToolCall {
            id: format!("c{}", messages.len()),
            name: "look".to_owned(),
            arguments: json!({}),
        };
        async move {
            call.clock.sleep(if is_summary { 3 * PART } else { PART }).await;
            Ok(ModelReply {
                content,
                tool_calls: calls.then_some(tool_call).into_iter().collect(),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn asks(id: &str, tools: bool) -> Value {
    let tools = if tools { json!(["look"]) } else { json!([]) };
    node(
        id,
        "LLM",
        json!({"profileId": "echo", "prompt": format!("prompt of {id}"), "tools": tools}),
    )
}

/// Model calls with and without tools, a fork with a model call on its main path, and a workflow that shares the conversation.
fn bundle(case: &Case) -> Value {
    let fork = json!({"forkPathIds": ["p0", "p1"], "childNodeIds": ["b0", "b1"], "forkStrategy": "parallel"});
    let join = json!({"forkPathIds": ["p0", "p1"], "joinStrategy": "ALL_COMPLETED"});
    let nodes = [
        node("start", "START", json!({})),
        wait("nap", 20),
        asks("a0", true),
        asks("a1", true),
        node("fork", "FORK", fork),
        asks("b0", true),
        wait("b1", 15),
        node("join", "JOIN", join),
        node(
            "called",
            "SUBGRAPH",
            json!({"subgraphId": "shared", "conversation": "share"}),
        ),
        asks("a2", true),
        wait("idle", 30),
        asks("a3", false),
        node("end", "END", json!({})),
    ];
    let ways = ["start>nap>a0>a1>fork>b0>join>called>a2>idle>a3>end", "fork>b1>join"];
    let mut main = workflow("main", &nodes, &ways);
    main["config"] = json!({"tokenLimit": case.token_limit});
    if let Some(share) = case.speculative_at {
        main["config"]["compression"] = json!({"speculativeAt": share});
    }
    let compress = json!({"operation": "compress", "strategy": "summarize", "parameters": {"profileId": "summary", "keepRecent": 2}});
    let sub = [
        node("s", "START_FROM_TRIGGER", json!({})),
        node("compress", "CONTEXT_PROCESSOR", compress),
        node("c", "CONTINUE_FROM_TRIGGER", json!({})),
    ];
    let parameters = json!({"triggeredWorkflowId": "sub", "waitForCompletion": case.waits_for_compression});
    let trigger = json!({
        "id": "compresses", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": parameters},
    });
    let shared = line("shared", &[asks("s0", true)]);
    json!({"workflows": [main, shared, workflow("sub", &sub, &["s>compress>c"])], "triggers": [trigger]})
}

/// A workflow that starts the run and sends it the inputs at their times.
fn sender(case: &Case) -> Value {
    let mut now = 0;
    let begin = node("begin", "CODE", json!({"function": "begin"}));
    let each = case.inputs.iter().enumerate().flat_map(|(number, (at, _))| {
        let nap = wait(&format!("w{number}"), (at - now) as u32);
        now = *at;
        [
            nap,
            node(
                &format!("c{number}"),
                "CODE",
                json!({"function": "send", "input": number.to_string()}),
            ),
        ]
    });
    line("sender", &std::iter::once(begin).chain(each).collect::<Vec<_>>())
}

type Results = Arc<Mutex<BTreeMap<usize, Result<(), String>>>>;

/// Handling of the messages by a run.
struct Played {
    report: Arc<RunReport>,
    events: Vec<Arc<Event>>,
    requests: Vec<Vec<usize>>,
    results: BTreeMap<usize, Result<(), String>>,
}

fn command(number: usize, input: &Input) -> RunCommand {
    match input {
        Input::Say(when) => RunCommand::Say {
            id: Some(format!("m{number}")),
            text: said(number),
            when: *when,
        },
        Input::Pause => RunCommand::Pause,
        Input::Unpause => RunCommand::Unpause,
        Input::Pin => RunCommand::Pin {
            section: PinSection::UsefulInfo,
            value: json!(format!("pinned {number}")),
        },
        Input::Cancel => RunCommand::Cancel {
            reason: "enough".to_owned(),
        },
    }
}

async fn send(engine: &Engine, number: usize, input: &Input) -> Result<(), String> {
    let sent = engine.send_command(RUN, &command(number, input)).await;
    sent.map(drop).map_err(|error| error.code().to_owned())
}

fn play(case: &Case) -> Played {
    let (own, results, requests) = (
        Arc::new(OnceLock::<Engine>::new()),
        Results::default(),
        Requests::default(),
    );
    let (engine, heard, inputs) = (Arc::clone(&own), Arc::clone(&results), case.inputs.clone());
    let sends = move |number: Value| {
        let (engine, heard, inputs) = (Arc::clone(&engine), Arc::clone(&heard), inputs.clone());
        async move {
            let number = number.as_u64().expect("a number") as usize;
            let engine = engine.get().expect("is set before the start");
            let result = send(engine, number, &inputs[number].1).await;
            heard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(number, result);
            Ok(Value::Null)
        }
    };
    let started: Arc<Mutex<Option<(RunHandle, BlockingEvents)>>> = Arc::default();
    let (starts, run) = (Arc::clone(&own), Arc::clone(&started));
    let begin = move |_: Value| {
        let mut builder = starts.get().expect("is set before the start").run("main").run_id(RUN);
        let events = builder.blocking_events(&[EventType::UserMessage, EventType::CompressionCompleted], 10_000);
        let handle = builder.start().expect("starts");
        *run.lock().unwrap_or_else(PoisonError::into_inner) = Some((handle, events));
        std::future::ready(Ok(Value::Null))
    };
    let engine = Engine::builder()
        .virtual_time(Some(case.seed))
        .store(MemoryStore::new())
        .park_after(if case.parks { Duration::ZERO } else { Duration::MAX })
        .workflows(bundle(case).to_string())
        .workflows(sender(case).to_string())
        .async_function("send", sends)
        .async_function("begin", begin)
        .tool(Arc::new(Look(PART)))
        .model("echo", Arc::new(Echo(Arc::clone(&requests))))
        .model("summary", Arc::new(Echo(Arc::clone(&requests))))
        .build()
        .expect("builds");
    assert!(own.set(engine.clone()).is_ok());
    let sender = engine.start("sender", Value::Null).expect("starts").outcome_blocking();
    assert_eq!(sender.error, None);
    let (run, events) = started
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .expect("has started");
    let report = run.outcome_blocking();
    run.wait_all_ended_blocking();
    let view = block_on(engine.view(RUN, None)).expect("is rebuilt");
    assert_eq!(json!(view.report), json!(*report), "a replay has the same result");
    let results = results.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // A client that received no reply repeats its message, also after the end.
    for (number, result) in &results {
        if let Input::Say(_) = &case.inputs[*number].1 {
            assert_eq!(
                block_on(send(&engine, *number, &case.inputs[*number].1)),
                *result,
                "message {number} is repeated"
            );
        }
    }
    let events = events.map(|heard| match heard {
        SubscriptionItem::Event(event) => event,
        SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
    });
    let events = events.collect();
    engine.shutdown_blocking(Duration::from_secs(5));
    let requests = requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Played {
        report,
        events,
        requests,
        results,
    }
}

/// Numbers of the messages of USER_MESSAGE events with a status, in their order.
fn with_status(events: &[Arc<Event>], status: &str) -> Vec<usize> {
    let fields = events.iter().map(|event| &event.raised.fields);
    let texts = fields
        .filter(|fields| fields.text("status") == Some(status))
        .filter_map(|fields| fields.text("text"));
    texts.flat_map(numbers).collect()
}

fn sorted(numbers: &[usize]) -> Vec<usize> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers
}

/// Checks a run. Returns the numbers of messages added, undelivered and refused, and of compressions.
fn check(case: &Case) -> [usize; 4] {
    let Played {
        report,
        events,
        requests,
        results,
    } = play(case);
    let says = |number: &usize| matches!(case.inputs[*number].1, Input::Say(_));
    let (accepted, refused): (Vec<usize>, Vec<usize>) = results
        .keys()
        .filter(|number| says(number))
        .partition(|number| results[number].is_ok());
    for number in &refused {
        assert_eq!(results[number], Err("RUN_HAS_ENDED".to_owned()), "{number}");
    }
    let received = with_status(&events, "RECEIVED");
    assert_eq!(received, accepted, "each accepted message is received once, in order");
    let (added, undelivered) = (with_status(&events, "ADDED"), with_status(&events, "UNDELIVERED"));
    assert_eq!(
        sorted(&[added.clone(), undelivered.clone()].concat()),
        accepted,
        "each has one fate"
    );
    let waiting: Vec<usize> = report
        .waiting_messages
        .iter()
        .flat_map(|message| numbers(&message.text))
        .collect();
    assert_eq!(waiting, undelivered, "undelivered messages are in the report");
    let compressions = events
        .iter()
        .filter(|event| event.raised.fields.get("changed") == Some(&json!(true)))
        .count();
    // The budget of quotations is limited. A statement beyond it may be dropped, and the summary counts it.
    let has_dropped = report.conversation.messages.iter().any(|message| {
        let record = message.metadata.as_ref().and_then(|metadata| metadata.get("checklist"));
        record.is_some_and(|record| record["dropped"].as_u64() > Some(0))
    });
    let mut read = BTreeSet::new();
    for request in &requests {
        let now: BTreeSet<usize> = request.iter().copied().collect();
        assert_eq!(now.len(), request.len(), "no request has a message twice: {requests:?}");
        assert!(
            has_dropped || now.is_superset(&read),
            "a message was lost: {requests:?}"
        );
        let new: Vec<usize> = request
            .iter()
            .copied()
            .filter(|number| !read.contains(number))
            .collect();
        let expected = &added[read.len()..read.len() + new.len()];
        assert_eq!(new, expected, "messages are in the order of their events");
        read.extend(new);
    }
    let whole: Vec<_> = report.conversation.messages.iter().cloned().collect();
    for number in &added {
        let is_stored = whole.iter().any(|message| message.content.as_str() == said(*number));
        assert!(is_stored, "the history has lost message {number}");
    }
    if report.error.is_none() {
        assert_eq!(
            read.len(),
            added.len(),
            "the model has read every message: {requests:?} {added:?}"
        );
        assert_blocks_are_whole(&whole);
    }
    [added.len(), undelivered.len(), refused.len(), compressions]
}

#[test]
fn a_message_to_a_run_that_is_compressed_paused_or_cancelled_is_added_once_in_order_or_refused() {
    let mut sums = [0; 4];
    let total = std::cell::RefCell::new(&mut sums);
    proptest!(Config { cases: 300, failure_persistence: None, ..Config::default() }, |(case in cases())| {
        for (sum, count) in total.borrow_mut().iter_mut().zip(check(&case)) {
            *sum += count;
        }
    });
    println!("{sums:?}");
    assert!(sums.iter().all(|sum| *sum > 10), "{sums:?}");
}

#[test]
fn a_message_beyond_the_budget_of_the_quotations_is_counted_as_dropped() {
    let say = |at| (at, Input::Say(When::BeforeNextRequest));
    let mut inputs = vec![
        say(0),
        (0, Input::Pin),
        say(0),
        say(0),
        say(0),
        (0, Input::Say(When::WhenIdle)),
    ];
    inputs.extend([
        say(0),
        say(0),
        say(0),
        say(100),
        say(100),
        say(100),
        (600, Input::Unpause),
    ]);
    check(&Case {
        inputs,
        waits_for_compression: true,
        speculative_at: None,
        token_limit: 150,
        parks: false,
        seed: 0,
    });
}
