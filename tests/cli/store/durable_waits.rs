//! Waiting runs of a store, sessions and migrations of several runs, from a user's view.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use pirn::store::{SqliteStore, Store};
use serde_json::{Value, json};

use crate::command::{Ended, pirn_in, start_in};
use crate::folder::Folder;
use crate::store::durable_inputs::{ended, folder, holding, holding_with, question, refused, runs, waits};

fn sessions(folder: &Folder, arguments: &[&str]) -> Ended {
    let all: Vec<&str> = ["sessions"].iter().chain(arguments).copied().collect();
    pirn_in(folder.path(), &all, &[])
}

#[test]
fn a_waiting_run_is_listed_as_waiting_and_resume_all_names_its_question() {
    let folder = folder("waits-listed");
    let (mut child, _lines) = holding(&folder);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let listed = runs(&folder, &["list", "--status", "waiting", "--output", "json"]).json();
    let run = &listed["runs"][0];
    assert_eq!(
        (&run["runId"], &run["status"], &run["waitingFor"]),
        (&json!("r"), &json!("WAITING"), &json!("interaction")),
        "{listed}"
    );
    let table = runs(&folder, &["list"]).stdout;
    assert!(table.contains("WAITS FOR") && table.contains("interaction"), "{table}");
    assert_eq!(
        runs(&folder, &["list", "--status", "unfinished", "--output", "json"]).json(),
        json!({"runs": [], "formatVersion": 1})
    );

    let mut child = start_in(folder.path(), &["runs", "resume", "--all", "--output", "json"], &[]);
    drop(child.stdin.take());
    let mut lines = BufReader::new(child.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let said = lines
        .find(|line| line.contains("waits for an answer"))
        .expect("says so");
    let (_, command) = said.split_once("pirn ").expect("names a command");
    let mut words: Vec<&str> = command.split_whitespace().collect();
    let answer = words.iter().position(|word| *word == "ANSWER").expect("its place");
    words[answer] = "blue";
    let answered = pirn_in(folder.path(), &words, &[]);
    assert_eq!(answered.code, Some(0), "{command}: {}", answered.stderr);
    assert_eq!(runs(&folder, &["emit", "r", "go"]).code, Some(0));
    waits(&mut lines);
    let listed = (3..20).map(|number| format!("r.0.{number}"));
    let taken = listed
        .filter(|id| runs(&folder, &["answer", "r", id, "red"]).code == Some(0))
        .count();
    assert_eq!(taken, 1);
    assert_eq!(ended(child)["runs"][0]["output"], json!(["blue", "red"]));
}

#[test]
fn resume_all_uses_answers_given_on_the_command_line() {
    let folder = folder("waits-given");
    let (mut child, _lines) = holding(&folder);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(runs(&folder, &["emit", "r", "go"]).code, Some(0));
    let given = [
        "resume",
        "--all",
        "--answer",
        "first=red",
        "--answer",
        "second=blue",
        "--output",
        "json",
    ];
    let resumed = runs(&folder, &given);
    assert_eq!(
        resumed.json()["runs"][0]["output"],
        json!(["red", "blue"]),
        "{}",
        resumed.stderr
    );
}

#[test]
fn several_runs_are_migrated_at_once_with_one_result_per_run() {
    let folder = folder("waits-moved");
    for id in ["r", "s"] {
        killed_at_a_question(&folder, &["run", "main.json", "--store", "runs.db", "--run-id", id]);
    }
    let fits = folder.read("main.json").replace("[first, second]", "[second]");
    let other = folder.read("main.json").replace("Which?", "What?");
    let folder = folder.with("fits.json", &fits).with("other.json", &other);
    let json_in = |folder: &Folder, arguments: &[&str]| -> (Option<i32>, Value) {
        let all: Vec<&str> = ["migrate"]
            .iter()
            .chain(arguments)
            .chain(&["--output", "json"])
            .copied()
            .collect();
        let ended = runs(folder, &all);
        (ended.code, ended.json())
    };
    let json = |arguments: &[&str]| json_in(&folder, arguments);
    assert_eq!(
        json(&["r", "s", "--to", "fits.json", "--check"]),
        (
            Some(0),
            json!({"runs": [{"runId": "r", "fits": true}, {"runId": "s", "fits": true}], "formatVersion": 1})
        )
    );
    assert_eq!(
        json(&["r", "--to", "fits.json", "--check"]),
        (Some(0), json!({"fits": true, "formatVersion": 1}))
    );
    let (code, none) = json(&["r", "t", "--to", "fits.json"]);
    assert_eq!(
        (code, &none["runs"][0]["fits"], &none["runs"][1]["error"]["code"]),
        (Some(1), &json!(true), &json!("NO_SUCH_RUN")),
        "{none}"
    );
    let (code, moved) = json(&["--all", "--to", "other.json"]);
    assert_eq!(
        (code, &moved["runs"][0]["fits"], &moved["runs"][1]["fits"]),
        (Some(1), &json!(false), &json!(false)),
        "{moved}"
    );
    // A run of another file.
    let foreign = folder.read("main.json").replace("\"main\"", "\"foreign\"");
    let folder = folder.with("foreign.json", &foreign);
    killed_at_a_question(&folder, &["run", "foreign.json", "--store", "runs.db", "--run-id", "f"]);
    let (code, moved) = json_in(&folder, &["--all", "--to", "fits.json", "--check"]);
    let ids = moved["runs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| run["runId"].as_str());
    assert_eq!(
        (code, ids.collect()),
        (Some(0), BTreeSet::from([Some("r"), Some("s")])),
        "{moved}"
    );
    let neither = runs(&folder, &["migrate", "--to", "fits.json"]);
    assert_eq!(neither.code, Some(2), "{}", neither.stderr);
}

/// A model with a fixed reply.
const TALK: &str = r#"{
    "workflows": [{"id": "main",
        "nodes": [{"id": "s", "type": "START"},
            {"id": "ask", "type": "LLM", "config": {"profileId": "script", "prompt": "hello"}},
            {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}],
    "profiles": [{"id": "script", "provider": "scripted", "responses": [{"content": "well met"}]}]}"#;

#[test]
fn sessions_are_listed_shown_and_removed_unless_a_run_of_one_has_not_ended() {
    let folder = Folder::new("waits-sessions").with("talk.json", TALK);
    let talk = |session: &str| {
        let arguments = [
            "run",
            "talk.json",
            "--store",
            "runs.db",
            "--session",
            session,
            "--quiet",
        ];
        let ended = pirn_in(folder.path(), &arguments, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    };
    talk("a");
    talk("a");
    talk("b");
    let listed = sessions(&folder, &["list", "--output", "json"]).json();
    let found: Vec<_> = listed["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|session| (&session["id"], &session["version"]))
        .collect();
    assert_eq!(found, [(&json!("a"), &json!(2)), (&json!("b"), &json!(1))], "{listed}");
    let shown = sessions(&folder, &["show", "a", "--output", "json"]).json();
    assert_eq!(
        shown["conversation"]["messages"].as_array().map(Vec::len),
        Some(4),
        "{shown}"
    );
    assert!(sessions(&folder, &["show", "a"]).stdout.contains("assistant: well met"));
    for command in ["show", "remove"] {
        let none = sessions(&folder, &[command, "c", "--output", "json"]);
        assert_eq!(refused(&none), (Some(2), "NO_SUCH_SESSION".to_owned()));
    }
    let removed = sessions(&folder, &["remove", "a", "b", "--output", "json"]);
    assert_eq!(removed.json(), json!({"removed": 2, "formatVersion": 1}));
    assert_eq!(
        sessions(&folder, &["list", "--output", "json"]).json(),
        json!({"sessions": [], "formatVersion": 1})
    );
    // The next run starts with the state in which the first one started.
    talk("a");
    assert_eq!(
        sessions(&folder, &["show", "a", "--output", "json"]).json()["version"],
        1
    );

    let folder = self::folder("waits-session-busy");
    let (mut child, _lines) = holding_with(&folder, &["--session", "desk"]);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let busy = sessions(&folder, &["remove", "desk", "--output", "json"]);
    assert_eq!(refused(&busy), (Some(1), "SESSION_IN_USE".to_owned()));
}

#[test]
fn the_path_of_a_config_is_stored_and_pruned_with_its_run() {
    let folder = folder("waits-config").with("other.toml", "");
    let (mut child, _lines) = holding_with(&folder, &["--profiles", "other.toml"]);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let kept = || {
        let store = SqliteStore::open(folder.path().join("runs.db")).expect("opens");
        futures::executor::block_on(store.meta("config file of r")).expect("is read")
    };
    assert!(kept().expect("is kept").ends_with("other.toml"));
    std::fs::rename(folder.path().join("other.toml"), folder.path().join("moved.toml")).expect("moves");
    let lost = runs(&folder, &["resume", "r", "--output", "json"]);
    assert_eq!(refused(&lost), (Some(2), "INVALID_CONFIG".to_owned()));
    assert!(lost.stdout.contains("--profiles"), "{}", lost.stdout);
    assert!(!question(&folder).is_empty(), "it is as it was");
    assert_eq!(runs(&folder, &["cancel", "r"]).code, Some(0));
    assert_eq!(runs(&folder, &["prune", "--dry-run"]).code, Some(0));
    assert!(kept().is_some());
    assert_eq!(runs(&folder, &["prune"]).code, Some(0));
    assert_eq!(kept(), None);
}

/// Starts a run that waits for a person, in a process that is then killed; `begin` has the process's arguments.
fn killed_at_a_question(folder: &Folder, begin: &[&str]) {
    let mut child = start_in(folder.path(), begin, &[]);
    drop(child.stdin.take());
    let mut lines = BufReader::new(child.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    waits(&mut lines);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// Returns a workflow whose model calls the tool `note`, which requires consent. Its profile is in the workflow's file.
fn notes_with_consent(name: &str) -> Folder {
    let made = json!([{"id": "1", "name": "note", "arguments": {"text": "as asked"}}]);
    let folder = Folder::calling(name, "", &["note"], &made);
    let noted = folder.file("noted");
    let config = format!(
        r#"
[[tools]]
name = "note"
description = "Notes a text"
approval = "ask"
inputSchema = {{ type = "object", properties = {{ text = {{ type = "string" }} }}, required = ["text"] }}
command = {{ program = "tee", args = ["-a", "{noted}"], stdin = "{{{{text}}}}" }}
"#
    );
    folder.with("pirn.toml", &config).with("noted", "")
}

#[test]
fn a_call_that_waits_for_consent_is_made_once_across_killed_processes() {
    let folder = notes_with_consent("waits-consent");
    killed_at_a_question(&folder, &["run", "main.json", "--store", "runs.db", "--run-id", "r"]);
    killed_at_a_question(&folder, &["runs", "resume", "r"]);
    assert_eq!(folder.read("noted"), "");
    let shown = runs(&folder, &["show", "r", "--output", "json"]).json();
    let id = shown["interactions"][0]["id"].as_str().expect("an open question");
    let edited = r#"{"decision": "allow", "arguments": {"text": "as edited"}}"#;
    let answered = runs(&folder, &["answer", "r", id, edited]);
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    assert_eq!(folder.read("noted"), "", "no process owns it");
    let resumed = runs(&folder, &["resume", "r", "--output", "json"]);
    assert_eq!(
        resumed.json()["status"],
        "COMPLETED",
        "{}{}",
        resumed.stdout,
        resumed.stderr
    );
    assert_eq!(folder.read("noted"), "as edited");
}

#[test]
fn runs_with_different_profiles_of_one_name_each_resume_with_their_profile() {
    let folder = Folder::new("waits-profiles");
    let file = |says: &str| {
        json!({"workflows": [{"id": "main", "nodes": [{"id": "s", "type": "START"},
                {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}},
                {"id": "say", "type": "LLM", "config": {"profileId": "script", "prompt": "go"}},
                {"id": "e", "type": "END", "config": {"output": "nodes.say.content"}}],
            "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "say"}, {"from": "say", "to": "e"}]}],
            "profiles": [{"id": "script", "provider": "scripted", "responses": [{"content": says}]}]})
        .to_string()
    };
    let mut folder = folder;
    for id in ["one", "two"] {
        folder = folder.with("main.json", &file(id));
        killed_at_a_question(&folder, &["run", "main.json", "--store", "runs.db", "--run-id", id]);
    }
    let resumed = runs(&folder, &["resume", "--all", "--answer", "ask=yes", "--output", "json"]);
    let ended = resumed.json();
    for (place, id) in ["one", "two"].into_iter().enumerate() {
        let run = &ended["runs"][place];
        assert_eq!((&run["runId"], &run["output"]), (&json!(id), &json!(id)), "{ended}");
        let forked = format!("fork-{id}");
        let fork = runs(
            &folder,
            &[
                "fork", id, "--at", "1", "--run-id", &forked, "--answer", "ask=on", "--output", "json",
            ],
        );
        assert_eq!(fork.json()["output"], json!(id), "{}{}", fork.stdout, fork.stderr);
    }
}

#[test]
fn a_list_of_no_runs_is_wrong_usage() {
    let folder = folder("list-none");
    let detached = ["run", "main.json", "--store", "runs.db", "--run-id", "r", "--detach"];
    assert_eq!(pirn_in(folder.path(), &detached, &[]).code, Some(0));
    let none = runs(&folder, &["list", "--limit", "0"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(none.stderr.contains("--limit"), "{}", none.stderr);
    assert_eq!(runs(&folder, &["list", "--limit", "1", "--ids"]).stdout, "r\n");
}
