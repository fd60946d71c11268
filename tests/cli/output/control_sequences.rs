//! Text from models, scripts, files and tools is shown on the terminal without control sequences.

use serde_json::json;

use crate::command::{pirn_in, pirn_with};
use crate::folder::Folder;

/// Control sequences that set the title, clear the screen and reverse a word.
const STEERS: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}drow\u{2066}";

#[track_caller]
fn assert_no_control_characters(name: &str, said: &str) {
    let steers = said.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{2066}', '\r']);
    assert!(!steers, "{name}: {said:?}");
    assert!(
        said.contains("␛]0;owned␇␛[2J<U+202E>drow"),
        "{name}: it is made visible: {said:?}"
    );
}

#[test]
fn text_in_a_run_cannot_control_the_terminal() {
    let node = |id: &str, kind: &str, config: serde_json::Value| json!({"id": id, "type": kind, "config": config});
    let flow = |work: serde_json::Value| {
        let id = work["id"].clone();
        json!({"id": "flow", "nodes": [{"id": "s", "type": "START"}, work, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": id}, {"from": id, "to": "e"}]})
    };
    let script = |code: &str| flow(node("work", "CODE", json!({ "code": code })));
    let text = json!(STEERS).to_string();
    let profile = json!({"id": "a", "provider": "scripted", "responses": [{"content": STEERS}]});
    let reply = json!({"workflows": [flow(node("work", "LLM", json!({"prompt": "hi"})))], "profiles": [profile]});
    for (name, file) in [
        ("a reply", reply),
        ("a script's line", script(&format!("console.log({text})"))),
        ("a script's error", script(&format!("throw new Error({text})"))),
        ("a node's id", flow(node(STEERS, "CODE", json!({"code": "return 1"})))),
    ] {
        let ended = pirn_with(
            file.to_string().as_bytes(),
            &["run", "-", "--stream", "--verbose", "--output", "json"],
        );
        assert_no_control_characters(name, &ended.stderr);
    }
    let failed = pirn_with(
        script(&format!("throw new Error({text})")).to_string().as_bytes(),
        &["run", "-", "--quiet"],
    );
    assert_no_control_characters("an error", &failed.stderr);
}

#[test]
fn text_in_a_file_cannot_control_the_terminal() {
    let ended = pirn_with(
        json!({"id": "w", "nodes": [{"id": STEERS, "type": "LMM"}], "edges": []})
            .to_string()
            .as_bytes(),
        &["validate", "-"],
    );
    let unknown = json!({"id": "w", "nodes": [{"id": "a", "type": STEERS}], "edges": []}).to_string();
    let ended = format!(
        "{}{}",
        ended.stdout,
        pirn_with(unknown.as_bytes(), &["validate", "-"]).stdout
    );
    assert!(!ended.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{ended:?}");
    let conversation = json!([{"role": "user", "content": STEERS}]).to_string();
    let folder = Folder::new("steering").with("talk.json", &conversation);
    let shown = pirn_in(folder.path(), &["context", "show", "talk.json"], &[]);
    assert_no_control_characters("a conversation", &shown.stdout);
}
