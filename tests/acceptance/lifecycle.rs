//! The life cycle of a thread as its handle and its events report it: cases M30, M31, M32, M34.

use pirn::{Engine, EventType, RunHandle, RunReport, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{code, forked, line, node, run, wait, workflow};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// An action on a run from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    /// Raises the event that the thread's WAIT nodes wait for.
    Go,
    Pause,
    Resume,
    Cancel,
}

/// The result of a scenario: THREAD_* events and statuses of the main thread in order, and the report.
struct Life {
    changes: Vec<&'static str>,
    report: RunReport,
}

/// Runs `main` and performs the next action whenever the run is idle.
fn live(files: &[Value], does: &[Does]) -> Life {
    let mut workflows = files.to_vec();
    workflows.push(line("tick", &[]));
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .workflows(json!({"workflows": workflows}).to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    // Under virtual time, a run started from outside begins when all earlier runs are idle.
    let rest = || {
        let tick = engine
            .start("tick", Value::Null)
            .unwrap_or_else(|error| panic!("{error}"));
        tick.outcome_blocking();
    };
    let mut run = engine.run("main");
    let events = run.blocking_events(
        &[
            EventType::ThreadStarted,
            EventType::ThreadPaused,
            EventType::ThreadResumed,
            EventType::ThreadCompleted,
            EventType::ThreadFailed,
            EventType::ThreadCancelled,
        ],
        1000,
    );
    let handle = run.start().unwrap_or_else(|error| panic!("{error}"));
    rest();
    for step in does {
        apply(&handle, *step);
        rest();
    }
    // Ends the run whatever its state is. A run that has already ended stays unchanged.
    handle.cancel("the scenario is over");
    let report = (*handle.outcome_blocking()).clone();
    handle.wait_all_ended_blocking();
    engine.shutdown_blocking(std::time::Duration::ZERO);
    let main = report.thread_id.clone();
    let changes = events.filter_map(|heard| match heard {
        SubscriptionItem::Event(event) if *event.thread_id == *main => Some(event.raised.event_type.as_str()),
        SubscriptionItem::Event(_) | SubscriptionItem::Lagged(_) => None,
    });
    Life {
        changes: changes.collect(),
        report,
    }
}

fn apply(handle: &RunHandle, step: Does) {
    match step {
        Does::Go => handle.emit("go", Map::new()),
        Does::Pause => handle.pause(),
        Does::Resume => handle.resume(),
        Does::Cancel => handle.cancel("enough"),
    }
}

/// Returns START > `count` WAITs for `go` > END.
fn gates(count: usize) -> Value {
    let gates: Vec<Value> = (0..count)
        .map(|place| node(&format!("gate{place}"), "WAIT", json!({"event": "go"})))
        .collect();
    line("main", &gates)
}

/// Predicts the life cycle of a thread that waits in the first of several gates, as SPEC section 1 defines it. An event raised
/// while the thread is paused opens the next gate once the thread reaches it.
fn expected(gates: usize, does: &[Does]) -> (Vec<&'static str>, ThreadStatus) {
    let mut changes = vec!["THREAD_STARTED"];
    let (mut passed, mut kept, mut to_pause, mut is_paused) = (0, 0, false, false);
    for step in does.iter().chain(&[Does::Cancel]) {
        match step {
            Does::Go if is_paused => kept += 1,
            Does::Go => {
                passed += 1;
                if to_pause {
                    // The safe point after a node, including the last one.
                    is_paused = true;
                    changes.push("THREAD_PAUSED");
                } else if passed == gates {
                    changes.push("THREAD_COMPLETED");
                    return (changes, ThreadStatus::Completed);
                }
            }
            Does::Pause => to_pause = true,
            Does::Resume => {
                to_pause = false;
                if is_paused {
                    is_paused = false;
                    changes.push("THREAD_RESUMED");
                    let opened = usize::min(kept, gates - passed);
                    (passed, kept) = (passed + opened, kept - opened);
                    if passed == gates {
                        changes.push("THREAD_COMPLETED");
                        return (changes, ThreadStatus::Completed);
                    }
                }
            }
            Does::Cancel => {
                changes.push("THREAD_CANCELLED");
                return (changes, ThreadStatus::Cancelled);
            }
        }
    }
    unreachable!("the last step is a cancel");
}

fn steps() -> impl Strategy<Value = Vec<Does>> {
    let step = prop_oneof![
        5 => Just(Does::Go),
        3 => Just(Does::Pause),
        3 => Just(Does::Resume),
        1 => Just(Does::Cancel),
    ];
    prop::collection::vec(step, 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn m30_a_thread_changes_status_only_as_the_transition_table_allows(does in steps(), count in 1_usize..4) {
        let life = live(&[gates(count)], &does);
        let (changes, status) = expected(count, &does);
        prop_assert_eq!(life.changes, changes, "M30 {:?}", does);
        prop_assert_eq!(life.report.status, status, "M30 {:?}", does);
    }
}

/// The tested point, the workflow, the actions, the changes and the final status.
type Case<'a> = (&'a str, &'a Value, &'a [Does], &'a [&'a str], ThreadStatus);

#[test]
fn m30_status_changes_without_a_handle_follow_the_transition_table() {
    use Does::{Cancel, Go, Pause, Resume};
    let fails = line(
        "main",
        &[
            node("gate", "WAIT", json!({"event": "go"})),
            code("bad", "throw new Error('broken')"),
        ],
    );
    let limited = |mut file: Value| {
        file["config"] = json!({"timeoutMs": 1000});
        file
    };
    let paused = {
        let mut file = limited(line(
            "main",
            &[code("a", "return 1"), wait("w", 10), code("b", "return 2")],
        ));
        file["triggers"] = json!([{"id": "p", "type": "EVENT",
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
            "action": {"type": "PAUSE_THREAD", "parameters": {}}}]);
        file
    };
    let (started, ended) = ("THREAD_STARTED", "THREAD_FAILED");
    let (rests, resumes) = ("THREAD_PAUSED", "THREAD_RESUMED");
    let cases: [Case<'_>; 5] = [
        (
            "RUNNING to FAILED",
            &fails,
            &[Go],
            &[started, ended],
            ThreadStatus::Failed,
        ),
        (
            "PAUSED to RUNNING to FAILED",
            &fails,
            &[Pause, Go, Resume],
            &[started, rests, resumes, ended],
            ThreadStatus::Failed,
        ),
        (
            "FAILED stays",
            &fails,
            &[Go, Resume, Pause, Cancel, Go],
            &[started, ended],
            ThreadStatus::Failed,
        ),
        (
            "RUNNING to TIMEOUT, which stays",
            &limited(gates(1)),
            &[Go, Resume, Pause, Cancel],
            &[started, ended],
            ThreadStatus::Timeout,
        ),
        (
            "PAUSED to TIMEOUT",
            &paused,
            &[Resume],
            &[started, rests, ended],
            ThreadStatus::Timeout,
        ),
    ];
    for (case, file, does, changes, status) in cases {
        let life = live(std::slice::from_ref(file), does);
        assert_eq!(
            (life.changes.as_slice(), life.report.status),
            (changes, status),
            "M30 {case}"
        );
    }
}

/// Returns START > FORK (a quick path; one that forks again, into a WAIT and a called workflow that WAITs) > JOIN > END.
fn family() -> [Value; 2] {
    let gate = |id: &str| node(id, "WAIT", json!({"event": "never"}));
    let main = workflow(
        "main",
        &[
            node("start", "START", json!({})),
            node(
                "fork",
                "FORK",
                json!({"forkPathIds": ["quick", "slow"], "childNodeIds": ["a", "inner"]}),
            ),
            code("a", "return 1"),
            node(
                "inner",
                "FORK",
                json!({"forkPathIds": ["waits", "calls"], "childNodeIds": ["b", "c"]}),
            ),
            gate("b"),
            node("c", "SUBGRAPH", json!({"subgraphId": "sub"})),
            node(
                "meet",
                "JOIN",
                json!({"forkPathIds": ["waits", "calls"], "joinStrategy": "ALL_COMPLETED"}),
            ),
            node(
                "join",
                "JOIN",
                json!({"forkPathIds": ["quick", "slow"], "joinStrategy": "ALL_COMPLETED"}),
            ),
            node("end", "END", json!({})),
        ],
        &["start>fork>a>join>end", "fork>inner>b>meet>join", "inner>c>meet"],
    );
    [main, line("sub", &[gate("d")])]
}

#[test]
fn m31_m32_a_cancel_reaches_all_running_descendants_and_no_completed_thread() {
    let life = live(&family(), &[Does::Cancel]);
    let statuses: Vec<(Option<&str>, ThreadStatus)> = life
        .report
        .threads
        .iter()
        .map(|thread| (thread.path_id.as_deref(), thread.status))
        .collect();
    let cancelled = ThreadStatus::Cancelled;
    assert_eq!(statuses.len(), 6, "{statuses:?}");
    assert_eq!(
        statuses.iter().filter(|(_, status)| *status == cancelled).count(),
        5,
        "M32: main, the slow path, its two, and the called workflow: {statuses:?}"
    );
    assert!(
        statuses.contains(&(Some("quick"), ThreadStatus::Completed)),
        "M31: what had completed stays so: {statuses:?}"
    );
}

#[test]
fn m31_a_cancelled_branch_does_not_cancel_its_sibling() {
    let branches = [
        vec![node("stop", "WAIT", json!({"event": "never"}))],
        vec![wait("w", 50), code("b", "return 'done'")],
    ];
    let mut file = forked(&branches, false, &json!({"joinStrategy": "ANY_FAILED"}));
    // The trigger stops the first thread that enters `stop`, and not its join.
    file["triggers"] = json!([{"id": "t", "type": "EVENT",
        "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId === 'stop'"},
        "action": {"type": "STOP_THREAD", "parameters": {}}}]);
    let ran = run(&file, Value::Null);
    assert_eq!(ran.path_end("p0"), Some(ThreadStatus::Cancelled), "M31");
    assert_eq!(
        ran.code(),
        "",
        "M31: cancelled by someone else counts as failed: {:?}",
        ran.report.error
    );
    let mut both = file.clone();
    both["nodes"][2]["config"]["joinStrategy"] = json!("ANY_COMPLETED");
    let ran = run(&both, Value::Null);
    assert_eq!(ran.path_end("p0"), Some(ThreadStatus::Cancelled), "M31");
    assert_eq!(
        ran.path_end("p1"),
        Some(ThreadStatus::Completed),
        "M31: neither up nor sideways"
    );
    assert_eq!((ran.code(), ran.report.elapsed_ms), ("", 50), "M31");
}

/// Upstream differs here: it cannot cancel a running task.
#[test]
fn m34_a_running_script_can_be_cancelled() {
    let engine = Engine::builder()
        .arbiters(1)
        .workflows(line("main", &[code("spin", "for (;;) {}")]).to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut run = engine.run("main");
    let mut events = run.blocking_events(&[EventType::NodeStarted], 16);
    let handle = run.start().unwrap_or_else(|error| panic!("{error}"));
    let is_inside =
        events.any(|heard| matches!(heard, SubscriptionItem::Event(event) if event.raised.fields["nodeId"] == "spin"));
    assert!(is_inside, "M34");
    handle.cancel("enough");
    // Without the cancellation, the script ends FAILED at its time limit.
    assert_eq!(handle.outcome_blocking().status, ThreadStatus::Cancelled, "M34");
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
}
