//! Costs of durable runs on the disk in syncs and bytes, which do not depend on the clock.

use std::time::Duration;

use futures::executor::block_on;
use futures::future::join_all;
use pirn::store::SqliteStore;
use pirn::{Engine, RunHandle, ThreadStatus};
use pirn_test_disk::{Disk, Kind, VFS};
use serde_json::{Value, json};

/// Bytes of a call's result.
const ANSWER: usize = 100;

/// Returns a workflow with nodes in sequence: async calls, or inline calls.
fn row(count: usize, calls: bool) -> String {
    let function = if calls { "work" } else { "pure" };
    let node = |number: usize| json!({"id": format!("n{number}"), "type": "CODE", "config": {"function": function}});
    let mut nodes = vec![json!({"id": "start", "type": "START"})];
    nodes.extend((0..count).map(node));
    nodes.push(json!({"id": "end", "type": "END"}));
    let ids: Vec<Value> = nodes.iter().map(|node| node["id"].clone()).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": "main", "nodes": nodes, "edges": edges}).to_string()
}

fn engine(disk: &Disk, workflow: &str) -> Engine {
    let store = SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens");
    let engine = Engine::builder().store(store).workflows(workflow).arbiters(1);
    let engine = engine.function("pure", |_| Ok::<_, String>(json!("x".repeat(ANSWER))));
    let engine = engine.async_function("work", |_| {
        std::future::ready(Ok::<_, String>(json!("x".repeat(ANSWER))))
    });
    engine.build().expect("builds")
}

/// Executes runs concurrently until they end. Returns the number of syncs and the bytes by which the file grew.
fn cost(workflow: &str, runs: usize) -> (usize, usize) {
    let disk = Disk::new();
    // The one-time setup of the file is excluded.
    let made = SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens");
    made.close().expect("closes");
    let before = disk.read("runs.db").len();
    let engine = engine(&disk, workflow);
    let syncs = |disk: &Disk| {
        let operations = disk.operations();
        operations
            .iter()
            .filter(|operation| operation.kind == Kind::Sync)
            .count()
    };
    let opened = syncs(&disk);
    let started: Vec<RunHandle> = (0..runs)
        .map(|_| engine.start("main", json!(0)).expect("starts"))
        .collect();
    for report in block_on(join_all(started.iter().map(RunHandle::outcome))) {
        assert_eq!(report.status, ThreadStatus::Completed, "{report:?}");
    }
    started.iter().for_each(RunHandle::wait_all_ended_blocking);
    let took = syncs(&disk) - opened;
    engine.shutdown_blocking(Duration::from_secs(10));
    drop((started, engine));
    (took, disk.read("runs.db").len() - before)
}

#[test]
fn an_external_call_costs_one_sync_and_a_pure_step_none() {
    let (none, _) = cost(&row(0, true), 1);
    for count in [10, 100] {
        let (calls, _) = cost(&row(count, true), 1);
        assert_eq!(calls, none + count, "{count} calls");
        let (pure, _) = cost(&row(count, false), 1);
        assert_eq!(pure, none, "{count} that need nobody");
    }
}

#[test]
fn a_step_costs_at_most_300_bytes_beyond_its_answer_for_any_number_of_steps() {
    // The workflow is stored once, independent of the number of runs. With fewer nodes, a run fills only a few pages.
    for count in [300, 900] {
        let workflow = row(count, true);
        let (_, one) = cost(&workflow, 1);
        let (_, three) = cost(&workflow, 3);
        let bytes = (three - one) / (2 * count);
        println!("{count} steps: {bytes} bytes a step, {ANSWER} of them its answer");
        assert!(bytes <= ANSWER + 300, "{count} steps: {bytes} bytes a step");
    }
}
