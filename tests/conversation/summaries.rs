//! `summarize` through a profile's model, in a triggered flow: what the model is asked, and what becomes of its answer.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Compression, Engine, EventType, Message, Model, ModelCall, ModelReply, Role, RunError, ToolCall};
use pirn_core::conversation::Spent;
use pirn_tests::world::{Ran, line, node, run_in};
use serde_json::{Value, json};

/// A model that writes down what it is asked.
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
                usage: Spent::new(100, 10, 110),
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
fn the_model_that_summarizes_reads_all_that_is_to_go_and_nothing_that_stays() {
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
fn what_the_model_wrote_stands_for_it_and_what_it_spent_is_the_runs() {
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
    assert_eq!(here[0].raised.data["messagesBefore"], 14);
    assert_eq!(here[0].raised.data["messagesAfter"], 6);
}
