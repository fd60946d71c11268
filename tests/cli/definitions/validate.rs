//! `pirn validate`.

use crate::command::{pirn, pirn_with, start};

const GOOD: &str = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
    "edges": [{"from": "s", "to": "e"}]}"#;
const BAD: &str = "{\"id\": \"w\",\n \"nodes\": [{\"id\": \"s\", \"type\": \"STRAT\"}, {\"id\": \"e\", \"type\": \"END\"}],\n \"edges\": [{\"from\": \"s\", \"to\": \"e\"}]}";

#[test]
fn a_valid_file_exits_0_and_an_invalid_one_1() {
    let good = pirn_with(GOOD.as_bytes(), &["validate", "-"]);
    assert_eq!(
        (good.code, good.stdout.as_str()),
        (
            Some(0),
            "valid: 0 errors, 0 warnings\nchecked: 1 workflow, 2 nodes (-)\n"
        ),
        "{}",
        good.stderr
    );
    let bad = pirn_with(BAD.as_bytes(), &["validate", "-"]);
    assert_eq!(bad.code, Some(1), "{}", bad.stderr);
}

#[test]
fn json_output_has_the_documented_fields() {
    let good = pirn_with(GOOD.as_bytes(), &["validate", "-", "--output", "json"]).json();
    let checked = serde_json::json!({"workflows": 1, "nodes": 2, "triggers": 0, "profiles": 0, "tools": 0});
    assert_eq!(
        good,
        serde_json::json!({"valid": true, "errors": [], "warnings": [], "checked": checked, "formatVersion": 1})
    );
    let bad = pirn_with(BAD.as_bytes(), &["validate", "-", "--output", "json"]).json();
    assert_eq!(bad["valid"], false);
    let error = &bad["errors"][0];
    assert_eq!(error["code"], "INVALID_VALUE");
    assert_eq!(error["pointer"], "/nodes/0/type");
    assert_eq!((error["line"].as_u64(), error["column"].as_u64()), (Some(2), Some(32)));
    assert_eq!(error["file"], "-");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| message.contains("STRAT"))
    );
}

#[test]
fn text_output_shows_the_source_line_and_a_suggestion() {
    let bad = pirn_with(BAD.as_bytes(), &["validate", "-"]);
    for part in [
        "INVALID_VALUE",
        "{\"id\": \"s\", \"type\": \"STRAT\"}",
        "did you mean `START`?",
        "invalid: 1 error, 0 warnings",
    ] {
        assert!(bad.stdout.contains(part), "{part} is not in\n{}", bad.stdout);
    }
}

#[test]
fn several_files_are_checked_together() {
    let (workflow, trigger) = ("seeds/003-compression-workflow.json", "seeds/003-trigger.json");
    let both = pirn(&["validate", workflow, trigger, "--output", "json"]);
    assert_eq!((both.code, &both.json()["warnings"]), (Some(0), &serde_json::json!([])));
    let twice = pirn(&["validate", workflow, workflow, "--output", "json"]).json();
    assert_eq!(twice["errors"][0]["code"], "DUPLICATE_WORKFLOW_ID");
    let other = pirn(&[
        "validate",
        "seeds/002-compression-workflow.json",
        trigger,
        "--output",
        "json",
    ])
    .json();
    assert_eq!(other["errors"][0]["code"], "UNKNOWN_WORKFLOW_REFERENCE");
    assert_eq!(other["errors"][0]["file"], trigger);
}

#[test]
fn expressions_are_parsed() {
    let file = GOOD.replace("\"to\": \"e\"", "\"to\": \"e\", \"condition\": \"1 +\"");
    let report = pirn_with(file.as_bytes(), &["validate", "-", "--output", "json"]).json();
    assert_eq!(report["errors"][0]["code"], "INVALID_EXPRESSION");
    assert_eq!(report["errors"][0]["pointer"], "/edges/0/condition");
}

#[test]
fn wrong_usage_and_unreadable_files_exit_2() {
    assert_eq!(pirn(&["validate"]).code, Some(2));
    assert_eq!(pirn(&["validate", "--what"]).code, Some(2));
    let missing = pirn(&["validate", "no-such-file.json", "seeds/003-trigger.json"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("no-such-file.json"), "{}", missing.stderr);
    assert!(missing.stdout.is_empty());
    assert_eq!(pirn(&["validate", "seeds"]).code, Some(2), "a folder");
    assert_eq!(pirn_with(b"\xff\xfe", &["validate", "-"]).code, Some(2), "no UTF-8");
    assert_eq!(
        pirn_with(b"", &["validate", "-"]).code,
        Some(1),
        "an empty text is readable, and no JSON"
    );
}

#[test]
fn a_closed_pipe_causes_no_panic() {
    let mut child = start(&["schema"]);
    drop(child.stdin.take());
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_compression_without_a_trigger_is_a_warning_with_a_suggestion() {
    let text = GOOD.replace(
        r#"{"id": "w","#,
        "{\"id\": \"w\",\n \"config\": {\"tokenLimit\": 100, \"compression\": {\"strategy\": \"keep_recent\"}},",
    );
    let report = pirn_with(text.as_bytes(), &["validate", "-", "--output", "json"]);
    let warning = &report.json()["warnings"][0];
    assert_eq!(report.code, Some(0), "it is valid");
    assert_eq!(warning["code"], "TOKEN_LIMIT_WITHOUT_COMPRESSION");
    assert_eq!(
        (&warning["pointer"], &warning["line"]),
        (&"/config/compression".into(), &2.into())
    );
    let help = warning["help"].as_str().unwrap_or_default();
    for part in ["EXECUTE_TRIGGERED_SUBGRAPH", "START_FROM_TRIGGER", "keep_recent"] {
        assert!(help.contains(part), "{help}");
    }
    let shown = pirn_with(text.as_bytes(), &["validate", "-"]).stdout;
    for part in [
        "/config/compression",
        "`config.compression` has no effect",
        "TOKEN_LIMIT_EXCEEDED",
        "\"keep_recent\"",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn run_mentions_warnings() {
    let text = GOOD.replace(r#"{"id": "w","#, r#"{"id": "w", "config": {"tokenLimit": 100},"#);
    let ran = pirn_with(text.as_bytes(), &["run", "-"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("1 warning about the files: pirn validate says which"),
        "{}",
        ran.stderr
    );
    let good = pirn_with(GOOD.as_bytes(), &["run", "-"]);
    assert!(!good.stderr.contains("warning"), "{}", good.stderr);
}

/// A misspelt target is the cause, and the unreachable rest of the graph is a consequence.
#[test]
fn causes_are_listed_first_and_consequences_are_counted() {
    let text = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "work", "type": "CODE", "config": {"code": "return 1"}},
        {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "wrok"}, {"from": "work", "to": "e"}]}"#;
    let shown = pirn_with(text.as_bytes(), &["validate", "-"]).stdout;
    assert!(shown.starts_with("error[UNKNOWN_NODE_REFERENCE]"), "{shown}");
    assert_eq!(shown.matches("error[").count(), 1, "{shown}");
    assert!(shown.contains("follow"), "{shown}");
}

#[test]
fn twenty_errors_are_shown_and_further_ones_counted() {
    let nodes: Vec<String> = (0..50)
        .map(|at| format!(r#"{{"id": "n{at}", "type": "NOTHING"}}"#))
        .collect();
    let text = format!(r#"{{"id": "w", "nodes": [{}], "edges": []}}"#, nodes.join(",\n"));
    let shown = pirn_with(text.as_bytes(), &["validate", "-"]).stdout;
    assert_eq!(shown.matches("error[").count(), 20, "{shown}");
    assert!(shown.contains("more errors; --output json lists all"), "{shown}");
}

#[test]
fn a_line_is_cut_around_its_mark_and_no_key_is_shown() {
    let long = "x".repeat(3_000);
    let text = GOOD.replace(
        r#"{"id": "w","#,
        &format!(r#"{{"description": "{long}", "naem": "a", "name": "{long}", "id": "w","#),
    );
    let shown = pirn_with(text.replace('\n', " ").as_bytes(), &["validate", "-"]).stdout;
    assert!(
        shown.contains("naem") && shown.contains("did you mean `name`?"),
        "{shown}"
    );
    assert!(shown.lines().all(|line| line.chars().count() <= 140), "{shown}");
    let key = r#"{"profiles": [{"id": "p", "provider": "openai", "model": "m", "apiKey": "very-secret-1"}]}"#;
    for output in ["text", "json"] {
        let ended = pirn_with(key.as_bytes(), &["validate", "-", "--output", output]);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("apiKeyEnv") && !said.contains("very-secret-1"), "{said}");
    }
}

#[test]
fn a_file_may_name_its_schema() {
    let named = GOOD.replacen('{', r#"{"$schema": "./pirn.schema.json", "#, 1);
    let ended = pirn_with(named.as_bytes(), &["validate", "-"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    let bundle = format!(r#"{{"$schema": "x", "workflows": [{GOOD}]}}"#);
    assert_eq!(pirn_with(bundle.as_bytes(), &["validate", "-"]).code, Some(0));
    let inside = GOOD.replace(r#"{"id": "s","#, r#"{"$schema": "x", "id": "s","#);
    assert_eq!(
        pirn_with(inside.as_bytes(), &["validate", "-"]).code,
        Some(1),
        "only at the top"
    );
}
