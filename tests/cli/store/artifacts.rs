//! Large tool results as artifacts, and archived messages of compressions: a scripted model reads both with the built-in tools.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::Command;

use pirn::store::ContentHash;
use serde_json::{Value, json};

use crate::command::{Ended, pirn, pirn_in, start_in};
use crate::folder::Folder;

const TOOLS: &str = r#"
[[tools]]
name = "list"
description = "Lists numbers"
command = { program = "seq", args = ["1", "3000"] }
"#;

/// Returns the result of `list` and its id.
fn numbers() -> (String, String) {
    let text: Vec<String> = (1..=3000).map(|number| number.to_string()).collect();
    let text = text.join("\n") + "\n";
    let id = ContentHash::of(&text).to_string()[..16].to_owned();
    (text, id)
}

fn calls(calls: &[(&str, &str, Value)]) -> Value {
    let calls = calls
        .iter()
        .map(|(id, name, arguments)| json!({"id": id, "name": name, "arguments": arguments}));
    json!({"toolCalls": calls.collect::<Vec<_>>()})
}

fn line(id: &str, nodes: &[Value], config: &Value) -> Value {
    let mut all = vec![json!({"id": "start", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "end", "type": "END"}));
    let edges: Vec<Value> = all
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    json!({"id": id, "nodes": all, "edges": edges, "config": config})
}

fn ask(id: &str, profile: &str, tools: &[&str]) -> Value {
    json!({"id": id, "type": "LLM", "config": {"profileId": profile, "prompt": format!("{id}, please"), "tools": tools}})
}

fn script(id: &str, responses: &[Value]) -> Value {
    json!({"id": id, "provider": "scripted", "responses": responses})
}

fn folder(name: &str, workflows: &[Value], profiles: &[Value]) -> Folder {
    let bundle = json!({"workflows": workflows, "profiles": profiles});
    Folder::new(name)
        .with("main.json", &bundle.to_string())
        .with("pirn.toml", TOOLS)
}

fn artifacts() -> Value {
    json!({"artifactTokens": 400, "tokenizer": "estimate"})
}

/// Returns the result of a tool call in a report's conversation.
fn result<'r>(report: &'r Value, call: &str) -> &'r str {
    let messages = report["conversation"]["messages"].as_array().expect("a list");
    let found = messages.iter().find(|message| message["toolCallId"] == call);
    found
        .and_then(|message| message["content"].as_str())
        .unwrap_or_else(|| panic!("no {call} in {messages:#?}"))
}

fn completed(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    ended.json()
}

fn run(folder: &Folder) -> Value {
    let arguments = ["run", "main.json", "--output", "json", "--events", "events.jsonl"];
    completed(&pirn_in(folder.path(), &arguments, &[]))
}

#[test]
fn a_model_reads_the_omitted_part_of_a_large_result() {
    let (whole, id) = numbers();
    let reads = [
        ("lines", "read_artifact", json!({"id": id, "grep": "271"})),
        (
            "part",
            "read_artifact",
            json!({"id": id, "range": {"start": 0, "end": 7}}),
        ),
        ("page", "read_artifact", json!({"id": id})),
        ("nothing", "read_artifact", json!({"id": "0123456789abcdef"})),
        ("wrong", "read_artifact", json!({"id": id, "lines": 3})),
    ];
    let responses = [
        calls(&[("first", "list", json!({})), ("second", "list", json!({}))]),
        calls(&reads),
        json!({"content": "done"}),
    ];
    let main = line("main", &[ask("ask", "script", &["list"])], &artifacts());
    let folder = folder("artifact-read", &[main], &[script("script", &responses)]);
    let report = run(&folder);
    assert_eq!(report["status"], "COMPLETED", "{report:#}");

    let preview = result(&report, "first");
    assert!(
        preview.starts_with("1\n2\n3\n") && preview.ends_with("2999\n3000\n"),
        "{preview}"
    );
    assert!(
        preview.contains(&format!("artifact {id}")) && preview.len() < whole.len() / 10,
        "{preview}"
    );
    assert_eq!(
        result(&report, "second"),
        preview,
        "the same result is the same artifact"
    );
    assert!(
        result(&report, "lines").contains("line 2710, "),
        "{}",
        result(&report, "lines")
    );
    assert!(
        result(&report, "part").ends_with("\n1\n2\n3\n4"),
        "{}",
        result(&report, "part")
    );
    assert!(result(&report, "page").contains("continue with range {\"start\":"));
    assert!(result(&report, "nothing").contains("Artifact `0123456789abcdef` not found"));
    assert!(
        result(&report, "nothing").contains(&id),
        "it names those that there are"
    );
    assert!(result(&report, "wrong").contains("unknown field `lines`"));

    let events: Vec<Value> = folder
        .read("events.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let kept: Vec<&Value> = events.iter().filter(|event| event["type"] == "ARTIFACT_KEPT").collect();
    assert_eq!(kept.len(), 2, "no page is an artifact");
    assert_eq!(
        (&kept[0]["artifactId"], &kept[0]["toolCallId"]),
        (&json!(id), &json!("first"))
    );
    assert!(kept[0]["tokens"].as_u64() > kept[0]["previewTokens"].as_u64());
    let failed = events.iter().filter(|event| event["type"] == "TOOL_CALL_FAILED");
    let failed: Vec<&Value> = failed.map(|event| &event["toolCallId"]).collect();
    assert_eq!(failed, ["nothing", "wrong"], "a run goes on all the same");
}

#[test]
fn results_are_whole_without_artifact_tokens() {
    let responses = [calls(&[("first", "list", json!({}))]), json!({"content": "done"})];
    let main = line("main", &[ask("ask", "script", &["list"])], &json!({}));
    let folder = folder("artifact-none", &[main], &[script("script", &responses)]);
    assert_eq!(result(&run(&folder), "first"), numbers().0);
}

#[test]
fn branches_and_called_workflows_of_a_run_read_its_artifacts_and_other_runs_do_not() {
    let id = numbers().1;
    let lists = [calls(&[("list", "list", json!({}))]), json!({"content": "listed"})];
    let reads = |call: &str| {
        [
            calls(&[(call, "read_artifact", json!({"id": id, "grep": "1234"}))]),
            json!({"content": "read"}),
        ]
    };
    let fork = json!({"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a"], "childNodeIds": ["branch"], "forkStrategy": "parallel"}});
    let join = json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a"], "joinStrategy": "ALL_COMPLETED"}});
    let call = json!({"id": "call", "type": "SUBGRAPH", "config": {"subgraphId": "called", "conversation": "share"}});
    let nodes = [
        ask("list", "lists", &["list"]),
        fork,
        ask("branch", "branch", &["read_artifact"]),
        join,
        call,
    ];
    let main = line("main", &nodes, &artifacts());
    let called = line("called", &[ask("look", "called", &["read_artifact"])], &artifacts());
    let profiles = [
        script("lists", &lists),
        script("branch", &reads("of-branch")),
        script("called", &reads("of-called")),
    ];
    let folder = folder("artifact-shared", &[main, called], &profiles);
    let report = run(&folder);
    for call in ["of-branch", "of-called"] {
        assert!(
            result(&report, call).contains("line 1234, "),
            "{call}: {}",
            result(&report, call)
        );
    }
    let alone = ["run", "main.json", "--workflow", "called", "--output", "json"];
    let alone = completed(&pirn_in(folder.path(), &alone, &[]));
    assert!(result(&alone, "of-called").contains("` not found: "));
}

#[test]
fn an_artifact_survives_a_kill_and_is_exported_and_pruned_with_its_run() {
    let (whole, id) = numbers();
    let responses = [
        calls(&[("first", "list", json!({})), ("again", "list", json!({}))]),
        calls(&[("wait", "wait", json!({}))]),
        calls(&[(
            "read",
            "read_artifact",
            json!({"id": id, "range": {"start": 0, "end": 5}}),
        )]),
        json!({"content": "done"}),
    ];
    let main = line("main", &[ask("ask", "script", &["list", "wait"])], &artifacts());
    // A run's definition has no profiles. They are part of its config.
    let tool = |name: &str, program: &str, args: &[&str]| json!({"name": name, "description": name, "inDoubt": "retry", "command": {"program": program, "args": args}});
    let config = json!({
        "profiles": [script("script", &responses)],
        "tools": [tool("list", "seq", &["1", "3000"]), tool("wait", "sh", &["-c", "echo called >> gate; echo waited"])],
    });
    let folder = folder("artifact-kept", &[main], &[]).with("config.json", &config.to_string());
    let made = Command::new("mkfifo").arg(folder.file("gate")).status();
    assert!(made.expect("mkfifo is there").success());
    let pipe = OpenOptions::new().read(true).write(true).open(folder.file("gate"));
    let mut gate = BufReader::new(pipe.expect("opens")).lines();
    let runs = |arguments: &[&str]| {
        let all: Vec<&str> = ["runs"].iter().chain(arguments).copied().collect();
        pirn_in(folder.path(), &all, &[])
    };

    let begin = [
        "run",
        "main.json",
        "--config",
        "config.json",
        "--store",
        "runs.db",
        "--run-id",
        "a",
    ];
    let mut child = start_in(folder.path(), &begin, &[]);
    assert!(gate.next().is_some());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let listed = runs(&["list", "--output", "json"]).json();
    if listed["runs"][0]["status"] == "UNFINISHED" {
        completed(&runs(&["resume", "a", "--output", "json"]));
    }
    let report = completed(&runs(&["show", "a", "--output", "json"]));
    assert_eq!(report["status"], "COMPLETED", "{report:#}");
    let is_read = |report: &Value| result(report, "read").ends_with("\n1\n2\n3");
    assert!(is_read(&report), "{}", result(&report, "read"));
    assert!(result(&report, "first").contains(&id));

    // The store deduplicates the two results by their content.
    assert_eq!(runs(&["export", "a", "a.jsonl"]).code, Some(0));
    let exported = folder.read("a.jsonl");
    let middle = "1500\\n1501\\n1502";
    assert_eq!(exported.matches(middle).count(), 1, "{exported}");

    let steps = report["steps"].as_u64().expect("a number");
    for (fork, step) in [("late", steps - 1), ("early", 1)] {
        let at = step.to_string();
        let forked = completed(&runs(&["fork", "a", "--at", &at, "--run-id", fork, "--output", "json"]));
        assert!(is_read(&forked), "{fork}");
    }
    assert_eq!(
        runs(&["import", "a.jsonl", "--run-id", "b", "--store", "other.db"]).code,
        Some(0)
    );
    let there = completed(&runs(&["show", "b", "--store", "other.db", "--output", "json"]));
    assert!(is_read(&there));
    // The content is removed with the last run that refers to it.
    let pruned = runs(&["prune", "--output", "json"]).json();
    assert_eq!(pruned["removed"], 3, "{pruned}");
    assert!(pruned["bytesFreed"].as_u64() > Some(whole.len() as u64), "{pruned}");
    assert_eq!(runs(&["show", "a"]).code, Some(2));
}

#[test]
fn archived_messages_of_a_compression_can_be_recalled() {
    let compress = json!({"id": "shorten", "type": "CONTEXT_PROCESSOR",
        "config": {"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 0}}});
    let responses = [
        calls(&[("list", "list", json!({}))]),
        json!({"content": "The voucher is AX-7741."}),
    ];
    let looks = [
        calls(&[
            ("voucher", "recall", json!({"query": "which VOUCHER?"})),
            ("result", "recall", json!({"query": "artifact"})),
            ("none", "recall", json!({"query": "zebra"})),
            ("blank", "recall", json!({"query": " ?! "})),
        ]),
        json!({"content": "done"}),
    ];
    let mut config = artifacts();
    config["recall"] = json!(true);
    let nodes = [
        ask("ask", "asks", &["list"]),
        compress,
        ask("look", "looks", &["recall"]),
    ];
    let main = line("main", &nodes, &config);
    let profiles = [script("asks", &responses), script("looks", &looks)];
    let folder = folder("artifact-recall", &[main], &profiles);
    let report = run(&folder);
    assert!(
        result(&report, "voucher").contains("assistant: The voucher is AX-7741."),
        "{}",
        result(&report, "voucher")
    );
    assert!(
        result(&report, "result").contains(&numbers().1),
        "{}",
        result(&report, "result")
    );
    assert!(
        result(&report, "none").starts_with("[0 of 4 archived messages"),
        "{}",
        result(&report, "none")
    );
    assert_eq!(result(&report, "blank"), "`query` has no words.");
}

#[test]
fn invalid_names_and_settings_of_artifacts_are_reported_with_their_location() {
    let main = line(
        "main",
        &[ask("ask", "script", &["recall", "list"])],
        &json!({"artifactTokens": 10}),
    );
    let tool = json!({"id": "tool", "type": "TOOL", "config": {"tool": "read_artifact"}});
    let other = line("other", &[tool], &artifacts());
    let folder = folder("artifact-wrong", &[main, other], &[script("script", &[])]);
    let ended = pirn_in(folder.path(), &["validate", "main.json", "--output", "json"], &[]);
    let faults = ended.json();
    let mut faults: Vec<&str> = faults["errors"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|fault| fault["pointer"].as_str())
        .collect();
    faults.sort_unstable();
    assert_eq!(
        faults,
        [
            "/workflows/0/config/artifactTokens",
            "/workflows/0/nodes/1/config/tools/0",
            "/workflows/1/nodes/1/config/tool"
        ]
    );

    let config = TOOLS.replace("name = \"list\"", "name = \"recall\"");
    let reserved = Folder::calling("artifact-reserved", &config, &["list"], &json!([]));
    let ended = pirn(&["run", &reserved.file("main.json")]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`recall`, /name: is the name of a built-in tool"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("line "), "{}", ended.stderr);
}
