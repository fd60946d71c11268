//! `summarize` through a profile's model, in a triggered flow: the request to the model, and the use of its answer.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{
    Compression, Engine, EventType, Message, Model, ModelCall, ModelReply, Role, RunError, Tool, ToolCall, ToolSpec,
};
use pirn_conversation::conversation::TokenUsage;
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_tests::world::{Ran, line, node, run_in};
use serde_json::{Value, json};

/// A model that records its requests.
#[derive(Clone, Default)]
struct Writer {
    asked: Arc<Mutex<Vec<Vec<Arc<Message>>>>>,
}

impl Model for Writer {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let messages = call.request.messages.clone();
        self.asked.lock().expect("no panic").push(messages);
        async {
            Ok(ModelReply {
                content: "Parcel 7 waits for form 7B.".to_owned(),
                usage: TokenUsage::new(100, 10, 110),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn conversation() -> Vec<Message> {
    let calls = Message {
        tool_calls: vec![ToolCall {
            id: "a".into(),
            name: "track".into(),
            arguments: json!({ "parcel": 7 }),
        }],
        ..Message::new(Role::Assistant, "")
    };
    let story = format!(
        "{} so please send it to Oulu instead.",
        "I have waited and waited. ".repeat(20)
    );
    let mut messages = vec![
        Message::new(Role::System, "You are kind."),
        Message::new(Role::User, story),
        calls,
        Message::tool_result("a", format!("{} it needs form 7B", "scanned in Turku, ".repeat(10))),
        Message::new(Role::Assistant, "It needs form 7B."),
    ];
    for turn in 0..4 {
        messages.push(Message::new(Role::User, format!("And parcel {turn}?")));
        messages.push(Message::new(Role::Assistant, format!("Parcel {turn} is at home.")));
    }
    messages
}

fn ran(writer: &Writer) -> Ran {
    let mut main = line(
        "main",
        &[node("ask", "LLM", json!({ "profileId": "main", "prompt": "And now?" }))],
    );
    main["config"] = json!({ "tokenLimit": 250 });
    run_in(
        Engine::builder()
            .virtual_time(Some(3))
            .model("writer", Arc::new(writer.clone()))
            .compression(&Compression::summarize().profile("writer").keep_recent(4)),
        &json!({ "workflows": [main], "profiles": [
            { "id": "main", "provider": "echo" }, { "id": "writer", "provider": "writer" },
        ] }),
        Value::Null,
        conversation(),
    )
}

#[test]
fn the_summary_model_receives_exactly_the_messages_to_replace() {
    let writer = Writer::default();
    ran(&writer);
    let asked = writer.asked.lock().expect("no panic");
    assert_eq!(asked.len(), 1, "asked once");
    let text = &asked[0].last().expect("a request").content;
    for part in [
        "so please send it to Oulu instead.",
        "calls track {\"parcel\":7}",
        "it needs form 7B",
        "Parcel 1 is at home.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("Parcel 3 is at home."), "{text}");
    assert!(!text.contains("You are kind."), "{text}");
}

#[test]
fn a_models_summary_replaces_the_messages_and_its_tokens_count_for_the_run() {
    let writer = Writer::default();
    let ran = ran(&writer);
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    assert_eq!(
        ran.visible(),
        [
            "You are kind.",
            "Parcel 7 waits for form 7B.",
            "Parcel 2 is at home.",
            "And parcel 3?",
            "Parcel 3 is at home.",
            "And now?",
            "And now?"
        ][..],
    );
    let summary = ran
        .report
        .conversation
        .messages
        .iter()
        .find(|message| message.content == "Parcel 7 waits for form 7B.");
    let stands_for = summary.and_then(|message| message.metadata.as_ref()?.get("summaryOf")?.get("count")?.as_u64());
    assert_eq!(stands_for, Some(9));
    assert!(ran.report.tokens.spent.total >= 110, "{:?}", ran.report.tokens);
    let here = |event: &&&pirn::Event| *event.thread_id == *ran.report.thread_id;
    let completed = ran.of(EventType::CompressionCompleted);
    let here: Vec<_> = completed.iter().filter(here).collect();
    assert_eq!(here.len(), 1);
    assert_eq!(here[0].raised.fields["messagesBefore"], 14);
    assert_eq!(here[0].raised.fields["messagesAfter"], 6);
}

/// A model that records its calls.
#[derive(Clone, Default)]
struct Own {
    asked: Arc<Mutex<Vec<ModelCall>>>,
    on_order: OnOrder,
}

/// The answer to an order for a summary that is appended to a request.
#[derive(Clone, Copy, Default)]
enum OnOrder {
    #[default]
    Summary,
    Rejection,
    ToolCall,
    Nothing,
}

impl Model for Own {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let is_order = call
            .request
            .messages
            .last()
            .is_some_and(|last| last.content.starts_with("Stop here"));
        let on_order = if is_order { self.on_order } else { OnOrder::Summary };
        self.asked.lock().expect("no panic").push(call);
        async move {
            let mut reply = ModelReply {
                content: "Parcel 7 waits for form 7B.".to_owned(),
                usage: TokenUsage::new(100, 10, 110),
                ..ModelReply::default()
            };
            match on_order {
                OnOrder::Summary => {}
                OnOrder::Rejection => {
                    let mut failure = ModelFailure::new(FailureKind::Rejected);
                    failure.spent = TokenUsage::new(1_000, 0, 1_000);
                    return Err(failure.into_error("too long"));
                }
                OnOrder::ToolCall => {
                    "Let me look for it.".clone_into(&mut reply.content);
                    reply.tool_calls = vec![ToolCall {
                        id: "again".into(),
                        name: "track".into(),
                        arguments: json!({}),
                    }];
                }
                OnOrder::Nothing => reply.content.clear(),
            }
            Ok(reply)
        }
        .boxed()
    }
}

/// The model calls of a run with token limit `limit` whose conversation is summarized by its model.
fn summarized_by_its_model(limit: Option<u64>, on_order: OnOrder) -> (Ran, Vec<ModelCall>) {
    let own = Own {
        on_order,
        ..Own::default()
    };
    let config = json!({"profileId": "main", "prompt": "And now?", "system": "never seen", "tools": ["track"],
        "parameters": {"temperature": 0.5, "toolChoice": "required"}});
    let mut main = line("main", &[node("ask", "LLM", config)]);
    main["config"] = json!({"tokenLimit": limit, "pinned": {"role": "A clerk", "todo": "Find it."}, "fromEnd": 3});
    let ran = run_in(
        Engine::builder()
            .virtual_time(Some(3))
            .model("own", Arc::new(own.clone()))
            .tool(Arc::new(Track))
            .compression(&Compression::summarize().profile("main").keep_recent(4)),
        &json!({ "workflows": [main], "profiles": [{ "id": "main", "provider": "own" }] }),
        Value::Null,
        conversation(),
    );
    let asked = own.asked.lock().expect("no panic").clone();
    (ran, asked)
}

struct Track;

impl Tool for Track {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "track".to_owned(),
            description: "Where a parcel is".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(&self, _: Value, _: pirn_actors::host::WorkClock) -> BoxFuture<'static, Result<String, String>> {
        async { Ok("in Turku".to_owned()) }.boxed()
    }
}

#[test]
fn a_summary_request_is_the_next_request_with_an_instruction_appended() {
    let (_, without) = summarized_by_its_model(None, OnOrder::Summary);
    let (ran, asked) = summarized_by_its_model(Some(250), OnOrder::Summary);
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    assert_eq!((without.len(), asked.len()), (1, 2));
    let (would_be, order) = (&without[0], &asked[0]);
    let (last, before) = order.request.messages.split_last().expect("an order");
    assert_eq!(before, &would_be.request.messages[..]);
    assert!(would_be.request.inserted_at.is_some());
    assert_eq!(order.request.inserted_at, would_be.request.inserted_at);
    assert!(
        last.content.starts_with("Stop here") && last.content.contains("last 4 messages"),
        "{}",
        last.content
    );
    assert_eq!(order.tools, would_be.tools);
    assert_eq!(order.tools.len(), 1);
    assert_eq!(
        json!(order.parameters),
        json!({"temperature": 0.5}),
        "the same, and no choice of tools"
    );
    assert_eq!(*order.goes_on_from, *ran.report.thread_id);
    assert_ne!(*order.context.thread_id, *ran.report.thread_id, "another thread asks");
    assert_eq!(ran.visible()[..2], ["You are kind.", "Parcel 7 waits for form 7B."]);
    assert!(asked[1].request.tokens < would_be.request.tokens);
}

#[test]
fn a_model_that_rejects_the_request_is_sent_a_transcript() {
    let (ran, asked) = summarized_by_its_model(Some(250), OnOrder::Rejection);
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    assert_eq!(asked.len(), 3);
    let [system, transcript] = &asked[1].request.messages[..] else {
        panic!("{:?}", asked[1].request.messages)
    };
    assert_eq!((system.role, transcript.role), (Role::System, Role::User));
    assert!(
        transcript.content.contains("calls track {\"parcel\":7}"),
        "{}",
        transcript.content
    );
    assert!(asked[1].tools.is_empty());
    assert_eq!(ran.visible()[..2], ["You are kind.", "Parcel 7 waits for form 7B."]);
    assert_eq!(ran.report.tokens.spent.total, 1_000 + 110 + 110, "both are paid");
}

#[test]
fn a_model_that_continues_instead_of_summarizing_is_sent_a_transcript() {
    for on_order in [OnOrder::ToolCall, OnOrder::Nothing] {
        let (ran, asked) = summarized_by_its_model(Some(250), on_order);
        assert_eq!(ran.code(), "", "{:?}", ran.report.error);
        assert_eq!(asked.len(), 3);
        assert!(asked[1].tools.is_empty() && asked[1].request.messages.len() == 2);
        assert_eq!(ran.visible()[..2], ["You are kind.", "Parcel 7 waits for form 7B."]);
        assert_eq!(ran.report.tokens.spent.total, 3 * 110, "all are paid");
    }
}
