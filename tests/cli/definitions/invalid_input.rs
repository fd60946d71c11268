//! Input that is no workflow, not UTF-8, endless or too large: a clear error and exit code, no panic, bounded memory.

use crate::command::{Ended, pirn_in, pirn_with};
use crate::folder::Folder;

const FLOW: &str = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
    "edges": [{"from": "s", "to": "e"}]}"#;

#[track_caller]
fn assert_output(ended: &Ended, code: i32, part: &str) {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, Some(code), "{said}");
    assert!(said.contains(part), "{part:?} is not in {said}");
    assert!(!said.contains("panicked"), "{said}");
}

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name)
        .with("flow.json", FLOW)
        .with("empty", "")
        .with("nul", "\0\0");
    std::fs::write(folder.path().join("binary"), [0x7f, b'E', 0xff, 0xfe, 0]).expect("writable");
    std::fs::create_dir(folder.path().join("folder")).expect("writable");
    folder
}

#[test]
fn files_that_are_not_text_are_refused_by_every_command() {
    let folder = folder("harsh-files");
    for (file, code, part) in [
        ("empty", 1, "the text ends here"),
        ("nul", 1, "found the byte 0x00"),
        ("binary", 2, "cannot read binary: it is not UTF-8 text (byte 2)"),
        ("folder", 2, "cannot read folder: "),
        ("absent", 2, "cannot read absent: "),
    ] {
        for command in ["validate", "run", "graph", "explore"] {
            assert_output(&pirn_in(folder.path(), &[command, file], &[]), code, part);
        }
    }
    for given in ["--conversation", "--pinned", "--input"] {
        let file = if given == "--input" { "@binary" } else { "binary" };
        let ended = pirn_in(folder.path(), &["run", "flow.json", given, file], &[]);
        assert_output(&ended, 2, "cannot read binary: it is not UTF-8 text");
    }
    for command in [
        ["tools", "list"],
        ["models", "check"],
        ["run", "flow.json"],
        ["validate", "flow.json"],
    ] {
        let ended = pirn_in(folder.path(), &[command[0], command[1], "--profiles", "binary"], &[]);
        assert_output(&ended, 2, "binary: it is not UTF-8 text");
    }
    assert_output(
        &pirn_in(folder.path(), &["context", "show", "binary"], &[]),
        2,
        "it is not UTF-8 text",
    );
    assert_output(
        &pirn_with(b"\xff", &["context", "count"]),
        1,
        "stdin: it is not UTF-8 text",
    );
}

#[cfg(unix)]
#[test]
fn endless_files_are_refused() {
    let folder = folder("harsh-endless");
    for arguments in [
        &["validate", "/dev/zero"][..],
        &["context", "show", "/dev/zero"],
        &["run", "flow.json", "--input", "@/dev/zero"],
        &["run", "flow.json", "--profiles", "/dev/zero"],
    ] {
        assert_output(&pirn_in(folder.path(), arguments, &[]), 2, "it has more than");
    }
    let import = pirn_in(
        folder.path(),
        &["runs", "import", "/dev/zero", "--store", "runs.db"],
        &[],
    );
    assert_output(&import, 2, "a line has more than 256 MiB");
}

#[test]
fn an_import_file_that_is_not_strict_json_is_refused_with_its_place() {
    let head = r#"{"pirnRun":1,"runId":"a","workflowId":"w","definition":"d","semantics":1,"status":"COMPLETED","startedAt":1,"steps":0"#;
    let at = |after: usize, why: &str| format!("line 1, column {}: {why}", head.len() + after);
    let deep = format!("{head},\"x\":{}{}}}", "[".repeat(127), "]".repeat(127));
    for (text, expected) in [
        (format!("{head},\n\"steps\":0}}"), at(1, "EOF while parsing a value")),
        (
            format!("{head},\"steps\":0}}"),
            at(2, "/steps: the key `steps` is given twice"),
        ),
        (
            format!("{head},\"x\":1}}"),
            at(4, "not a line of an exported run: unknown field `x`"),
        ),
        (format!("{head}}} x"), at(3, "trailing characters")),
        (deep, at(5 + 127, "nested more than 127 levels deep")),
        (
            "\u{e9}".to_owned(),
            "line 1: not a line of an exported run: expected an object".to_owned(),
        ),
        (String::new(), "line 1: the file ends in the middle".to_owned()),
    ] {
        let folder = folder("harsh-import").with("run.jsonl", &text);
        let import = pirn_in(
            folder.path(),
            &["runs", "import", "run.jsonl", "--store", "runs.db"],
            &[],
        );
        assert_output(&import, 2, &format!("run.jsonl: {expected}"));
    }
}

#[test]
fn marks_accept_every_possible_history_length_and_refuse_others() {
    let asked = |text: &str| pirn_with(text.as_bytes(), &["context", "marks"]);
    let long = asked(
        r#"{"length": 1000000000000, "operations": [{"startNewBatch": 999999999999}, {"append": 1000000000000},
            {"rollbackToBatch": 0}]}"#,
    );
    assert_eq!(long.code, Some(0), "{}", long.stdout);
    assert_eq!(long.json()["visible"], serde_json::json!([0, 1_000_000_000_000_u64]));
    for (text, part) in [
        (
            r#"{"length": 18446744073709551615, "operations": [{"append": 1}]}"#,
            "the history is too long",
        ),
        (r#"{"length": -1, "operations": []}"#, "/length"),
        (r#"{"length": 1e12, "operations": []}"#, "/length"),
        (r#"{"length": 99999999999999999999999, "operations": []}"#, "/length"),
        (r#"{"length": 5, "operations": [{"append": -1}]}"#, "/operations/0"),
        (r#"{"length": 5, "operations": [{}]}"#, "/operations/0"),
        (&"[".repeat(100_000), "nested more than 128 levels"),
        ("", "the text ends here"),
    ] {
        assert_output(&asked(text), 1, part);
    }
}

#[test]
fn invalid_json_arguments_are_refused_with_their_location() {
    let folder = folder("harsh-json")
        .with("list.json", "[[]]")
        .with("twice.json", "{\"role\": \"a\",\n \"role\": \"b\"}")
        .with("profile.json", r#"[{"id": "a", "provider": "echo", "timeouts": []}]"#)
        .with("profiles.json", r#"{"profiles": [["a", "echo"]]}"#)
        .with("again.json", r#"{"profiles": [], "profiles": []}"#);
    let big = "99999999999999999999";
    let run = |option: &'static str, value: &str| -> Vec<String> {
        ["run", "flow.json", option, value].map(str::to_owned).to_vec()
    };
    let runs = |arguments: &[&str]| -> Vec<String> {
        let all = [&["runs"], arguments, &["--store", "runs.db"]].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    for (arguments, part) in [
        (
            run("--input", r#"{"a": 1, "a": 2}"#),
            "/a: the key `a` is given twice in one object (line 1, column 10)",
        ),
        (
            run("--input", &format!("[{big}]")),
            "/0: an integer must be at least -2^63 and at most 2^64-1",
        ),
        (run("--input", r#""\udc00""#), "half of a surrogate pair"),
        (run("--input", "@binary"), "it is not UTF-8 text (byte 2)"),
        (run("--input", "@nul"), "found the byte 0x00"),
        (
            run("--answer", r#"ask={"a": 1, "a": 2}"#),
            "/a: the key `a` is given twice",
        ),
        (run("--pinned", "list.json"), "must be an object, got a list"),
        (
            run("--pinned", "twice.json"),
            "/role: the key `role` is given twice in one object (line 2, column 2)",
        ),
        (run("--conversation", "list.json"), "must be an object, got a list"),
        (
            run("--conversation", "twice.json"),
            "/role: the key `role` is given twice",
        ),
        (run("--profiles", "profile.json"), "must be an object, got a list"),
        (run("--profiles", "profiles.json"), "must be an object, got a list"),
        (
            run("--profiles", "again.json"),
            "/profiles: the key `profiles` is given twice",
        ),
        (runs(&["answer", "r", "i", big]), "write a larger one as text"),
        (
            runs(&["answer", "r", "i", r#"{"a": 1, "a": 2}"#]),
            "/a: the key `a` is given twice",
        ),
        (runs(&["emit", "r", "paid", "[]"]), "must be an object, got a list"),
        (
            runs(&["emit", "r", "paid", r#"{"a": 1, "a": 2}"#]),
            "/a: the key `a` is given twice",
        ),
        (
            runs(&["fork", "r", "--at", "1", "--set", &format!("n={big}")]),
            "write a larger one as text",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = pirn_in(folder.path(), &arguments, &[]);
        let said = format!("{arguments:?}: {}{}", ended.stdout, ended.stderr);
        assert!(
            matches!(ended.code, Some(1 | 2)) && said.contains(part),
            "{part:?} is not in {said}"
        );
        for word in ["invalid type", "expected struct", "expected a map", "sequence", "tuple"] {
            assert!(!said.contains(word), "{said}");
        }
    }
}

#[test]
fn seeds_beyond_the_last_one_are_wrong_usage() {
    let folder = folder("harsh-seeds");
    let last = u64::MAX.to_string();
    let seeds = |first: &str, count: &str| {
        let arguments = ["run", "flow.json", "--virtual-time", "--seed", first, "--seeds", count];
        pirn_in(folder.path(), &arguments, &[])
    };
    assert_output(
        &seeds(&last, "3"),
        2,
        "there are no 3 seeds from 18446744073709551615 on",
    );
    assert_output(
        &seeds("5", &last),
        2,
        "there are no 18446744073709551615 seeds from 5 on",
    );
    assert_output(&seeds("18446744073709551613", "2"), 0, "2 of 2 seeds played");
}

#[test]
fn a_file_of_another_kind_gets_a_bounded_error_list() {
    let message = serde_json::json!({"role": "user", "content": "many words of no weight at all ".repeat(100)});
    let folder = Folder::new("harsh-other").with("talk.json", &serde_json::json!(vec![message; 300]).to_string());
    let ended = pirn_in(folder.path(), &["validate", "talk.json"], &[]);
    assert_output(&ended, 1, "`nodes` is missing");
    // The output lists 20 errors and the number of further ones.
    assert_eq!(ended.stdout.matches("error[").count(), 20, "{}", ended.stdout);
    assert!(
        ended.stdout.contains(" more errors; --output json lists all"),
        "{}",
        ended.stdout
    );
    let longest = ended.stdout.lines().map(str::len).max();
    assert!(longest.is_some_and(|length| length < 400), "{longest:?}");
}

#[test]
fn a_missing_config_file_is_an_error_with_a_hint() {
    let folder = Folder::new("harsh-no-config");
    for command in [["models", "check"], ["tools", "list"]] {
        let ended = pirn_in(folder.path(), &command, &[]);
        assert_output(&ended, 2, "there is no pirn.toml in this folder");
        assert_output(&ended, 2, "help: name a config file with --profiles FILE");
    }
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_not_utf8_is_wrong_usage() {
    use std::os::unix::ffi::OsStrExt;
    for format in ["text", "json"] {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_pirn"))
            .args(["run", "--output", format])
            .arg(std::ffi::OsStr::from_bytes(b"flow\xff.json"))
            .output()
            .expect("the binary is built");
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("invalid UTF-8"), "{said}");
    }
}

#[test]
fn an_impossible_store_path_is_refused_and_creates_no_file() {
    let folder = folder("harsh-stores");
    let names = || {
        let entries = std::fs::read_dir(folder.path()).expect("readable");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("readable").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for (store, part) in [
        ("binary", "the file is not an SQLite database"),
        ("flow.json", "the file is not an SQLite database"),
        ("absent/", "its folder: "),
        ("absent/runs.db", "its folder: "),
        ("", "not the name of a file"),
    ] {
        for command in [
            &["run", "flow.json"][..],
            &["serve", "flow.json", "--listen", "127.0.0.1:0"],
        ] {
            let ended = pirn_in(folder.path(), &[command, &["--store", store]].concat(), &[]);
            assert_output(&ended, 2, part);
            assert_eq!(names(), before, "{store}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_file_at_the_path_of_a_stores_socket_is_not_replaced() {
    let folder = folder("harsh-socket").with("app.sock", "mine");
    let ended = pirn_in(
        folder.path(),
        &["run", "flow.json", "--input", "1", "--store", "app"],
        &[],
    );
    assert_output(&ended, 0, "app.sock exists and is not a socket");
    assert_eq!(folder.read("app.sock"), "mine");
}

/// Returns true if the output contains characters that control a terminal or hide text from its reader.
fn has_control_characters(text: &str) -> bool {
    text.chars()
        .any(|letter| letter.is_control() && letter != '\n' || matches!(letter, '\u{200b}' | '\u{202e}'))
}

#[test]
fn names_and_lines_of_files_and_arguments_cannot_control_the_terminal() {
    let name = "\u{1b}]52;c;aa\u{7}\u{202e}.json";
    let folder = folder("harsh-steering").with("line.json", "{\"id\": \"\u{9b}2J\u{200b}\u{202e}\" nodes}");
    for (arguments, code, part) in [
        (&["validate", "line.json"][..], 1, "<U+009B>2J<U+200B><U+202E>"),
        (&["run", "line.json"], 1, "<U+009B>2J<U+200B><U+202E>"),
        (&["validate", name], 2, "␛]52;c;aa␇<U+202E>.json"),
        (&["run", "--\u{1b}[2J\u{202e}"], 2, "'--<U+202E>'"),
        (&["\u{1b}[2J"], 2, "unrecognized subcommand"),
        (&["run", "flow.json", "--color", "\u{9b}"], 2, "<U+009B>"),
        (&["runs", "list", "--store", "\u{1b}[2J"], 2, "␛[2J"),
        (
            &["run", "flow.json", "--store", "runs.db", "--run-id", "\u{1b}[2J"],
            2,
            "--run-id ␛[2J",
        ),
    ] {
        let ended = pirn_in(folder.path(), arguments, &[]);
        assert_output(&ended, code, part);
        assert!(
            !has_control_characters(&ended.stdout) && !has_control_characters(&ended.stderr),
            "{:?}",
            ended.stderr
        );
    }
    #[cfg(unix)]
    {
        std::fs::write(folder.path().join(name), "{}").expect("writable");
        let ended = pirn_in(folder.path(), &["validate", name], &[]);
        assert_output(&ended, 1, "--> ␛]52;c;aa␇<U+202E>.json:1:1");
        assert!(
            !has_control_characters(&ended.stdout) && !has_control_characters(&ended.stderr),
            "{}",
            ended.stdout
        );
    }
}

#[test]
fn a_command_does_not_overwrite_its_open_store() {
    let folder = folder("harsh-over");
    std::fs::create_dir(folder.path().join("sub")).expect("writable");
    let in_folder = |arguments: &[&str]| pirn_in(folder.path(), arguments, &[]);
    let run = ["run", "flow.json", "--input", "1", "--store", "runs.db"];
    assert_output(&in_folder(&[&run[..], &["--run-id", "first"]].concat()), 0, "");
    for file in ["runs.db", "sub/../runs.db", "runs.db-wal", "runs.db.lock"] {
        let exported = in_folder(&["runs", "export", "first", file, "--store", "runs.db"]);
        assert_output(&exported, 2, "it is a file of the store");
        let recorded = in_folder(&[&run[..], &["--events", file]].concat());
        assert_output(&recorded, 2, "it is a file of the store");
    }
    assert_output(
        &in_folder(&["runs", "show", "first", "--store", "runs.db"]),
        0,
        "COMPLETED",
    );
}

#[test]
fn stdin_is_named_by_one_argument_only() {
    for (arguments, message) in [
        (&["run", "-", "--input", "-"][..], "FILE and --input both name stdin"),
        (&["explore", "-", "-"][..], "FILE and FILE both name stdin"),
        (
            &["run", "x.json", "--pinned", "-", "--conversation", "-"][..],
            "--conversation and --pinned both name stdin",
        ),
    ] {
        let ended = pirn_with(FLOW.as_bytes(), arguments);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
    }
    let ended = pirn_with(FLOW.as_bytes(), &["run", "-", "--input", "7"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
