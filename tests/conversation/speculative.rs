//! `config.compression.speculativeAt`: a compression that starts early, in the background, and is applied at a safe point.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::tools::tool_fn;
use pirn::{Compression, Engine, EngineBuilder, EventType, FiringOutcome, Model, ModelCall, ModelReply, RunError};
use pirn_definition::message::{Message, Role, ToolCall};
use pirn_events::event::Event;
use pirn_tests::world::{Ran, line, node, run_in, say, wait, workflow};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Tokens of the limit in the scenarios.
const LIMIT: u64 = 1_000;

/// Milliseconds of each of the main thread's model calls.
const CALL_MS: u64 = 10;

/// An answer of some forty tokens.
fn words(about: &str) -> String {
    format!("{about}: {}", "words of no weight at all ".repeat(6))
}

fn profiles() -> Value {
    let answers: Vec<Value> = (0..40)
        .map(|no| json!({"content": words(&format!("answer {no}")), "delayMs": CALL_MS}))
        .collect();
    let slow: Vec<Value> = (0..9).map(|_| json!({"content": "SUMMARY", "delayMs": 25})).collect();
    let hangs: Vec<Value> = (0..9)
        .map(|_| json!({"content": "SUMMARY", "delayMs": 1_000}))
        .collect();
    json!([
        {"id": "main", "provider": "scripted", "responses": answers},
        {"id": "slow", "provider": "scripted", "responses": slow},
        {"id": "hangs", "provider": "scripted", "responses": hangs},
    ])
}

fn asks(from: usize, count: usize) -> Vec<Value> {
    let ask = |no: usize| {
        node(
            &format!("ask{no}"),
            "LLM",
            json!({"profileId": "main", "prompt": words(&format!("question {no}"))}),
        )
    };
    (from..from + count).map(ask).collect()
}

fn main_workflow(nodes: &[Value], speculative_at: Option<f64>) -> Value {
    let mut main = line("main", nodes);
    main["config"] = json!({"tokenLimit": LIMIT});
    if let Some(share) = speculative_at {
        main["config"]["compression"] = json!({"speculativeAt": share});
    }
    main
}

/// A way to compress: the workflow that does it, and the action that starts it.
#[derive(Clone, Debug)]
struct Way {
    workflow: Value,
    action: Value,
}

/// A triggered sub-workflow with a summary by a profile's model.
fn triggered(profile: &str, waits: bool) -> Way {
    let compress = json!({"operation": "compress", "strategy": "summarize", "parameters": {"profileId": profile, "keepRecent": 2}});
    let nodes = [
        node("s", "START_FROM_TRIGGER", json!({})),
        node("compress", "CONTEXT_PROCESSOR", compress),
        node("c", "CONTINUE_FROM_TRIGGER", json!({})),
    ];
    Way {
        workflow: workflow("sub", &nodes, &["s>compress>c"]),
        action: json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub", "waitForCompletion": waits}}),
    }
}

/// A detached run that compresses after a delay.
fn detached(ms: u32) -> Way {
    let config = json!({"strategy": "keep_system_recent", "parameters": {"count": 3}});
    let script = format!("return await compressMessages({{...input, compressionConfig: {config}}})");
    let nodes = [wait("pause", ms), node("compress", "CODE", json!({"code": script}))];
    Way {
        workflow: line("sub", &nodes),
        action: json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "sub"}}),
    }
}

fn trigger(way: &Way) -> Value {
    json!({"id": "compresses", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"}, "action": way.action})
}

fn bundle(main: &Value, way: &Way) -> Value {
    json!({"workflows": [main, way.workflow], "triggers": [trigger(way)], "profiles": profiles()})
}

fn ran(bundle: &Value, seed: u64) -> Ran {
    let ran = run_in(
        Engine::builder().virtual_time(Some(seed)),
        bundle,
        Value::Null,
        Vec::new(),
    );
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    ran
}

fn in_main(ran: &Ran, event_type: EventType) -> Vec<&Event> {
    let all = ran.of(event_type).into_iter();
    all.filter(|event| *event.thread_id == *ran.report.thread_id).collect()
}

/// Completion time of the main thread, in milliseconds.
fn completed_at(ran: &Ran) -> u64 {
    in_main(ran, EventType::ThreadCompleted)[0].timestamp
}

fn compressions_that_changed(ran: &Ran) -> Vec<&Event> {
    let all = in_main(ran, EventType::CompressionCompleted).into_iter();
    all.filter(|event| event.raised.fields["changed"] == true).collect()
}

/// Replies of the main thread's model between two events.
fn replies_between(ran: &Ran, from: &Event, to: &Event) -> usize {
    let between = |event: &&&Event| (from.sequence..to.sequence).contains(&event.sequence);
    let is_reply = |event: &&&Event| event.raised.fields["message"]["role"] == "assistant";
    in_main(ran, EventType::MessageAdded)
        .iter()
        .filter(between)
        .filter(is_reply)
        .count()
}

#[test]
fn a_speculative_compression_is_applied_once_and_never_delays_the_thread() {
    for way in [triggered("slow", true), triggered("slow", false), detached(25)] {
        for seed in 0..8 {
            let plain = ran(&bundle(&main_workflow(&asks(0, 9), None), &way), seed);
            let ran = ran(&bundle(&main_workflow(&asks(0, 9), Some(0.5)), &way), seed);
            let name = format!("{way:?} {seed}");
            assert_eq!(ran.nodes(), plain.nodes(), "{name}");
            assert_eq!(completed_at(&ran), completed_at(&plain), "{name}: it did not wait");
            assert!(ran.of(EventType::TokenLimitExceeded).is_empty(), "{name}");
            let approached = in_main(&ran, EventType::TokenLimitApproached);
            let [approached] = approached[..] else {
                panic!("{name}: {approached:?}")
            };
            let used = approached.raised.fields["tokensUsed"].as_u64().unwrap();
            assert!((LIMIT / 2..LIMIT).contains(&used), "{name}: {used}");
            assert_eq!(approached.raised.fields["speculativeAt"], 0.5, "{name}");
            let applied = compressions_that_changed(&ran);
            let [applied] = applied[..] else {
                panic!("{name}: {applied:?}")
            };
            assert_eq!(ran.report.firings.len(), 1, "{name}");
            assert_eq!(ran.report.firings[0].outcome, FiringOutcome::Completed, "{name}");
            assert!(
                replies_between(&ran, approached, applied) >= 2,
                "{name}: it went on meanwhile"
            );
            // The messages added during the compression are still visible.
            let said: Vec<&str> = plain.visible();
            let visible = ran.visible();
            let meanwhile = said.iter().rev().take(7).rev();
            assert!(visible.len() < said.len(), "{name}: {visible:?}");
            assert!(
                visible.ends_with(&meanwhile.copied().collect::<Vec<_>>()),
                "{name}: {visible:?}"
            );
        }
    }
}

#[test]
fn the_built_in_compression_may_be_speculative() {
    let main = main_workflow(&asks(0, 9), None);
    let bundle = json!({"workflows": [main], "profiles": profiles()});
    let compression = Compression::summarize()
        .profile("slow")
        .keep_recent(2)
        .speculative_at(0.5);
    let engine = Engine::builder().virtual_time(Some(3)).compression(&compression);
    let ran = run_in(engine, &bundle, Value::Null, Vec::new());
    assert_eq!(compressions_that_changed(&ran).len(), 1);
    assert_eq!(in_main(&ran, EventType::TokenLimitApproached).len(), 1);
    assert!(ran.of(EventType::TokenLimitExceeded).is_empty());
    let wrong = Engine::builder()
        .compression(&Compression::summarize().speculative_at(1.5))
        .build();
    let said = wrong.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("speculativeAt"), "{said}");
}

#[test]
fn a_thread_at_its_limit_waits_for_a_speculative_compression_in_progress() {
    for seed in 0..8 {
        let ran = ran(
            &bundle(&main_workflow(&asks(0, 14), Some(0.5)), &triggered("hangs", true)),
            seed,
        );
        let exceeded = in_main(&ran, EventType::TokenLimitExceeded);
        let [exceeded] = exceeded[..] else {
            panic!("{exceeded:?}")
        };
        let applied = compressions_that_changed(&ran);
        let [applied] = applied[..] else { panic!("{applied:?}") };
        assert_eq!(
            replies_between(&ran, exceeded, applied),
            0,
            "no model was asked beyond the limit"
        );
        assert_eq!(ran.report.firings.len(), 1, "nothing was begun a second time");
        assert_eq!(ran.report.firings[0].coalesced, 1);
        assert_eq!(
            applied.timestamp - in_main(&ran, EventType::TokenLimitApproached)[0].timestamp,
            1_000
        );
    }
}

#[test]
fn a_thread_at_its_limit_does_not_wait_if_the_trigger_does_not() {
    let ran = ran(
        &bundle(&main_workflow(&asks(0, 14), Some(0.5)), &triggered("hangs", false)),
        4,
    );
    assert_eq!(completed_at(&ran), 14 * CALL_MS);
    assert_eq!(ran.report.firings.len(), 1);
    assert_eq!(
        ran.report.firings[0].outcome,
        FiringOutcome::Failed,
        "its thread ended before"
    );
}

/// A change of the conversation other than an append.
fn inserted() -> Value {
    json!({"operation": "insert", "position": 0, "messages": [{"role": "system", "content": "Be kind."}]})
}

/// The nodes of a main thread that changes its conversation during the compression.
fn changed_meanwhile(change: Value, rest: usize) -> Vec<Value> {
    let mut nodes = asks(0, 6);
    nodes.push(node("change", "CONTEXT_PROCESSOR", change));
    nodes.extend(asks(6, rest));
    nodes
}

#[test]
fn a_speculative_result_is_dropped_with_an_event_if_the_history_changed() {
    let compressed = json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 5}});
    for change in [inserted(), compressed, json!({"operation": "truncate", "keepLast": 3})] {
        for way in [triggered("slow", true), triggered("slow", false), detached(25)] {
            let name = format!("{change} {way:?}");
            let mut nodes = changed_meanwhile(change.clone(), 0);
            nodes.push(wait("rest", 100));
            let plain = ran(&bundle(&main_workflow(&nodes, None), &way), 2);
            let ran = ran(&bundle(&main_workflow(&nodes, Some(0.5)), &way), 2);
            assert_eq!(ran.visible(), plain.visible(), "{name}");
            let own = compressions_that_changed(&plain).len();
            assert_eq!(compressions_that_changed(&ran).len(), own, "{name}");
            let failed = in_main(&ran, EventType::CompressionFailed);
            let [failed] = failed[..] else {
                panic!("{name}: {failed:?}")
            };
            assert_eq!(failed.raised.fields["triggerId"], "compresses");
            let code = &failed.raised.fields["error"]["details"]["code"];
            assert_eq!(code, "CONVERSATION_CHANGED", "{name}");
            assert_eq!(ran.report.firings[0].outcome, FiringOutcome::Failed, "{name}");
        }
    }
}

#[test]
fn after_a_dropped_speculative_result_the_token_limit_compresses_again() {
    for seed in 0..8 {
        let ran = ran(
            &bundle(
                &main_workflow(&changed_meanwhile(inserted(), 6), Some(0.5)),
                &triggered("hangs", true),
            ),
            seed,
        );
        let exceeded = in_main(&ran, EventType::TokenLimitExceeded);
        let applied = compressions_that_changed(&ran);
        let ([first, _again], [applied]) = (&exceeded[..], &applied[..]) else {
            panic!("{exceeded:?} {applied:?}");
        };
        assert_eq!(
            replies_between(&ran, first, applied),
            0,
            "no model was asked beyond the limit"
        );
        assert_eq!(in_main(&ran, EventType::CompressionFailed).len(), 1);
        let outcomes: Vec<_> = ran.report.firings.iter().map(|firing| firing.outcome).collect();
        assert_eq!(outcomes, [FiringOutcome::Failed, FiringOutcome::Completed]);
    }
}

#[test]
fn other_triggers_do_not_wait_for_a_speculative_compression() {
    let way = triggered("hangs", true);
    let quick = workflow(
        "quick",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            wait("brief", 3),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>brief>c"],
    );
    let run = |share: Option<f64>| {
        let mut bundle = bundle(&main_workflow(&asks(0, 8), share), &way);
        bundle["workflows"].as_array_mut().unwrap().push(quick.clone());
        bundle["triggers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"id": "checks", "workflowId": "main",
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'ask6'"},
            "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "quick"}}}));
        ran(&bundle, 5)
    };
    let (plain, early) = (run(None), run(Some(0.5)));
    assert_eq!(in_main(&early, EventType::TokenLimitApproached).len(), 1);
    assert_eq!(completed_at(&early), completed_at(&plain));
    assert_eq!(completed_at(&plain), 8 * CALL_MS + 3, "it was held for the quick one");
}

#[test]
fn a_run_with_a_speculative_compression_completes_in_every_order() {
    let mut main = main_workflow(&asks(0, 4), Some(0.3));
    main["config"]["tokenLimit"] = json!(400);
    let bundle = bundle(&main, &triggered("slow", true));
    let explored = pirn::explore::explore(Engine::builder().workflows(bundle.to_string())).run();
    let explored = explored.unwrap_or_else(|error| panic!("{error}"));
    assert!(explored.complete && explored.schedules > 1, "{explored}");
    for outcome in &explored.outcomes {
        assert_eq!(outcome.status, pirn::ThreadStatus::Completed, "{explored}");
    }
}

#[test]
fn a_trigger_on_token_limit_approached_never_delays_the_thread() {
    let way = triggered("slow", true);
    let mut bundle = bundle(&main_workflow(&asks(0, 9), Some(0.5)), &way);
    bundle["triggers"][0]["condition"]["eventType"] = json!("TOKEN_LIMIT_APPROACHED");
    let ran = ran(&bundle, 1);
    assert_eq!(completed_at(&ran), 9 * CALL_MS);
    assert_eq!(compressions_that_changed(&ran).len(), 1);
}

/// Answers, or calls a tool if the last message is a question with an odd number. Panics on a request with a call that has no
/// result directly after it, or with a result that has no call.
struct Strict;

impl Model for Strict {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        check_pairs(&call.request.messages);
        let last = call.request.messages.last().cloned();
        async move {
            let asks = last.filter(|last| last.role == Role::User && last.content.contains("odd"));
            let tool_calls = asks.map(|_| {
                ["x", "y"].map(|id| ToolCall {
                    id: id.into(),
                    name: "look".into(),
                    arguments: json!({}),
                })
            });
            Ok(ModelReply {
                content: words("answer"),
                tool_calls: tool_calls.into_iter().flatten().collect(),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn check_pairs(messages: &[Arc<Message>]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match (&message.role, &message.tool_call_id) {
            (Role::Tool, Some(id)) => {
                let place = open
                    .iter()
                    .position(|call| call == id)
                    .expect("a result has its call before it");
                open.remove(place);
            }
            _ => assert!(open.is_empty(), "calls without result"),
        }
        open.extend(message.tool_calls.iter().map(|call| &*call.id));
    }
    assert!(open.is_empty(), "calls without result at the end");
}

/// A step of the main thread.
#[derive(Clone, Debug)]
enum Step {
    Asks { long: usize, is_odd: bool },
    Waits(u32),
    Inserts { at_start: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..12_usize, any::<bool>()).prop_map(|(long, is_odd)| Step::Asks { long, is_odd }),
        4 => (1..40_u32).prop_map(Step::Waits),
        1 => any::<bool>().prop_map(|at_start| Step::Inserts { at_start }),
    ]
}

fn nodes_of(steps: &[Step]) -> Vec<Value> {
    let node_of = |(no, step): (usize, &Step)| match step {
        Step::Asks { long, is_odd } => {
            let kind = if *is_odd { "odd" } else { "even" };
            let prompt = format!("{kind} {no} {}", "question ".repeat(long * 4));
            node(
                &format!("n{no}"),
                "LLM",
                json!({"profileId": "strict", "prompt": prompt, "tools": ["look"]}),
            )
        }
        Step::Waits(ms) => wait(&format!("n{no}"), *ms),
        Step::Inserts { at_start: false } => say(&format!("n{no}"), "said beside"),
        Step::Inserts { at_start: true } => {
            let insert =
                json!({"operation": "insert", "position": 0, "messages": [{"role": "user", "content": "before"}]});
            node(&format!("n{no}"), "CONTEXT_PROCESSOR", insert)
        }
    };
    steps.iter().enumerate().map(node_of).collect()
}

fn built_in(strategy: &Value, ms: u32, waits: bool) -> Way {
    let mut way = triggered("strict", waits);
    let mut compress = strategy.clone();
    compress["operation"] = json!("compress");
    let nodes = [
        node("s", "START_FROM_TRIGGER", json!({})),
        wait("pause", ms),
        node("compress", "CONTEXT_PROCESSOR", compress),
        node("c", "CONTINUE_FROM_TRIGGER", json!({})),
    ];
    way.workflow = workflow("sub", &nodes, &["s>pause>compress>c"]);
    way
}

fn way() -> impl Strategy<Value = Way> {
    let strategies = [
        json!({"strategy": "summarize", "parameters": {"keepRecent": 2}}),
        json!({"strategy": "keep_recent", "parameters": {"count": 3}}),
        json!({"strategy": "keep_system_recent", "parameters": {"count": 3}}),
        json!({"strategy": "sliding_window", "parameters": {"maxTokens": 120}}),
        json!({"strategy": "clear_tool_results", "parameters": {"keep": 1}}),
    ];
    prop_oneof![
        4 => (prop::sample::select(strategies.to_vec()), 0..60_u32, any::<bool>())
            .prop_map(|(strategy, ms, waits)| built_in(&strategy, ms, waits)),
        1 => (0..60_u32).prop_map(detached),
    ]
}

fn strict(seed: u64) -> EngineBuilder {
    let look = tool_fn("look", "looks", json!({"type": "object"}), |_| async {
        Ok(words("seen"))
    });
    Engine::builder()
        .virtual_time(Some(seed))
        .model("strict", Arc::new(Strict))
        .tool(look)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn speculative_compressions_lose_no_message_for_any_sequence_of_steps(
        steps in prop::collection::vec(step(), 1..24),
        way in way(),
        share in 0.05..0.95_f64,
        limit in 150..900_u64,
        seed in 0..1_000_u64,
    ) {
        let run = |share: Option<f64>, has_trigger: bool| {
            let mut main = main_workflow(&nodes_of(&steps), share);
            main["config"]["tokenLimit"] = json!(limit);
            let mut bundle = bundle(&main, &way);
            bundle["profiles"] = json!([{"id": "strict", "provider": "strict"}]);
            if !has_trigger {
                bundle["triggers"] = json!([]);
            }
            run_in(strict(seed), &bundle, Value::Null, Vec::new())
        };
        let (plain, ran) = (run(None, false), run(Some(share), true));
        prop_assert_eq!(ran.code(), "", "{:?}", ran.report.error);
        prop_assert_eq!(ran.nodes(), plain.nodes());
        if ran.of(EventType::TokenLimitExceeded).is_empty() {
            prop_assert_eq!(completed_at(&ran), completed_at(&plain), "what begins early never holds the thread");
        }
        // Each firing has one outcome, and each result is applied once.
        let outcomes = ran.report.firings.iter().map(|firing| firing.outcome);
        let (done, others): (Vec<_>, Vec<_>) = outcomes.partition(|outcome| *outcome == FiringOutcome::Completed);
        // A detached run may outlive the thread that it compresses.
        let is_detached = way.action["type"] == "START_WORKFLOW";
        prop_assert!(is_detached || !others.contains(&FiringOutcome::Open), "{:?}", others);
        prop_assert_eq!(in_main(&ran, EventType::CompressionCompleted).len(), done.len());
        let open = others.iter().filter(|outcome| **outcome == FiringOutcome::Open).count();
        let failed = in_main(&ran, EventType::CompressionFailed).len();
        prop_assert!((others.len() - open..=others.len()).contains(&failed), "{} {:?}", failed, others);
        let batches = |ran: &Ran| ran.report.conversation.mark_map.batch_boundaries.len();
        let changed = compressions_that_changed(&ran).len();
        let expected = if changed == 0 { batches(&plain) } else { batches(&plain).max(1) + changed };
        prop_assert_eq!(batches(&ran), expected, "{} changed", changed);
        // No message is lost: each is visible or archived.
        let count = |ran: &Ran| ran.of(EventType::MessageAdded).iter().filter(|event| *event.thread_id == *ran.report.thread_id).count();
        prop_assert_eq!(count(&ran), count(&plain));
    }
}
