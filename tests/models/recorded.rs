//! Recorded replies of servers (`tests/wire`), each with the expected result in its row.

use std::path::{Path, PathBuf};

use pirn::{Role, ThreadStatus};
use pirn_conversation::model_call::ModelFailure;
use pirn_tests::wire::{Answer, End, Server};
use pirn_tests::world::Ran;
use serde_json::{Value, json};

use super::ask;
use super::failures::cause;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("wire")
}

/// The file's bytes, in pieces that do not end at the end of a frame.
fn answer(file: &str) -> Answer {
    const SIZE: usize = 23;
    let body = std::fs::read_to_string(folder().join(file)).expect(file);
    if Path::new(file).extension().is_some_and(|ending| ending == "json") {
        return Answer::Whole {
            status: 200,
            headers: Vec::new(),
            body,
        };
    }
    let characters: Vec<char> = body.chars().collect();
    Answer::Stream {
        pieces: characters.chunks(SIZE).map(|piece| piece.iter().collect()).collect(),
        end: End::Finished,
    }
}

/// One request, without a second one for the tool calls in its reply.
fn replayed(row: &Value) -> Ran {
    let file = row["file"].as_str().expect("a file");
    let (provider, api) = match row["protocol"].as_str().expect("a protocol") {
        "openai responses" => ("openai", json!({"api": "responses"})),
        other => (other, json!({})),
    };
    let mut more = json!({
        "provider": provider, "retry": {"maxAttempts": 1},
        "stream": std::path::Path::new(file).extension().is_none_or(|ending| ending != "json"),
    });
    more.as_object_mut()
        .expect("an object")
        .extend(api.as_object().expect("an object").clone());
    let server = Server::answering([answer(file)]);
    let ran = ask(
        &server,
        &more,
        json!({"prompt": "go", "tools": ["weather"], "maxToolRounds": 0}),
    );
    assert_eq!(server.requests().len(), 1, "{file}");
    ran
}

#[test]
fn every_recorded_reply_gives_the_result_in_its_row() {
    let rows = std::fs::read_to_string(folder().join("replies.json")).expect("rows");
    let rows: Vec<Value> = serde_json::from_str(&rows).expect("JSON");
    for row in &rows {
        assert!(
            row["seen"].as_str().is_some_and(|seen| seen.contains("https://")),
            "{row}"
        );
        let ran = replayed(row);
        let (gives, error) = (&row["gives"], &ran.report.error);
        if let Some(kind) = gives["error"].as_str() {
            let cause = cause(&ran);
            assert_eq!(ModelFailure::of(cause).kind.as_str(), kind, "{row}: {cause:?}");
            let says = gives["says"].as_str().unwrap_or_default();
            assert!(cause.message.contains(says), "{row}: {cause}");
            assert_eq!(ran.roles(), [Role::User], "{row}");
        } else {
            let reply = ran.report.conversation.messages.get(1);
            let reply = reply.unwrap_or_else(|| panic!("{row}: {error:?}"));
            let calls: Vec<Value> = reply
                .tool_calls
                .iter()
                .map(|call| json!([call.name, call.arguments]))
                .collect();
            assert_eq!(
                json!(calls),
                gives.get("calls").cloned().unwrap_or_else(|| json!([])),
                "{row}"
            );
            assert_eq!(reply.content, gives["content"].as_str().unwrap_or_default(), "{row}");
            if calls.is_empty() {
                assert_eq!(ran.report.status, ThreadStatus::Completed, "{row}: {error:?}");
                assert_eq!(ran.report.output["finishReason"], gives["finishReason"], "{row}");
                assert_eq!(json!(ran.report.nodes[1].finish_reason), gives["finishReason"], "{row}");
            }
        }
        assert_eq!(json!(ran.report.tokens.spent.total), gives["spent"], "{row}");
    }
}

#[test]
fn every_recorded_file_has_its_row() {
    let rows = std::fs::read_to_string(folder().join("replies.json")).expect("rows");
    for server in std::fs::read_dir(folder()).expect("the folder").flatten() {
        if !server.path().is_dir() || server.file_name() == "conversations" {
            continue;
        }
        for file in std::fs::read_dir(server.path()).expect("a folder").flatten() {
            let name = format!("{}/{}", server.file_name().display(), file.file_name().display());
            assert!(rows.contains(&format!("\"{name}\"")), "{name} has no row");
        }
    }
}
