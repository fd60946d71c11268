//! Every example of every `--help` works unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::command::{pirn, pirn_in, root};
use crate::folder::Folder;
use crate::store::durable_inputs::holding_with;

/// Examples that run until they are stopped.
const SERVERS: &[&str] = &["pirn serve ", "pirn studio "];

/// Examples that concern a run that waits.
const OF_WAITING: &[&str] = &[
    "pirn runs answer RUN ",
    "pirn runs cancel RUN ",
    "pirn runs emit RUN ",
    "pirn runs migrate RUN ",
    "pirn runs resume RUN ",
    "pirn runs say RUN ",
];

/// Examples that need a database, a Restate server or a process that executes the run. Only their arguments are parsed.
const ELSEWHERE: &[&str] = &["pirn worker ", "pirn runs pause ", "pirn runs pin "];

/// Returns the help of the command and of all its subcommands.
fn all_help() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![Vec::<String>::new()];
    while let Some(command) = left.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = pirn(&arguments).stdout;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            let is_name = line.starts_with("  ") && !line.starts_with("   ");
            let name = line.split_whitespace().next().filter(|_| is_name);
            if let Some(name) = name.filter(|name| *name != "help") {
                left.push([&command[..], &[name.to_owned()]].concat());
            }
        }
        all.insert(command.join(" "), help);
    }
    all
}

fn examples(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    listed.take_while(|line| !line.is_empty()).map(str::trim).collect()
}

/// Creates the files that the examples name, and a store with an ended and a waiting run.
fn prepared(name: &str) -> Folder {
    let model = |id: &str| json!({"id": id, "type": "LLM", "config": {"prompt": "say {{input}}"}});
    let line = |id: &str, inner: Vec<Value>| {
        let mut nodes = vec![json!({"id": "start", "type": "START"})];
        nodes.extend(inner);
        nodes.push(json!({"id": "end", "type": "END"}));
        let edges: Vec<Value> = nodes
            .windows(2)
            .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
            .collect();
        json!({"id": id, "nodes": nodes, "edges": edges})
    };
    let ask =
        |id: &str| json!({"id": id, "type": "USER_INTERACTION", "config": {"question": "Which?", "assignTo": id}});
    let mut inner: Vec<Value> = (0..8).map(|number| model(&format!("m{number}"))).collect();
    // Messages for `pirn context judge`.
    let words = "Say all about rain in many words, and why it is wet. It is 25 degrees in Bern today, and Ann has order 77 open.";
    inner.push(json!({"id": "long", "type": "LLM", "config": {"prompt": words}}));
    inner.push(json!({"id": "shorten", "type": "CONTEXT_PROCESSOR",
        "config": {"operation": "compress", "strategy": "summarize", "parameters": {"keepRecent": 1}}}));
    let mut workflow = line("w", inner);
    workflow["variables"] = json!([{"name": "name", "value": "Eve"}]);
    let trigger = json!({"id": "t", "type": "EVENT", "condition": {"eventType": "NODE_FAILED"},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "failed"}}});
    let folder = Folder::new(name)
        .with("workflow.json", &workflow.to_string())
        .with("chat.json", &line("chat", vec![model("ask")]).to_string())
        .with(
            "waits.json",
            &line("waits", vec![ask("approve"), model("say")]).to_string(),
        )
        .with("trigger.json", &trigger.to_string())
        .with("input.json", "{\"name\": \"Ada\"}")
        .with("tokens", "0123456789abcdef0123456789abcdef name=ann\n")
        .with("store.keys", &"5a".repeat(32))
        .with("models.toml", "[[profiles]]\nid = \"assistant\"\nprovider = \"echo\"\n")
        .with("pirn.toml", "[[profiles]]\nid = \"assistant\"\nprovider = \"echo\"\n");
    fs::copy(folder.path().join("chat.json"), folder.path().join("main.json")).expect("copied");
    fs::create_dir_all(folder.path().join("workflows")).expect("writable");
    for place in [
        ".local/share/man/man1",
        ".local/share/bash-completion/completions",
        ".zfunc",
        ".config/fish/completions",
    ] {
        fs::create_dir_all(folder.path().join(place)).expect("writable");
    }
    copied(
        &root().join("examples/support-desk"),
        &folder.path().join("support-desk"),
    );
    // Replacements for programs that the examples pipe into, which may not be installed.
    let bin = folder.path().join("bin");
    fs::create_dir_all(&bin).expect("writable");
    for name in ["dot", "man", "xdg-open"] {
        fs::write(bin.join(name), "#!/bin/sh\nexec cat\n").expect("writable");
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("its own");
    }
    folder
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable").path();
        let target = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() {
            copied(&entry, &target);
        } else {
            fs::copy(&entry, &target).expect("copied");
        }
    }
}

fn typed(folder: &Folder, command: &str) -> Output {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_pirn"));
    let folders = [
        folder.path().join("bin"),
        program.parent().expect("a folder").to_owned(),
    ];
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{others}", folders[0].display(), folders[1].display());
    let mut shell = Command::new("bash");
    shell
        .args(["-o", "pipefail", "-c", command])
        .env("PATH", path)
        .env("HOME", folder.path())
        .current_dir(folder.path());
    shell.output().expect("there is a bash")
}

/// Creates a store in which run `RUN` has ended and run `r` waits for an answer.
fn with_runs(folder: &Folder) {
    let ended = pirn_in(
        folder.path(),
        &[
            "run",
            "workflow.json",
            "--store",
            "runs.db",
            "--run-id",
            "RUN",
            "--quiet",
        ],
        &[],
    );
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let main = folder.path().join("main.json");
    let chat = fs::read(&main).expect("readable");
    fs::copy(folder.path().join("waits.json"), &main).expect("copied");
    let (child, _lines) = holding_with(folder, &[]);
    let number = i32::try_from(child.id()).expect("a process id");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(number).expect("a process id"),
        rustix::process::Signal::INT,
    )
    .expect("it is there");
    let stopped = child.wait_with_output().expect("ends");
    assert_eq!(stopped.status.code(), Some(130));
    fs::write(&main, chat).expect("writable");
}

#[test]
fn every_subcommand_has_examples_and_exit_codes_in_its_help() {
    for (command, help) in all_help() {
        assert!(
            help.contains("Example") && help.contains("Exit code"),
            "{command}: {help}"
        );
    }
}

#[test]
fn every_example_of_every_help_works() {
    let mut count = 0;
    for (number, (command, help)) in all_help().into_iter().enumerate() {
        let examples = examples(&help);
        if examples.is_empty() {
            continue;
        }
        let folder = prepared(&format!("examples-{number}"));
        let asked = (command.starts_with("runs") || command == "test").then(|| with_runs(&folder));
        let mut examples = examples;
        // Answers come first, because the question is closed once an example resumes all runs.
        examples.sort_by_key(|example| !example.starts_with("pirn runs answer "));
        for example in examples {
            assert!(example.contains("pirn "), "{command}: {example}");
            let mut line = example.to_owned();
            if asked.is_some() && OF_WAITING.iter().any(|start| example.starts_with(start)) {
                line = line.replace(" RUN ", " r ");
            }
            if line.starts_with("pirn runs migrate ") {
                // The workflow of run `r`.
                line = line.replace(" workflow.json", " waits.json");
            }
            let is_server = SERVERS.iter().any(|start| example.starts_with(start));
            if is_server {
                let own = line.replace("--listen 0.0.0.0:7474", "--listen 127.0.0.1:0");
                let listen = if own == line { " --listen 127.0.0.1:0" } else { "" };
                line = format!("timeout --signal=TERM 1 {own}{listen}");
            }
            let ended = typed(&folder, &line);
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&ended.stdout),
                String::from_utf8_lossy(&ended.stderr)
            );
            if ELSEWHERE.iter().any(|start| example.starts_with(start)) {
                assert!(!said.contains("Usage:") && !said.contains("USAGE"), "{line}: {said}");
            } else if is_server {
                assert_eq!(ended.status.code(), Some(124), "{line}: {said}");
                assert!(said.contains("listening"), "{line}: {said}");
            } else {
                assert_eq!(ended.status.code(), Some(0), "{line}: {said}");
            }
            count += 1;
        }
    }
    assert!(count > 80, "only {count} examples were found");
}
