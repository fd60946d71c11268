//! Commands of a person about runs in a server.

use serde_json::{Value, json};

use crate::cluster::{CLAIM_SECONDS, Cluster};

pub(crate) fn chain(nodes: &[Value]) -> String {
    let start = json!({"id": "start", "type": "START"});
    let end = json!({"id": "end", "type": "END", "config": {"output": "'all done'"}});
    let nodes: Vec<&Value> = std::iter::once(&start).chain(nodes).chain([&end]).collect();
    let edges = nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}));
    let edges: Vec<Value> = edges.collect();
    json!({"id": "main", "nodes": nodes, "edges": edges}).to_string()
}

pub(crate) fn append(id: &str, pause: f64) -> Value {
    let arguments = json!({"text": id, "pause": pause.to_string()});
    json!({"id": id, "type": "TOOL", "config": {"tool": "append", "arguments": arguments}})
}

pub(crate) fn asks() -> String {
    chain(&[
        json!({"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Go on?"}}),
        append("after", 0.0),
    ])
}

pub(crate) fn a_run_of_a_killed_process_ends_in_a_worker_with_each_effect_once(cluster: &Cluster) {
    cluster.write(
        "main.json",
        &chain(&[
            append("a", 0.0),
            json!({"id": "wait", "type": "WAIT", "config": {"seconds": 3}}),
            append("b", 0.0),
        ]),
    );
    cluster.leave_run("run-1", &["main.json"]);
    let _worker = cluster.worker("worker");
    cluster.wait("the run ends", || cluster.status("run-1") == "COMPLETED");
    let mut keys: Vec<String> = cluster.lines("ended");
    keys.dedup();
    assert_eq!(keys, ["a run-1.0.1", "b run-1.0.3"]);
    let shown = cluster.json(&["runs", "show", "run-1"]);
    assert_eq!(shown["output"], "all done");
}

pub(crate) fn a_question_is_answered_with_and_without_an_owner_of_the_run(cluster: &Cluster) {
    cluster.write("main.json", &asks());
    let question = |id: &str| {
        let shown = cluster.json(&["runs", "show", id]);
        shown["interactions"][0]["id"].as_str().unwrap_or_default().to_owned()
    };
    // The run has no owner.
    cluster.leave_run("left", &["main.json"]);
    cluster.wait("it asks", || !question("left").is_empty());
    std::thread::sleep(std::time::Duration::from_secs(CLAIM_SECONDS + 1));
    let answered = cluster.json(&["runs", "answer", "left", &question("left"), "yes"]);
    assert_eq!(answered, json!({"ok": true, "formatVersion": 1}));
    let worker = cluster.worker("worker");
    cluster.wait("it goes on", || cluster.status("left") == "COMPLETED");
    // The worker owns the run.
    cluster.leave_run("carried", &["main.json"]);
    cluster.wait("it is carried", || cluster.log("worker").contains("run_id=\"carried\""));
    let answered = cluster.json(&["runs", "answer", "carried", "carried.0.99", "yes"]);
    assert_eq!(answered["error"]["code"], "INTERACTION_CLOSED", "{answered}");
    let answered = cluster.json(&["runs", "answer", "carried", &question("carried"), "yes"]);
    assert_eq!(answered, json!({"ok": true, "formatVersion": 1}));
    cluster.wait("it goes on", || cluster.status("carried") == "COMPLETED");
    // The worker cancels the run at the request of another process.
    cluster.leave_run("cancelled", &["main.json"]);
    cluster.wait("it is carried", || {
        cluster.log("worker").contains("run_id=\"cancelled\"")
    });
    assert_eq!(
        cluster.json(&["runs", "cancel", "cancelled"]),
        json!({"ok": true, "formatVersion": 1})
    );
    cluster.wait("it ends", || cluster.status("cancelled") == "CANCELLED");
    drop(worker);
}

pub(crate) fn runs_put_into_the_server_are_executed_by_workers_and_those_of_a_session_in_order(cluster: &Cluster) {
    let append = |id: &str| {
        let arguments = json!({"text": format!("{{{{input}}}}-{id}"), "pause": "0.1"});
        json!({"id": id, "type": "TOOL", "config": {"tool": "append", "arguments": arguments}})
    };
    cluster.write("main.json", &chain(&[append("a"), append("b")]));
    let put = |id: &str, more: &[&str]| {
        let input = format!("\"{id}\"");
        let arguments = ["run", "main.json", "--detach", "--run-id", id, "--input", &input];
        cluster.json(&[&arguments, more].concat())
    };
    let mut ids = Vec::new();
    for number in 0..6 {
        let (alone, of_session) = (format!("alone-{number}"), format!("turn-{number}"));
        assert_eq!(
            put(&alone, &[]),
            json!({"ok": true, "runId": alone, "formatVersion": 1})
        );
        assert_eq!(put(&of_session, &["--session", "s"])["ok"], true);
        ids.extend([alone, of_session]);
    }
    assert_eq!(put("alone-0", &[])["error"]["code"], "RUN_ID_TAKEN");
    assert_eq!(
        cluster.lines("lines"),
        Vec::<String>::new(),
        "whoever puts a run does nothing of it"
    );
    assert_eq!(cluster.status("alone-0"), "UNFINISHED");
    let _workers: Vec<_> = (0..3).map(|_| cluster.worker("worker")).collect();
    cluster.wait("every run ends", || {
        ids.iter().all(|id| cluster.status(id) == "COMPLETED")
    });
    let lines = cluster.lines("lines");
    assert_eq!(lines.len(), ids.len() * 2, "each effect once: {lines:?}");
    let turns: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("turn-")?.get(..1))
        .collect();
    assert!(turns.is_sorted(), "{turns:?}");
}

pub(crate) fn a_cancel_stops_a_running_call_of_a_worker(cluster: &Cluster) {
    cluster.write("main.json", &chain(&[append("long", 600.0)]));
    let _worker = cluster.worker("worker");
    assert_eq!(
        cluster.json(&["run", "main.json", "--detach", "--run-id", "run-1"])["ok"],
        true
    );
    cluster.wait("the call begins", || cluster.lines("lines").len() == 1);
    assert_eq!(
        cluster.json(&["runs", "cancel", "run-1"]),
        json!({"ok": true, "formatVersion": 1})
    );
    cluster.wait("it ends", || cluster.status("run-1") == "CANCELLED");
    assert_eq!(cluster.lines("ended"), Vec::<String>::new());
}

pub(crate) fn a_terminated_worker_releases_its_runs_at_once(cluster: &Cluster) {
    cluster.claims_last(45);
    cluster.write("main.json", &asks());
    cluster.json(&["run", "main.json", "--detach", "--run-id", "run-1"]);
    let mut first = cluster.worker("first");
    cluster.wait("it is carried", || cluster.log("first").contains("run_id=\"run-1\""));
    first.signal("TERM");
    assert!(first.0.wait().expect("it ends").success(), "{}", cluster.log("first"));
    let begun = std::time::Instant::now();
    let _second = cluster.worker("second");
    cluster.wait("it is carried", || cluster.log("second").contains("run_id=\"run-1\""));
    assert!(begun.elapsed().as_secs() < 30, "it waited for the claim to run out");
}
