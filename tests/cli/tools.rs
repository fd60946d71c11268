//! Tools of a config file, in `pirn run`.

use serde_json::{Value, json};

use crate::command::pirn;

/// A folder with a workflow whose model calls tools, and a `pirn.toml`; gone when the test is.
struct Folder {
    path: std::path::PathBuf,
}

impl Folder {
    fn new(name: &str, config: &str, offered: &[&str], made: &Value) -> Self {
        let path = std::env::temp_dir().join(format!("pirn-tools-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("writable");
        let workflow = json!({
            "workflows": [{"id": "main", "nodes": [
                {"id": "s", "type": "START"},
                {"id": "ask", "type": "LLM", "config": {"profileId": "script", "prompt": "go", "tools": offered}},
                {"id": "e", "type": "END"}],
                "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}],
            "profiles": [{"id": "script", "provider": "scripted", "responses": [{"toolCalls": made}, {"content": "done"}]}],
        });
        std::fs::write(path.join("main.json"), workflow.to_string()).expect("writable");
        std::fs::write(path.join("pirn.toml"), config).expect("writable");
        Self { path }
    }

    fn file(&self, name: &str) -> String {
        self.path.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// What each call was answered.
    fn answers(&self, more: &[&str]) -> Vec<String> {
        let file = self.file("main.json");
        let ended = pirn(&[&["run", &file, "--output", "json"][..], more].concat());
        let report = ended.json();
        assert_eq!(report["status"], "COMPLETED", "{}", ended.stderr);
        let messages = report["conversation"]["messages"].as_array().expect("a list").iter();
        let results = messages.filter(|message| message["role"] == "tool");
        results
            .map(|message| message["content"].as_str().expect("text").to_owned())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).unwrap_or(());
    }
}

const COUNT: &str = r#"
[[tools]]
name = "count"
description = "Counts the words of a text"
inputSchema = { type = "object", properties = { text = { type = "string" } }, required = ["text"] }
command = { program = "wc", args = ["-w"], stdin = "{{text}}" }
"#;

#[test]
fn the_tools_beside_a_workflow_answer_its_model() {
    let made = json!([
        {"id": "1", "name": "count", "arguments": {"text": "one two; three"}},
        {"id": "2", "name": "count", "arguments": {}},
    ]);
    let folder = Folder::new("beside", COUNT, &["count"], &made);
    let said = folder.answers(&[]);
    assert_eq!(said[0].trim(), "3");
    assert_eq!(said[1], "wrong arguments for `count`: arguments.text is missing");
}

#[test]
fn what_needs_consent_is_refused_without_a_terminal_unless_all_is_allowed() {
    let config = COUNT.replace("name = \"count\"", "name = \"count\"\napproval = \"ask\"");
    let made = json!([{"id": "1", "name": "count", "arguments": {"text": "one two"}}]);
    let folder = Folder::new("consent", &config, &["count"], &made);
    assert!(folder.answers(&[])[0].contains("nobody is there to give it"));
    assert!(folder.answers(&["--approve", "each"])[0].contains("no terminal to ask on"));
    assert_eq!(folder.answers(&["--approve", "none"])[0].trim(), "2");
}

#[test]
fn a_config_with_faults_does_not_run_and_a_missing_tool_is_said() {
    let made = json!([{"id": "1", "name": "count", "arguments": {"text": "x"}}]);
    let broken = Folder::new("broken", &COUNT.replace("stdin =", "stdni ="), &["count"], &made);
    let ended = pirn(&["run", &broken.file("main.json")]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("`count`, /command/stdni: unknown field `stdni`; did you mean `stdin`?"),
        "{}",
        ended.stderr
    );
    let missing = Folder::new("missing", COUNT, &["coutn"], &made);
    let ended = pirn(&["run", &missing.file("main.json")]);
    assert!(
        ended
            .stderr
            .contains("node ask names the tool coutn, and there is none of that name"),
        "{}",
        ended.stderr
    );
}
