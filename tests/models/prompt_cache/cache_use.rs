//! Observed use of a provider's prompt cache: the reasons of collapses, in events and in the report.

use std::sync::{Arc, Mutex};

use pirn::{Compression, EventType, Message, Role, ThreadStatus};
use pirn_conversation::conversation::{Estimator, message_cost};
use pirn_conversation::model_call::{CacheCollapses, CacheReason, CacheReport};
use pirn_tests::wire::{Answer, Server};
use pirn_tests::world::{Ran, line, node, run_in, wait};
use serde_json::{Value, json};

use super::counted_cache::{Log, read};
use crate::models::{Weather, engine, profile};

/// Behaviour of the provider's cache.
#[derive(Clone, Copy, PartialEq)]
enum Cache {
    Works,
    /// The cache is empty at the request with this index.
    EmptyAt(usize),
    /// Replies have no figures of the cache.
    Silent,
}

fn server(cache: Cache) -> Server {
    let (log, count) = (Log::default(), Mutex::new(0));
    Server::deciding(move |request| {
        let mut count = count.lock().expect("no panic");
        if cache == Cache::EmptyAt(*count) {
            log.lock().expect("no panic").clear();
        }
        *count += 1;
        let read = read(request, &log);
        let (sent, cached) = (read.text.len() / 4, read.cached / 4);
        let mut usage = json!({"prompt_tokens": sent, "completion_tokens": 5, "total_tokens": sent + 5});
        if cache != Cache::Silent {
            usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
        }
        let message = json!({"role": "assistant", "content": "It is fine."});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        Answer::Whole {
            status: 200,
            headers: Vec::new(),
            body: json!({"choices": [choice], "usage": usage}).to_string(),
        }
    })
}

fn history() -> Vec<Message> {
    let said = |place: usize| format!("Question {place}: {}", format!("word{place} and ").repeat(120));
    let pair = |place| {
        [
            Message::new(Role::User, said(place)),
            Message::new(Role::Assistant, "Fine."),
        ]
    };
    (0..12).flat_map(pair).collect()
}

fn ask(id: &str, more: &Value) -> Value {
    let mut config = json!({"profileId": "m", "system": "You know the weather.", "prompt": "And now?"});
    for (name, value) in more.as_object().into_iter().flatten() {
        config[name] = value.clone();
    }
    node(id, "LLM", config)
}

fn asks(count: usize) -> Vec<Value> {
    (0..count)
        .map(|place| ask(&format!("ask{place}"), &json!({})))
        .collect()
}

fn play(cache: Cache, nodes: &[Value], limit: Option<u64>) -> Ran {
    let prices = json!({"input": 3, "cachedRead": 0.3, "output": 15});
    let server = server(cache);
    let mut bundle = line("asks", nodes);
    if let Some(limit) = limit {
        bundle["config"] = json!({"tokenLimit": limit});
    }
    let builder = engine([profile(&server, &json!({"stream": false, "prices": prices}))])
        .tool(Arc::new(Weather))
        .compression(&Compression::summarize().profile("m").keep_recent(12));
    let ran = run_in(builder, &bundle, Value::Null, history());
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    ran
}

fn report(ran: &Ran) -> CacheReport {
    *ran.report.usage.cache.clone().expect("the replies have figures")
}

/// Returns the only collapse, after checking that the event has the figures of the report.
#[track_caller]
fn collapse(ran: &Ran) -> (CacheCollapses, Value) {
    let report = report(ran);
    let events = ran.of(EventType::CacheCollapsed);
    let ([collapses], [event]) = (&report.collapses[..], &events[..]) else {
        panic!("{report:?} {events:?}");
    };
    let fields = Value::Object(event.raised.fields.to_map());
    assert_eq!(
        (collapses.count, fields["reason"].as_str()),
        (1, Some(collapses.reason.as_str()))
    );
    assert_eq!(
        fields.get("lostTokens").and_then(Value::as_u64).unwrap_or_default(),
        collapses.lost_tokens
    );
    assert_eq!(fields.get("cost").cloned(), collapses.cost.map(|cost| json!(cost)));
    (*collapses, fields)
}

#[test]
fn requests_that_the_cache_serves_are_compared_and_raise_no_event() {
    let ran = play(Cache::Works, &asks(4), None);
    let report = report(&ran);
    assert_eq!((report.compared, report.collapses.len()), (3, 0));
    assert!(report.read_tokens * 10 >= report.expected_tokens * 9, "{report:?}");
    assert_eq!(ran.of(EventType::CacheCollapsed).len(), 0);
}

#[test]
fn a_collapse_after_a_compression_has_the_reason_compacted() {
    let total: u64 = history().iter().map(|message| message_cost(message, &Estimator)).sum();
    // The first request fits.
    let ran = play(Cache::Works, &asks(4), Some(total + 30));
    let (collapses, fields) = collapse(&ran);
    assert_eq!(collapses.reason, CacheReason::Compacted, "{fields}");
    assert_eq!(fields["why"], "history");
    let most = fields["expectedTokens"].as_u64().expect("a figure");
    assert!(
        collapses.lost_tokens > 1_000 && collapses.lost_tokens <= most,
        "{fields}"
    );
    // 2.7 millionths for each token.
    let cost = collapses.cost.expect("the profile has prices");
    assert_eq!(cost.pico, collapses.lost_tokens * 2_700_000);
}

#[test]
fn a_collapse_after_a_long_wait_has_the_reason_expired() {
    let mut nodes = asks(3);
    nodes.insert(2, wait("rest", 301_000));
    let (collapses, fields) = collapse(&play(Cache::EmptyAt(2), &nodes, None));
    assert_eq!(collapses.reason, CacheReason::Expired, "{fields}");
    assert!(
        fields["idleMs"].as_u64().is_some_and(|idle| idle >= 301_000),
        "{fields}"
    );
    assert!(collapses.cost.is_some_and(|cost| cost.pico > 0));
}

#[test]
fn a_collapse_without_a_known_reason_is_unexpected() {
    let (collapses, fields) = collapse(&play(Cache::EmptyAt(2), &asks(4), None));
    assert_eq!(collapses.reason, CacheReason::Unexpected, "{fields}");
    assert_eq!((&fields["readTokens"], fields.get("why")), (&json!(0), None));
}

#[test]
fn another_system_text_or_other_tools_change_the_prefix() {
    for (change, why) in [
        (json!({"system": "You know nothing of the weather."}), "system"),
        (json!({"tools": ["weather"]}), "tools"),
    ] {
        // Already at the second request.
        let nodes = [ask("first", &json!({})), ask("second", &change)];
        let (collapses, fields) = collapse(&play(Cache::Works, &nodes, None));
        assert_eq!(collapses.reason, CacheReason::PrefixChanged, "{fields}");
        assert_eq!((&fields["why"], &fields["nodeId"]), (&json!(why), &json!("second")));
    }
}

#[test]
fn a_provider_without_figures_is_reported_once() {
    let ran = play(Cache::Silent, &asks(5), None);
    let (collapses, fields) = collapse(&ran);
    assert_eq!(
        (collapses.reason, collapses.cost),
        (CacheReason::Unreported, None),
        "{fields}"
    );
    assert_eq!(report(&ran).compared, 0);
}

#[test]
fn offline_models_have_no_cache() {
    let nodes: Vec<Value> = asks(3);
    let builder = pirn::Engine::builder().virtual_time(Some(7));
    let bundle = json!({"workflows": [line("asks", &nodes)], "profiles": [{"id": "m", "provider": "echo"}]});
    let ran = run_in(builder, &bundle, Value::Null, history());
    assert_eq!(
        (ran.report.usage.cache.clone(), ran.of(EventType::CacheCollapsed).len()),
        (None, 0)
    );
}

/// The comparison does not depend on subscribers: the report has equal figures without any.
#[test]
fn the_report_has_the_figures_without_a_subscriber() {
    let with = report(&play(Cache::EmptyAt(2), &asks(4), None));
    let server = server(Cache::EmptyAt(2));
    let engine = engine([profile(
        &server,
        &json!({"stream": false, "prices": {"input": 3, "cachedRead": 0.3, "output": 15}}),
    )])
    .workflows(line("asks", &asks(4)).to_string())
    .build()
    .expect("builds");
    let run = engine.run("asks").conversation(history()).start().expect("starts");
    assert_eq!(run.outcome_blocking().usage.cache.as_deref(), Some(&with));
}
