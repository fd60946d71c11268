//! Hints after wrong usage, and notices about results that are empty.

use serde_json::json;

use crate::command::{pirn, pirn_in};
use crate::folder::Folder;

const FLOW: &str = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
    "edges": [{"from": "s", "to": "e"}]}"#;

#[test]
fn wrong_usage_is_answered_with_the_right_option() {
    let folder = Folder::new("hints-usage")
        .with("workflow.json", FLOW)
        .with("flow.py", "print('hello')")
        .with("flow.ts", "export default 1")
        .with("named.yaml", FLOW);
    for (arguments, code, part) in [
        (&["exec"][..], 2, "unrecognized subcommand 'exec'"),
        (
            &["serve", "--port", "80"],
            2,
            "a similar argument exists: '--listen HOST:PORT'",
        ),
        (&["run", "-i", "{}"], 2, "the input of a run is given as --input JSON"),
        (
            &["run", "--virtual-time", "--seed", "abc"],
            2,
            "'--seed <N>': expected a whole number\n",
        ),
        (&["run", "--seed", "99999999999999999999"], 2, "the number is too large"),
        (
            &["run", "--store", "runs.db", "--session", ""],
            2,
            "help: name the session, such as --session ada",
        ),
        (&["runs", "erase"], 2, "<--session <ID>|--tenant <NAME>>"),
        (
            &["runs", "erase", "--session", "a", "--tenant", "b"],
            2,
            "cannot be used with",
        ),
        (&["runs", "resume"], 2, "<ID|--all>"),
        (&["runs", "resume", "r", "--all"], 2, "cannot be used with"),
        (&["runs", "migrate", "--to", "workflow.json"], 2, "<ID|--all>"),
        (
            &["validate", "flow.py"],
            2,
            "flow.py is not a workflow file: a workflow is JSON",
        ),
        (&["validate", "flow.ts"], 2, "a script in JavaScript (.js, .mjs)"),
        (&["validate", "named.yaml"], 0, ""),
    ] {
        let ended = pirn_in(folder.path(), arguments, &[]);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("exist: \n"), "an empty list: {}", ended.stderr);
    }
    let json = pirn(&["serve", "--port", "80", "--output", "json"]).json();
    assert_eq!(json["error"]["help"], "did you mean --listen HOST:PORT?");
}

#[test]
fn an_empty_result_of_a_store_is_explained() {
    let folder = Folder::new("hints-store")
        .with("workflow.json", FLOW)
        .with("x.txt", "hello");
    let on = |arguments: &[&str]| {
        let ended = pirn_in(folder.path(), arguments, &[("PIRN_STORE", "runs.db")]);
        (ended.code, ended.stdout, ended.stderr)
    };
    assert_eq!(on(&["run", "--session", "desk", "--run-id", "r", "--quiet"]).0, Some(0));
    let (_, shown, _) = on(&["sessions", "show", "desk"]);
    assert!(shown.starts_with("desk, updated by 1 run\n"), "{shown}");
    let (code, _, said) = on(&["runs", "list", "--workflow", "nope"]);
    assert_eq!(
        (code, &*said),
        (Some(0), "pirn: no stored run matches --workflow nope\n")
    );
    assert_eq!(on(&["runs", "list", "--workflow", "nope", "--ids"]).2, "");
    assert_eq!(on(&["runs", "list"]).2, "");
    let (code, erased, said) = on(&["runs", "erase", "--session", "unknown"]);
    assert_eq!((code, &*erased), (Some(0), "0 runs, 0 sessions, 0 bytes\n"));
    assert_eq!(said, "pirn: the store has no session unknown and no run of it\n");
    let (_, _, said) = on(&["runs", "erase", "--tenant", "acme"]);
    assert_eq!(said, "pirn: the store has no data of the tenant acme\n");
    let (code, _, said) = on(&["runs", "import", "x.txt"]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("help: name a file that `pirn runs export ID FILE` wrote"),
        "{said}"
    );
    let (code, _, said) = on(&["runs", "backup", "none/copy.db"]);
    assert_eq!(code, Some(2));
    assert!(
        said.starts_with("pirn: cannot write none/copy.db: No such file"),
        "{said}"
    );
    assert!(said.contains("help: create its folder first: mkdir -p none"), "{said}");
    let (_, _, said) = on(&["runs", "backup", "x.txt"]);
    assert_eq!(
        said,
        "pirn: cannot write x.txt: the file exists\n  help: name a new file\n"
    );
    assert!(on(&["runs", "prune"]).1.starts_with("1 run, "));
}

#[test]
fn quiet_prints_failures_that_did_not_fail_the_run() {
    let path = |id: &str, code: &str| json!({"id": id, "type": "CODE", "config": {"code": code}});
    let (paths, nodes) = (json!(["good", "bad"]), json!(["good", "bad"]));
    let forked = json!({"id": "w", "nodes": [{"id": "s", "type": "START"},
        {"id": "fork", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": nodes}},
        path("good", "return 1"), path("bad", "throw new Error('no luck')"),
        {"id": "join", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ANY_FAILED"}},
        {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "fork"}, {"from": "fork", "to": "good"}, {"from": "fork", "to": "bad"},
            {"from": "good", "to": "join"}, {"from": "bad", "to": "join"}, {"from": "join", "to": "e"}]});
    let folder = Folder::new("hints-quiet")
        .with("forked.json", &forked.to_string())
        .with(
            "all.js",
            "return await parallel([() => 1, () => { throw new Error('no luck') }])",
        );
    for (file, expected) in [
        ("forked.json", "pirn: bad failed: "),
        ("all.js", "parallel: function 1 failed: Error: no luck\n"),
    ] {
        let ended = pirn_in(folder.path(), &["run", file, "--quiet"], &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(expected) && ended.stderr.contains("no luck"),
            "{}",
            ended.stderr
        );
    }
}
