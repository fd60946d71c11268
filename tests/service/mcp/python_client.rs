//! The MCP project's Python client against a service, in both versions of the protocol.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::command::{Served, root};
use crate::servers;

/// The file of the workflows that the client calls.
const WORKFLOWS: &str = "tests/servers/conformance.json";

/// The JSON that the client printed for these arguments; `None` if it cannot be installed.
fn client(words: &[&str]) -> Option<Vec<Value>> {
    let python = servers::mcp_python()?;
    let output = Command::new(python)
        .arg(root().join("tests/servers/clients/mcp_client.py"))
        .args(words)
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .expect("python runs");
    assert!(output.status.success(), "{words:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    Some(serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
}

fn check(heard: &[Value]) {
    let versions: Vec<&Value> = heard.iter().map(|one| &one["version"]).collect();
    assert_eq!(versions, ["2025-11-25", "2026-07-28"]);
    for one in heard {
        let person = json!({"username": "ada", "email": "ada@example.com"});
        assert_eq!(one["structured"], person, "{one}");
        let text: Value = serde_json::from_str(one["called"].as_str().expect("a text")).expect("JSON");
        assert_eq!(text, person);
        let shown = one["shown"].as_array().expect("forms");
        assert_eq!(shown.len(), 1, "the person is asked once: {shown:?}");
        assert_eq!(shown[0]["message"], "who?");
        assert_eq!(shown[0]["requestedSchema"]["required"], json!(["username", "email"]));
        assert_eq!(one["tool"]["inputSchema"]["required"], json!(["message"]));
        for (what, code) in [("failed", "SCRIPT_ERROR"), ("refused", "INVALID_INPUT")] {
            let why = one[what][1].as_str().expect("a text");
            assert!(one[what][0] == true && why.starts_with(code), "{what}: {why}");
        }
        assert_eq!(one["unknown"], -32602);
        assert!(one["progress"].as_array().is_some_and(|told| !told.is_empty()), "{one}");
    }
}

#[test]
fn the_mcp_python_client_calls_workflows_and_answers_questions_over_http() {
    let served = Served::start(root(), &[WORKFLOWS]);
    if let Some(heard) = client(&["http", &format!("{}/mcp", served.url.trim())]) {
        check(&heard);
    }
}

#[test]
fn the_mcp_python_client_calls_workflows_and_answers_questions_over_stdio() {
    if let Some(heard) = client(&["stdio", env!("CARGO_BIN_EXE_pirn"), WORKFLOWS]) {
        check(&heard);
    }
}
