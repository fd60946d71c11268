//! `pirn chaos`.

use serde_json::{Value, json};

use crate::command::{Ended, pirn_in};
use crate::folder::Folder;

fn workflow(ask: &Value) -> String {
    let mut node = json!({"id": "ask", "type": "LLM", "config": {"prompt": "say {{input}}"}});
    for (name, value) in ask.as_object().into_iter().flatten() {
        node[name] = value.clone();
    }
    json!({"id": "main", "nodes": [
        {"id": "start", "type": "START"}, node, {"id": "rest", "type": "WAIT", "config": {"seconds": 60}},
        {"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Sure?", "choices": ["yes", "no"]}},
        {"id": "end", "type": "END", "config": {"output": "({said: nodes.ask.content, sure: nodes.sure.answer})"}}],
        "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "rest"}, {"from": "rest", "to": "sure"},
            {"from": "sure", "to": "end"}]})
    .to_string()
}

fn chaos(folder: &Folder, more: &[&str]) -> Ended {
    let given = ["chaos", "main.json", "--input", "\"a long text\"", "--quiet"];
    pirn_in(folder.path(), &[&given[..], more].concat(), &[])
}

#[test]
fn a_workflow_that_survives_all_seeds_exits_with_0() {
    let retried = json!({"retry": {"maxAttempts": 9, "initialDelayMs": 10}});
    let folder = Folder::new("chaos-good").with("main.json", &workflow(&retried));
    let only = [
        "--only",
        "model-error",
        "--only",
        "late-reply",
        "--only",
        "kill",
        "--only",
        "clock-jump",
    ];
    let ended = chaos(&folder, &[&only[..], &["--seeds", "40", "--output", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let found = ended.json();
    assert_eq!(
        (
            &found["seeds"],
            &found["played"],
            &found["different"],
            &found["formatVersion"]
        ),
        (&json!(40), &json!(40), &json!(0), &json!(1))
    );
    for kind in ["model-error", "late-reply", "kill", "clock-jump"] {
        assert!(found["faults"][kind].as_u64() > Some(0), "{kind}: {found}");
    }
}

#[test]
fn a_run_that_differs_is_reported_with_its_faults_and_repeated_by_its_seed() {
    let folder = Folder::new("chaos-bad").with("main.json", &workflow(&json!({})));
    let found = chaos(&folder, &["--seeds", "30", "--output", "json"]);
    assert_eq!(found.code, Some(1), "{}{}", found.stdout, found.stderr);
    let found = found.json();
    let runs = found["runs"].as_array().expect("a list");
    assert!(
        !runs.is_empty() && runs.len() as u64 == found["different"].as_u64().unwrap_or(0),
        "{found}"
    );
    for run in runs {
        // Late replies, kills and clock jumps alone change nothing in this workflow.
        let causes = run["causes"].to_string();
        assert!(
            causes.contains("model-error") || causes.contains("truncated-reply"),
            "{run}"
        );
        let seed = run["seed"].to_string();
        let again = chaos(&folder, &["--seed", &seed, "--output", "json"]);
        assert_eq!(again.code, Some(1));
        assert_eq!(again.json()["runs"], json!([run]), "seed {seed}");
    }
    let text = chaos(&folder, &["--seeds", "30"]);
    let first = runs[0]["seed"].to_string();
    for part in [
        format!("seed {first}: differs by "),
        "  fault: ".to_owned(),
        format!("{} of 30 runs differ from the run without faults", runs.len()),
        format!("again: pirn chaos main.json --input '\"a long text\"' --quiet --seed {first}\n"),
    ] {
        assert!(text.stdout.contains(&part), "{part}: {}", text.stdout);
    }
}

#[test]
fn an_unknown_kind_of_fault_is_wrong_usage() {
    let folder = Folder::new("chaos-usage").with("main.json", &workflow(&json!({})));
    let ended = chaos(&folder, &["--only", "flood"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("expected one of model-error"), "{}", ended.stderr);
}

#[test]
fn an_answer_that_the_question_refuses_fails_the_command() {
    let folder = Folder::new("chaos-answers").with("main.json", &workflow(&json!({})));
    for (answer, message) in [
        (
            "sure=maybe",
            r#"--answer sure: invalid answer: expected one of "yes", "no""#,
        ),
        ("rest=yes", "the node `rest` asks no question"),
        ("nope=yes", "no workflow has a node `nope`"),
    ] {
        let ended = chaos(&folder, &["--seeds", "2", "--answer", answer]);
        assert_eq!(ended.code, Some(2), "{answer}: {}", ended.stdout);
        assert!(ended.stderr.contains(message), "{answer}: {}", ended.stderr);
    }
    let ended = chaos(&folder, &["--seeds", "2", "--only", "kill", "--answer", "sure=no"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}
