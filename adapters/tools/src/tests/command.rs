//! Command tools, tested with programs that exist on every Unix system.

#![allow(clippy::needless_pass_by_value)] // `json!` makes values, a borrow at every call says nothing

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{call, calling, registry, runtime};
use crate::ToolRegistry;

fn command(properties: &Value, command: Value) -> ToolRegistry {
    registry(properties, json!({ "command": command }))
}

/// A folder that is deleted after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pirn-command-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("writable");
        Self(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or(());
    }
}

#[test]
fn an_argument_is_never_passed_through_a_shell() {
    let folder = Folder::new("shell");
    let bait = folder.0.join("bait");
    std::fs::write(&bait, "here").expect("writable");
    let tool = command(
        &json!({"text": {}}),
        json!({"program": "printf", "args": ["<%s>", "{{text}}"]}),
    );
    for text in [
        format!("; rm {}", bait.display()),
        format!("$(rm {})", bait.display()),
        format!("`rm {}`", bait.display()),
        format!("\" && rm {} #", bait.display()),
        format!("'; rm {}; '", bait.display()),
        "two\nlines".to_owned(),
        "a\tb  c".to_owned(),
        "*".to_owned(),
        "$HOME ~ %PATH% \\".to_owned(),
        String::new(),
    ] {
        assert_eq!(call(&tool, json!({ "text": text })), Ok(format!("<{text}>")));
    }
    assert!(bait.exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn arguments_reach_the_program_unchanged(texts in prop::collection::vec("[^\0]{0,12}", 1..5)) {
        let tool = command(&json!({"texts": {"type": "array"}}), json!({"program": "printf", "args": ["%s\\0", "{{texts}}"], "allowDashes": true}));
        let said = call(&tool, json!({ "texts": texts })).expect("printf works");
        let expected = texts.join("\0") + "\0";
        prop_assert_eq!(said, expected);
    }
}

#[test]
fn a_value_that_looks_like_an_option_is_refused() {
    let schema = json!({"file": {}, "max": {}});
    let printed = |args: Value, more: Value, given: Value| {
        let mut config = json!({"program": "printf", "args": args});
        for (name, value) in more.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        call(&command(&schema, config), given)
    };
    let plain = json!({});
    for args in [
        json!(["%s", "{{file}}"]),
        json!(["%s", ["-n", "{{file}}"]]),
        json!(["%s", "{{file}}.txt"]),
    ] {
        for file in ["--output=/x", "-o", "--"] {
            let said = printed(args.clone(), plain.clone(), json!({ "file": file }));
            let why = said.expect_err("refused");
            assert!(why.contains("`file`") && why.contains("option"), "{args}: {why}");
        }
        assert!(printed(args, plain.clone(), json!({"file": "a-b"})).is_ok());
    }
    let listed = printed(json!(["%s", "{{file}}"]), plain.clone(), json!({"file": ["a", "-o"]}));
    assert!(listed.is_err(), "an item of a list too: {listed:?}");
    let said = |args: Value, given: Value| printed(args, plain.clone(), given);
    // These values start with text of the config, follow `--`, or are not options of any program.
    assert_eq!(
        said(json!(["%s", "--file={{file}}"]), json!({"file": "-o"})),
        Ok("--file=-o".to_owned())
    );
    assert_eq!(
        said(json!(["%s%s", "--", "{{file}}"]), json!({"file": "-o"})),
        Ok("---o".to_owned())
    );
    assert_eq!(said(json!(["%s", "{{max}}"]), json!({"max": -5})), Ok("-5".to_owned()));
    assert_eq!(
        said(json!(["%s", "{{file}}"]), json!({"file": "-"})),
        Ok("-".to_owned())
    );
    let allowed = printed(
        json!(["%s", "{{file}}"]),
        json!({"allowDashes": true}),
        json!({"file": "-o"}),
    );
    assert_eq!(allowed, Ok("-o".to_owned()));
}

#[test]
fn command_arguments_that_name_an_absent_argument_are_omitted() {
    let tool = command(
        &json!({"max": {}, "pattern": {}, "files": {}}),
        json!({"program": "printf", "args": ["<%s>", ["--max", "{{max}}"], "--like={{pattern}}", "--", "{{files}}"]}),
    );
    for (given, expected) in [
        (json!({}), "<-->"),
        (json!({"max": 3}), "<--max><3><-->"),
        (json!({"max": null, "pattern": "x y"}), "<--like=x y><-->"),
        (json!({"files": ["a", 2, "c d"]}), "<--><a><2><c d>"),
        (json!({"files": []}), "<-->"),
    ] {
        assert_eq!(call(&tool, given), Ok(expected.to_owned()));
    }
}

#[test]
fn stdin_is_written_and_a_program_may_ignore_it() {
    let cat = command(&json!({"text": {}}), json!({"program": "cat", "stdin": "{{text}}"}));
    let long = "line\n".repeat(100_000 / 5);
    assert!(call(&cat, json!({"text": "é"})) == Ok("é".to_owned()));
    assert!(
        call(&cat, json!({ "text": long }))
            .expect("cat works")
            .contains("output cut: the first 65536 bytes of 100000")
    );
    let absent = call(&cat, json!({})).expect_err("an input is never silently empty");
    assert!(absent.contains("the argument `text` is missing"), "{absent}");
    let unfed = command(&json!({}), json!({"program": "cat"}));
    assert_eq!(
        call(&unfed, json!({})),
        Ok("(no output)".to_owned()),
        "stdin is closed where there is no input"
    );
    let ignores = command(&json!({"text": {}}), json!({"program": "true", "stdin": "{{text}}"}));
    assert_eq!(call(&ignores, json!({ "text": long })), Ok("(no output)".to_owned()));
}

#[test]
fn an_output_over_the_limit_is_truncated_and_the_program_exits_normally() {
    let tool = registry(
        &json!({}),
        json!({"maxOutputBytes": 10, "command": {"program": "seq", "args": ["100000"]}}),
    );
    assert_eq!(
        call(&tool, json!({})),
        Ok("1\n2\n3\n4\n5\n\n[output cut: the first 10 bytes of 588895]".to_owned())
    );
}

#[test]
fn a_nonzero_exit_code_is_an_error_with_the_end_of_stderr() {
    let script = "seq 5000 >&2; echo said; echo the reason >&2; exit 3";
    let tool = command(&json!({}), json!({"program": "sh", "args": ["-c", script]}));
    let error = call(&tool, json!({})).expect_err("exit 3");
    assert!(error.starts_with("`sh` ended with exit code 3\nstderr:\n"), "{error}");
    assert!(error.ends_with("the reason\nstdout:\nsaid"), "{error}");
    assert!(error.len() < 5_000, "{}", error.len());

    let allowed = command(
        &json!({}),
        json!({"program": "sh", "args": ["-c", "echo none; exit 1"], "okExitCodes": [0, 1]}),
    );
    assert_eq!(call(&allowed, json!({})), Ok("none\n".to_owned()));

    let killed = command(&json!({}), json!({"program": "sh", "args": ["-c", "kill -9 $$"]}));
    assert!(call(&killed, json!({})).expect_err("killed").contains("signal: 9"));
}

#[test]
fn a_missing_program_is_an_error() {
    let tool = command(&json!({}), json!({"program": "pirn-no-such-program"}));
    let error = call(&tool, json!({})).expect_err("not there");
    assert!(error.contains("`pirn-no-such-program` does not start"), "{error}");
}

#[test]
fn a_program_sees_only_the_given_environment() {
    let tool = command(
        &json!({}),
        json!({"program": "env", "env": {"MINE": "1"}, "envFrom": ["CARGO_MANIFEST_DIR"], "cwd": "/"}),
    );
    let seen = call(&tool, json!({})).expect("env works");
    assert!(
        seen.contains("MINE=1\n") && seen.contains("CARGO_MANIFEST_DIR=") && seen.contains("PATH="),
        "{seen}"
    );
    assert!(!seen.contains("CARGO_PKG_NAME"), "{seen}");
    let pwd = command(&json!({}), json!({"program": "pwd", "cwd": "/"}));
    assert_eq!(call(&pwd, json!({})), Ok("/\n".to_owned()));
}

/// Reads a line from a named pipe, which ends when all writers have exited.
fn read_to_end(pipe: &std::path::Path) -> String {
    std::fs::read_to_string(pipe).expect("readable")
}

/// A program that starts another one; both hold `pipe` open until they exit.
fn nest(folder: &Folder) -> (PathBuf, String) {
    let pipe = folder.0.join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    let script = format!("exec 3>{0}; echo up >&3; (sleep 600) & sleep 600", pipe.display());
    (pipe, script)
}

#[test]
fn a_timeout_kills_the_whole_process_group() {
    let folder = Folder::new("timeout");
    let (pipe, script) = nest(&folder);
    let tool = registry(
        &json!({}),
        json!({"timeoutMs": 300, "command": {"program": "sh", "args": ["-c", script], "cwd": folder.path()}}),
    );
    let reader = std::thread::spawn(move || read_to_end(&pipe));
    let error = call(&tool, json!({})).expect_err("it takes too long");
    assert!(error.contains("longer than 300 ms"), "{error}");
    assert_eq!(reader.join().expect("it ends"), "up\n", "every writer is gone");
}

#[test]
fn dropping_a_call_kills_the_whole_process_group() {
    let folder = Folder::new("drop");
    let (pipe, script) = nest(&folder);
    let tool = command(&json!({}), json!({"program": "sh", "args": ["-c", script]}));
    let (told, heard) = tokio::sync::oneshot::channel();
    let reader = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader, Read};
        let mut reader = BufReader::new(std::fs::File::open(pipe).expect("opened"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        told.send(()).expect("somebody waits");
        reader.read_to_string(&mut line).expect("readable");
        line
    });
    runtime().block_on(async {
        let mut call = std::pin::pin!(calling(&tool, json!({})));
        tokio::select! {
            result = &mut call => panic!("it ended: {result:?}"),
            up = heard => up.expect("it came up"),
        }
    });
    assert_eq!(reader.join().expect("it ends"), "up\n", "every writer is gone");
}

#[test]
fn background_processes_end_with_their_program() {
    let folder = Folder::new("orphan");
    let (pipe, _) = nest(&folder);
    let script = format!("exec 3>{}; echo up >&3; (sleep 600) & echo done", pipe.display());
    let tool = command(&json!({}), json!({"program": "sh", "args": ["-c", script]}));
    let reader = std::thread::spawn(move || read_to_end(&pipe));
    assert_eq!(call(&tool, json!({})), Ok("done\n".to_owned()));
    assert_eq!(reader.join().expect("it ends"), "up\n");
}
