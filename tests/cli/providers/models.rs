//! `pirn models check`, and the treatment of API keys.

use serde_json::{Value, json};

use crate::command::{Ended, pirn_in};
use crate::folder::Folder;
use crate::wire::{Answer, Server};

const KEY: &str = "sk-very-secret-0123456789";

/// Returns a folder with these profiles and a workflow that calls the first of them.
fn asking(name: &str, profiles: &Value) -> Folder {
    let workflow = json!({"id": "asks", "nodes": [
        {"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": {"prompt": "hi"}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]});
    let profiles = json!({ "profiles": profiles });
    Folder::new(name)
        .with("profiles.json", &profiles.to_string())
        .with("asks.json", &workflow.to_string())
}

fn pirn(folder: &Folder, arguments: &[&str]) -> Ended {
    let all = [arguments, &["--profiles", "profiles.json"]].concat();
    pirn_in(folder.path(), &all, &[("PIRN_TEST_KEY", KEY)])
}

fn profile(server: &Server, more: &Value) -> Value {
    let mut profile = json!({
        "id": "m", "provider": "openai", "model": "some-model", "endpoint": server.url("/v1"), "apiKeyEnv": "PIRN_TEST_KEY",
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        profile[name] = value.clone();
    }
    profile
}

#[test]
fn the_key_is_sent_only_to_the_provider() {
    // A provider that quotes the key in every kind of error.
    let quoting = |status| Answer::error(status, &format!("Incorrect API key provided: {KEY}."));
    let stream = Answer::Stream {
        pieces: vec![format!("data: {{\"error\": {{\"message\": \"bad key {KEY}\"}}}}\n\n")],
        end: crate::wire::End::Finished,
    };
    let server = Server::answering([quoting(500), stream, quoting(401)]);
    let retry = json!({"retry": {"maxAttempts": 5, "initialDelayMs": 1}});
    let folder = asking("key", &json!([profile(&server, &retry)]));
    let ended = pirn(
        &folder,
        &["run", "asks.json", "--output", "json", "--events", "events.jsonl"],
    );
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("Incorrect API key provided: ***"),
        "{}",
        ended.stdout
    );
    for text in [&ended.stdout, &ended.stderr, &folder.read("events.jsonl")] {
        assert!(!text.contains(KEY) && !text.contains("sk-very"), "{text}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
        assert!(!request.body.to_string().contains(KEY));
    }
}

#[test]
fn with_stream_replies_are_shown_as_they_arrive() {
    let half = Answer::breaking_off(&["no"], crate::wire::End::Cut);
    let server = Server::answering([half, Answer::saying(&["one\n", "two ", "three"])]);
    let retry = json!({"retry": {"maxAttempts": 2, "initialDelayMs": 1}});
    let folder = asking("stream", &json!([profile(&server, &retry)]));
    let ended = pirn(&folder, &["run", "asks.json", "--stream"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let said: Vec<&str> = ended.stderr.lines().filter(|line| line.contains(" | ")).collect();
    assert_eq!(
        said,
        [
            "           | no ... (retried)",
            "           | one",
            "           | two three"
        ]
    );

    let server = Server::answering([Answer::saying(&["one"])]);
    let folder = asking("no-stream", &json!([profile(&server, &json!({}))]));
    let ended = pirn(&folder, &["run", "asks.json"]);
    assert!(!ended.stderr.contains(" | "), "{}", ended.stderr);
}

#[test]
fn an_unset_key_variable_is_named() {
    let server = Server::answering([]);
    let folder = asking(
        "unset",
        &json!([profile(&server, &json!({"apiKeyEnv": "PIRN_TEST_NOT_SET"}))]),
    );
    let ended = pirn(&folder, &["run", "asks.json", "--output", "json"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("PIRN_TEST_NOT_SET"), "{}", ended.stdout);
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn check_reports_the_working_features_of_each_profile() {
    let server = Server::answering([
        Answer::saying(&["one ", "two"]),
        Answer::calling(&[("repeat_word", r#"{"word": "ready"}"#)]),
        Answer::saying(&["done"]),
    ]);
    let refusing = Server::answering([Answer::error(401, "who are you")]);
    let profiles = json!([
        profile(&server, &json!({})),
        profile(&refusing, &json!({"id": "n", "fallback": ["m"]}))
    ]);
    let folder = asking("check", &profiles);
    let ended = pirn(&folder, &["models", "check", "m", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let checked = &ended.json()["profiles"][0];
    for name in ["reachable", "keyAccepted", "answers", "streams", "tools"] {
        assert_eq!(checked[name], true, "{name}: {checked}");
    }

    let by_variable = [("PIRN_PROFILES", "profiles.json"), ("PIRN_TEST_KEY", KEY)];
    for more in [&[][..], &["--config", "profiles.json"]] {
        // The variable and the alias name the file as `--profiles` does.
        let ended = pirn_in(
            folder.path(),
            &[&["models", "check", "none"], more].concat(),
            &by_variable,
        );
        assert!(ended.stderr.contains("profiles.json has: m, n"), "{}", ended.stderr);
    }
    let ended = pirn(&folder, &["models", "check", "n"]);
    assert_eq!(ended.code, Some(1));
    for line in [
        "reachable     yes",
        "key accepted  no",
        "answers       no",
        "tools         not known",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    assert!(ended.stdout.contains("who are you"), "{}", ended.stdout);
}

#[test]
fn check_ends_if_the_model_requests_the_tool_again() {
    let server = Server::deciding(|request| {
        let is_forbidden = request.body["tool_choice"] == "none";
        if is_forbidden || request.body.get("tools").is_none() {
            Answer::saying(&["one ", "two"])
        } else {
            Answer::calling(&[("repeat_word", r#"{"word": "ready"}"#)])
        }
    });
    let folder = asking("again", &json!([profile(&server, &json!({}))]));
    let ended = pirn(&folder, &["models", "check", "m", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let checked = &ended.json()["profiles"][0];
    assert_eq!(
        (&checked["tools"], &checked["error"]),
        (&json!(true), &Value::Null),
        "{checked}"
    );
    assert_eq!(server.requests().len(), 4, "words, the call, another call, the reply");
}

#[test]
fn a_script_without_a_rule_for_the_check_is_not_reported_as_unanswering() {
    let ruled = json!([{"id": "s", "provider": "scripted", "responses": [{"match": "^refund", "content": "no"}]}]);
    let ended = pirn(&asking("ruled", &ruled), &["models", "check"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("no rule of the script matches"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("answers       not known"), "{}", ended.stdout);

    let failing = json!([{"id": "s", "provider": "scripted", "responses": [{"error": "broken"}]}]);
    let ended = pirn(&asking("failing", &failing), &["models", "check"]);
    assert!(
        ended.stdout.contains("answers       no\n") && ended.stdout.contains("broken"),
        "{}",
        ended.stdout
    );
}

#[test]
fn check_of_an_unknown_profile_is_wrong_usage() {
    let folder = asking("nothing", &json!([{"id": "a", "provider": "echo"}]));
    let ended = pirn(&folder, &["models", "check", "b"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("no profile b"), "{}", ended.stderr);
    let ended = pirn(&folder, &["models", "check"]);
    assert_eq!(ended.code, Some(0), "an offline model answers: {}", ended.stdout);
}
