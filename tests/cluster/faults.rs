//! Active runs while workers are killed, paused and disconnected from their server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{CLAIM_SECONDS, Cluster, Worker};

const WORKERS: usize = 3;
/// Number of runs in a round, and of those that share a session.
const RUNS: usize = 8;
const OF_SESSION: usize = 4;

/// Returns the number of rounds: the environment variable `PIRN_CLUSTER_ROUNDS`, by default 5.
fn rounds() -> usize {
    let asked = std::env::var("PIRN_CLUSTER_ROUNDS").ok();
    asked.and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

/// Returns a workflow with a fork whose branches call tools, a wait and a last call.
fn workflow() -> String {
    let append = |id: &str, pause: &str| {
        let arguments = json!({"text": format!("{{{{input}}}}-{id}"), "pause": pause});
        json!({"id": id, "type": "TOOL", "config": {"tool": "append", "arguments": arguments}})
    };
    let edge = |from: &str, to: &str| json!({"from": from, "to": to});
    json!({"id": "main", "nodes": [
        {"id": "start", "type": "START"}, append("first", "0.2"),
        {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["x", "y"], "childNodeIds": ["left", "right"]}},
        append("left", "0.4"), append("right", "0.1"),
        {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["x", "y"], "joinStrategy": "ALL_COMPLETED"}},
        {"id": "wait", "type": "WAIT", "config": {"seconds": 0.5}}, append("last", "0.1"),
        {"id": "end", "type": "END", "config": {"output": "input"}}],
      "edges": [edge("start", "first"), edge("first", "fork"), edge("fork", "left"), edge("fork", "right"),
        edge("left", "join"), edge("right", "join"), edge("join", "wait"), edge("wait", "last"), edge("last", "end")]})
    .to_string()
}

/// Returns the lines of a file, grouped by the idempotency key of their effect.
fn by_key(lines: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in lines {
        let (text, key) = line.split_once(' ').expect("a text and a key");
        keys.entry(key.to_owned()).or_default().insert(text.to_owned());
    }
    keys
}

/// Asserts that the effects of a session's runs do not overlap: each run ends before the next one starts.
fn in_turn(cluster: &Cluster, lines: &[String], round: usize) {
    let prefix = format!("s{round}-");
    let runs: Vec<&String> = lines.iter().filter(|line| line.starts_with(&prefix)).collect();
    let texts = runs.iter().filter_map(|line| line.split_once(' '));
    let mut order: Vec<&str> = texts
        .filter_map(|(text, _)| text.rsplit_once('-'))
        .map(|(run, _)| run)
        .collect();
    order.dedup();
    let different: BTreeSet<&str> = order.iter().copied().collect();
    assert_eq!(
        order.len(),
        different.len(),
        "two runs of a session at a time: {runs:#?}\n{}",
        cluster.log("worker")
    );
}

/// Starts the runs of a round and returns their ids.
fn leave(cluster: &Cluster, round: usize) -> Vec<String> {
    let run = |id: String, more: &[&str]| {
        let input = format!("\"{id}\"");
        let arguments = ["main.json", "--input", &input].into_iter().chain(more.iter().copied());
        let arguments = arguments.map(str::to_owned).collect();
        (id, arguments)
    };
    let session = format!("session-{round}");
    let alone = (0..RUNS).map(|number| run(format!("r{round}-{number}"), &[]));
    let of_session = (0..OF_SESSION).map(|number| run(format!("s{round}-{number}"), &["--session", &session]));
    let runs: Vec<(String, Vec<String>)> = alone.chain(of_session).collect();
    cluster.leave_runs(&runs);
    runs.into_iter().map(|(id, _)| id).collect()
}

fn play(cluster: &Cluster, workers: &mut Vec<Worker>, round: usize, dice: &mut Dice) {
    let ids = leave(cluster, round);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(100 + dice.roll(900) as u64));
        let at = dice.roll(workers.len());
        match dice.roll(3) {
            0 => {
                workers.swap_remove(at).kill();
                workers.push(cluster.worker("worker"));
            }
            1 => {
                workers[at].signal("STOP");
                std::thread::sleep(Duration::from_secs(CLAIM_SECONDS * 2 + 1));
                workers[at].signal("CONT");
            }
            _ => {
                cluster.server.kill();
                std::thread::sleep(Duration::from_millis(dice.roll(500) as u64));
                cluster.server.go();
            }
        }
    }
    ended_once(cluster, round, &ids);
}

/// Waits for the end of a round's runs and checks that each effect has taken place under one key.
fn ended_once(cluster: &Cluster, round: usize, ids: &[String]) {
    cluster.wait("every run ends", || {
        let statuses: BTreeMap<String, String> = cluster.statuses().into_iter().collect();
        ids.iter()
            .all(|id| statuses.get(id).is_some_and(|status| status == "COMPLETED"))
    });
    let lines = cluster.lines("lines");
    in_turn(cluster, &lines, round);
    let keys = by_key(&lines);
    for id in ids {
        let shown = cluster.json(&["runs", "show", id]);
        assert_eq!(shown["output"], Value::from(id.as_str()));
        let of_run = keys.keys().filter(|key| key.starts_with(&format!("{id}.")));
        assert_eq!(of_run.count(), 4, "{id}: an effect has two keys, or none");
    }
    for (key, texts) in &keys {
        assert_eq!(texts.len(), 1, "{key} stands for two effects: {texts:?}");
    }
}

/// The server is killed while runs are active, and another one continues with its data.
pub(crate) fn every_run_ends_once_when_the_server_is_replaced(cluster: &Cluster) {
    cluster.write("main.json", &workflow());
    let _workers: Vec<Worker> = (0..WORKERS).map(|_| cluster.worker("worker")).collect();
    let mut ids = leave(cluster, 0);
    ids.extend(leave(cluster, 1));
    // The processes that started the runs have written lines too: only lines after a claim show that a worker has
    // commits in flight, and so a connection to lose.
    cluster.wait("runs are claimed", || {
        cluster.log("worker").contains("the run was taken over by this process")
    });
    let before = cluster.lines("lines").len();
    cluster.wait("runs are active", || cluster.lines("lines").len() > before);
    cluster.server.kill();
    cluster.server.go();
    ended_once(cluster, 0, &ids);
    let log = cluster.log("worker");
    assert!(log.contains("connected again") && !log.contains("panicked"), "{log}");
}

pub(crate) fn every_run_ends_once_under_faults_of_workers_and_the_server(cluster: &Cluster) {
    cluster.write("main.json", &workflow());
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| cluster.worker("worker")).collect();
    let seed = std::env::var("PIRN_CLUSTER_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let mut dice = Dice(seed.unwrap_or(0x5eed_0001));
    for round in 0..rounds() {
        play(cluster, &mut workers, round, &mut dice);
    }
    let log = cluster.log("worker");
    assert!(!log.contains("panicked"), "{log}");
}

pub(crate) fn a_suspended_worker_writes_nothing_for_a_run_that_another_took_over(cluster: &Cluster) {
    cluster.write("main.json", &workflow());
    cluster.leave_run("run-1", &["main.json", "--input", "\"run-1\""]);
    let first = cluster.worker("first");
    cluster.wait("it is carried", || cluster.log("first").contains("run_id=\"run-1\""));
    first.signal("STOP");
    let _second = cluster.worker("second");
    cluster.wait("it is taken over and ends", || cluster.status("run-1") == "COMPLETED");
    let steps = |id: &str| cluster.json(&["runs", "show", id])["steps"].clone();
    let before = steps("run-1");
    first.signal("CONT");
    cluster.wait("it lets go", || cluster.log("first").contains("another"));
    assert_eq!(steps("run-1"), before);
    assert!(!cluster.log("first").contains("panicked"), "{}", cluster.log("first"));
}
