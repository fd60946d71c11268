//! Messages of people to a run: each is added to the conversation exactly once, or its sender learns that it was not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::{MemoryStore, Store};
use pirn::{
    Engine, EventType, Message, MessageRefused, Model, ModelCall, ModelReply, Role, RunCommand, RunError, RunHandle,
    RunReport, SubscriptionItem, Tool, ToolCall, ToolSpec, When,
};
use pirn_actors::host::WorkClock;
use pirn_tests::world::{line, node, wait};
use serde_json::{Value, json};

use crate::durable::faults::external_effects::RUN;
use crate::durable::faults::failing_store::{Crash, Failing};

/// Time that every part of the workflow takes, in milliseconds.
const PART: u64 = 10_000;

/// Calls `look` once in each conversation that has no result yet, then replies. Takes [`PART`] for each reply.
struct Slow;

impl Model for Slow {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let messages = &call.request.messages;
        assert_blocks_are_whole(messages);
        let calls = !call.tools.is_empty() && messages.iter().all(|message| message.role != Role::Tool);
        let is_summary = !calls
            && messages.last().is_some_and(|last| {
                last.role == Role::User
                    && last.content.as_str() != "second"
                    && !last.content.as_str().starts_with("message ")
            });
        let tool_call = ToolCall {
            id: "c1".to_owned(),
            name: "look".to_owned(),
            // Long, so that a summary is smaller than the messages that it replaces.
            arguments: json!({"about": "words ".repeat(100)}),
        };
        async move {
            call.clock.sleep(PART).await;
            Ok(ModelReply {
                content: match (calls, is_summary) {
                    (true, _) => "calls",
                    (false, true) => "a summary",
                    (false, false) => "says",
                }
                .to_owned(),
                tool_calls: calls.then_some(tool_call).into_iter().collect(),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn text(message: &Message) -> String {
    message.content.as_str().to_owned()
}

/// Asserts that each reply with calls is followed by its results, without a message between them.
pub(super) fn assert_blocks_are_whole(messages: &[Arc<Message>]) {
    for (at, message) in messages.iter().enumerate() {
        let results = messages[at + 1..].iter().take(message.tool_calls.len());
        let results: Vec<_> = results.filter_map(|result| result.tool_call_id.as_deref()).collect();
        let calls: Vec<_> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(results, calls, "{messages:#?}");
    }
}

/// A tool of a call of this many milliseconds.
pub(super) struct Look(pub(super) u64);

impl Tool for Look {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "look".to_owned(),
            description: "Looks".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }
    fn call(&self, _: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let millis = self.0;
        async move {
            clock.sleep(millis).await;
            Ok("looked".to_owned())
        }
        .boxed()
    }
    fn is_external(&self) -> bool {
        false
    }
}

/// Waits, calls a model that calls a tool, asks a question, compresses, and calls the model again; each part takes [`PART`].
fn bundle() -> Value {
    let question = json!({"question": "Well?", "timeoutMs": PART, "onTimeout": "default", "default": "yes"});
    let compress =
        json!({"operation": "compress", "strategy": "summarize", "parameters": {"profileId": "slow", "keepRecent": 1}});
    line(
        "main",
        &[
            wait("nap", PART as u32),
            node(
                "a",
                "LLM",
                json!({"profileId": "slow", "prompt": "first", "tools": ["look"]}),
            ),
            node("ask", "USER_INTERACTION", question),
            node("shrink", "CONTEXT_PROCESSOR", compress),
            node("b", "LLM", json!({"profileId": "slow", "prompt": "second"})),
        ],
    )
}

/// A message, with the time at which it is sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at_ms: u64,
    when: When,
}

impl Sent {
    fn command(self, number: usize) -> RunCommand {
        RunCommand::Say {
            id: Some(format!("m{number}")),
            text: said(number),
            when: self.when,
        }
    }
}

fn said(number: usize) -> String {
    format!("message {number}")
}

/// A workflow that starts the run and sends it the messages at their times, which ascend.
fn sender(messages: &[Sent]) -> Value {
    let mut now = 0;
    let begin = node("begin", "CODE", json!({"function": "begin"}));
    let each = messages.iter().enumerate().flat_map(|(number, sent)| {
        let nap = wait(&format!("w{number}"), (sent.at_ms - now) as u32);
        now = sent.at_ms;
        let say = json!({"function": "say", "input": number.to_string()});
        [nap, node(&format!("c{number}"), "CODE", say)]
    });
    line("sender", &std::iter::once(begin).chain(each).collect::<Vec<_>>())
}

/// Results by message: `Ok`, or the code of the refusal.
type Results = Arc<Mutex<BTreeMap<usize, Result<(), &'static str>>>>;

/// A process with the workflow and its sender.
struct Process {
    engine: Engine,
    results: Results,
    /// The run, once the sender has started it.
    run: Arc<OnceLock<RunHandle>>,
}

impl Process {
    fn start(store: impl Store, messages: &[Sent], park_after: Option<Duration>) -> Self {
        let (own, results) = (Arc::new(OnceLock::<Engine>::new()), Results::default());
        let (engine, heard, sent) = (Arc::clone(&own), Arc::clone(&results), messages.to_vec());
        let say = move |number: Value| {
            let (engine, heard, sent) = (Arc::clone(&engine), Arc::clone(&heard), sent.clone());
            async move {
                let number = number.as_u64().expect("a number") as usize;
                let engine = engine.get().expect("is set before the start");
                let result = send(engine, number, sent[number]).await;
                heard
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(number, result);
                Ok(Value::Null)
            }
        };
        let run = Arc::new(OnceLock::new());
        let (starts, started) = (Arc::clone(&own), Arc::clone(&run));
        let begin = move |_: Value| {
            let engine = starts.get().expect("is set before the start");
            let run = engine.run("main").run_id(RUN).start();
            let started = run.map(|run| drop(started.set(run))).map_err(|error| error.to_string());
            std::future::ready(started.map(|()| Value::Null))
        };
        let builder = Engine::builder().virtual_time(Some(7)).store(store);
        let engine = builder
            .park_after(park_after.unwrap_or(Duration::MAX))
            .workflows(bundle().to_string())
            .workflows(sender(messages).to_string())
            .async_function("say", say)
            .async_function("begin", begin)
            .tool(Arc::new(Look(PART)))
            .model("slow", Arc::new(Slow))
            .build()
            .expect("builds");
        assert!(own.set(engine.clone()).is_ok());
        Self { engine, results, run }
    }

    fn results(&self) -> BTreeMap<usize, Result<(), &'static str>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Executes the sender and its run. Returns the report of the run; `None` if it was not started.
    fn play(&self) -> Option<Arc<RunReport>> {
        let sender = self.engine.start("sender", Value::Null).expect("starts");
        let ended = sender.outcome_blocking();
        if let Some(error) = &ended.error {
            assert_eq!(error.code.as_str(), "STORE_ERROR", "{error}");
        }
        self.run.get().map(RunHandle::outcome_blocking)
    }

    fn end(self) {
        self.engine.shutdown_blocking(Duration::from_secs(5));
    }
}

async fn send(engine: &Engine, number: usize, sent: Sent) -> Result<(), &'static str> {
    let sent = engine.send_command(RUN, &sent.command(number)).await;
    sent.map(drop).map_err(|error| error.code())
}

/// Texts of a run's conversation.
fn texts(report: &RunReport) -> Vec<String> {
    report
        .conversation
        .messages
        .iter()
        .map(|message| text(message))
        .collect()
}

/// Executes the run and its sender in one process. Returns the texts of the conversation and the results.
fn plays(messages: &[Sent], park_after: Option<Duration>) -> (Vec<String>, BTreeMap<usize, Result<(), &'static str>>) {
    let process = Process::start(MemoryStore::new(), messages, park_after);
    let report = process.play().expect("starts");
    assert_eq!(report.error, None);
    assert!(report.waiting_messages.is_empty(), "{:?}", report.waiting_messages);
    let results = process.results();
    let view = block_on(process.engine.view(RUN, None)).expect("is rebuilt");
    assert_eq!(json!(view.report), json!(*report), "a replay has the same result");
    process.end();
    (texts(&report), results)
}

#[test]
fn a_message_in_any_state_is_added_once_at_a_safe_point_or_refused() {
    const CALL: [&str; 3] = ["first", "calls", "looked"];
    let second = ["second", "says"];
    let cases: [(u64, When, Vec<&str>); 15] = [
        // The run waits for a timer.
        (
            5,
            When::BeforeNextRequest,
            vec!["first", "M", "calls", "looked", "says", "second", "says"],
        ),
        (5, When::WhenIdle, [&CALL[..], &["says", "M", "says"], &second].concat()),
        // The model replies with a call.
        (
            15,
            When::BeforeNextRequest,
            [&CALL[..], &["M", "says"], &second].concat(),
        ),
        (
            15,
            When::WhenIdle,
            [&CALL[..], &["says", "M", "says"], &second].concat(),
        ),
        // The tool runs.
        (
            25,
            When::BeforeNextRequest,
            [&CALL[..], &["M", "says"], &second].concat(),
        ),
        (
            25,
            When::WhenIdle,
            [&CALL[..], &["says", "M", "says"], &second].concat(),
        ),
        // The model writes the last reply of the node.
        (
            35,
            When::BeforeNextRequest,
            [&CALL[..], &["says", "M", "says"], &second].concat(),
        ),
        (
            35,
            When::WhenIdle,
            [&CALL[..], &["says", "M", "says"], &second].concat(),
        ),
        // A question is open.
        (
            45,
            When::BeforeNextRequest,
            [&CALL[..], &["says", "second", "M", "says"]].concat(),
        ),
        (
            45,
            When::WhenIdle,
            [&CALL[..], &["says"], &second, &["M", "says"]].concat(),
        ),
        // The conversation is compressed.
        (
            55,
            When::BeforeNextRequest,
            [&CALL[..], &["says", "second", "M", "says"]].concat(),
        ),
        (
            55,
            When::WhenIdle,
            [&CALL[..], &["says"], &second, &["M", "says"]].concat(),
        ),
        // The model writes the last reply of the run.
        (
            65,
            When::BeforeNextRequest,
            [&CALL[..], &["says"], &second, &["M", "says"]].concat(),
        ),
        (
            65,
            When::WhenIdle,
            [&CALL[..], &["says"], &second, &["M", "says"]].concat(),
        ),
        // The run has ended.
        (75, When::BeforeNextRequest, [&CALL[..], &["says"], &second].concat()),
    ];
    for (seconds, when, expected) in cases {
        for park_after in [None, Some(Duration::ZERO)] {
            let at_ms = seconds * 1_000;
            let (texts, results) = plays(&[Sent { at_ms, when }], park_after);
            let result = if seconds < 70 { Ok(()) } else { Err("RUN_HAS_ENDED") };
            assert_eq!(results[&0], result, "{seconds} {when:?}");
            let named = texts
                .iter()
                .map(|text| if *text == said(0) { "M" } else { text.as_str() });
            let named: Vec<&str> = named.collect();
            // The compression adds its summary and the messages that stay visible, in front of the second prompt.
            let is_known = |text: &&str| *text == "M" || expected.contains(text);
            let before = named.iter().copied().take_while(is_known);
            let after = named.iter().copied().skip_while(|text| *text != "second");
            let found: Vec<&str> = before.chain(after).collect();
            assert_eq!(found, expected, "{seconds} {when:?} {park_after:?}");
        }
    }
}

/// A fixed generator, so that a seed gives equal moments on every platform.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn messages(&mut self) -> Vec<Sent> {
        let mut times: Vec<u64> = (0..4).map(|_| self.below(90_000)).collect();
        times.sort_unstable();
        let each = times.into_iter().map(|at_ms| Sent {
            at_ms,
            when: [When::BeforeNextRequest, When::WhenIdle][self.below(2) as usize],
        });
        each.collect()
    }
}

/// Sends messages at random times, kills the process at a random commit, and resumes the run in another process. Messages without an
/// acknowledgement are sent again, before the run is resumed or after it. Returns the numbers of acknowledged, added and refused
/// messages.
fn crash_and_say(seed: u64, commits: u64) -> [u32; 3] {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let messages = dice.messages();
    let at = dice.below(commits);
    let crash = [Crash::Before(at), Crash::After(at)][dice.below(2) as usize];
    let parks = (dice.below(2) == 0).then_some(Duration::ZERO);
    let store = Failing::new(MemoryStore::new(), crash);
    let first = Process::start(store.clone(), &messages, parks);
    first.play();
    let mut results = first.results();
    first.end();
    // Only the result of a failed store is unknown. All others are final.
    results.retain(|_, result| !matches!(result, Err("STORE_ERROR" | "STORE_FAILED")));
    let kept = MemoryStore::clone(&store.kept);
    let Some(there) = block_on(kept.run(RUN)).expect("is read") else {
        assert!(results.values().all(Result::is_err), "{seed}: {results:?}");
        return [0; 3];
    };
    let second = Process::start(kept, &messages, parks);
    let again = |results: &mut BTreeMap<usize, Result<(), &'static str>>| {
        for (number, sent) in messages.iter().enumerate() {
            results
                .entry(number)
                .or_insert_with(|| block_on(send(&second.engine, number, *sent)));
        }
    };
    let acknowledged = results.values().filter(|result| result.is_ok()).count();
    if dice.below(2) == 0 {
        again(&mut results);
    }
    if !there.status.is_final() {
        let resumed = block_on(second.engine.resume(RUN).start()).expect("goes on");
        again(&mut results);
        resumed.outcome_blocking();
        resumed.wait_all_ended_blocking();
    }
    again(&mut results);
    let view = block_on(second.engine.view(RUN, None)).expect("is rebuilt");
    let texts = texts(&view.report);
    let waits = |number: usize| {
        let waiting = &view.report.waiting_messages;
        waiting.iter().filter(|waiting| *waiting.text == said(number)).count()
    };
    for (number, result) in &results {
        let added = texts.iter().filter(|text| **text == said(*number)).count();
        let expected = match result {
            Ok(()) => 1,
            Err("RUN_HAS_ENDED") => 0,
            Err(other) => panic!("{seed} {crash:?}: {other}"),
        };
        assert_eq!(
            added + waits(*number),
            expected,
            "{seed} {crash:?} {messages:?}: message {number}: {texts:#?}"
        );
    }
    second.end();
    let added = texts.iter().filter(|text| text.starts_with("message ")).count();
    let refused = results.values().filter(|result| result.is_err()).count();
    [acknowledged, added, refused].map(|count| u32::try_from(count).expect("is small"))
}

#[test]
fn messages_at_random_moments_of_a_run_that_is_killed_are_added_once_or_refused() {
    let whole = Failing::new(MemoryStore::new(), Crash::Never);
    let messages = Dice(1).messages();
    let process = Process::start(whole.clone(), &messages, None);
    process.play();
    process.end();
    let mut all = [0; 3];
    for seed in 0..250 {
        for (sum, count) in all.iter_mut().zip(crash_and_say(seed, whole.commits())) {
            *sum += count;
        }
    }
    let [acknowledged, added, refused] = all;
    println!("{acknowledged} acknowledged before the end of the process, {added} added, {refused} refused");
    assert!(acknowledged > 125 && added > 500 && refused > 10, "{all:?}");
}

#[test]
fn a_fork_before_a_message_lacks_it_and_a_fork_after_it_has_it_once() {
    let messages = [Sent {
        at_ms: 25_000,
        when: When::BeforeNextRequest,
    }];
    let process = Process::start(MemoryStore::new(), &messages, None);
    process.play();
    let view = block_on(process.engine.view(RUN, None)).expect("is read");
    let history = json!(view.history);
    let steps = history.as_array().expect("a list").iter();
    let step = steps
        .filter(|step| step["kind"] == "message")
        .filter_map(|step| step["step"].as_u64());
    let step: Vec<u64> = step.collect();
    assert_eq!(step.len(), 1, "{history:#}");
    for (at, expected) in [(step[0] - 1, 0), (step[0], 1)] {
        let fork = block_on(process.engine.fork(RUN, at).make(format!("fork-{at}"))).expect("forks");
        let fork = block_on(fork.start()).expect("goes on");
        let texts = texts(&fork.outcome_blocking());
        let found = texts.iter().filter(|text| **text == said(0)).count();
        assert_eq!(found, expected, "at step {at}: {texts:?}");
    }
    process.end();
}

#[test]
fn a_message_to_a_stored_run_without_an_owner_is_added_when_the_run_resumes() {
    let store = MemoryStore::new();
    let first = Process::start(store.clone(), &[], None);
    let id = block_on(first.engine.run("main").run_id(RUN).enqueue()).expect("is stored");
    let sent = Sent {
        at_ms: 0,
        when: When::BeforeNextRequest,
    };
    for _ in 0..2 {
        let told = block_on(first.engine.send_command(&id, &sent.command(0)));
        assert_eq!(told.expect("is stored"), pirn::CommandOutcome::Kept);
    }
    let waiting = block_on(first.engine.view(RUN, None))
        .expect("is read")
        .report
        .waiting_messages;
    let waiting: Vec<&str> = waiting.iter().map(|message| &*message.id).collect();
    assert_eq!(waiting, ["m0"], "the same id is the same message");
    first.end();
    let second = Process::start(store, &[], None);
    let run = block_on(second.engine.resume(RUN).start()).expect("goes on");
    let texts = texts(&run.outcome_blocking());
    assert_eq!(texts.iter().filter(|text| **text == said(0)).count(), 1, "{texts:?}");
    assert_eq!(texts[..2], ["first".to_owned(), said(0)]);
    run.wait_all_ended_blocking();
    let late = block_on(send(&second.engine, 1, sent));
    assert_eq!(late, Err("RUN_HAS_ENDED"));
    second.end();
}

#[test]
fn a_message_that_the_run_cannot_use_is_refused_with_the_reason() {
    // A question without a time limit: the run waits until the end of the test.
    let idle = line("idle", &[node("ask", "USER_INTERACTION", json!({"question": "Well?"}))]);
    let speaks = line(
        "speaks",
        &[
            node("ask", "USER_INTERACTION", json!({"question": "Well?"})),
            node("b", "LLM", json!({"profileId": "slow", "prompt": "second"})),
        ],
    );
    let engine = Engine::builder()
        .virtual_time(None)
        .workflows(idle.to_string())
        .workflows(speaks.to_string())
        .model("slow", Arc::new(Slow))
        .build()
        .expect("builds");
    let silent = engine.start("idle", Value::Null).expect("starts");
    let said = |run: &RunHandle, text: &str| block_on(run.say(text, When::WhenIdle));
    assert_eq!(said(&silent, "Hello"), Err(MessageRefused::NoModel));
    let run = engine.start("speaks", Value::Null).expect("starts");
    for (text, reason) in [
        (" \n".to_owned(), "its text is empty".to_owned()),
        (
            "x".repeat(1_048_577),
            "its text has 1048577 bytes, the maximum is 1048576".to_owned(),
        ),
    ] {
        assert_eq!(said(&run, &text), Err(MessageRefused::Invalid { reason }));
    }
    let long = block_on(run.say_as(Some("x".repeat(129).into()), "Hello", When::WhenIdle));
    assert_eq!(long.map_err(|refused| refused.code()), Err("INVALID_MESSAGE"));
    for number in 0..100 {
        assert_eq!(said(&run, &format!("message {number}")), Ok(()));
    }
    let full = said(&run, "One more").expect_err("too many wait");
    assert_eq!(full.code(), "TOO_MANY_MESSAGES");
    assert_eq!(
        full.to_string(),
        "the run accepts no more messages: 100 messages wait for the next model request, the maximum is 100"
    );
    let question = block_on(run.interactions()).remove(0).id;
    block_on(run.answer(&question, "yes")).expect("is open");
    let report = run.outcome_blocking();
    // The node was about to finish when the messages were due: each is in the conversation once, in order.
    let texts = texts(&report);
    let expected: Vec<String> = (0..100).map(|number| format!("message {number}")).collect();
    assert_eq!(texts[2..102], expected);
    assert_eq!(said(&run, "Late"), Err(MessageRefused::Ended));
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn waiting_messages_have_a_limit_of_bytes() {
    let speaks = line(
        "speaks",
        &[
            node("ask", "USER_INTERACTION", json!({"question": "Well?"})),
            node("b", "LLM", json!({"profileId": "slow", "prompt": "second"})),
        ],
    );
    let engine = Engine::builder()
        .virtual_time(None)
        .workflows(speaks.to_string())
        .model("slow", Arc::new(Slow))
        .build()
        .expect("builds");
    let mut run = engine.run("speaks");
    let events = run.blocking_events(&[EventType::UserMessage], 100);
    let run = run.start().expect("starts");
    let half = "x".repeat(600_000);
    assert_eq!(block_on(run.say(half.as_str(), When::WhenIdle)), Ok(()));
    let full = block_on(run.say(half.as_str(), When::WhenIdle)).expect_err("too many bytes");
    assert_eq!(
        full.to_string(),
        "the run accepts no more messages: the waiting messages would have 1200000 bytes, the maximum is 1048576"
    );
    run.cancel("enough");
    let report = run.outcome_blocking();
    assert_eq!(report.waiting_messages.len(), 1, "the run ended before its model call");
    run.wait_all_ended_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    let events = events.map(|heard| match heard {
        SubscriptionItem::Event(event) => event.raised.fields["status"].clone(),
        SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
    });
    assert_eq!(events.collect::<Vec<_>>(), ["RECEIVED", "UNDELIVERED"]);
}
