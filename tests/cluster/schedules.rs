//! Schedules of several workers.

use std::process::Child;

use serde_json::json;

use crate::cluster::{Cluster, Worker};

/// Starts a worker with a schedule that starts a run each second. A run waits for the event `go`.
fn schedules(cluster: &Cluster, overlap: &str, log: &str) -> Child {
    let nap = json!({"id": "nap", "type": "WAIT", "config": {"event": "go"}});
    let work = json!({"id": "work", "nodes": [{"id": "start", "type": "START"}, nap, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "nap"}, {"from": "nap", "to": "end"}]});
    let trigger = json!({"id": "tick", "type": "SCHEDULE", "schedule": {"cron": "* * * * * *", "overlap": overlap},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "work"}}});
    cluster.write(
        "work.json",
        &json!({"workflows": [work], "triggers": [trigger]}).to_string(),
    );
    let own = cluster.server.worker_arguments();
    let arguments = ["worker", "work.json", "--grace", "0"].into_iter();
    let arguments: Vec<&str> = arguments.chain(own.iter().map(String::as_str)).collect();
    cluster.spawn(&arguments, &format!("{log}.log"))
}

/// Returns the ids of the unfinished runs.
fn unfinished(cluster: &Cluster) -> Vec<String> {
    let all = cluster.statuses().into_iter();
    all.filter(|(_, status)| !["CANCELLED", "COMPLETED"].contains(&status.as_str()))
        .map(|(id, _)| id)
        .collect()
}

/// Returns the number of times that a worker has skipped.
fn skipped(cluster: &Cluster, log: &str) -> usize {
    cluster.log(log).matches("a scheduled time was skipped").count()
}

pub(crate) fn a_schedule_cancels_its_previous_run_after_another_worker_took_it_over(cluster: &Cluster) {
    let first = Worker(schedules(cluster, "cancelPrevious", "first"));
    cluster.wait("the schedule starts a run", || !unfinished(cluster).is_empty());
    first.kill();
    // This worker has no schedule.
    let _other = cluster.worker("other");
    cluster.wait("the other worker takes the run over", || {
        cluster.log("other").contains("taken over by this process")
    });
    // The run of the last time before the kill: it has cancelled the ones before it.
    let left = unfinished(cluster).pop().expect("a run");
    let _second = Worker(schedules(cluster, "cancelPrevious", "second"));
    cluster.wait("the next time cancels the run", || cluster.status(&left) == "CANCELLED");
}

pub(crate) fn a_suspended_worker_starts_no_run_at_times_that_another_worker_has_skipped(cluster: &Cluster) {
    let _first = Worker(schedules(cluster, "skip", "first"));
    cluster.wait("the schedule starts a run", || !unfinished(cluster).is_empty());
    let second = Worker(schedules(cluster, "skip", "second"));
    cluster.wait("the second worker runs", || {
        cluster.log("second").contains("executes runs")
    });
    // The times that one worker has handled are not handled again by the other one.
    let several_pass = || {
        let count = || skipped(cluster, "first") + skipped(cluster, "second");
        let before = count();
        cluster.wait("several times are skipped", || count() > before + 3);
    };
    several_pass();
    second.signal("STOP");
    let one = unfinished(cluster).pop().expect("a run");
    assert_eq!(cluster.json(&["runs", "emit", &one, "go"])["ok"], true);
    let other = || unfinished(cluster).into_iter().find(|id| *id != one);
    cluster.wait("the first worker starts the next run", || other().is_some());
    several_pass();
    second.signal("CONT");
    several_pass();
    assert_eq!(unfinished(cluster).len(), 1, "{:?}", cluster.statuses());
    assert_eq!(cluster.statuses().len(), 2);
}
