//! docs/service.md: every shell command in it works and gives the answer shown.

use std::process::Command;

use pirn_service::ProblemCode;
use serde_json::Value;

use crate::command::{Served, root};

fn page() -> String {
    std::fs::read_to_string(root().join("docs/service.md")).expect("the page")
}

/// Blocks of shell, each with the JSON block that follows it.
fn blocks(page: &str) -> Vec<(String, Option<Value>)> {
    let mut blocks = Vec::new();
    for part in page.split("```sh\n").skip(1) {
        let (shell, rest) = part.split_once("```\n").expect("an end");
        let json = rest.strip_prefix("```json\n").and_then(|rest| rest.split_once("```"));
        blocks.push((
            shell.to_owned(),
            json.map(|(json, _)| serde_json::from_str(json).expect("JSON")),
        ));
    }
    blocks
}

/// True if `given` contains every field of `shown`.
fn holds(given: &Value, shown: &Value) -> bool {
    match (given, shown) {
        (Value::Object(given), Value::Object(shown)) => shown
            .iter()
            .all(|(name, shown)| given.get(name).is_some_and(|given| holds(given, shown))),
        (Value::Array(given), Value::Array(shown)) => {
            given.len() == shown.len() && given.iter().zip(shown).all(|(given, shown)| holds(given, shown))
        }
        (given, shown) => given == shown,
    }
}

#[test]
fn every_command_of_the_page_gives_the_documented_answer() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: there is no curl");
        return;
    }
    let served = Served::start(root(), &["examples/service/workflows.json"]);
    let mut tried = 0;
    for (shell, shown) in blocks(&page()) {
        if !shell.contains("curl") {
            continue;
        }
        tried += 1;
        let shell = shell.replace("http://127.0.0.1:7474", served.url.trim());
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &shell])
            .output()
            .expect("bash");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{shell}\n{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        if let Some(shown) = shown {
            let given: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {shell}\n{said}"));
            assert!(holds(&given, &shown), "{shell}\n{given}");
        }
    }
    assert!(tried >= 10, "only {tried} blocks");
}

#[test]
fn the_table_of_errors_has_every_code_with_its_status() {
    let page = page();
    for code in ProblemCode::ALL {
        let row = format!("| {} | {} |", code.as_str(), code.status().as_u16());
        assert!(page.contains(&row), "{row}");
    }
}
