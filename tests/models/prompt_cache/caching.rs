//! The marks and keys that let a provider's cache find the common prefix of consecutive requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use pirn::{EventType, ThreadStatus};
use pirn_tests::wire::{Answer, Server};
use pirn_tests::world::run_in;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::models::{Weather, asking, engine, profile};

/// Number of blocks before a mark that the provider searches.
const LOOK_BACK: usize = 20;

fn whole(reply: &Value) -> Answer {
    Answer::Whole {
        status: 200,
        headers: Vec::new(),
        body: reply.to_string(),
    }
}

/// Replies in Anthropic's format: `calls[n]` tool calls in round `n`, then a text.
fn rounds(calls: &[usize]) -> Vec<Answer> {
    let mut replies: Vec<Answer> = (calls.iter().enumerate())
        .map(|(round, count)| {
            let call = |at: usize| json!({"type": "tool_use", "id": format!("t{round}-{at}"), "name": "weather", "input": {"city": at}});
            let calls: Vec<Value> = (0..*count).map(call).collect();
            whole(&json!({"content": calls, "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}))
        })
        .collect();
    replies.push(whole(
        &json!({"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}),
    ));
    replies
}

/// The blocks of a request in the order that the cache reads them in, and the indices of the marked ones.
pub(crate) fn blocks(body: &Value) -> (Vec<String>, Vec<usize>) {
    let listed = |value: &Value| match value {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        other => other.as_array().cloned().unwrap_or_default(),
    };
    let mut all: Vec<(Value, Value)> = Vec::new();
    all.extend(listed(&body["tools"]).into_iter().map(|block| (json!("tool"), block)));
    all.extend(
        listed(&body["system"])
            .into_iter()
            .map(|block| (json!("system"), block)),
    );
    for turn in body["messages"].as_array().into_iter().flatten() {
        all.extend(
            listed(&turn["content"])
                .into_iter()
                .map(|block| (turn["role"].clone(), block)),
        );
    }
    let mut marked = Vec::new();
    let mut written = Vec::new();
    for (at, (role, mut block)) in all.into_iter().enumerate() {
        if block
            .as_object_mut()
            .and_then(|block| block.remove("cache_control"))
            .is_some()
        {
            marked.push(at);
        }
        written.push(json!([role, block]).to_string());
    }
    (written, marked)
}

/// Simulates the provider's cache. Returns, for each request but the first, the number of blocks found in the cache, and the number
/// that could be found: up to the last mark of the request before within their common prefix.
fn found(bodies: &[Value]) -> Vec<(usize, usize)> {
    let mut cache: BTreeSet<Vec<String>> = BTreeSet::new();
    let mut before: Option<(Vec<String>, Vec<usize>)> = None;
    let mut all = Vec::new();
    for body in bodies {
        let (blocks, marked) = blocks(body);
        assert!(!marked.is_empty() && marked.len() <= 4, "{marked:?}");
        let looked_at = marked
            .iter()
            .flat_map(|mark| mark.saturating_sub(LOOK_BACK - 1)..=*mark);
        let found = looked_at.filter(|at| cache.contains(&blocks[..=*at])).max();
        if let Some((earlier, marked)) = before {
            let common = earlier
                .iter()
                .zip(&blocks)
                .take_while(|(one, other)| one == other)
                .count();
            let most = marked.into_iter().filter(|mark| *mark < common).max();
            all.push((found.map_or(0, |at| at + 1), most.map_or(0, |mark| mark + 1)));
        }
        cache.extend(marked.iter().map(|mark| blocks[..=*mark].to_vec()));
        before = Some((blocks, marked));
    }
    all
}

fn bodies(server: &Server) -> Vec<Value> {
    server.requests().into_iter().map(|request| request.body).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_request_reads_the_whole_cached_prefix_of_the_previous_request(
        calls in prop::collection::vec(prop_oneof![4 => 1..4_usize, 1 => 15..40_usize], 1..9),
        has_system: bool,
        pinned: bool,
    ) {
        let server = Server::answering(rounds(&calls));
        let mut config = json!({"prompt": "Where is it fine?", "tools": ["weather"]});
        if has_system {
            config["system"] = json!("You know the weather.");
        }
        let mut bundle = asking(config);
        if pinned {
            bundle["config"] = json!({"pinned": {"role": "A weatherman"}});
        }
        let more = json!({"provider": "anthropic", "stream": false, "promptCache": true});
        let builder = engine([profile(&server, &more)]).tool(Arc::new(Weather));
        let report = run_in(builder, &bundle, Value::Null, Vec::new()).report;
        prop_assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        let bodies = bodies(&server);
        prop_assert_eq!(bodies.len(), calls.len() + 1);
        for (found, possible) in found(&bodies) {
            prop_assert!(found >= possible, "{} of {}", found, possible);
        }
        if !pinned {
            // The last block is marked, so the whole request is cached.
            for body in &bodies {
                let (blocks, marked) = blocks(body);
                prop_assert_eq!(marked.last(), Some(&(blocks.len() - 1)));
            }
        }
    }
}

#[test]
fn only_openai_requests_with_prompt_cache_have_the_threads_cache_key() {
    let saying = || {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"});
        Server::answering([whole(&json!({"choices": [choice]}))])
    };
    for (more, is_told) in [
        (json!({"promptCache": true}), true),
        (json!({}), false),
        (json!({"promptCache": false}), false),
    ] {
        let server = saying();
        let mut more = more;
        more["stream"] = json!(false);
        let report = run_in(
            engine([profile(&server, &more)]),
            &asking(json!({"prompt": "hi"})),
            Value::Null,
            Vec::new(),
        )
        .report;
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        let key = &bodies(&server)[0]["prompt_cache_key"];
        assert_eq!(*key, if is_told { json!(report.thread_id) } else { Value::Null });
    }
}

#[test]
fn an_event_reports_the_stable_prefix_of_each_request() {
    let server = Server::answering(rounds(&[1, 2, 1]));
    let mut bundle = asking(json!({"prompt": "Where is it fine?", "system": "You know.", "tools": ["weather"]}));
    // The third request exceeds the token limit: the triggers run, and the request is built again.
    bundle["config"] = json!({"pinned": {"role": "A weatherman"}, "fromEnd": 1, "tokenLimit": 150});
    bundle["triggers"] = json!([{"id": "t", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "full"}}}]);
    let more = json!({"provider": "anthropic", "stream": false});
    let builder = engine([profile(&server, &more)]).tool(Arc::new(Weather));
    let ran = run_in(builder, &bundle, Value::Null, Vec::new());
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    assert_eq!(bodies(&server).len(), 4);
    let told: Vec<(u64, u64, Value, Value)> = (ran.of(EventType::RequestPrepared).iter())
        .map(|event| {
            let data = &event.raised.fields;
            let figure = |name: &str| data[name].as_u64().expect("a figure");
            let field = |name: &str| data.get(name).cloned().unwrap_or_default();
            (
                figure("tokensUsed"),
                figure("stablePrefixTokens"),
                field("brokenAt"),
                field("why"),
            )
        })
        .collect();
    assert_eq!(told.len(), 5, "four, and one twice: {told:?}");
    assert_eq!((told[0].1, &told[0].2), (0, &Value::Null));
    let twice = told.iter().zip(&told[1..]).filter(|(one, other)| one == other);
    assert_eq!(
        twice.count(),
        1,
        "the one that is put together anew is compared with the same: {told:?}"
    );
    for (used, stable, at, why) in &told[1..] {
        assert!(0 < *stable && stable < used, "{told:?}");
        assert_eq!((at.is_u64(), why), (true, &json!("pinned")), "{told:?}");
    }
}
