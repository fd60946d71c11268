//! `pirn run --virtual-time --seeds N`.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::command::{pirn, start};

/// A separate file, which is removed at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &Value) -> Self {
        let path = std::env::temp_dir().join(format!("pirn-seeds-{name}-{}.json", std::process::id()));
        std::fs::write(&path, content.to_string()).expect("writable");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap_or(());
    }
}

fn one(kind: &str, config: &Value) -> Value {
    json!({"id": "one", "nodes": [
        {"id": "s", "type": "START"}, {"id": "n", "type": kind, "config": config}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "n"}, {"from": "n", "to": "e"}]})
}

fn ask(name: &str) -> File {
    File::new(name, &one("LLM", &json!({"prompt": "hello"})))
}

#[test]
fn the_first_failing_seed_is_shown_with_a_command_that_reproduces_it() {
    let ask = ask("first");
    let faults = File::new("first-faults", &json!({"faults": {"models": {"*": {"fail": 0.2}}}}));
    let given = [
        "run",
        ask.path(),
        "--faults",
        faults.path(),
        "--output",
        "json",
        "--virtual-time",
    ];
    let ended = pirn(&[&given[..], &["--seeds", "300", "--seed", "3"]].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let told = ended.json();
    let seed = told["failure"]["seed"].as_u64().expect("one of 300 fails");
    assert_eq!((&told["firstSeed"], &told["seeds"]), (&json!(3), &json!(300)));
    assert_eq!(told["played"], json!(seed - 3 + 1), "the first is enough: {told}");
    assert_eq!(told["statuses"]["FAILED"], 1);
    let command = told["failure"]["command"].as_str().expect("a command");
    let words: Vec<&str> = command.split(' ').collect();
    let again = pirn(&words[1..]);
    assert_eq!(again.code, Some(1), "{command}: {}", again.stderr);
    let mut report = again.json();
    report.as_object_mut().expect("a report").remove("formatVersion");
    assert_eq!(report, told["failure"]["report"], "{command}");
    for before in 3..seed {
        let good = pirn(&[&given[..], &["--seed", &before.to_string()]].concat());
        assert_eq!(good.code, Some(0), "seed {before} was played, and did not fail");
    }
}

#[test]
fn success_of_every_seed_is_reported() {
    let ask = ask("all");
    let ended = pirn(&["run", ask.path(), "--virtual-time", "--seeds", "20", "--quiet"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "20 of 20 seeds played: 20 COMPLETED\n");
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_run_that_waits_for_ever_is_ended_with_a_message() {
    let never = File::new("never", &one("WAIT", &json!({"event": "never"})));
    for seeds in [&[][..], &["--seeds", "5"]] {
        let ended = pirn(&[&["run", never.path(), "--virtual-time"], seeds].concat());
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("waits for ever"), "{said}");
    }
}

#[test]
fn ctrl_c_ends_the_seeds_and_reports_the_played_ones() {
    let ask = ask("interrupted");
    let mut child = start(&[
        "run",
        ask.path(),
        "--virtual-time",
        "--seeds",
        "1000000000",
        "--output",
        "json",
    ]);
    let mut progress = BufReader::new(child.stderr.take().expect("piped")).lines();
    let begun = progress.find(|line| line.as_ref().is_ok_and(|line| line.contains("1000000000 seeds")));
    assert!(begun.is_some(), "it says when it begins");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_to_string(&mut text).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let told: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&told["interrupted"], &told["failed"]),
        (&json!(true), &json!(0)),
        "{told}"
    );
    assert!(told.get("failure").is_none(), "{told}");
}

#[test]
fn wrong_usage_exits_2() {
    let ask = ask("usage");
    for wrong in [
        &["--seeds", "5"][..],
        &["--virtual-time", "--seeds", "0"],
        &["--virtual-time", "--seeds", "5", "--events", "e"],
    ] {
        assert_eq!(pirn(&[&["run", ask.path()], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn faults_of_an_unknown_profile_or_tool_are_refused_with_the_nearest_name() {
    let config = json!({
        "profiles": [{"id": "assistant", "provider": "echo"}],
        "faults": {"models": {"*": {"fail": 0.5}, "asistant": {"fail": 1.0}}, "tools": {"serach": {"fail": 1.0}}}
    });
    let (ask, wrong) = (ask("names"), File::new("names-faults", &config));
    let given = ["run", ask.path(), "--profiles", wrong.path(), "--virtual-time"];
    let ended = pirn(&given);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for line in [
        "faults.models.asistant: there is no profile asistant; did you mean assistant?",
        "faults.tools.serach: there is no tool serach",
    ] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    let right = json!({"faults": {"models": {"assistant": {"fail": 1.0}}}});
    let right = File::new("names-right", &right);
    let ended = pirn(&[&given[..], &["--faults", right.path()]].concat());
    assert!(ended.stderr.contains("MODEL_ERROR"), "{}", ended.stderr);
}
