//! Conversations in common formats: read, written again, and written in another format.

use std::path::Path;
use std::sync::Arc;

use pirn::formats::{Format, read, write};
use pirn::{History, Message, Part, Role, ThreadStatus, ToolCall};
use pirn_tests::wire::{check_anthropic, check_gemini, check_pairs};
use pirn_tests::world::{line, node, run_in};
use proptest::prelude::*;
use serde_json::{Value, json};

fn recorded(format: Format) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wire/conversations");
    let text = std::fs::read_to_string(folder.join(format!("{}.json", format.name()))).expect("recorded");
    serde_json::from_str(&text).expect("JSON")
}

const FORMS: [Format; 3] = [Format::OpenAi, Format::Anthropic, Format::Gemini];

fn messages(value: &Value, format: Option<Format>) -> Vec<Arc<Message>> {
    let read = read(value, format).unwrap_or_else(|error| panic!("{error}: {value:#}"));
    read.messages.into_iter().map(Arc::new).collect()
}

/// A model's view of messages, independent of the ids of calls: results refer to their call by its index.
fn meaning(messages: &[Arc<Message>]) -> Vec<Value> {
    let mut ids: Vec<&str> = Vec::new();
    let of = |message: &Arc<Message>| Part::text(message.content.as_str());
    let mut seen: Vec<Value> = Vec::new();
    for message in messages {
        let parts = if message.parts.is_empty() && !message.content.is_empty() {
            vec![of(message)]
        } else {
            message.parts.to_vec()
        };
        if !message.tool_calls.is_empty() {
            ids = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
        }
        let answers = message
            .tool_call_id
            .as_deref()
            .and_then(|id| ids.iter().position(|call| *call == id));
        let calls: Vec<Value> = message
            .tool_calls
            .iter()
            .map(|call| json!([call.name, call.arguments]))
            .collect();
        seen.push(json!({"role": message.role, "parts": parts, "calls": calls, "answers": answers}));
    }
    seen
}

#[test]
fn every_format_is_detected_and_written_as_it_was_read() {
    for format in FORMS {
        let value = recorded(format);
        assert_eq!(Format::of(&value), format);
        let first = messages(&value, None);
        assert!(
            first.iter().any(|message| !message.parts.is_empty())
                && first.iter().any(|message| message.asks_for_tools())
        );
        let again = write(&first, format).expect("its own form");
        assert_eq!(messages(&again, Some(format)), first, "{}: {again:#}", format.name());
        let own = write(&first, Format::Pirn).expect("its own form");
        assert_eq!(messages(&own, None), first, "{}", format.name());
    }
}

#[test]
fn a_conversation_converted_to_another_format_has_equal_content() {
    for from in FORMS {
        let first = messages(&recorded(from), None);
        for to in FORMS {
            let written = match write(&first, to) {
                Ok(written) => written,
                // A chat completion cannot contain a file by its address.
                Err(error) => {
                    assert_eq!((to, from != Format::OpenAi), (Format::OpenAi, true), "{error}");
                    continue;
                }
            };
            assert_eq!(check_pairs(&written), Ok(()), "{written:#}");
            match to {
                Format::Anthropic => assert_eq!(check_anthropic(&written), Ok(()), "{written:#}"),
                Format::Gemini => assert_eq!(check_gemini(&written), Ok(()), "{written:#}"),
                Format::OpenAi | Format::Pirn => {}
            }
            let words = |messages: &[Arc<Message>]| -> Vec<String> {
                let all = messages
                    .iter()
                    .flat_map(|message| message.content.lines().map(str::to_owned).collect::<Vec<_>>());
                all.filter(|line| !line.is_empty()).collect()
            };
            let read = messages(&written, Some(to));
            assert_eq!(words(&read), words(&first), "{} to {}", from.name(), to.name());
        }
    }
}

fn any_message() -> impl Strategy<Value = Vec<Message>> {
    let text = prop::sample::select(vec!["hi", "ä 你好", "{\"a\": 1}", "two\nlines"]);
    let call = |id: &str, name: &str| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: json!({"n": 1}),
    };
    let image = || Part::image("data:image/png;base64,AA==");
    prop_oneof![
        text.clone().prop_map(|text| vec![Message::new(Role::User, text)]),
        text.clone().prop_map(move |text| vec![Message::of_parts(
            Role::User,
            vec![Part::text(text), image(), Part::text("and")]
        )]),
        text.clone().prop_map(|text| vec![Message::new(Role::Assistant, text)]),
        (text, any::<bool>()).prop_map(move |(text, twice)| {
            let calls = if twice {
                vec![call("x", "t"), call("y", "t")]
            } else {
                vec![call("x", "u")]
            };
            let results = calls.iter().map(|call| Message::tool_result(call.id.as_str(), text));
            let results: Vec<Message> = results.collect();
            let asks = Message {
                tool_calls: calls,
                ..Message::new(Role::Assistant, "")
            };
            std::iter::once(asks).chain(results).collect()
        }),
    ]
}

proptest! {
    #[test]
    fn a_written_conversation_is_read_back_unchanged(turns in prop::collection::vec(any_message(), 1..6), system in any::<bool>()) {
        let system = system.then(|| Message::new(Role::System, "be kind"));
        // Some formats merge adjacent turns of one role, so none are generated.
        let mut all: Vec<Arc<Message>> = system.into_iter().map(Arc::new).collect();
        for turn in turns {
            let last = all.last().map_or(Role::System, |last| last.role);
            let first = turn[0].role;
            let is_next = !matches!(
                (last, first),
                (Role::User | Role::Tool, Role::User) | (Role::Assistant, Role::Assistant)
            );
            if is_next {
                all.extend(turn.into_iter().map(Arc::new));
            }
        }
        for format in FORMS {
            let written = write(&all, format).expect("it has a place for all of it");
            prop_assert_eq!(meaning(&messages(&written, Some(format))), meaning(&all), "{}: {:#}", format.name(), written);
        }
    }
}

#[test]
fn an_unreadable_conversation_is_an_error_with_its_location() {
    for (value, format, pointer, words) in [
        (
            json!({"messages": [{"role": "robot", "content": "x"}]}),
            Some(Format::OpenAi),
            "/messages/0/role",
            "robot",
        ),
        (
            json!([{"role": "tool", "content": "x"}]),
            Some(Format::OpenAi),
            "/0/tool_call_id",
            "must be a text",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "video"}]}]}),
            Some(Format::Anthropic),
            "/messages/0/content/0/type",
            "video",
        ),
        (
            json!({"contents": [{"role": "user", "parts": [{"sound": 1}]}]}),
            None,
            "/contents/0/parts/0",
            "a part is one of",
        ),
        (
            json!({"messages": [], "markMap": {"batchBoundaries": [5]}}),
            None,
            "/markMap",
            "is missing",
        ),
        (json!(7), None, "", "must be a list"),
    ] {
        let error = read(&value, format).expect_err("refused");
        assert!(error.pointer.starts_with(pointer), "{error} at {}", error.pointer);
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn the_report_of_a_sessions_run_is_read_as_a_conversation() {
    let profile = json!({"id": "m", "provider": "scripted", "responses": [{"content": "1"}, {"content": "2"}]});
    let talk = node("talk", "LLM", json!({"prompt": "hello"}));
    let engine = pirn::Engine::builder()
        .virtual_time(Some(7))
        .profiles([serde_json::from_value(profile).expect("a profile")])
        .workflows(line("talk", &[talk]).to_string())
        .build()
        .expect("valid");
    let turn = || {
        let run = engine.run("talk").session("chat").start().expect("admitted");
        serde_json::to_value(&*run.outcome_blocking()).expect("JSON")
    };
    let (first, second) = (turn(), turn());
    assert_eq!(first["conversation"]["from"], Value::Null);
    assert_eq!(second["conversation"]["from"], 2);
    let mut with_archived = second.clone();
    with_archived["conversation"]["markMap"]["batchBoundaries"] = json!([3]);
    for (report, visible) in [(second, 2), (with_archived, 1)] {
        for value in [&report, &report["conversation"]] {
            let conversation = read(value, None).expect("a report");
            assert_eq!(conversation.messages.len(), 2);
            let marks = conversation.mark_map.as_ref().expect("marks");
            assert_eq!(
                marks.visible(2).iter().map(ExactSizeIterator::len).sum::<usize>(),
                visible
            );
            assert_eq!(conversation.history().expect("valid").len(), 2);
        }
    }
    let wrong = read(&json!({"messages": [], "from": "x", "markMap": null}), None).expect_err("not a number");
    assert_eq!(wrong.pointer, "/from");
}

#[test]
fn a_run_continues_from_the_compressed_conversation_of_another_run() {
    let says = |answers: &[&str]| {
        let responses: Vec<Value> = answers.iter().map(|text| json!({"content": text})).collect();
        let profile = json!({"id": "m", "provider": "scripted", "responses": responses});
        let profile = serde_json::from_value(profile).expect("a profile");
        pirn::Engine::builder().virtual_time(Some(7)).profiles([profile])
    };
    let first = line(
        "talk",
        &[
            node("one", "LLM", json!({"prompt": "first"})),
            node("two", "LLM", json!({"prompt": "second"})),
            node(
                "shrink",
                "CONTEXT_PROCESSOR",
                json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 1}}),
            ),
        ],
    );
    let ran = run_in(says(&["1", "2"]), &first, Value::Null, Vec::new());
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    let left = ran.visible().len();
    assert!(left < ran.report.conversation.messages.len(), "something is archived");

    let more = line("more", &[node("three", "LLM", json!({"prompt": "third"}))]);
    let report = serde_json::to_value(&ran.report).expect("JSON");
    let from_json = read(&report, None)
        .and_then(pirn::formats::Read::history)
        .expect("a report");
    for history in [History::of_report(&ran.report.conversation).expect("whole"), from_json] {
        let engine = says(&["3"]).workflows(more.to_string()).build().expect("valid");
        let report = engine
            .run("more")
            .conversation(history)
            .start()
            .expect("admitted")
            .outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        let marks = &report.conversation.mark_map;
        assert_eq!(
            marks, &ran.report.conversation.mark_map,
            "what was archived stays archived"
        );
        assert_eq!(
            report.conversation.messages.len(),
            ran.report.conversation.messages.len() + 2
        );
    }
    let mut broken = ran.report.conversation.clone();
    broken.mark_map.batch_boundaries.push(99);
    assert!(History::of_report(&broken).is_err());
}
