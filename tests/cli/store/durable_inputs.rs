//! Inputs from another process to stored runs: answers, messages, events and cancels, with and without an owner of the run.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Child;

use serde_json::{Value, json};

use crate::command::{Ended, pirn_in, start_in};
use crate::folder::Folder;

pub(crate) fn folder(name: &str) -> Folder {
    let ask = |id: &str| {
        json!({"id": id, "type": "USER_INTERACTION",
            "config": {"question": "Which?", "choices": ["red", "blue"], "assignTo": id}})
    };
    let nodes = json!([{"id": "start", "type": "START"}, ask("first"), {"id": "go", "type": "WAIT", "config": {"event": "go"}},
        ask("second"), {"id": "end", "type": "END", "config": {"output": "[first, second]"}}]);
    let edges = json!([{"from": "start", "to": "first"}, {"from": "first", "to": "go"}, {"from": "go", "to": "second"},
        {"from": "second", "to": "end"}]);
    Folder::new(name).with(
        "main.json",
        &json!({"id": "main", "nodes": nodes, "edges": edges}).to_string(),
    )
}

pub(crate) fn runs(folder: &Folder, arguments: &[&str]) -> Ended {
    let all: Vec<&str> = ["runs"].iter().chain(arguments).copied().collect();
    pirn_in(folder.path(), &all, &[])
}

/// Starts a process whose run waits for the answer to its first question. Returns it with the lines of its output from then on.
pub(crate) fn holding(folder: &Folder) -> (Child, impl Iterator<Item = String> + use<>) {
    holding_with(folder, &["--output", "json"])
}

/// Like `holding`, with more arguments.
pub(crate) fn holding_with(folder: &Folder, more: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut arguments = vec!["run", "main.json", "--store", "runs.db", "--run-id", "r"];
    arguments.extend(more);
    let mut child = start_in(folder.path(), &arguments, &[]);
    let mut lines = BufReader::new(child.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    waits(&mut lines);
    (child, lines)
}

/// Reads lines until one reports a pending question.
pub(crate) fn waits(lines: &mut impl Iterator<Item = String>) {
    let waits = lines.find(|line| line.contains("waits for an answer"));
    assert!(waits.is_some());
}

pub(crate) fn question(folder: &Folder) -> String {
    let shown = runs(folder, &["show", "r", "--output", "json"]).json();
    let [question] = &shown["interactions"].as_array().expect("questions")[..] else {
        panic!("{shown}")
    };
    assert_eq!(
        (&question["status"], &question["question"]),
        (&json!("OPEN"), &json!("Which?"))
    );
    question["id"].as_str().expect("a text").to_owned()
}

pub(crate) fn ended(mut child: Child) -> Value {
    let mut report = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut report)
        .expect("is read");
    assert!(child.wait().expect("ends").success(), "{report}");
    serde_json::from_str(&report).expect("JSON")
}

pub(crate) fn refused(ended: &Ended) -> (Option<i32>, String) {
    let code = ended.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
    (ended.code, code)
}

#[test]
fn an_input_is_sent_through_the_process_that_holds_the_store() {
    let folder = folder("told-held");
    let (child, mut lines) = holding(&folder);
    let socket = folder.path().join("runs.db.sock");
    let about = std::fs::metadata(&socket).expect("it listens");
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let first = "r.0.2";

    let wrong = runs(&folder, &["answer", "r", first, "green", "--output", "json"]);
    assert_eq!(refused(&wrong), (Some(1), "INVALID_ANSWER".to_owned()));
    let nobody = runs(&folder, &["answer", "r", "r.0.99", "red", "--output", "json"]);
    assert_eq!(refused(&nobody), (Some(1), "INTERACTION_CLOSED".to_owned()));
    let no_run = runs(&folder, &["answer", "s", "s.0.2", "red", "--output", "json"]);
    assert_eq!(refused(&no_run), (Some(2), "NO_SUCH_RUN".to_owned()));
    let no_object = runs(&folder, &["emit", "r", "go", "7"]);
    assert_eq!(no_object.code, Some(2), "{}", no_object.stderr);

    let mut broken = UnixStream::connect(&socket).expect("it listens");
    broken.write_all(b"what?\n").expect("is read");
    let mut said = String::new();
    broken.read_to_string(&mut said).expect("is answered");
    assert!(said.contains("INVALID_REQUEST"), "{said}");

    let answered = runs(&folder, &["answer", "r", first, "red", "--output", "json"]);
    assert_eq!(
        (answered.code, answered.json()),
        (Some(0), json!({"ok": true, "formatVersion": 1}))
    );
    let again = runs(&folder, &["answer", "r", first, "blue", "--output", "json"]);
    assert_eq!(refused(&again), (Some(1), "INTERACTION_CLOSED".to_owned()));
    assert_eq!(
        runs(&folder, &["emit", "r", "go", "{\"n\": 1}"]).stdout,
        "r received the input\n"
    );
    waits(&mut lines);
    let second = (3..20).map(|number| format!("r.0.{number}"));
    let taken = second
        .filter(|id| runs(&folder, &["answer", "r", id, "blue"]).code == Some(0))
        .count();
    assert_eq!(taken, 1);
    assert_eq!(ended(child)["output"], json!(["red", "blue"]));
    assert!(!socket.exists());
}

#[test]
fn short_commands_at_the_same_time_wait_for_each_other() {
    let folder = speaking("held-shortly");
    let detached = ["run", "main.json", "--store", "runs.db", "--run-id", "r", "--detach"];
    assert_eq!(pirn_in(folder.path(), &detached, &[]).code, Some(0));
    let commands = [
        &["runs", "list"][..],
        &["runs", "show", "r"],
        &["runs", "emit", "r", "go"],
        &["runs", "prune"],
    ];
    let start = |command: &[&str]| start_in(folder.path(), command, &[]);
    let all: Vec<Child> = commands.into_iter().map(start).collect();
    for child in all {
        let ended = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{said}");
    }
}

#[test]
fn commands_report_a_process_that_holds_the_store_and_hangs() {
    let folder = folder("held-hangs");
    let (mut child, _lines) = holding(&folder);
    let pid = i32::try_from(child.id()).expect("a process id");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
    let commands = [
        &["runs", "list"][..],
        &["runs", "emit", "r", "go"],
        &["runs", "backup", "copy.db"],
    ];
    let start = |command: &[&str]| start_in(folder.path(), command, &[]);
    let asking = commands.map(start);
    let held = runs(&folder, &["show", "r", "--output", "json"]);
    assert_eq!(refused(&held), (Some(2), "STORE_HELD".to_owned()));
    let expected = format!("process {}, which holds the store, did not answer", child.id());
    for one in asking {
        let ended = one.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(
            said.contains(&expected) && said.contains("no answer for 10 s"),
            "{said}"
        );
    }
    child.kill().expect("it is there");
    child.wait().expect("it ends");
}

#[test]
fn a_store_is_copied_while_another_process_holds_it() {
    let folder = folder("told-copied");
    let (mut child, _lines) = holding(&folder);
    let written = runs(&folder, &["backup", "copy.db"]);
    assert_eq!(
        (written.code, &*written.stdout),
        (Some(0), "copy.db\n"),
        "{}",
        written.stderr
    );
    let again = runs(&folder, &["backup", "copy.db", "--output", "json"]);
    assert_eq!(
        refused(&again),
        (Some(2), "WRITE_FAILED".to_owned()),
        "an existing file is not replaced"
    );
    let own = runs(&folder, &["backup", "runs.db", "--output", "json"]);
    assert_eq!(refused(&own), (Some(2), "WRITE_FAILED".to_owned()));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    // The run of the copy waits for its first answer, and resumes with it.
    let copied = |arguments: &[&str]| {
        runs(
            &folder,
            &[arguments, &["--store", "copy.db", "--output", "json"]].concat(),
        )
    };
    assert_eq!(copied(&["answer", "r", "r.0.2", "red"]).code, Some(0));
    assert_eq!(copied(&["list"]).json()["runs"][0]["runId"], "r");
    let free = runs(&folder, &["backup", "other.db"]);
    assert_eq!(free.code, Some(0), "without a process that holds it: {}", free.stderr);
}

#[test]
fn inputs_to_a_run_without_an_owner_are_stored_until_it_resumes() {
    let folder = folder("told-left");
    let (mut child, _lines) = holding(&folder);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    // The socket of the killed process still exists, but no process listens on it.
    let first = question(&folder);
    let wrong = runs(&folder, &["answer", "r", &first, "green", "--output", "json"]);
    assert_eq!(refused(&wrong), (Some(1), "INVALID_ANSWER".to_owned()));
    let no_run = runs(&folder, &["emit", "s", "go", "--output", "json"]);
    assert_eq!(refused(&no_run), (Some(2), "NO_SUCH_RUN".to_owned()));
    let answered = runs(&folder, &["answer", "r", &first, "red", "--by", "ada"]);
    assert_eq!(
        answered.stdout,
        "r receives the input when it is resumed: pirn runs resume r --store runs.db\n"
    );
    let again = runs(&folder, &["answer", "r", &first, "blue", "--output", "json"]);
    assert_eq!(refused(&again), (Some(1), "INTERACTION_CLOSED".to_owned()));
    assert_eq!(
        runs(&folder, &["emit", "r", "go", "--output", "json"]).json(),
        json!({"ok": true, "formatVersion": 1})
    );

    let mut child = start_in(folder.path(), &["runs", "resume", "r", "--output", "json"], &[]);
    let mut lines = BufReader::new(child.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    waits(&mut lines);
    assert_eq!(
        runs(&folder, &["cancel", "r", "--reason", "enough"]).stdout,
        "r received the input\n"
    );
    let mut report = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut report)
        .expect("is read");
    assert_eq!(child.wait().expect("ends").code(), Some(1));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(
        (&report["status"], &report["variables"]["first"]),
        (&json!("CANCELLED"), &json!("red"))
    );
    assert_eq!(report["inDoubt"], Value::Null, "nothing had begun");
    let over = runs(&folder, &["emit", "r", "go", "--output", "json"]);
    assert_eq!(refused(&over), (Some(1), "RUN_HAS_ENDED".to_owned()));
}

#[test]
fn a_live_run_is_migrated_to_a_compatible_definition() {
    let folder = folder("migrated");
    let (mut child, _lines) = holding(&folder);
    let held = runs(
        &folder,
        &["migrate", "r", "--to", "main.json", "--check", "--output", "json"],
    );
    assert_eq!(refused(&held), (Some(2), "STORE_HELD".to_owned()));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let text = folder.read("main.json");
    let folder = folder
        .with("later.json", &text.replace("[first, second]", "[second, first]"))
        .with("earlier.json", &text.replace("Which?", "Why?"))
        .with("broken.json", "{");
    let check = |file: &str| runs(&folder, &["migrate", "r", "--to", file, "--check", "--output", "json"]);
    assert_eq!(check("later.json").json(), json!({"fits": true, "formatVersion": 1}));
    let other = check("earlier.json");
    let difference = &other.json()["firstDifference"];
    assert_eq!(
        (other.code, &difference["step"], &difference["nodeId"]),
        (Some(1), &json!(0), &json!("first"))
    );
    assert!(difference["would"].to_string().contains("Why?"), "{difference}");
    assert_eq!(refused(&check("broken.json")).1, "INVALID_WORKFLOW");
    let said = runs(&folder, &["migrate", "r", "--to", "earlier.json"]).stdout;
    assert!(said.starts_with("r does not fit: step 0, node first\n"), "{said}");
    assert_eq!(runs(&folder, &["migrate", "r", "--to", "later.json"]).code, Some(0));
    let first = question(&folder);
    assert_eq!(runs(&folder, &["answer", "r", &first, "red"]).code, Some(0));
    assert_eq!(runs(&folder, &["emit", "r", "go"]).code, Some(0));
    let ended = runs(&folder, &["resume", "r", "--answer", "second=blue", "--output", "json"]);
    assert_eq!(ended.json()["output"], json!(["blue", "red"]), "{}", ended.stderr);
}

/// A workflow that asks a question, then repeats the last user message.
pub(crate) fn speaking(name: &str) -> Folder {
    let ask = json!({"id": "first", "type": "USER_INTERACTION", "config": {"question": "Which?", "choices": ["red", "blue"]}});
    let nodes = json!([{"id": "start", "type": "START"}, ask, {"id": "reply", "type": "LLM", "config": {"prompt": "And?"}},
        {"id": "end", "type": "END", "config": {"output": "output.content"}}]);
    let edges =
        json!([{"from": "start", "to": "first"}, {"from": "first", "to": "reply"}, {"from": "reply", "to": "end"}]);
    Folder::new(name).with(
        "main.json",
        &json!({"id": "main", "nodes": nodes, "edges": edges}).to_string(),
    )
}

#[test]
fn a_message_is_sent_through_the_process_that_holds_the_store() {
    let folder = speaking("said-held");
    let (child, _lines) = holding(&folder);
    for _ in 0..2 {
        let said = runs(&folder, &["say", "r", "Be brief.", "--message-id", "m1"]);
        assert_eq!(
            (said.code, said.stdout.as_str()),
            (Some(0), "r received the input\n"),
            "{}",
            said.stderr
        );
    }
    let answered = runs(&folder, &["answer", "r", "r.0.2", "red"]);
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    let report = ended(child);
    assert_eq!(report["output"], "Be brief.");
    assert_eq!(
        report["conversation"]["messages"].as_array().map(Vec::len),
        Some(3),
        "{report}"
    );
    let late = runs(&folder, &["say", "r", "Late", "--output", "json"]);
    assert_eq!(refused(&late), (Some(1), "RUN_HAS_ENDED".to_owned()));
}

#[test]
fn a_run_is_paused_and_pinned_through_the_process_that_holds_the_store() {
    let folder = folder("paused-held");
    let (child, mut lines) = holding(&folder);
    for arguments in [
        &["pause", "r"][..],
        &["pin", "r", "role", "You are a weaver."],
        &["pause", "r", "--end"],
    ] {
        let told = runs(&folder, arguments);
        assert_eq!(
            (told.code, told.stdout.as_str()),
            (Some(0), "r received the input\n"),
            "{}",
            told.stderr
        );
    }
    let section = runs(&folder, &["pin", "r", "roles", "x"]);
    assert!(
        section.stderr.contains("role, todo, usefulInfo, folderNotes"),
        "{}",
        section.stderr
    );
    assert_eq!(section.code, Some(2));
    assert_eq!(runs(&folder, &["answer", "r", "first", "red"]).code, Some(0));
    assert_eq!(runs(&folder, &["emit", "r", "go"]).code, Some(0));
    waits(&mut lines);
    assert_eq!(runs(&folder, &["answer", "r", "second", "blue"]).code, Some(0));
    assert_eq!(ended(child)["output"], json!(["red", "blue"]));
}

#[test]
fn a_run_that_no_process_executes_cannot_be_paused() {
    let folder = folder("paused-kept");
    let detached = ["run", "main.json", "--store", "runs.db", "--run-id", "r", "--detach"];
    assert_eq!(pirn_in(folder.path(), &detached, &[]).code, Some(0));
    for arguments in [&["pause", "r"][..], &["pin", "r", "role", "x"]] {
        let paused = runs(&folder, &[arguments, &["--output", "json"]].concat());
        assert_eq!(
            refused(&paused),
            (Some(1), "NOT_CARRIED".to_owned()),
            "{}",
            paused.stderr
        );
    }
}

#[test]
fn a_message_to_a_run_without_an_owner_is_stored_until_the_run_resumes() {
    let folder = speaking("said-kept");
    let detached = ["run", "main.json", "--store", "runs.db", "--run-id", "r", "--detach"];
    assert_eq!(pirn_in(folder.path(), &detached, &[]).code, Some(0));
    let said = runs(&folder, &["say", "r", "Be brief.", "--when-idle"]);
    assert!(
        said.stdout.contains("receives the input when it is resumed"),
        "{}",
        said.stdout
    );
    let shown = runs(&folder, &["show", "r", "--output", "json"]).json();
    assert_eq!(shown["waitingMessages"][0]["text"], "Be brief.", "{shown}");
    let resumed = runs(&folder, &["resume", "r", "--answer", "first=red", "--output", "json"]);
    assert_eq!(resumed.json()["output"], "Be brief.", "{}", resumed.stderr);
}

#[test]
fn lines_typed_in_an_interactive_run_are_messages_to_its_model() {
    let folder = speaking("said-typed");
    let (mut child, mut lines) = holding_with(&folder, &["--output", "json", "--interactive"]);
    let mut typed = child.stdin.take().expect("piped");
    typed.write_all(b"\nBe brief.\n").expect("is read");
    assert!(lines.any(|line| line.contains("message received: Be brief.")));
    let answered = runs(&folder, &["answer", "r", "r.0.2", "red"]);
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    assert_eq!(ended(child)["output"], "Be brief.");
}

#[test]
fn runs_of_a_held_store_are_listed_and_a_question_is_answered_by_its_node() {
    let folder = folder("held-listed");
    let (mut child, mut lines) = holding(&folder);
    let listed = runs(&folder, &["list", "--output", "json"]);
    assert_eq!(listed.json()["runs"][0]["runId"], "r", "{}", listed.stderr);
    assert_eq!(runs(&folder, &["list", "--ids"]).stdout, "r\n");

    let wrong = runs(&folder, &["answer", "r", "frist", "red"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("(node first): Which?"), "{}", wrong.stderr);
    let answered = runs(&folder, &["answer", "r", "first", "red"]);
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    let sent = runs(&folder, &["emit", "r", "go"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    waits(&mut lines);
    child.kill().expect("it runs");
    child.wait().expect("it ends");

    // Repeats the commands without an owner of the run.
    let answered = runs(&folder, &["answer", "r", "second", "blue"]);
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    let resumed = runs(&folder, &["resume", "r", "--output", "json"]);
    assert_eq!(resumed.json()["output"], json!(["red", "blue"]), "{}", resumed.stderr);
}

#[test]
fn answers_to_a_resumed_run_name_nodes_that_ask() {
    let folder = folder("resume-answers");
    let detached = ["run", "main.json", "--store", "runs.db", "--run-id", "r", "--detach"];
    assert_eq!(pirn_in(folder.path(), &detached, &[]).code, Some(0));
    for (answers, message) in [
        (&["frist=red"][..], "no workflow has a node `frist`"),
        (&["go=red"][..], "the node `go` asks no question"),
        (&["first=red", "first=blue"][..], "--answer first= is given twice"),
    ] {
        let options = answers.iter().flat_map(|answer| ["--answer", *answer]);
        let arguments: Vec<&str> = ["resume", "r"].into_iter().chain(options).collect();
        let ended = runs(&folder, &arguments);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
    }
}

#[test]
fn an_answer_that_looks_like_json_is_taken_as_text_where_only_text_is_accepted() {
    let folder = Folder::new("answer-text").with(
        "main.json",
        &json!({"id": "main", "nodes": [{"id": "start", "type": "START"},
            {"id": "q", "type": "USER_INTERACTION", "config": {"question": "Which?", "choices": ["1", "2"]}},
            {"id": "t", "type": "USER_INTERACTION", "config": {"question": "Text?", "schema": {"type": "string"}}},
            {"id": "end", "type": "END", "config": {"output": "[nodes.q.answer, nodes.t.answer]"}}],
            "edges": [{"from": "start", "to": "q"}, {"from": "q", "to": "t"}, {"from": "t", "to": "end"}]})
        .to_string(),
    );
    let given = [
        "run",
        "main.json",
        "--answer",
        "q=1",
        "--answer",
        "t=true",
        "--output",
        "json",
    ];
    let ended = pirn_in(folder.path(), &given, &[]);
    assert_eq!(ended.json()["output"], json!(["1", "true"]), "{}", ended.stderr);
    let (child, mut lines) = holding(&folder);
    let wrong = runs(&folder, &["answer", "r", "q", "3"]);
    assert!(wrong.stderr.contains(r#"expected one of "1", "2""#), "{}", wrong.stderr);
    assert_eq!(runs(&folder, &["answer", "r", "q", "2"]).code, Some(0));
    waits(&mut lines);
    assert_eq!(runs(&folder, &["answer", "r", "t", "7"]).code, Some(0));
    assert_eq!(self::ended(child)["output"], json!(["2", "7"]));
}

#[test]
fn the_progress_of_a_resumed_run_names_its_threads_as_that_of_the_run() {
    let folder = speaking("resume-progress");
    let (mut child, _lines) = holding(&folder);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let resumed = runs(&folder, &["resume", "r", "--answer", "first=red"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert!(resumed.stderr.contains(" main: answered: red"), "{}", resumed.stderr);
    assert!(!resumed.stderr.contains("r.0: "), "{}", resumed.stderr);
    assert!(!resumed.stderr.contains("main: started"), "{}", resumed.stderr);
}

#[test]
fn the_report_of_a_fork_names_its_origin() {
    let flow = json!({"id": "main", "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "end"}]});
    let folder = Folder::new("fork-origin").with("main.json", &flow.to_string());
    let begun = pirn_in(
        folder.path(),
        &["run", "main.json", "--store", "runs.db", "--run-id", "r"],
        &[],
    );
    assert_eq!(begun.code, Some(0), "{}", begun.stderr);
    let fork = runs(&folder, &["fork", "r", "--at", "0", "--output", "json"]).json();
    assert_eq!(fork["forkedFrom"], json!({"runId": "r", "step": 0}), "{fork}");
}
