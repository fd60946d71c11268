//! The ready-made compression: one line to add to an engine.

use pirn::{Compression, Engine, EventType, Message, Role, ThreadStatus};
use pirn_conversation::conversation::{Estimator, message_cost};
use pirn_tests::world::{Ran, line, node, run_in};
use serde_json::{Value, json};

/// A system message and far more turns than the limit allows, each with a different text.
fn long_conversation() -> Vec<Message> {
    let mut messages = vec![Message::new(Role::System, "You are kind.")];
    for turn in 0..12 {
        messages.push(Message::new(
            Role::User,
            format!("Parcel {turn} was sent to Turku and has not come. Where is parcel {turn} now?"),
        ));
        messages.push(Message::new(
            Role::Assistant,
            format!("Parcel {turn} waits at the customs office in Turku. It needs form {turn}B."),
        ));
    }
    messages
}

fn ran(compression: &Compression, profiles: &Value) -> Ran {
    let ask = |id: &str| {
        node(
            id,
            "LLM",
            json!({"profileId": "main", "prompt": format!("question {id}")}),
        )
    };
    let mut main = line("main", &[ask("A"), ask("B")]);
    main["config"] = json!({ "tokenLimit": 300 });
    run_in(
        Engine::builder().virtual_time(Some(5)).compression(compression),
        &json!({ "workflows": [main], "profiles": profiles }),
        Value::Null,
        long_conversation(),
    )
}

fn echo() -> Value {
    json!([{ "id": "main", "provider": "echo" }])
}

/// Checks that one compression was applied: `main` passed its usual nodes, nothing is lost, and the system message is first.
#[track_caller]
fn compressed_once(ran: &Ran) {
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    assert_eq!(ran.nodes(), ["start", "A", "B", "end"]);
    assert_eq!(ran.report.firings.len(), 1);
    assert_eq!(ran.report.firings[0].status, Some(ThreadStatus::Completed));
    let here = |event: &&&pirn::Event| *event.thread_id == *ran.report.thread_id;
    assert_eq!(ran.of(EventType::CompressionCompleted).iter().filter(here).count(), 1);
    let visible = ran.visible();
    assert_eq!(visible[0], "You are kind.");
    assert!(visible.len() < 25, "{visible:?}");
    let kept = ran
        .report
        .conversation
        .messages
        .iter()
        .map(|message| (**message).clone());
    let before = long_conversation();
    let archived: Vec<Message> = kept.take(before.len()).collect();
    assert_eq!(archived, before, "what was said stays in the archive");
}

#[test]
fn a_summary_replaces_all_but_the_recent_messages() {
    let ran = ran(&Compression::summarize().keep_recent(2), &echo());
    compressed_once(&ran);
    let visible = ran.visible();
    assert!(
        visible[1].starts_with("[Quoted from 23 earlier messages]\n") && visible[1].contains("Turku"),
        "{visible:?}"
    );
    assert_eq!(
        visible[visible.len() - 4..],
        ["question A", "question A", "question B", "question B"]
    );
}

#[test]
fn a_summary_is_written_by_the_model_of_the_configured_profile() {
    let profiles = json!([
        { "id": "main", "provider": "echo" },
        { "id": "short", "provider": "scripted", "responses": [{ "content": "All parcels wait in Turku." }] },
    ]);
    let ran = ran(&Compression::summarize().profile("short"), &profiles);
    compressed_once(&ran);
    assert!(
        ran.visible()[1].contains("All parcels wait in Turku."),
        "{:?}",
        ran.visible()
    );
}

#[test]
fn the_system_message_and_the_last_messages_remain() {
    let ran = ran(&Compression::keep_system_recent(3), &echo());
    compressed_once(&ran);
    let before = long_conversation();
    let last = [before[23].content.as_str(), before[24].content.as_str()];
    let after = ["question A", "question A", "question B", "question B"];
    assert_eq!(
        ran.visible(),
        [&["You are kind."], &last[..], &after].concat(),
        "the question is the third"
    );
}

#[test]
fn the_last_messages_that_fit_the_token_window_remain() {
    const WINDOW: u64 = 120;
    let ran = ran(&Compression::sliding_window(WINDOW), &echo());
    compressed_once(&ran);
    let (before, visible) = (long_conversation(), ran.visible());
    let after = ["question A", "question A", "question B", "question B"];
    let kept = visible.len() - 1 - after.len();
    let from = before.len() - kept;
    let recent: Vec<&str> = before[from..].iter().map(|message| message.content.as_str()).collect();
    assert_eq!(
        visible,
        [&["You are kind."], &recent[..], &after].concat(),
        "the last ones, none left out"
    );
    let cost = |messages: &[Message]| messages.iter().map(|one| message_cost(one, &Estimator)).sum::<u64>();
    let question = [Message::new(Role::User, "question A")];
    let held = cost(&before[..1]) + cost(&before[from..]) + cost(&question);
    assert!(kept > 0 && held <= WINDOW, "{held} tokens");
    assert!(held + cost(&before[from - 1..from]) > WINDOW, "one more would not fit");
}

#[test]
fn a_thread_need_not_wait_for_a_compression() {
    let profiles = json!([
        { "id": "main", "provider": "echo" },
        { "id": "slow", "provider": "scripted", "responses": [{ "content": "All in Turku.", "delayMs": 5 }] },
    ]);
    let ran = ran(&Compression::summarize().profile("slow").alongside(), &profiles);
    assert_eq!(ran.code(), "");
    assert_eq!(ran.nodes(), ["start", "A", "B", "end"]);
    assert_eq!(ran.report.firings.len(), 1);
}

#[test]
fn a_failed_summary_model_does_not_change_the_conversation() {
    let profiles = json!([
        { "id": "main", "provider": "echo" },
        { "id": "broken", "provider": "scripted", "responses": [] },
    ]);
    let ran = ran(&Compression::summarize().profile("broken"), &profiles);
    assert_eq!(ran.code(), "", "the main thread goes on");
    let here = |event: &&&pirn::Event| *event.thread_id == *ran.report.thread_id;
    let failed = ran.of(EventType::CompressionFailed).iter().filter(here).count();
    assert_eq!(failed, ran.report.firings.len());
    assert!(!ran.report.firings.is_empty());
    assert_eq!(
        ran.visible()[..25],
        long_conversation()
            .iter()
            .map(|message| &*message.content)
            .collect::<Vec<_>>()[..]
    );
}

#[test]
fn a_summary_that_exceeds_its_time_limit_is_cancelled() {
    let profiles = json!([
        { "id": "main", "provider": "echo" },
        { "id": "slow", "provider": "scripted", "responses": [{ "content": "Too late.", "delayMs": 60_000 }] },
    ]);
    let ran = ran(&Compression::summarize().profile("slow").timeout(1.5), &profiles);
    assert_eq!(ran.code(), "");
    assert_eq!(ran.report.firings[0].status, Some(ThreadStatus::Timeout));
    assert_eq!(ran.of(EventType::CompressionCompleted).len(), 0);
}
