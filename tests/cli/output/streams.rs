//! Output streams that cannot be written: the command reports the failure, with the exit code of its reference.
#![cfg(target_os = "linux")]

use std::process::Command;

use serde_json::json;

use crate::folder::Folder;

/// Returns exit code and output of a shell command line in which `$PIRN` is the command.
pub(crate) fn shell(folder: &Folder, line: &str) -> (Option<i32>, String) {
    let output = Command::new("sh")
        .args(["-c", line])
        .env("PIRN", env!("CARGO_BIN_EXE_pirn"))
        .current_dir(folder.path())
        .output()
        .expect("a shell runs");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn folder(name: &str) -> Folder {
    let flow = json!({"id": "flow", "nodes": [{"id": "s", "type": "START"},
        {"id": "work", "type": "CODE", "config": {"code": "return 'x'.repeat(200000)"}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "work"}, {"from": "work", "to": "e"}]});
    Folder::new(name).with("flow.json", &flow.to_string())
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure_with_a_message() {
    let folder = folder("streams-full");
    for line in [
        "$PIRN run flow.json > /dev/full",
        "$PIRN run flow.json --output json > /dev/full",
        "$PIRN validate flow.json > /dev/full",
        "$PIRN graph flow.json > /dev/full",
        "$PIRN schema > /dev/full",
    ] {
        let (code, said) = shell(&folder, line);
        assert_eq!(code, Some(1), "{line}: {said}");
        assert!(
            said.contains("cannot write the result: No space left on device"),
            "{line}: {said}"
        );
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn events_that_cannot_be_written_are_an_error() {
    let folder = folder("streams-events");
    for line in [
        "$PIRN run flow.json --quiet --events /dev/full > out",
        "$PIRN run flow.json --quiet --events /nowhere/events.jsonl > out",
        "$PIRN run flow.json --quiet --events . > out",
    ] {
        let (code, said) = shell(&folder, line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(
            said.contains("cannot write") && !said.contains("panicked"),
            "{line}: {said}"
        );
    }
}

#[test]
fn a_closed_output_stream_does_not_change_the_exit_code() {
    let folder = folder("streams-closed");
    for (line, expected) in [
        ("$PIRN run flow.json 2>/dev/null | head -c 1 > /dev/null", 0),
        ("$PIRN run flow.json > out 2>/dev/full", 0),
        ("$PIRN run flow.json > out 2>&-", 0),
        ("$PIRN run flow.json >&- 2>/dev/null", 0),
        ("$PIRN run none.json > out 2>/dev/full", 2),
        ("$PIRN run none.json >&- 2>&-", 2),
        ("$PIRN --help > /dev/full; exit 0", 0),
    ] {
        let (code, said) = shell(&folder, line);
        assert_eq!(code, Some(expected), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn a_run_with_few_file_descriptors_succeeds_or_reports_an_error() {
    let folder = folder("streams-few");
    for most in [12, 16, 24, 48] {
        let line = format!("ulimit -n {most}; exec $PIRN run flow.json > out");
        let (code, said) = shell(&folder, &line);
        assert!(matches!(code, Some(0..=2)), "{line}: {code:?} {said}");
        assert!(
            code == Some(0) || said.contains("pirn: ") || said.contains("error while loading"),
            "{line}: {said}"
        );
    }
}
