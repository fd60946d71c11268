//! `pirn runs record` and `pirn test`.

use serde_json::{Value, json};

use crate::command::{Ended, pirn_in, root};
use crate::folder::Folder;
use crate::store::durable_inputs::{ended, holding_with, runs, speaking};
use crate::tools::COUNT;

const PROFILE: &str = r#"
[[profiles]]
id = "script"
provider = "scripted"
responses = [
    { toolCalls = [{ id = "1", name = "count", arguments = { text = "one two" } }] },
    { content = "two words", delayMs = 90 },
]
"#;

fn config() -> String {
    format!("{PROFILE}{COUNT}")
}

fn workflow(prompt: &str, output: &str) -> String {
    json!({"id": "main", "nodes": [
        {"id": "start", "type": "START"},
        {"id": "ask", "type": "LLM", "config": {"profileId": "script", "prompt": prompt, "tools": ["count"]}},
        {"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Sure?", "choices": ["yes", "no"]}},
        {"id": "later", "type": "WAIT", "config": {"seconds": 0.05}},
        {"id": "end", "type": "END", "config": {"output": output}}],
        "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "sure"}, {"from": "sure", "to": "later"},
            {"from": "later", "to": "end"}]})
    .to_string()
}

const OUTPUT: &str = "({said: nodes.ask.content, sure: nodes.sure.answer, input})";

/// Returns a folder with the workflow and its config.
fn folder(name: &str) -> Folder {
    Folder::new(name)
        .with("pirn.toml", &config())
        .with("main.json", &workflow("Count {{input}}", OUTPUT))
}

/// Runs the workflow, which asks a question, into a store as the run `id`.
fn run(folder: &Folder, id: &str, more: &[&str]) {
    run_unasked(folder, id, &[&["--answer", "sure=yes"], more].concat());
}

/// Runs a workflow without questions into a store as the run `id`.
fn run_unasked(folder: &Folder, id: &str, more: &[&str]) {
    let run = ["run", "main.json", "--store", "runs.db", "--run-id", id, "--quiet"];
    let ended = pirn_in(folder.path(), &[&run[..], more].concat(), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Records a run.
fn record(folder: &Folder, id: &str, more: &[&str]) -> Ended {
    let record = ["runs", "record", id, "--to", "case.json", "--store", "runs.db"];
    pirn_in(folder.path(), &[&record[..], more].concat(), &[])
}

/// Runs the workflow into a store, and records the run.
fn recorded(name: &str, more: &[&str]) -> Folder {
    let folder = folder(name);
    run(&folder, "r", &["--input", "7"]);
    let wrote = record(&folder, "r", &[&["--output", "json"][..], more].concat());
    assert_eq!(
        (wrote.code, wrote.json()),
        (
            Some(0),
            json!({"file": "case.json", "requests": 2, "toolCalls": 1, "answers": 1, "inputs": 0, "formatVersion": 1})
        ),
        "{}",
        wrote.stdout
    );
    folder
}

/// Removes everything that the recorded run needed.
fn alone(folder: &Folder) {
    for file in ["pirn.toml", "main.json", "runs.db"] {
        std::fs::remove_file(folder.path().join(file)).expect("it was written");
    }
}

fn tested(folder: &Folder, more: &[&str]) -> Ended {
    pirn_in(folder.path(), &[&["test", "case.json"], more].concat(), &[])
}

fn case_of(folder: &Folder) -> Value {
    serde_json::from_str(&folder.read("case.json")).expect("JSON")
}

#[test]
fn a_recorded_run_is_repeated_without_its_model_tool_and_person() {
    let folder = recorded("case-same", &[]);
    alone(&folder);
    let passed = tested(&folder, &[]);
    assert_eq!(
        (passed.code, &*passed.stdout),
        (Some(0), "ok    r (case.json)\n1 case, 0 failed\n"),
        "{}",
        passed.stderr
    );
    let case = case_of(&folder);
    assert_eq!(case["expect"][0], json!({"grader": "outcome", "status": "COMPLETED"}));
    assert_eq!(
        case["expect"][1],
        json!({"grader": "path", "nodes": ["start", "ask", "sure", "later", "end"]})
    );
    assert!(
        case["recording"]["requests"][1]["afterMs"].as_u64() >= Some(90),
        "{case}"
    );
}

#[test]
fn a_changed_workflow_is_compared_with_its_recorded_baseline() {
    let folder = recorded("case-changed", &[])
        .with("same.json", &workflow("Count {{input}}", OUTPUT))
        .with(
            "output.json",
            &workflow("Count {{input}}", "({said: nodes.ask.content, sure: 'no', input})"),
        )
        .with("prompt.json", &workflow("Count all of {{input}}", OUTPUT));
    alone(&folder);
    assert_eq!(tested(&folder, &["--definition", "same.json"]).code, Some(0));

    let other = tested(
        &folder,
        &[
            "--definition",
            "output.json",
            "--junit",
            "report.xml",
            "--output",
            "json",
        ],
    );
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    assert_eq!(
        other.json()["cases"][0]["failures"],
        json!([{"grader": "equal", "message": "output/sure: expected \"yes\", got \"no\""}])
    );
    let report = folder.read("report.xml");
    assert!(
        report.contains("tests=\"1\" failures=\"1\"")
            && report.contains("<failure type=\"equal\" message=\"output/sure: expected &quot;yes&quot;"),
        "{report}"
    );

    let other = tested(&folder, &["--definition", "prompt.json"]);
    assert_eq!(other.code, Some(1));
    for part in [
        "FAIL  r (case.json)",
        "request: node `ask`: the recording has no reply to this request; the nearest is request 1 (node `ask`): \
         message 1 (user), character 7: recorded \"Count 7\", now \"Count all of 7\"",
        "outcome: expected COMPLETED, got FAILED (MODEL_ERROR)",
        "path: node 3 after `ask`: expected `sure`, got the end",
        "1 case, 1 failed",
    ] {
        assert!(other.stdout.contains(part), "{part}: {}", other.stdout);
    }
}

#[test]
fn a_case_that_names_files_tests_their_current_text_and_reports_the_change() {
    let folder = recorded("case-files", &["--definition", "main.json"]);
    let case = case_of(&folder);
    assert!(
        case.get("definition").is_none() && case["files"][0]["path"] == "main.json",
        "{case}"
    );
    assert_eq!(tested(&folder, &[]).code, Some(0));

    // The path is that from the folder of the case.
    let inner = folder.path().join("inner");
    std::fs::create_dir_all(&inner).expect("writable");
    let from = pirn_in(
        &inner,
        &[
            "runs",
            "record",
            "r",
            "--to",
            "case.json",
            "--store",
            "../runs.db",
            "--definition",
            "../main.json",
        ],
        &[],
    );
    assert_eq!(from.code, Some(0), "{}", from.stderr);
    assert_eq!(pirn_in(folder.path(), &["test", "inner/case.json"], &[]).code, Some(0));

    let folder = folder.with("main.json", &workflow("Count all of {{input}}", OUTPUT));
    let changed = tested(&folder, &[]);
    assert_eq!(changed.code, Some(1));
    assert!(
        changed.stdout.contains("changed since the recording: main.json"),
        "{}",
        changed.stdout
    );
}

#[test]
fn an_update_calls_models_and_tools_only_for_what_is_new_and_retains_own_graders() {
    let folder = recorded("case-update", &["--definition", "main.json"]);
    let mut case = case_of(&folder);
    let own = json!({"grader": "contains", "text": "words"});
    case["expect"].as_array_mut().expect("a list").push(own.clone());
    // A recorded reply stays: it is not requested again.
    let config = config().replace("wc", "none-such").replace("two words", "three words");
    let folder = folder
        .with("case.json", &case.to_string())
        .with("pirn.toml", &config)
        .with("main.json", &workflow("Count all of {{input}}", OUTPUT));
    assert_eq!(tested(&folder, &[]).code, Some(1));
    let updated = tested(&folder, &["--update"]);
    assert_eq!(
        (updated.code, &*updated.stdout),
        (Some(0), "wrote r (case.json)\n1 case, 0 failed\n"),
        "{}",
        updated.stderr
    );
    let case = case_of(&folder);
    let expect = case["expect"].as_array().expect("a list");
    assert_eq!(expect.last(), Some(&own));
    let output = expect
        .iter()
        .find(|grader| grader["grader"] == "equal")
        .expect("an output");
    // The call of the tool has the recorded arguments, so the missing program was not started.
    assert_eq!(output["value"]["said"], "three words", "{case}");
    assert_eq!(case["recording"]["toolCalls"][0]["result"]["failed"], false, "{case}");
    let passed = tested(&folder, &[]);
    assert_eq!(passed.code, Some(0), "{}", passed.stdout);
}

#[test]
fn an_update_with_another_definition_names_its_files() {
    let other = workflow("Count all of {{input}}", OUTPUT);
    for more in [&[][..], &["--definition", "main.json"]] {
        let folder = recorded("case-other", more).with("other.json", &other);
        let updated = tested(&folder, &["--update", "--definition", "other.json"]);
        assert_eq!(updated.code, Some(0), "{}{}", updated.stdout, updated.stderr);
        let case = case_of(&folder);
        assert!(
            case.get("definition").is_none() && case["files"].as_array().expect("files").len() == 1,
            "{case}"
        );
        assert_eq!(case["files"][0]["path"], "other.json");
        let passed = tested(&folder, &["--output", "json"]);
        assert_eq!(
            (passed.code, &passed.json()["cases"][0]["changed"]),
            (Some(0), &json!([]))
        );
        // Without --definition the files stay.
        assert_eq!(tested(&folder, &["--update"]).code, Some(0));
        assert_eq!(case_of(&folder)["files"], case["files"]);
    }
}

#[test]
fn an_update_that_would_expect_a_failure_is_refused() {
    let folder = recorded("case-worse", &["--definition", "main.json"]);
    let before = folder.read("case.json");
    let folder = folder.with("main.json", &workflow("Count all of {{input}}", "input.a.b"));
    let refused = tested(&folder, &["--update"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(
        refused
            .stdout
            .contains("update: the case expects COMPLETED, and the run ended FAILED ("),
        "{}",
        refused.stdout
    );
    assert_eq!(folder.read("case.json"), before);
}

#[test]
fn a_recording_that_its_test_cannot_repeat_has_a_warning() {
    let drawing = json!({"id": "main", "edges": [{"from": "start", "to": "draw"}, {"from": "draw", "to": "end"}], "nodes": [
        {"id": "start", "type": "START"}, {"id": "draw", "type": "CODE", "config": {"code": "return Math.random()"}},
        {"id": "end", "type": "END"}]});
    let folder = Folder::new("case-random").with("main.json", &drawing.to_string());
    run_unasked(&folder, "r", &["--seed", "5"]);
    let warned = record(&folder, "r", &["--seed", "6"]);
    assert_eq!(warned.code, Some(0));
    assert!(
        warned.stderr.contains("warning: `pirn test` fails for this recording"),
        "{}",
        warned.stderr
    );
    let seeded = record(&folder, "r", &[]);
    assert_eq!(
        (seeded.code, &*seeded.stderr),
        (Some(0), ""),
        "the store contains the seed"
    );
    assert_eq!(tested(&folder, &[]).code, Some(0));
}

#[test]
fn every_grader_passes_and_fails_as_documented() {
    let folder = recorded("case-graders", &[]);
    let case = case_of(&folder);
    for (grader, code) in [
        (json!({"grader": "outcome", "status": "COMPLETED"}), 0),
        (
            json!({"grader": "outcome", "status": "FAILED", "error": "MODEL_ERROR"}),
            1,
        ),
        (
            json!({"grader": "equal", "value": {"said": "two words", "sure": "yes", "input": 7}}),
            0,
        ),
        (
            json!({"grader": "equal", "value": {"said": "two words", "sure": "yes"}}),
            1,
        ),
        (
            json!({"grader": "path", "nodes": ["start", "ask", "sure", "later", "end"]}),
            0,
        ),
        (json!({"grader": "path", "nodes": ["start", "end"]}), 1),
        (
            json!({"grader": "schema", "schema": {"type": "object", "required": ["said"]}}),
            0,
        ),
        (
            json!({"grader": "schema", "schema": {"type": "object", "required": ["told"]}}),
            1,
        ),
        (json!({"grader": "contains", "text": "two words"}), 0),
        (json!({"grader": "contains", "text": "three"}), 1),
        (json!({"grader": "cost", "maxTokens": 100_000}), 0),
        (json!({"grader": "cost", "maxTokens": 1}), 1),
        (
            json!({"grader": "function", "expression": "output.said.length < 10 && status == 'COMPLETED' && path.length == 5"}),
            0,
        ),
        (json!({"grader": "function", "expression": "tokens == 0"}), 1),
        (json!({"grader": "function", "expression": "output.("}), 1),
        (json!({"grader": "other"}), 2),
    ] {
        let mut case = case.clone();
        case["expect"] = json!([grader]);
        std::fs::write(folder.path().join("case.json"), case.to_string()).expect("writable");
        let ended = tested(&folder, &[]);
        assert_eq!(ended.code, Some(code), "{grader}: {}{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn a_run_of_a_session_that_received_a_message_is_repeated() {
    let folder = speaking("case-inputs");
    let run = [
        "run",
        "main.json",
        "--store",
        "runs.db",
        "--session",
        "s",
        "--answer",
        "first=blue",
        "--quiet",
    ];
    let ended_first = pirn_in(folder.path(), &run, &[]);
    assert_eq!(ended_first.code, Some(0), "{}", ended_first.stderr);
    let (child, _lines) = holding_with(&folder, &["--output", "json", "--session", "s"]);
    assert_eq!(runs(&folder, &["say", "r", "Be brief."]).code, Some(0));
    assert_eq!(runs(&folder, &["answer", "r", "first", "red"]).code, Some(0));
    assert_eq!(ended(child)["output"], "Be brief.");
    let wrote = record(&folder, "r", &[]);
    assert_eq!(
        (wrote.code, &*wrote.stdout),
        (Some(0), "case.json: 1 request, 0 tool calls, 1 answer, 1 input\n"),
        "{}",
        wrote.stderr
    );
    let mut case = case_of(&folder);
    assert_eq!(
        case["recording"]["session"]["state"]["conversation"][0]["content"], "And?",
        "{case}"
    );
    let passed = tested(&folder, &[]);
    assert_eq!(passed.code, Some(0), "{}{}", passed.stdout, passed.stderr);

    case["recording"]["inputs"] = json!([]);
    std::fs::write(folder.path().join("case.json"), case.to_string()).expect("writable");
    let other = tested(&folder, &[]);
    assert_eq!(other.code, Some(1), "the message is part of the request");
    assert!(other.stdout.contains("is missing: \"Be brief.\""), "{}", other.stdout);
}

#[test]
fn a_run_that_a_case_cannot_repeat_is_not_recorded() {
    let folder = folder("case-refused");
    run(&folder, "t", &[]);
    std::fs::remove_file(folder.path().join("pirn.toml")).expect("it was written");
    let other = folder.file("other.toml");
    std::fs::write(&other, "").expect("writable");
    let refused = record(&folder, "t", &["--profiles", &other]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("the profile script of node ask"),
        "{}",
        refused.stderr
    );
    assert!(!folder.path().join("case.json").exists());
}

/// Files, input and answers of each example that ends without a message or an event from outside.
const EXAMPLES: &[(&[&str], &str, &[&str])] = &[
    (&["tutorial/0-first.json"], "\"a pirn\"", &[]),
    (&["tutorial/1-model.json"], "\"a pirn\"", &[]),
    (&["tutorial/2-route.json"], "\"a pirn\"", &[]),
    (&["tutorial/3-fork.json"], "\"a pirn\"", &[]),
    (&["tutorial/4-compress.json"], "\"a pirn\"", &[]),
    (
        &["support-fork.json", "topic-of.json"],
        "{\"ticket\": \"Never! My refund!\"}",
        &[],
    ),
    (
        &["research.json"],
        "{\"question\": \"What is a pirn?\", \"sources\": [\"dictionary\", \"museum\", \"newspaper\", \"library\", \"weaver\"]}",
        &[],
    ),
    (&["refine.json"], "\"looms\"", &[]),
    (&["dynamic/dynamic.json"], "[\"tea\", \"coffee\"]", &[]),
    (&["dynamic/code.json"], "2025", &[]),
    (
        &["approval/workflow.json"],
        "{\"amount\": 5, \"supplier\": \"Ada\"}",
        &["--answer", "finance=approve", "--answer", "legal=reject"],
    ),
    (&["steering/workflow.json"], "{\"subject\": \"heat pumps\"}", &[]),
    (
        &[
            "compression-002/main.json",
            "compression-002/002-compression-workflow.json",
            "compression-002/002-trigger.json",
        ],
        "null",
        &[],
    ),
    (
        &[
            "compression-003/main.json",
            "compression-003/003-compression-workflow.json",
            "compression-003/003-trigger.json",
        ],
        "null",
        &[],
    ),
    (
        &["service/workflows.json"],
        "{\"name\": \"Ada\"}",
        &["--workflow", "greet"],
    ),
    (
        &["service/workflows.json"],
        "{\"message\": \"Hi\"}",
        &["--workflow", "chat"],
    ),
    (&["support-desk/workflow.json"], "@support-desk/ticket.json", &[]),
];

#[test]
fn a_recorded_run_of_every_example_passes_its_test() {
    let folder = Folder::new("case-examples");
    let store = folder.file("runs.db");
    let examples = root().join("examples");
    for (number, (files, input, more)) in EXAMPLES.iter().enumerate() {
        let id = format!("r{number}");
        let run = [
            "--input",
            input,
            "--store",
            &store,
            "--run-id",
            &id,
            "--virtual-time",
            "--seed",
            "5",
            "--quiet",
        ];
        let ended = pirn_in(&examples, &[&["run"], *files, &run, *more].concat(), &[]);
        assert_eq!(ended.code, Some(0), "{files:?}: {}", ended.stderr);
        let case = folder.file(&format!("{id}.json"));
        let record = ["runs", "record", &id, "--to", &case, "--store", &store, "--seed", "5"];
        let wrote = pirn_in(&examples, &record, &[]);
        assert_eq!(wrote.code, Some(0), "{files:?}: {}", wrote.stderr);
    }
    let cases: Vec<String> = (0..EXAMPLES.len()).map(|number| format!("r{number}.json")).collect();
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    // From a folder without a config.
    let passed = pirn_in(folder.path(), &[&["test"], &cases[..]].concat(), &[]);
    assert_eq!(passed.code, Some(0), "{}{}", passed.stdout, passed.stderr);
    assert_eq!(
        passed.stdout.matches("ok  ").count(),
        EXAMPLES.len(),
        "{}",
        passed.stdout
    );
}
