//! A disk without space, by a limit on the size of files (`RLIMIT_FSIZE`): commits fail, and no durable step is lost.
#![cfg(target_os = "linux")]

use serde_json::{Value, json};

use crate::folder::Folder;
use crate::output::streams::shell;
use crate::store::durable_inputs::runs;

/// Returns a folder with a workflow of `nodes` LLM nodes. The steps of a run need several times the size of its start.
fn folder(name: &str, nodes: usize) -> Folder {
    let ask = |no: usize| json!({"id": format!("n{no}"), "type": "LLM", "config": {"prompt": "{{input}}"}});
    let asks = (0..nodes).map(ask);
    let nodes: Vec<Value> = [json!({"id": "s", "type": "START"})]
        .into_iter()
        .chain(asks)
        .chain([json!({"id": "e", "type": "END"})])
        .collect();
    let edges: Vec<Value> = nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    let flow = json!({"id": "flow", "nodes": nodes, "edges": edges});
    Folder::new(name)
        .with("flow.json", &flow.to_string())
        .with("input.json", &json!("word ".repeat(2_000)).to_string())
}

/// Runs a command with a limit on the size of its files.
fn limited(folder: &Folder, kib: usize, command: &str) -> (Option<i32>, String) {
    shell(folder, &format!("ulimit -f {}; exec $PIRN {command}", 2 * kib))
}

const START: &str = "run flow.json --input @input.json --store runs.db --run-id r -q > out";

/// Returns the events of the run, or none if the store does not have the run.
fn events(folder: &Folder) -> Vec<Value> {
    let shown = runs(folder, &["events", "r", "--store", "runs.db", "--output", "json"]);
    let list = shown.json();
    list["events"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_run_on_a_full_disk_keeps_its_durable_steps_and_resumes_when_there_is_space() {
    let folder = folder("full-disk", 20);
    let (code, said) = shell(&folder, "exec $PIRN run flow.json --input @input.json -q > expected");
    assert_eq!(code, Some(0), "{said}");
    let (mut kib, mut durable, mut interruptions) = (60, Vec::new(), 0);
    loop {
        let command = if durable.is_empty() {
            START
        } else {
            "runs resume r --store runs.db -q > out"
        };
        let (code, said) = limited(&folder, kib, command);
        if code == Some(0) {
            break;
        }
        assert_eq!(code, Some(1), "{kib} KiB: {said}");
        assert!(
            said.contains("disk I/O error") && !said.contains("panicked"),
            "{kib} KiB: {said}"
        );
        let now = events(&folder);
        assert_eq!(
            now.get(..durable.len()),
            Some(&durable[..]),
            "{kib} KiB: a durable step is lost"
        );
        // A store that cannot be created has no run to resume.
        assert!(
            said.contains("the stored steps are safe: resume the run") || !said.contains("STORE_ERROR"),
            "{kib} KiB: {said}"
        );
        interruptions += usize::from(now.len() > durable.len());
        durable = now;
        kib += 30;
        assert!(kib < 10_000, "the run does not complete: {said}");
    }
    assert!(interruptions > 1, "the disk was full in the middle of the run");
    assert_eq!(folder.read("out"), folder.read("expected"));
    assert_eq!(events(&folder).get(..durable.len()), Some(&durable[..]));
    let shown = runs(&folder, &["show", "r", "--store", "runs.db", "--output", "json"]).json();
    assert_eq!(shown["status"], "COMPLETED", "{shown}");
}

#[test]
fn a_run_whose_start_was_not_stored_is_not_listed_and_can_be_started_again() {
    let large = json!("word ".repeat(40_000)).to_string();
    let folder = folder("full-disk-start", 1).with("input.json", &large);
    let (code, said) = limited(&folder, 60, START);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("STORE_ERROR") && said.contains("does not show has none: start it again"),
        "{said}"
    );
    assert_eq!(events(&folder), Vec::<Value>::new());
    let (code, said) = shell(&folder, &format!("exec $PIRN {START}"));
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_store_is_usable_after_its_creation_failed_on_a_full_disk() {
    let folder = folder("full-disk-new", 1);
    for kib in [0, 1, 4, 8, 20, 40] {
        let (code, said) = limited(&folder, kib, START);
        assert_eq!(code, Some(1), "{kib} KiB: {said}");
        assert!(
            said.starts_with("pirn: ") && !said.contains("panicked"),
            "{kib} KiB: {said}"
        );
    }
    let (code, said) = shell(&folder, &format!("exec $PIRN {START}"));
    assert_eq!(code, Some(0), "{said}");
}
