//! Commands that rewrite a store, killed at moments that are spread over their whole duration. No run is lost or half removed, and
//! repeating the command completes the work.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use futures::executor::block_on;
use pirn::store::export::{export, import};
use pirn::store::{RunFilter, SqliteStore, Store};
use serde_json::{Value, json};

use crate::command::pirn_in;
use crate::folder::Folder;

/// Kills of each command.
const ROUNDS: u32 = 6;
/// Number of completed runs of a store: more than two batches of a service that removes them.
const RUNS: usize = 50;
/// As above, for a store that is encrypted: more values than one batch of a rotation.
const ENCRYPTED_RUNS: usize = 16;
const OLD: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";
const NEW: &str = "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2";

/// The exported text of every run, by id. An export has all data of a run.
type Runs = BTreeMap<String, Vec<u8>>;

fn read(file: &Path, keys: &[&str]) -> Runs {
    let store = match keys {
        [] => SqliteStore::open(file),
        keys => SqliteStore::open_encrypted(file, keys.join(" ").parse().expect("keys")),
    };
    let store = store.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let runs = block_on(store.runs(RunFilter::default(), None, 1_000)).expect("reads");
    let exported = runs.into_iter().map(|run| {
        let mut text = Vec::new();
        block_on(export(&store, &run.id, &mut text)).unwrap_or_else(|error| panic!("{}: {error}", run.id));
        (run.id, text)
    });
    exported.collect()
}

/// Creates a store of completed runs, of a failed fork of the first one, and of a run that waits. Returns their texts.
fn create(folder: &Folder, count: usize) -> Runs {
    let nodes: Vec<Value> = (0..12)
        .map(|number| json!({"id": format!("n{number}"), "type": "LLM", "config": {"prompt": "{{input}}"}}))
        .chain([
            json!({"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Which?", "choices": ["ok", "fail"], "assignTo": "ok"}}),
            json!({"id": "check", "type": "CODE", "config": {"code": "if (variables.ok === 'fail') throw Error('no'); return 1"}}),
            json!({"id": "e", "type": "END"}),
        ])
        .collect();
    let nodes: Vec<Value> = [json!({"id": "s", "type": "START"})].into_iter().chain(nodes).collect();
    let edges: Vec<Value> = nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    let flow = json!({"id": "flow", "variables": [{"name": "ok", "value": ""}], "nodes": nodes, "edges": edges});
    std::fs::write(folder.file("flow.json"), flow.to_string()).expect("writable");
    std::fs::write(folder.file("input.json"), json!("canary ".repeat(10)).to_string()).expect("writable");
    let call = |arguments: &[&str], code: i32| {
        let ended = pirn_in(folder.path(), arguments, &[]);
        assert_eq!(ended.code, Some(code), "{}\n{}", ended.stdout, ended.stderr);
    };
    let run = [
        "run",
        "flow.json",
        "--input",
        "@input.json",
        "--store",
        "runs.db",
        "--run-id",
    ];
    call(&[&run[..], &["r0", "--answer", "ask=ok"]].concat(), 0);
    call(
        &[
            "runs", "fork", "r0", "--at", "5", "--run-id", "fork", "--answer", "ask=fail",
        ],
        1,
    );
    let mut waiting = crate::command::start_in(folder.path(), &[&run[..], &["waiting"]].concat(), &[]);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(waiting.stderr.take().expect("piped")));
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.contains("waits for an answer"))
    );
    kill(&mut waiting);
    let file = folder.path().join("runs.db");
    let text = read(&file, &[])["r0"].clone();
    let store = SqliteStore::open(&file).expect("opens");
    for number in 1..count {
        block_on(import(&store, &mut &text[..], Some(&format!("r{number}")))).expect("is imported");
    }
    store.close().expect("closes");
    let all = read(&file, &[]);
    assert_eq!(all.len(), count + 2);
    all
}

fn kill(child: &mut Child) {
    child.kill().expect("is killed or has ended");
    child.wait().expect("it ends");
}

/// Copies the store into a new folder, without the process-private files.
fn copy(folder: &Folder, name: &str) -> Folder {
    let copied = Folder::new(name);
    for end in ["db", "db-wal", "keys"] {
        let from = folder.path().join(format!("runs.{end}"));
        if from.exists() {
            std::fs::copy(from, copied.path().join(format!("runs.{end}"))).expect("is copied");
        }
    }
    copied
}

fn start(folder: &Folder, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
    let command = command
        .args(arguments)
        .current_dir(folder.path())
        .env_remove("RUST_LOG");
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Measures a command on a copy, then kills it on one copy for each round, after a growing part of that time. `check` receives every
/// copy.
#[allow(clippy::disallowed_methods, reason = "the command is killed at moments of real time")]
fn killed(folder: &Folder, name: &str, arguments: &[&str], completed: impl Fn(&mut Child), check: impl Fn(&Folder)) {
    let copied = copy(folder, &format!("{name}-whole"));
    let started = Instant::now();
    let mut whole = start(&copied, arguments);
    completed(&mut whole);
    let mut duration = started.elapsed();
    kill(&mut whole);
    let (mut round, mut attempt) = (0, 0);
    while round < ROUNDS {
        let copied = copy(folder, &format!("{name}-{attempt}"));
        let mut child = start(&copied, arguments);
        std::thread::sleep(duration * round / ROUNDS);
        let has_ended = child.try_wait().expect("is known").is_some();
        kill(&mut child);
        check(&copied);
        attempt += 1;
        if has_ended {
            // The measured command was slower, because other tests used the processors. The round is repeated with an earlier kill.
            duration = duration * 3 / 4;
        } else {
            round += 1;
        }
    }
}

fn ends(child: &mut Child) {
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

#[test]
fn a_key_rotation_that_is_killed_loses_nothing_and_is_completed_by_repeating_it() {
    let folder = Folder::new("killed-rekey");
    let all = create(&folder, ENCRYPTED_RUNS);
    let rekey = ["runs", "rekey", "--store", "runs.db", "--key-file", "runs.keys"];
    // First a store without a key is encrypted, then the key is replaced.
    for (name, keys, former) in [
        ("killed-encrypt", &[OLD][..], &[][..]),
        ("killed-rotate", &[NEW, OLD], &[OLD]),
    ] {
        let folder = copy(&folder, name).with("runs.keys", &keys.join("\n"));
        if !former.is_empty() {
            let old = SqliteStore::open_encrypted(folder.path().join("runs.db"), OLD.parse().expect("a key"));
            block_on(old.expect("opens").rekey()).expect("is encrypted");
        }
        killed(&folder, name, &rekey, ends, |copied| {
            let file = copied.path().join("runs.db");
            assert!(read(&file, keys) == all, "a run was changed");
            ends(&mut start(copied, &rekey));
            assert!(read(&file, &keys[..1]) == all, "the new key is not enough");
        });
    }
}

/// Checks that the completed runs are unchanged or gone, and the others unchanged. Returns the number of completed runs.
fn checked(all: &Runs, file: &Path) -> usize {
    let found = read(file, &[]);
    for (id, text) in &found {
        assert!(all.get(id) == Some(text), "{id} was changed");
    }
    assert!(found.contains_key("waiting") && found.contains_key("fork"));
    found.len() - 2
}

#[test]
fn a_prune_that_is_killed_leaves_each_run_whole_or_gone_and_is_completed_by_repeating_it() {
    let folder = Folder::new("killed-prune");
    let all = create(&folder, RUNS);
    let prune = ["runs", "prune", "--status", "COMPLETED", "--store", "runs.db"];
    killed(&folder, "killed-prune", &prune, ends, |copied| {
        let file = copied.path().join("runs.db");
        let left = checked(&all, &file);
        assert!([0, RUNS].contains(&left), "one transaction removes all: {left}");
        ends(&mut start(copied, &prune));
        assert_eq!(checked(&all, &file), 0);
    });
}

/// Waits until the service has removed runs that ended long ago.
fn removed(child: &mut Child) {
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("were removed from the store")));
}

#[test]
fn a_service_that_is_killed_while_it_removes_old_runs_leaves_each_whole_or_gone_and_a_new_one_removes_the_rest() {
    let folder = Folder::new("killed-serve");
    let all = create(&folder, RUNS);
    let file = |folder: &Folder| folder.path().join("runs.db");
    let flow = folder.file("flow.json");
    let serve = [
        "serve",
        &flow,
        "--listen",
        "127.0.0.1:0",
        "--store",
        "runs.db",
        "--keep-ended",
        "0s",
    ];
    killed(&folder, "killed-serve", &serve, removed, |copied| {
        let found = read(&file(copied), &[]);
        for (id, text) in &found {
            assert!(all.get(id) == Some(text), "{id} was changed");
        }
        assert!(found.contains_key("waiting"));
        // The kill may have come after the last batch.
        if found.len() > 1 {
            let mut child = start(copied, &serve);
            removed(&mut child);
            kill(&mut child);
        }
        let left = read(&file(copied), &[]);
        assert_eq!(left.len(), 1, "runs are left");
        assert_eq!(left["waiting"], all["waiting"]);
    });
}
