//! Spans of runs, and the export request with them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use opentelemetry::Value as Attribute;
use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use pirn::{Engine, Event, SubscriptionItem};
use pirn_definition::definition::Profile;
use pirn_definition::event_type::EventType;
use pirn_events::event::RaisedEvent;
use serde_json::{Value, json};

use super::spans::{ProfileLookup, Spans};
use super::{Telemetry, TelemetryOptions, names};

const WORKFLOWS: &str = r#"{"workflows": [
    {"id": "main",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "fork", "type": "FORK",
                "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["ask", "call"], "forkStrategy": "parallel"}},
               {"id": "ask", "type": "LLM", "config": {"prompt": "time?", "profileId": "bot", "tools": ["clock"]}},
               {"id": "call", "type": "SUBGRAPH", "config": {"subgraphId": "called"}},
               {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "ask"}, {"from": "fork", "to": "call"},
               {"from": "ask", "to": "join"}, {"from": "call", "to": "join"}, {"from": "join", "to": "end"}]},
    {"id": "called",
     "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}], "edges": [{"from": "start", "to": "end"}]},
    {"id": "waits",
     "nodes": [{"id": "start", "type": "START"}, {"id": "pause", "type": "WAIT", "config": {"seconds": 5}},
               {"id": "ask", "type": "USER_INTERACTION",
                "config": {"question": "Sure?", "timeoutMs": 60000, "onTimeout": "default", "default": "no"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "pause"}, {"from": "pause", "to": "ask"}, {"from": "ask", "to": "end"}]},
    {"id": "broken",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "ask", "type": "LLM", "config": {"prompt": "x", "profileId": "none"}}, {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]}],
  "profiles": [
    {"id": "none", "provider": "scripted", "responses": []},
    {"id": "bot", "provider": "scripted", "responses": [
        {"content": "a secret thought", "toolCalls": [{"id": "c1", "name": "clock", "arguments": {"zone": "secret"}}]},
        {"content": "noon"}]}]}"#;

/// Returns all events of a run under virtual time.
fn events(workflow: &str) -> Vec<Event> {
    let engine = Engine::builder()
        .workflows(WORKFLOWS)
        .simulated(7)
        .build()
        .expect("an engine");
    let mut run = engine.run(workflow).input(Value::Null);
    let events = run.blocking_events(&[], 10_000);
    let run = run.start().expect("it starts");
    run.outcome_blocking();
    engine.shutdown_blocking(std::time::Duration::ZERO);
    let heard = events.map(|heard| match heard {
        SubscriptionItem::Event(event) => (*event).clone(),
        SubscriptionItem::Lagged(count) => panic!("{count} events are missing"),
    });
    heard.collect()
}

fn spans(events: &[Event], has_contents: bool) -> Vec<SpanData> {
    let profiles: ProfileLookup = Box::new(|id| {
        let id = id.unwrap_or("default");
        let profile: Profile =
            serde_json::from_value(json!({"id": id, "provider": "gemini", "model": id})).expect("valid");
        Some(Arc::new(profile))
    });
    let mut spans = Spans::new(has_contents, profiles);
    let types = Spans::types();
    let heard = events.iter().filter(|event| types.contains(&event.raised.event_type));
    heard.flat_map(|event| spans.observe(event)).collect()
}

fn attributes(span: &SpanData) -> BTreeMap<&str, String> {
    let pairs = span.attributes.iter();
    pairs
        .map(|pair| (pair.key.as_str(), pair.value.as_str().into_owned()))
        .collect()
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let found: Vec<&SpanData> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}");
    found[0]
}

#[test]
fn a_run_is_one_trace_with_branch_spans_linked_by_the_join() {
    let spans = spans(&events("main"), false);
    let trace = spans[0].span_context.trace_id();
    assert!(
        spans
            .iter()
            .all(|span| span.span_context.trace_id() == trace && span.end_time >= span.start_time)
    );
    let id = |name: &str| named(&spans, name).span_context.span_id();
    let parent = |name: &str| named(&spans, name).parent_span_id;
    assert_eq!(parent("invoke_workflow main"), SpanId::INVALID);
    assert_eq!(parent("branch a"), id("invoke_workflow main"));
    assert_eq!(parent("branch b"), id("invoke_workflow main"));
    assert_eq!(parent("invoke_workflow called"), id("branch b"));
    assert_eq!(parent("execute_tool clock"), id("branch a"));
    assert_eq!(parent("join join"), id("invoke_workflow main"));
    let links: Vec<SpanId> = named(&spans, "join join")
        .links
        .iter()
        .map(|link| link.span_context.span_id())
        .collect();
    assert_eq!(links, [id("branch a"), id("branch b")]);
    let chats: Vec<&SpanData> = spans.iter().filter(|span| span.name == "chat bot").collect();
    assert_eq!(chats.len(), 2);
    let chat = attributes(chats[0]);
    assert_eq!(
        (chat[names::PROVIDER_NAME].as_str(), chat[names::REQUEST_MODEL].as_str()),
        ("gcp.gemini", "bot")
    );
    assert!(
        chats
            .iter()
            .all(|chat| chat.parent_span_id == id("branch a") && chat.span_kind == SpanKind::Client)
    );
    let main = attributes(named(&spans, "invoke_workflow main"));
    assert_eq!(
        (main[names::OPERATION].as_str(), main[names::WORKFLOW_NAME].as_str()),
        ("invoke_workflow", "main")
    );
}

#[test]
fn equal_events_make_equal_spans_with_unique_ids() {
    let events = events("main");
    let ids = |spans: &[SpanData]| -> Vec<SpanId> { spans.iter().map(|span| span.span_context.span_id()).collect() };
    let (first, again) = (spans(&events, false), spans(&events, false));
    assert_eq!(ids(&first), ids(&again));
    let mut once = ids(&first);
    once.sort_unstable_by_key(|id| id.to_bytes());
    once.dedup();
    assert_eq!(once.len(), first.len());
}

#[test]
fn spans_contain_message_contents_only_on_request() {
    let events = events("main");
    let text = |has_contents: bool| -> String {
        let spans = spans(&events, has_contents);
        spans.iter().flat_map(|span| attributes(span).into_values()).collect()
    };
    assert!(!text(false).contains("secret"));
    assert!(text(true).contains("secret thought") && text(true).contains(r#"{"zone":"secret"}"#));
}

#[test]
fn a_wait_node_has_a_span_and_a_wait_for_a_person_has_none() {
    let spans = spans(&events("waits"), false);
    let wait = named(&spans, "wait pause");
    let lasted = wait.end_time.duration_since(wait.start_time).expect("in order");
    assert_eq!((lasted.as_secs(), &*attributes(wait)[names::NODE_ID]), (5, "pause"));
    let main = named(&spans, "invoke_workflow waits").span_context.span_id();
    assert_eq!(wait.parent_span_id, main);
    assert_eq!(spans.len(), 2, "{spans:?}");
}

/// Creates events of one thread, a second apart.
fn run_events(raised: impl IntoIterator<Item = RaisedEvent>) -> Vec<Event> {
    let event = |(sequence, raised): (u64, RaisedEvent)| Event {
        sequence,
        timestamp: sequence * 1_000,
        run_id: "r".into(),
        workflow_id: "w".into(),
        thread_id: "r.0".into(),
        raised,
    };
    (1..).zip(raised).map(event).collect()
}

#[test]
fn approval_time_is_in_no_span_and_a_denied_call_has_no_span() {
    let call = || {
        [
            ("toolCallId", json!("c")),
            ("name", json!("pay")),
            ("nodeId", json!("ask")),
        ]
    };
    let asked = || {
        let tool = json!({"toolCallId": "c"});
        [
            ("interactionId", json!("r.0.1")),
            ("nodeId", json!("ask")),
            ("tool", tool),
        ]
    };
    let begun = [
        RaisedEvent::new(EventType::ThreadStarted, [("kind", json!("main"))]),
        RaisedEvent::new(EventType::ToolCallStarted, call()),
        RaisedEvent::new(EventType::InteractionRequested, asked()),
    ];
    let answered = [
        RaisedEvent::new(EventType::InteractionAnswered, asked()),
        RaisedEvent::new(EventType::ToolCallCompleted, call()),
        RaisedEvent::new(EventType::ThreadCompleted, []),
    ];
    let spans_of = |span: &SpanData| {
        let seconds = |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).map(|at| at.as_secs());
        (seconds(span.start_time).ok(), seconds(span.end_time).ok())
    };
    let whole = spans(&run_events(begun.clone().into_iter().chain(answered)), false);
    assert_eq!(spans_of(named(&whole, "execute_tool pay")), (Some(4), Some(5)));

    let error = json!({"code": "CANCELLED", "message": "enough"});
    let cancelled = RaisedEvent::new(EventType::ThreadCancelled, [("error", error)]);
    let cut = spans(&run_events(begun.into_iter().chain([cancelled])), false);
    assert_eq!(cut.len(), 1, "the thread's own: {cut:?}");
}

#[test]
fn the_span_of_a_cancelled_wait_ends_with_its_thread() {
    let node = [("nodeId", json!("pause")), ("nodeType", json!("WAIT"))];
    let error = json!({"code": "CANCELLED", "message": "enough"});
    let cut = spans(
        &run_events([
            RaisedEvent::new(EventType::ThreadStarted, [("kind", json!("main"))]),
            RaisedEvent::new(EventType::NodeStarted, node),
            RaisedEvent::new(EventType::ThreadCancelled, [("error", error)]),
        ]),
        false,
    );
    assert!(matches!(named(&cut, "wait pause").status, Status::Error { .. }));
}

#[test]
fn a_failed_span_has_the_error_code() {
    let spans = spans(&events("broken"), false);
    for name in ["invoke_workflow broken", "chat none"] {
        let span = named(&spans, name);
        assert!(matches!(span.status, Status::Error { .. }), "{name}");
        let code = span
            .attributes
            .iter()
            .find(|pair| pair.key.as_str() == names::ERROR_TYPE)
            .map(|pair| &pair.value);
        assert!(matches!(code, Some(Attribute::String(_))), "{name}");
    }
}

#[test]
fn spans_are_exported_when_the_engine_stops() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
    let collector = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut reader = BufReader::new(&stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        (&stream)
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .expect("an answer");
        (head, body)
    });
    let engine = Engine::builder().workflows(WORKFLOWS).build().expect("an engine");
    let options = TelemetryOptions {
        endpoint: Some(endpoint),
        ..TelemetryOptions::default()
    };
    let telemetry = Telemetry::start(&engine, options).expect("an exporter");
    let report = engine.start("called", json!(1)).expect("it starts").outcome_blocking();
    assert_eq!(report.output, json!(1));
    engine.shutdown_blocking(std::time::Duration::from_secs(1));
    telemetry.finish();
    let (head, body) = collector.join().expect("it was asked");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    assert!(
        head.to_ascii_lowercase()
            .contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let text = String::from_utf8_lossy(&body);
    assert!(
        text.contains("invoke_workflow called") && text.contains(names::SCHEMA_URL) && text.contains(&report.run_id)
    );
}
