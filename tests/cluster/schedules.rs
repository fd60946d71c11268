//! Schedules of several workers.

use std::process::Child;

use serde_json::json;

use crate::cluster::{Cluster, Worker};

/// Starts a worker with a schedule that starts a run each second and cancels the previous one.
fn schedules(cluster: &Cluster, log: &str) -> Child {
    let nap = json!({"id": "nap", "type": "WAIT", "config": {"seconds": 600}});
    let work = json!({"id": "work", "nodes": [{"id": "start", "type": "START"}, nap, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "nap"}, {"from": "nap", "to": "end"}]});
    let trigger = json!({"id": "tick", "type": "SCHEDULE", "schedule": {"cron": "* * * * * *", "overlap": "cancelPrevious"},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "work"}}});
    cluster.write(
        "work.json",
        &json!({"workflows": [work], "triggers": [trigger]}).to_string(),
    );
    cluster.spawn(&["worker", "work.json", "--grace", "0"], log)
}

pub(crate) fn a_schedule_cancels_its_previous_run_after_another_worker_took_it_over(cluster: &Cluster) {
    let unfinished = || {
        let all = cluster.statuses().into_iter();
        all.filter(|(_, status)| status != "CANCELLED")
            .map(|(id, _)| id)
            .collect::<Vec<_>>()
    };
    let first = Worker(schedules(cluster, "first.log"));
    cluster.wait("the schedule starts a run", || !unfinished().is_empty());
    first.kill();
    // This worker has no schedule.
    let _other = cluster.worker("other");
    cluster.wait("the other worker takes the run over", || {
        cluster.log("other").contains("taken over by this process")
    });
    // The run of the last time before the kill: it has cancelled the ones before it.
    let left = unfinished().pop().expect("a run");
    let _second = Worker(schedules(cluster, "second.log"));
    cluster.wait("the next time cancels the run", || cluster.status(&left) == "CANCELLED");
}
