//! Spans of a service's runs, as a collector receives them.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use reqwest::Client;
use serde_json::json;
use tokio::sync::mpsc;

use crate::command::{Served, folder};
use crate::world::answer;

const WORKFLOWS: &str = r#"{"workflows": [
    {"id": "inner", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]},
    {"id": "main",
     "nodes": [{"id": "s", "type": "START"}, {"id": "call", "type": "SUBGRAPH", "config": {"subgraphId": "inner"}},
               {"id": "fork", "type": "FORK", "config": {"forkId": "f", "forkPathIds": ["quick", "slow", "asked"],
                "childNodeIds": ["q", "w", "ask"], "forkStrategy": "parallel"}},
               {"id": "q", "type": "CODE", "config": {"code": "return 1"}},
               {"id": "w", "type": "WAIT", "config": {"event": "go"}},
               {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Sure?"}},
               {"id": "join", "type": "JOIN", "config": {"joinId": "f", "forkPathIds": ["quick", "slow", "asked"], "joinStrategy": "ALL_COMPLETED", "mainPathId": "quick"}},
               {"id": "e", "type": "END"}],
     "edges": [{"from": "s", "to": "call"}, {"from": "call", "to": "fork"}, {"from": "fork", "to": "q"}, {"from": "fork", "to": "w"}, {"from": "fork", "to": "ask"}, {"from": "ask", "to": "join"},
               {"from": "q", "to": "join"}, {"from": "w", "to": "join"}, {"from": "join", "to": "e"}]}]}"#;

/// A collector, and a channel of the spans that it received.
async fn collector() -> (String, mpsc::UnboundedReceiver<Span>) {
    let (sender, spans) = mpsc::unbounded_channel();
    let take = async move |body: Bytes| {
        let request = ExportTraceServiceRequest::decode(body).expect("a request of OTLP");
        let scopes = request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            sender.send(span).expect("the test goes on");
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
    let served = axum::serve(listener, Router::new().route("/v1/traces", post(take)));
    tokio::spawn(served.into_future());
    (url, spans)
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_continues_its_trace_after_a_kill_and_exports_no_span_twice() {
    let folder = folder("traces");
    std::fs::write(folder.join("main.json"), WORKFLOWS).expect("a file");
    let (url, mut received) = collector().await;
    let serve = || {
        Served::start(
            &folder,
            &["main.json", "--store", "runs.db", "--grace", "5", "--otlp", &url],
        )
    };
    let client = Client::builder().no_proxy().build().expect("a client");
    let post = async |served: &Served, path: &str, body: serde_json::Value| {
        let request = client.post(format!("{}{path}", served.url));
        let request = request.header("content-type", "application/json");
        answer(request.body(body.to_string())).await.status.as_u16()
    };

    let mut first = serve();
    assert_eq!(
        post(&first, "/v1/runs", json!({"workflow": "main", "runId": "r"})).await,
        201
    );
    let mut spans = Vec::new();
    while spans.len() < 2 {
        spans.push(received.recv().await.expect("the collector stays"));
    }
    let questions = async |served: &Served| {
        let request = client.get(format!("{}/v1/runs/r/interactions", served.url));
        answer(request).await.body["interactions"].take()
    };
    let question = loop {
        if let Some(id) = questions(&first).await[0]["id"].as_str() {
            break id.to_owned();
        }
    };
    first.kill();
    let mut second = serve();
    let path = format!("/v1/interactions/{question}");
    assert_eq!(post(&second, &path, json!({"answer": "yes"})).await, 200);
    assert_eq!(post(&second, "/v1/runs/r/emit", json!({"name": "go"})).await, 200);
    assert_eq!(
        post(&second, "/v1/runs?wait=10", json!({"workflow": "inner"})).await,
        201
    );
    second.signal("TERM");
    assert_eq!(second.ended(), Some(0));
    // The service exports every span before it exits.
    while let Ok(span) = received.try_recv() {
        spans.push(span);
    }
    let main = spans.iter().find(|span| span.name == "invoke_workflow main");
    let trace = main.expect("the run's own span").trace_id.clone();
    let (run, other): (Vec<Span>, Vec<Span>) = spans.into_iter().partition(|span| span.trace_id == trace);
    assert_eq!(
        other.iter().map(|span| &*span.name).collect::<Vec<_>>(),
        ["invoke_workflow inner"]
    );
    let mut names: Vec<&str> = run.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "branch asked",
            "branch quick",
            "branch slow",
            "invoke_workflow inner",
            "invoke_workflow main",
            "join join",
            "wait w"
        ]
    );
    let span_of = |name: &str| run.iter().find(|span| span.name == name).expect("it is there");
    assert_eq!(span_of("wait w").parent_span_id, span_of("branch slow").span_id);
    let roots = run.iter().filter(|span| span.parent_span_id.is_empty());
    assert_eq!(roots.count(), 1);
    for span in run.iter().filter(|span| !span.parent_span_id.is_empty()) {
        let has_id = |other: &&Span| other.span_id == span.parent_span_id;
        assert_eq!(run.iter().filter(has_id).count(), 1, "the parent of {}", span.name);
    }
}
