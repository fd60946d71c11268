//! Large results of a run without a store: up to `maxArtifactBytes` of them are retained.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Role, ThreadStatus, Tool, ToolSpec};
use pirn_definition::event_type::EventType;
use pirn_tests::wire::{Answer, Server};
use pirn_tests::world::{line, node, run_in};
use serde_json::{Value, json};

use super::{engine, profile};

/// Returns a text of 4,000 times the given letter.
struct Fill;

impl Tool for Fill {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fill".to_owned(),
            description: "A long text".to_owned(),
            parameters: json!({"type": "object", "properties": {"letter": {"type": "string"}}}),
        }
    }

    fn call(
        &self,
        arguments: Value,
        _clock: pirn_actors::host::WorkClock,
    ) -> BoxFuture<'static, Result<String, String>> {
        async move { Ok(arguments["letter"].as_str().unwrap_or_default().repeat(4_000)) }.boxed()
    }
}

/// `run_in` also rebuilds the run, which must repeat the reads.
#[test]
fn a_run_retains_the_last_large_results_and_reports_evicted_ones() {
    let fill = |letter: &str| ("fill", json!({"letter": letter}).to_string());
    let calls: Vec<(&str, String)> = ["a", "b", "a", "c", "d"].into_iter().map(fill).collect();
    let calls: Vec<(&str, &str)> = calls.iter().map(|(name, arguments)| (*name, &**arguments)).collect();
    let id = |letter: &str| pirn::store::ContentHash::of(&letter.repeat(4_000)).to_string()[..16].to_owned();
    let read = |letter: &str| {
        (
            "read_artifact",
            json!({"id": id(letter), "range": {"start": 0, "end": 3}}).to_string(),
        )
    };
    let reads: Vec<(&str, String)> = ["a", "b", "c", "d"].into_iter().map(read).collect();
    let reads: Vec<(&str, &str)> = reads.iter().map(|(name, arguments)| (*name, &**arguments)).collect();
    let server = Server::answering([
        Answer::calling(&calls),
        Answer::calling(&reads),
        Answer::saying(&["done"]),
    ]);
    let mut flow = line(
        "asks",
        &[node("ask", "LLM", json!({"prompt": "go", "tools": ["fill"]}))],
    );
    flow["config"] = json!({"artifactTokens": 300, "maxArtifactBytes": 12_000, "tokenizer": "estimate"});
    let builder = engine([profile(&server, &json!({}))]).tool(Arc::new(Fill));
    let ran = run_in(builder, &flow, Value::Null, Vec::new());
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);

    let of_type = |wanted: EventType| ran.events.iter().filter(move |event| event.raised.event_type == wanted);
    let kept: Vec<Value> = of_type(EventType::ArtifactKept)
        .map(|event| event.to_json()["artifactId"].clone())
        .collect();
    assert_eq!(kept, ["a", "b", "a", "c", "d"].map(|letter| json!(id(letter))));
    let dropped: Vec<Value> = of_type(EventType::ArtifactDropped)
        .map(|event| event.to_json())
        .collect();
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    let fields = ["artifactId", "bytes", "maxBytes"].map(|field| dropped[0][field].clone());
    assert_eq!(
        fields,
        [json!(id("b")), json!(4_000), json!(12_000)],
        "the one that was kept longest ago"
    );

    let results: Vec<&str> = (ran.report.conversation.messages.iter())
        .filter(|message| message.role == Role::Tool)
        .map(|message| message.content.as_str())
        .collect();
    assert!(results[..5].iter().all(|preview| preview.len() < 2_000));
    assert!(results[5].ends_with("\naaa") && results[7].ends_with("\nccc") && results[8].ends_with("\nddd"));
    assert!(results[6].contains("` not found: "), "{}", results[6]);
    // `read_artifact` is offered after the node's tools.
    let offered = server.requests()[0].body["tools"].clone();
    let names: Vec<&Value> = offered
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| &tool["function"]["name"])
        .collect();
    assert_eq!(names, ["fill", "read_artifact"]);
}
