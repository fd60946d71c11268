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
                {"order": ["p0/n0 script"], "replay": "1:1", "status": "COMPLETED", "output": ["p0"]},
                {"order": ["p1/n1 script"], "replay": "1:2", "status": "COMPLETED", "output": ["p1"]},
            ],
            "schedules": 2,
            "complete": true,
            "formatVersion": 1,
        })
    );
}

#[test]
fn text_output_is_a_small_table() {
    let file = File::new("text", "ANY_COMPLETED", 2);
    let (ended, path) = (file.explore(&[]), file.0.display());
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "2 outcomes in 2 schedules; every order was tried",
            "#  status     output  shortest order",
            "1  COMPLETED  [\"p0\"]  p0/n0 script",
            "2  COMPLETED  [\"p1\"]  p1/n1 script",
            &format!("again 1: pirn explore {path} --replay 1:1"),
            &format!("again 2: pirn explore {path} --replay 1:2"),
        ]
    );
    assert_eq!(ended.stderr, "");
}

#[test]
fn the_command_of_each_outcome_replays_it() {
    let file = File::new("again", "ANY_COMPLETED", 3);
    let found = file.explore(&["--output", "json", "--no-reduction"]).json();
    let text = file.explore(&["--strict", "--max-schedules=50", "-q"]).stdout;
    let commands: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("pirn "))
        .map(|(_, words)| words)
        .collect();
    let outcomes = found["outcomes"].as_array().expect("a list");
    assert_eq!((outcomes.len(), commands.len()), (3, 3), "{text}");
    for (outcome, command) in outcomes.iter().zip(commands) {
        // No word has quotes.
        let words: Vec<&str> = command.split(' ').collect();
        let json = pirn(&[&words[..], &["--output", "json", "-q"]].concat());
        assert_eq!((json.code, &*json.stderr), (Some(0), ""), "{command}");
        let mut replayed = json.json();
        assert_eq!(
            replayed.as_object_mut().expect("an object").remove("formatVersion"),
            Some(json!(1))
        );
        assert_eq!(replayed, *outcome, "{command}");
        let text = pirn(&words);
        let shown = format!(
            "status  COMPLETED\noutput  {}\norder   {}\n",
            outcome["output"],
            outcome["order"][0].as_str().unwrap()
        );
        assert_eq!(text.stdout, shown);
        let winner = outcome["output"][0].as_str().expect("a path").replace('p', "n");
        assert!(text.stderr.contains(&winner), "the nodes are shown: {}", text.stderr);
    }
}

#[test]
fn choices_that_do_not_exist_are_refused() {
    let file = File::new("choices", "ANY_COMPLETED", 2);
    for (choices, message) in [
        ("1:3", "the choices do not exist"),
        ("900:2", "the choices do not exist"),
        ("x", "`x` is not a choice: expected STEP:OPTION"),
        ("0:1", "`0:1` is not a choice"),
        ("2:2,1:2", "`1:2` is not a choice"),
        ("99999999999:2", "is not a choice"),
    ] {
        let ended = file.explore(&["--replay", choices]);
        assert_eq!(ended.code, Some(2), "{choices}");
        assert!(ended.stderr.contains(message), "{choices}: {}", ended.stderr);
    }
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

fn asks(name: &str) -> File {
    let workflow = json!({"id": "asks", "nodes": [
        {"id": "start", "type": "START"},
        {"id": "q", "type": "USER_INTERACTION", "config": {"question": "Which?", "choices": ["l", "r", "1"]}},
        {"id": "c", "type": "CODE", "config": {"code": "return input"}},
        {"id": "end", "type": "END", "config": {"output": "nodes.q.answer"}}],
        "edges": [{"from": "start", "to": "q"}, {"from": "q", "to": "c"}, {"from": "c", "to": "end"}]});
    let path = std::env::temp_dir().join(format!("pirn-explore-{name}-{}.json", std::process::id()));
    std::fs::write(&path, workflow.to_string()).expect("writable");
    File(path)
}

#[test]
fn an_answer_that_no_question_accepts_fails_the_command() {
    let file = asks("answers");
    for (answer, message) in [
        ("q=z", r#"--answer q: invalid answer: expected one of "l", "r", "1""#),
        ("nope=z", "no workflow has a node `nope`"),
        ("c=z", "the node `c` asks no question"),
    ] {
        let ended = file.explore(&["-q", "--answer", answer, "--expect-one"]);
        assert_eq!(ended.code, Some(2), "{answer}: {}", ended.stdout);
        assert!(ended.stderr.contains(message), "{answer}: {}", ended.stderr);
    }
    for (answer, output) in [("q=l", "l"), ("q=1", "1")] {
        let ended = file.explore(&["-q", "--answer", answer, "--expect-one", "--output", "json"]);
        assert_eq!(ended.code, Some(0), "{answer}: {}", ended.stderr);
        assert_eq!(ended.json()["outcomes"][0]["output"], output);
    }
}
