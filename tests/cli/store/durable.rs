//! Runs in a store, from a user's view: killed, resumed, viewed, forked, moved and removed.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::Command;

use pirn::store::ContentHash;
use serde_json::{Value, json};

use crate::command::{Ended, pirn_in, start_in};
use crate::folder::Folder;
use crate::store::lazyfs::LazyFs;

const NODES: usize = 6;

/// A tool that appends a line with its key to `lines` and reports each call in the pipe `gate`.
const CONFIG: &str = r#"
[[tools]]
name = "append"
description = "Appends a line"
inputSchema = { type = "object", properties = { text = { type = "string" } } }
command = { program = "sh", args = ["-c", "echo \"$0 $PIRN_IDEMPOTENCY_KEY\" >> lines; echo \"$0\" >> gate", "{{text}}"] }
"#;

fn folder(name: &str) -> Folder {
    let mut nodes = vec![json!({"id": "start", "type": "START"})];
    for number in 0..NODES {
        let config = json!({"tool": "append", "arguments": {"text": format!("n{number}")}});
        nodes.push(json!({"id": format!("n{number}"), "type": "TOOL", "config": config}));
    }
    nodes.push(json!({"id": "end", "type": "END", "config": {"output": "'all done'"}}));
    let ids: Vec<Value> = nodes.iter().map(|node| node["id"].clone()).collect();
    let edges = ids.windows(2).map(|pair| json!({"from": pair[0], "to": pair[1]}));
    let edges: Vec<Value> = edges.collect();
    let workflow = json!({"id": "main", "nodes": nodes, "edges": edges});
    let folder = Folder::new(name)
        .with("main.json", &workflow.to_string())
        .with("pirn.toml", CONFIG)
        .with("lines", "");
    let made = Command::new("mkfifo").arg(folder.file("gate")).status();
    assert!(made.expect("mkfifo is there").success());
    folder
}

/// Returns the number of times each call was made, by its key.
fn made(folder: &Folder) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for line in folder.read("lines").lines() {
        *made.entry(line.to_owned()).or_default() += 1;
    }
    made
}

/// Returns lines from the pipe. Opened for writing too: so the reader never reaches the end of the file, and no writer blocks on
/// open.
fn gate(folder: &Folder) -> impl Iterator<Item = String> + use<> {
    let pipe = OpenOptions::new().read(true).write(true).open(folder.file("gate"));
    BufReader::new(pipe.expect("opens"))
        .lines()
        .map(|line| line.expect("is read"))
}

fn runs(folder: &Folder, arguments: &[&str]) -> Ended {
    let all: Vec<&str> = ["runs"].iter().chain(arguments).copied().collect();
    pirn_in(folder.path(), &all, &[])
}

/// Returns the number of kills: the environment variable `PIRN_KILLS`, by default one for each node.
fn kills() -> usize {
    let wanted = std::env::var("PIRN_KILLS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(NODES)
}

/// Kills a run in its call `kill`, executes `then`, resumes the run and checks the calls.
fn killed_in_a_call_and_resumed(folder: &Folder, store: &str, kill: usize, then: impl FnOnce()) {
    let mut gate = gate(folder);
    let arguments = ["run", "main.json", "--store", store, "--run-id", "run-1"];
    let mut child = start_in(folder.path(), &arguments, &[]);
    assert!(gate.nth(kill).is_some());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    then();

    let runs = |arguments: &[&str]| runs(folder, &[arguments, &["--store", store, "--output", "json"]].concat());
    let listed = runs(&["list"]).json();
    let is_over = listed["runs"][0]["status"] == "COMPLETED";
    assert!(is_over || listed["runs"][0]["status"] == "UNFINISHED", "{listed}");
    let report = runs(&[if is_over { "show" } else { "resume" }, "run-1"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let report = report.json();
    assert_eq!(report["output"], "all done");
    let repeated: Vec<&str> = report["repeated"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["effectId"].as_str())
        .collect();
    let made = made(folder);
    assert_eq!(made.len(), NODES, "one key a node: {made:?}");
    for (line, times) in made {
        let (node, key) = line.split_once(' ').expect("two words");
        let had_answered = node[1..].parse::<usize>().expect("a number") < kill;
        assert!(
            times == 1 || (times == 2 && repeated.contains(&key) && !had_answered),
            "{line}: {times} times, {repeated:?}"
        );
    }
}

#[test]
fn a_killed_run_is_resumed_and_makes_each_call_once_or_reports_the_repeat() {
    for kill in 0..kills() {
        let folder = folder(&format!("killed-{kill}"));
        killed_in_a_call_and_resumed(&folder, "runs.db", kill % NODES, || ());
    }
}

#[test]
fn after_a_power_loss_a_run_repeats_no_answered_call() {
    for cut in 0..20 {
        let folder = folder(&format!("power-{cut}"));
        let Some(mut disk) = LazyFs::mount(&folder) else { return };
        killed_in_a_call_and_resumed(&folder, "disk/runs.db", cut % NODES, || disk.loses_power());
    }
}

#[test]
fn a_stored_run_can_be_resumed_after_ctrl_c() {
    let folder = folder("interrupted");
    let mut gate = gate(&folder);
    let arguments = [
        "run",
        "main.json",
        "--store",
        "runs.db",
        "--run-id",
        "run-1",
        "--output",
        "json",
    ];
    let child = start_in(folder.path(), &arguments, &[]);
    assert!(gate.nth(1).is_some());
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("kill is there")
            .success()
    );
    let ended = child.wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(stderr.starts_with("run run-1\n"), "{stderr}");
    if ended.status.code() != Some(0) {
        assert_eq!(ended.status.code(), Some(130), "{stderr}");
        assert!(stderr.contains("pirn runs resume run-1 --store runs.db"), "{stderr}");
        let printed: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
        assert_eq!(printed, runs(&folder, &["show", "run-1", "--output", "json"]).json());
        assert_eq!(
            (&printed["workflowId"], &printed["error"]),
            (&json!("main"), &Value::Null)
        );
        let resumed = runs(&folder, &["resume", "--all", "--output", "json"]);
        assert_eq!(resumed.json()["runs"][0]["output"], "all done");
    }
    assert_eq!(made(&folder).len(), NODES);
}

#[test]
fn runs_of_a_store_are_shown_forked_moved_and_pruned() {
    let folder = folder("looked-at");
    let _gate = gate(&folder);
    let begun = pirn_in(
        folder.path(),
        &[
            "run",
            "main.json",
            "--store",
            "runs.db",
            "--run-id",
            "a",
            "--output",
            "json",
        ],
        &[],
    );
    assert_eq!(begun.code, Some(0), "{}", begun.stderr);
    assert_eq!(
        (&begun.json()["runId"], &begun.json()["steps"]),
        (&json!("a"), &json!(NODES))
    );

    let table = runs(&folder, &["list"]).stdout;
    assert!(
        table
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("a  ") && line.contains("COMPLETED")),
        "{table}"
    );
    let history = runs(&folder, &["show", "a", "--history", "--output", "json"]).json();
    let kinds: Vec<&str> = history["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .filter_map(|step| step["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["start", "tool", "tool", "tool", "tool", "tool", "tool", "end"]);
    let then = runs(&folder, &["show", "a", "--at", "2", "--output", "json"]).json();
    assert_eq!((&then["status"], &then["steps"]), (&json!("RUNNING"), &json!(2)));
    let events = runs(&folder, &["events", "a", "--after", "3"]).stdout;
    assert!(
        events
            .lines()
            .next()
            .is_some_and(|line| line.contains("\"sequence\":4")),
        "{events}"
    );

    let explained = runs(&folder, &["explain", "a"]).stdout;
    assert!(explained.starts_with("a of main: COMPLETED after step "), "{explained}");
    let then = runs(&folder, &["explain", "a", "--at", "2", "--output", "json"]).json();
    let then = then["text"].as_str().expect("a text");
    assert!(then.contains(" after step 2, ") && then.lines().count() <= 60, "{then}");

    let forked = runs(
        &folder,
        &["fork", "a", "--at", "4", "--run-id", "b", "--output", "json"],
    );
    assert_eq!(forked.json()["output"], "all done", "{}", forked.stderr);
    assert_eq!(made(&folder).len(), NODES + 2, "the two after step 4 are its own");
    let shown = runs(&folder, &["show", "b", "--output", "json"]).json();
    assert_eq!(shown["forkedFrom"], json!({"runId": "a", "step": 4}));
    let diff = runs(&folder, &["diff", "a", "b", "--output", "json"]).json();
    assert_eq!(
        (&diff["commonSteps"], &diff["outcome"]["equal"]),
        (&json!(NODES), &json!(true))
    );

    assert_eq!(runs(&folder, &["export", "b", "b.jsonl"]).code, Some(0));
    let imported = runs(
        &folder,
        &[
            "import", "b.jsonl", "--run-id", "c", "--store", "other.db", "--output", "json",
        ],
    );
    assert_eq!(imported.json()["runId"], "c", "{}", imported.stderr);
    let there = runs(&folder, &["show", "c", "--store", "other.db", "--output", "json"]).json();
    assert_eq!(there["output"], "all done");

    assert_eq!(
        runs(&folder, &["prune", "--dry-run", "--output", "json"]).json()["removed"],
        2
    );
    assert_eq!(
        runs(&folder, &["prune", "--keep", "1", "--output", "json"]).json()["removed"],
        1
    );
    assert_eq!(runs(&folder, &["show", "nobody"]).code, Some(2));
    assert_eq!(runs(&folder, &["list", "--store", "none.db"]).code, Some(2));
}

/// Swaps the first two steps of an exported run that has ended, and marks it as unfinished.
fn edited(export: &str) -> String {
    let mut lines: Vec<String> = export.lines().map(str::to_owned).collect();
    lines.pop().expect("the line of the checksum");
    lines[0] = lines[0].replace("COMPLETED", "UNFINISHED");
    let first = lines
        .iter()
        .position(|line| line.starts_with("{\"step\":1,"))
        .expect("a step");
    lines.swap(first, first + 1);
    for (step, line) in lines[first..=first + 1].iter_mut().enumerate() {
        let (_, rest) = line.split_once(',').expect("more fields");
        *line = format!("{{\"step\":{},{rest}", step + 1);
    }
    let text = lines.join("\n") + "\n";
    let sum = json!({"lines": lines.len(), "sha256": ContentHash::of(&text).to_string()});
    format!("{text}{sum}\n")
}

#[test]
fn a_run_that_cannot_be_replayed_is_explained_cancelled_and_pruned() {
    let code = |id: &str| json!({"id": id, "type": "CODE", "config": {"code": "return 1"}});
    let workflow = json!({"id": "main",
        "nodes": [{"id": "start", "type": "START"}, code("a"), code("b"), {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "a"}, {"from": "a", "to": "b"}, {"from": "b", "to": "end"}]});
    let folder = Folder::new("edited").with("main.json", &workflow.to_string());
    let ran = pirn_in(
        folder.path(),
        &["run", "main.json", "--store", "runs.db", "--run-id", "a"],
        &[],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(runs(&folder, &["export", "a", "a.jsonl"]).code, Some(0));
    std::fs::write(folder.file("edited.jsonl"), edited(&folder.read("a.jsonl"))).expect("is written");
    let imported = runs(&folder, &["import", "edited.jsonl", "--run-id", "b"]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);

    let shown = runs(&folder, &["show", "b"]);
    assert_eq!(shown.code, Some(1));
    assert!(shown.stderr.contains("step 1 does not fit"), "{}", shown.stderr);
    for advice in ["pirn runs fork b --at 0", "pirn runs cancel b"] {
        assert!(shown.stderr.contains(advice), "{}", shown.stderr);
    }
    let forked = runs(&folder, &["fork", "b", "--at", "0", "--run-id", "c"]);
    assert_eq!(forked.code, Some(0), "{}", forked.stderr);
    assert_eq!(runs(&folder, &["cancel", "b"]).code, Some(0));
    let pruned = runs(&folder, &["prune", "--output", "json"]).json();
    assert_eq!(pruned["removed"], 3, "{pruned}");
}

#[test]
fn a_run_without_an_owner_can_be_cancelled() {
    let folder = folder("cancelled");
    let mut gate = gate(&folder);
    let arguments = ["run", "main.json", "--store", "runs.db", "--run-id", "run-1"];
    let mut child = start_in(folder.path(), &arguments, &[]);
    assert!(gate.next().is_some());
    // A process may lock its store exclusively, in which case other commands are refused.
    let held = runs(&folder, &["list", "--output", "json"]);
    if held.code != Some(0) {
        assert_eq!(
            (held.code, &held.json()["error"]["code"]),
            (Some(2), &json!("STORE_HELD"))
        );
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    if runs(&folder, &["list", "--output", "json"]).json()["runs"][0]["status"] == "UNFINISHED" {
        let before = made(&folder);
        assert_eq!(runs(&folder, &["cancel", "run-1", "--reason", "enough"]).code, Some(0));
        let report = runs(&folder, &["show", "run-1", "--output", "json"]).json();
        assert_eq!(report["status"], "CANCELLED", "{report}");
        assert!(
            report["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains("enough")),
            "{report}"
        );
        assert_eq!(made(&folder), before, "nothing more was done");
    }
}

#[test]
fn scheduled_runs_of_the_example_start_while_another_run_waits() {
    let folder = Folder::new("nightly");
    let file = crate::command::root()
        .join("examples/nightly.json")
        .display()
        .to_string();
    let run = [
        "run",
        &file,
        "--workflow",
        "three-days",
        "--virtual-time",
        "--store",
        "nights.db",
    ];
    let ran = pirn_in(folder.path(), &run, &[]);
    assert_eq!(
        (ran.code, ran.stdout.trim()),
        (Some(0), "three nights later"),
        "{}",
        ran.stderr
    );
    let listed = pirn_in(
        folder.path(),
        &["runs", "list", "--store", "nights.db", "--output", "json"],
        &[],
    )
    .json();
    let runs = listed["runs"].as_array().expect("runs");
    let nights = runs.iter().filter(|run| run["workflowId"] == "digest");
    let nights: Vec<(&Value, &Value)> = nights.map(|run| (&run["runId"], &run["status"])).collect();
    let ids = [1, 2, 3].map(|day| json!(format!("nightly@1970-01-0{day}T03:00:00+01:00")));
    let completed = json!("COMPLETED");
    assert_eq!(
        nights,
        [(&ids[0], &completed), (&ids[1], &completed), (&ids[2], &completed)]
    );
    let quiet = [&run[..5], &["--store", "quiet.db", "--no-schedules"]].concat();
    assert_eq!(pirn_in(folder.path(), &quiet, &[]).code, Some(0));
    let ids = pirn_in(folder.path(), &["runs", "list", "--ids", "--store", "quiet.db"], &[]).stdout;
    assert_eq!(ids.lines().count(), 1, "only the run itself: {ids}");
}
