//! A script that does not reach the interpreter's time check: the run ends at its time limit, and the process ends on a signal.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::folder::Folder;

/// Each property lookup walks a chain of a million prototypes.
const DEAF: &str = "(() => { let p = {}; for (let i = 0; i < 1e6; i++) p = {__proto__: p}; for (;;) p.x })()";

/// Far above the time limit of the run and far below the duration of the script.
const SOON: Duration = Duration::from_mins(1);

fn workflow(name: &str, config: &Value) -> Folder {
    let text = json!({
        "id": "deaf",
        "nodes": [
            {"id": "s", "type": "START"},
            {"id": "n", "type": "VARIABLE", "config": {"variableName": "v", "expression": DEAF}},
            {"id": "e", "type": "END"},
        ],
        "edges": [{"from": "s", "to": "n"}, {"from": "n", "to": "e"}],
        "config": config,
    });
    Folder::new(name).with("deaf.json", &text.to_string())
}

fn pirn(folder: &Folder, level: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
    command
        .args(["run", &folder.file("deaf.json"), "--output", "json", "--scripts", level])
        .stdin(Stdio::null());
    command
}

#[test]
#[allow(clippy::disallowed_methods)] // the promise is about real time
fn a_time_limit_ends_a_run_with_a_stuck_script() {
    let folder = workflow("stuck-limit", &json!({"timeoutMs": 500}));
    for level in ["thread", "process"] {
        let begin = Instant::now();
        let output = pirn(&folder, level).output().expect("it runs");
        assert!(begin.elapsed() < SOON, "{level}: {:?}", begin.elapsed());
        assert_eq!(output.status.code(), Some(124), "{level}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["status"], json!("TIMEOUT"), "{level}: {report}");
    }
}

/// Returns a run that waits for an hour while eight triggers fire each other until its budget is exhausted.
#[cfg(unix)]
fn cascade(name: &str) -> Folder {
    let notify = |id: String, condition: Value| {
        json!({"id": id, "type": "EVENT", "condition": condition,
            "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "again"}}})
    };
    let mut triggers: Vec<Value> = (0..8)
        .map(|n| notify(format!("t{n}"), json!({"eventType": "NOTIFICATION"})))
        .collect();
    triggers.push(notify("first".to_owned(), json!({"eventType": "NODE_STARTED"})));
    let text = json!({"id": "deaf", "triggers": triggers,
        "nodes": [{"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": 3_600}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]});
    Folder::new(name).with("deaf.json", &text.to_string())
}

#[cfg(unix)]
#[test]
#[allow(clippy::disallowed_methods)] // the promise is about real time
fn ctrl_c_and_sigterm_end_a_process_during_a_trigger_cascade() {
    let folder = cascade("stuck-storm");
    for signal in ["-INT", "-TERM"] {
        let begin = Instant::now();
        let mut child = pirn(&folder, "thread")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut progress = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        // The loader's warnings about the cascade come first.
        while !line.ends_with("deaf: started\n") {
            assert_ne!(progress.read_line(&mut line).expect("a line"), 0, "{line}");
        }
        let rest = std::thread::spawn(move || std::io::copy(&mut progress, &mut std::io::sink()));
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
        let output = child.wait_with_output().expect("it ends");
        rest.join().expect("it ends").expect("readable");
        assert!(begin.elapsed() < SOON, "{signal}: {:?}", begin.elapsed());
        assert_eq!(output.status.code(), Some(130), "{signal}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["status"], json!("CANCELLED"), "{signal}: {report}");
    }
}

#[cfg(unix)]
#[test]
#[allow(clippy::disallowed_methods)] // the promise is about real time
fn sigterm_ends_a_process_with_a_stuck_script() {
    let folder = workflow("stuck-term", &json!({}));
    for level in ["thread", "process"] {
        let begin = Instant::now();
        let mut child = pirn(&folder, level)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let mut progress = BufReader::new(child.stderr.take().expect("piped"));
        progress.read_line(&mut line).expect("a line");
        assert!(line.ends_with("deaf: started\n"), "{level}: {line}");
        let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
        let output = child.wait_with_output().expect("it ends");
        assert!(begin.elapsed() < SOON, "{level}: {:?}", begin.elapsed());
        assert_eq!(output.status.code(), Some(130), "{level}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["status"], json!("CANCELLED"), "{level}: {report}");
    }
}

/// Returns the processes that the threads of a process have started.
#[cfg(target_os = "linux")]
fn children(of: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A worker that a terminal's Ctrl-C ends before its engine would be a script that failed.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::disallowed_methods)] // the promise is about real time
fn the_signals_of_a_terminal_do_not_reach_the_processes_of_scripts() {
    let folder = workflow("stuck-group", &json!({"timeoutMs": 60_000}));
    let mut run = pirn(&folder, "process")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let begin = Instant::now();
    let group = |id: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // After the name in brackets: state, parent, group.
        stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
    };
    // A process that has just been started is in the group of its parent.
    let is_apart = loop {
        let workers = children(run.id());
        let is_apart = !workers.is_empty() && workers.iter().all(|id| group(*id) == Some(*id));
        if is_apart || begin.elapsed() > SOON {
            break is_apart;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    assert!(is_apart);
}
