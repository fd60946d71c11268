//! Encrypted stores, from a user's view.

use std::process::Command;

use serde_json::json;

use crate::command::{Ended, pirn_in};
use crate::folder::Folder;
use crate::store::durable_inputs::{holding_with, refused, runs};

const KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const NEW_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Values that a user, a model or a tool determines. Each occurs in a stored run.
const CANARIES: [&str; 12] = [
    "canary-input",
    "canary-variable",
    "canary-prompt",
    "canary-argument",
    "canary-result",
    "canary-reply",
    "canary-question",
    "canary-pinned",
    "canary-metadata",
    "canary-event",
    "canary-message",
    "canary-answer",
];
const SESSION: &str = "canary-session";

/// A workflow with a model that calls a tool with a long result (an artifact), and then a question.
fn folder(name: &str) -> Folder {
    let workflow = json!({
        "id": "main",
        "config": {"artifactTokens": 400, "tokenizer": "estimate"},
        "variables": [{"name": "kept", "value": "canary-variable", "scope": "session"}],
        "nodes": [
            {"id": "start", "type": "START"},
            {"id": "ask", "type": "LLM", "config": {"profileId": "script", "prompt": "canary-prompt", "tools": ["list"]}},
            {"id": "which", "type": "USER_INTERACTION", "config": {"question": "canary-question", "assignTo": "kept"}},
            {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "which"}, {"from": "which", "to": "end"}]});
    let call = json!([{"id": "1", "name": "list", "arguments": {"text": "canary-argument"}}]);
    let program = "echo canary-result; seq 1 3000";
    let config = json!({
        "profiles": [{"id": "script", "provider": "scripted",
            "responses": [{"toolCalls": call}, {"content": "canary-reply"}, {"content": "done"}]}],
        "tools": [{"name": "list", "description": "Lists", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "command": {"program": "sh", "args": ["-c", program]}}],
    });
    Folder::new(name)
        .with("main.json", &workflow.to_string())
        .with("config.json", &config.to_string())
        .with("pinned.json", &json!({"role": "canary-pinned"}).to_string())
        .with("store.keys", &format!("# a comment\n{KEY}\n"))
}

/// Returns the values that some file of the store has.
fn found(folder: &Folder) -> Vec<&'static str> {
    let files = ["runs.db", "runs.db-wal", "runs.db-shm", "runs.db.lock", "copy.db"];
    let files: Vec<Vec<u8>> = files
        .iter()
        .filter_map(|name| std::fs::read(folder.file(name)).ok())
        .collect();
    let has = |word: &str| {
        let is_in = |bytes: &Vec<u8>| bytes.windows(word.len()).any(|window| window == word.as_bytes());
        files.iter().any(is_in)
    };
    CANARIES.into_iter().chain([SESSION]).filter(|word| has(word)).collect()
}

fn succeeded(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
}

/// Executes a run to its end.
fn begin(folder: &Folder, more: &[&str], environment: &[(&str, &str)]) {
    let run = [
        "run",
        "main.json",
        "--config",
        "config.json",
        "--store",
        "runs.db",
        "--answer",
        "which=yes",
    ];
    succeeded(&pirn_in(folder.path(), &[&run[..], more].concat(), environment));
}

/// Plays a run with all inputs, kills it, resumes it, and backs the store up. Returns the values that were found in files.
fn played(folder: &Folder, key: &[&str]) -> Vec<&'static str> {
    let with_key = |arguments: &[&str]| runs(folder, &[arguments, key].concat());
    let given = [
        "--config",
        "config.json",
        "--session",
        SESSION,
        "--input",
        "{\"q\": \"canary-input\"}",
        "--pinned",
        "pinned.json",
        "--metadata",
        "user=canary-metadata",
    ];
    let (mut child, _lines) = holding_with(folder, &[&given[..], key].concat());
    // Through the process that has the store open.
    succeeded(&with_key(&["emit", "r", "noted", "{\"word\": \"canary-event\"}"]));
    succeeded(&with_key(&["say", "r", "canary-message"]));
    let mut all = found(folder);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    succeeded(&with_key(&["answer", "r", "which", "\"canary-answer\""]));
    all.extend(found(folder));
    succeeded(&with_key(&["resume", "r", "--config", "config.json"]));
    succeeded(&with_key(&["backup", "copy.db"]));
    all.extend(found(folder));
    all.sort_unstable();
    all.dedup();
    let exported = with_key(&["export", "r"]);
    succeeded(&exported);
    for word in CANARIES {
        assert!(exported.stdout.contains(word), "{word} is not part of the run");
    }
    all
}

#[test]
fn no_file_of_a_store_with_a_key_has_a_value_of_a_run_and_one_without_has_all() {
    let plain = played(&folder("encrypted-not"), &[]);
    let mut all = [&CANARIES[..], &[SESSION]].concat();
    all.sort_unstable();
    assert_eq!(plain, all);
    let encrypted = folder("encrypted");
    assert_eq!(played(&encrypted, &["--key-file", "store.keys"]), Vec::<&str>::new());
    let listed = runs(
        &encrypted,
        &[
            "list",
            "--session",
            SESSION,
            "--key-file",
            "store.keys",
            "--output",
            "json",
        ],
    );
    assert_eq!(listed.json()["runs"][0]["runId"], "r", "{}", listed.stdout);
}

#[test]
fn keys_come_from_an_argument_the_environment_or_the_config_and_a_wrong_or_missing_one_is_refused() {
    let folder = folder("encrypted-keys")
        .with("new.keys", NEW_KEY)
        .with("both.keys", &format!("{NEW_KEY}\n{KEY}\n"))
        .with("bad.keys", "secret-but-short");
    begin(&folder, &["--run-id", "r"], &[("PIRN_STORE_KEY", KEY)]);
    let list = |more: &[&str], environment: &[(&str, &str)]| {
        pirn_in(
            folder.path(),
            &[&["runs", "list", "--ids"][..], more].concat(),
            environment,
        )
    };
    let json = ["--output", "json"];
    for (more, environment) in [
        (&[][..], &[][..]),
        (&["--key-file", "new.keys"], &[]),
        (&["--key-file", "bad.keys"], &[]),
        (&[], &[("PIRN_STORE_KEY", NEW_KEY)]),
        (&[], &[("PIRN_STORE_KEY", "secret-but-short")]),
    ] {
        let ended = list(&[more, &json].concat(), environment);
        assert_eq!(refused(&ended), (Some(2), "STORE_KEY".to_owned()), "{more:?}");
        assert!(!ended.stdout.contains("secret") && !ended.stderr.contains("secret"));
    }
    let missing = list(&[&["--key-file", "none.keys"][..], &json].concat(), &[]);
    assert_eq!(refused(&missing), (Some(2), "UNREADABLE_FILE".to_owned()));
    let ids = |ended: &Ended| (ended.code, ended.stdout.trim().to_owned());
    let one = (Some(0), "r".to_owned());
    assert_eq!(ids(&list(&[], &[("PIRN_STORE_KEY", KEY)])), one);
    // The argument has precedence.
    assert_eq!(
        ids(&list(&["--key-file", "store.keys"], &[("PIRN_STORE_KEY", NEW_KEY)])),
        one
    );

    let rekey = runs(&folder, &["rekey", "--key-file", "both.keys", "--output", "json"]);
    succeeded(&rekey);
    assert!(rekey.json()["encrypted"].as_u64() > Some(5), "{}", rekey.stdout);
    assert_eq!(
        refused(&list(&[&["--key-file", "store.keys"][..], &json].concat(), &[])).0,
        Some(2)
    );
    let folder = folder.with("pirn.toml", "[store]\nkeyFile = \"new.keys\"\n");
    assert_eq!(ids(&runs(&folder, &["list", "--ids"])), one);
    succeeded(&runs(&folder, &["show", "r"]));
    let folder = folder.with("pirn.toml", "[store]\nkeyFiles = \"new.keys\"\n");
    assert_eq!(
        refused(&runs(&folder, &["list", "--output", "json"])),
        (Some(2), "INVALID_CONFIG".to_owned())
    );
}

#[test]
fn a_key_is_refused_for_a_store_on_a_server_and_rekey_without_a_key() {
    let folder = folder("encrypted-server");
    begin(&folder, &[], &[]);
    assert_eq!(
        refused(&runs(&folder, &["rekey", "--output", "json"])),
        (Some(2), "STORE_KEY".to_owned())
    );
    let server = [
        "list",
        "--engine",
        "postgres",
        "--url",
        "postgres:///none",
        "--key-file",
        "store.keys",
        "--output",
        "json",
    ];
    assert_eq!(refused(&runs(&folder, &server)), (Some(2), "USAGE".to_owned()));
}

/// The tests of these modules are executed again, with a key in the environment of every command.
#[test]
fn tests_of_durable_runs_pass_with_an_encrypted_store() {
    let mut tests = Command::new(std::env::current_exe().expect("a path"));
    tests
        .args(["durable::", "durable_inputs::", "durable_waits::", "artifacts::"])
        // These open the store file themselves, or need a special file system.
        .args(["--skip", "the_path_of_a_config_is_stored_and_pruned", "--skip", "power"])
        .env("PIRN_STORE_KEY", KEY);
    let output = tests.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        said.contains("test result: ok") && !said.contains("running 0 tests"),
        "{said}"
    );
}
