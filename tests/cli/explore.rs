//! `pirn explore`.

use serde_json::{Value, json};

use crate::command::{Ended, pirn};

/// A workflow in a separate file, which is removed at the end of the test.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, strategy: &str, branches: usize) -> Self {
        let paths: Vec<String> = (0..branches).map(|no| format!("p{no}")).collect();
        let firsts: Vec<String> = (0..branches).map(|no| format!("n{no}")).collect();
        let mut nodes = vec![
            json!({"id": "start", "type": "START"}),
            json!({"id": "fork", "type": "FORK",
                "config": {"forkPathIds": paths, "childNodeIds": firsts, "forkStrategy": "parallel"}}),
            json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": strategy}}),
            json!({"id": "end", "type": "END", "config": {"output": "output.completed"}}),
        ];
        let mut edges = vec![
            json!({"from": "start", "to": "fork"}),
            json!({"from": "join", "to": "end"}),
        ];
        for first in &firsts {
            nodes.push(json!({"id": first, "type": "CODE", "config": {"code": "return 1"}}));
            edges.push(json!({"from": "fork", "to": first}));
            edges.push(json!({"from": first, "to": "join"}));
        }
        let workflow = json!({"id": "race", "nodes": nodes, "edges": edges});
        let path = std::env::temp_dir().join(format!("pirn-explore-{name}-{}.json", std::process::id()));
        std::fs::write(&path, workflow.to_string()).expect("writable");
        Self(path)
    }

    fn explore(&self, more: &[&str]) -> Ended {
        pirn(&[&["explore", self.0.to_str().expect("UTF-8")], more].concat())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap_or(());
    }
}

#[test]
fn json_output_has_outcomes_schedules_and_completeness() {
    let ended = File::new("json", "ANY_COMPLETED", 2).explore(&["--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(
        ended.json(),
        json!({
            "outcomes": [
                {"order": ["p0/n0 script"], "status": "COMPLETED", "output": ["p0"]},
                {"order": ["p1/n1 script"], "status": "COMPLETED", "output": ["p1"]},
            ],
            "schedules": 2,
            "complete": true,
        })
    );
}

#[test]
fn text_output_is_a_small_table() {
    let ended = File::new("text", "ANY_COMPLETED", 2).explore(&[]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "2 outcomes in 2 schedules; every order was tried",
            "#  status     output  shortest order",
            "1  COMPLETED  [\"p0\"]  p0/n0 script",
            "2  COMPLETED  [\"p1\"]  p1/n1 script",
        ]
    );
    assert_eq!(ended.stderr, "");
}

#[test]
fn expect_one_fails_for_several_outcomes() {
    assert_eq!(
        File::new("more", "ANY_COMPLETED", 2).explore(&["--expect-one"]).code,
        Some(1)
    );
    assert_eq!(
        File::new("one", "ALL_COMPLETED", 3).explore(&["--expect-one"]).code,
        Some(0)
    );
}

#[test]
fn expect_one_fails_for_an_incomplete_exploration() {
    let cut = File::new("cut", "ALL_COMPLETED", 5).explore(&[
        "--expect-one",
        "--max-schedules",
        "2",
        "--samples",
        "9",
        "--output",
        "json",
    ]);
    assert_eq!(cut.code, Some(1));
    assert_eq!(
        (cut.json()["complete"].clone(), cut.json()["schedules"].clone()),
        (Value::Bool(false), json!(11))
    );
}

#[test]
fn a_shipped_example_has_one_outcome() {
    let files = ["../examples/support-fork.json", "../examples/topic-of.json"];
    let more = ["--input", r#"{"ticket": "Never! My refund!"}"#, "--expect-one"];
    let ended = pirn(&[&["explore"], &files[..], &more[..]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn outcomes_that_fail_without_input_are_shown_with_a_hint_to_give_it() {
    let ended = pirn(&["explore", "../examples/topic-of.json"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("--input"), "{}", ended.stderr);
    for given in [r#"{"ticket": "x"}"#, "{}"] {
        let ended = pirn(&["explore", "../examples/topic-of.json", "--input", given]);
        assert!(!ended.stderr.contains("--input"), "{}", ended.stderr);
    }
}

#[test]
fn wrong_usage_exits_2() {
    assert_eq!(pirn(&["explore", "nowhere.json"]).code, Some(2));
    assert_eq!(
        File::new("zero", "ALL_COMPLETED", 1)
            .explore(&["--max-schedules", "0"])
            .code,
        Some(2)
    );
}
