//! The stored status of a run that has not ended.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, RunFilter, RunStatus, Store, WaitingFor};
use pirn::{CommandOutcome, Engine, PinSection, RunCommand, RunHandle, When};
use serde_json::{Value, json};

/// Returns a workflow with one path for each wait, forked if there are several.
fn bundle(waits: &[&str]) -> String {
    let configs = |wait: &str| match wait {
        "ask" => json!({"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}}),
        "event" => json!({"id": "event", "type": "WAIT", "config": {"event": "go"}}),
        "time" => json!({"id": "time", "type": "WAIT", "config": {"seconds": 600}}),
        _ => json!({"id": "work", "type": "CODE", "config": {"function": "work"}}),
    };
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        json!({"id": "end", "type": "END"}),
    ];
    nodes.push(json!({"id": "fork", "type": "FORK", "config": {"forkPathIds": waits, "childNodeIds": waits}}));
    nodes
        .push(json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": waits, "joinStrategy": "ALL_COMPLETED"}}));
    nodes.extend(waits.iter().map(|wait| configs(wait)));
    let mut edges = vec![
        json!({"from": "start", "to": "fork"}),
        json!({"from": "join", "to": "end"}),
    ];
    for wait in waits {
        edges.push(json!({"from": "fork", "to": wait}));
        edges.push(json!({"from": wait, "to": "join"}));
    }
    json!({"id": "main", "nodes": nodes, "edges": edges}).to_string()
}

/// Returns an engine whose `work` stays pending for ever.
fn engine(bundle: &str, store: &MemoryStore) -> Engine {
    let engine = Engine::builder().store(store.clone()).workflows(bundle);
    let engine = engine.async_function("work", |_| std::future::pending::<Result<Value, String>>());
    engine.arbiters(1).build().expect("builds")
}

fn status(run: &RunHandle, store: &MemoryStore) -> RunStatus {
    block_on(run.wait_durable()).expect("is kept");
    block_on(store.run(run.run_id()))
        .expect("is read")
        .expect("is there")
        .status
}

#[test]
fn an_idle_run_waits_for_a_person_else_an_event_else_a_timer() {
    let all = ["ask", "event", "time", "work"];
    for chosen in 1_u32..16 {
        let has = |wait: usize| chosen & 1 << wait != 0;
        let waits: Vec<&str> = (0..4).filter(|wait| has(*wait)).map(|wait| all[wait]).collect();
        // A fork needs at least two paths.
        if waits.len() < 2 {
            continue;
        }
        let expected = match (has(3), has(0), has(1)) {
            (true, ..) => RunStatus::Unfinished,
            (false, true, _) => RunStatus::Waiting(WaitingFor::Interaction),
            (false, false, true) => RunStatus::Waiting(WaitingFor::Event),
            (false, false, false) => RunStatus::Waiting(WaitingFor::Timer),
        };
        let store = MemoryStore::new();
        let engine = engine(&bundle(&waits), &store);
        let run = engine.start("main", json!({})).expect("starts");
        assert_eq!(status(&run, &store), expected, "{waits:?}");
        engine.shutdown_blocking(Duration::ZERO);
        assert_eq!(
            block_on(store.run(run.run_id()))
                .expect("is read")
                .expect("is there")
                .status,
            expected
        );
    }
}

#[test]
fn the_waiting_status_of_a_run_follows_its_inputs_in_every_process() {
    let store = MemoryStore::new();
    let first = engine(&bundle(&["ask", "event", "time"]), &store);
    let run = first.run("main").run_id("r").start().expect("starts");
    assert_eq!(status(&run, &store), RunStatus::Waiting(WaitingFor::Interaction));
    let question = block_on(run.interactions()).remove(0).id.clone();
    first.shutdown_blocking(Duration::ZERO);

    let second = engine(&bundle(&["ask", "event", "time"]), &store);
    // The run has no owner when it receives the answer, so its next wait is not determined before a process resumes it.
    block_on(second.resume("r").answer(None, &question, "yes")).expect("is taken");
    let found = block_on(store.run("r")).expect("is read").expect("is there");
    assert_eq!(found.status, RunStatus::Unfinished);
    let run = block_on(second.resume("r").start()).expect("goes on");
    assert_eq!(status(&run, &store), RunStatus::Waiting(WaitingFor::Event));
    run.cancel("enough");
    run.outcome_blocking();
    run.wait_all_ended_blocking();
    let live = block_on(store.runs(RunFilter::live(), None, 9)).expect("is read");
    assert!(live.is_empty());
    second.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn an_explanation_has_the_status_of_the_store_after_an_input_without_an_owner() {
    let store = MemoryStore::new();
    let first = engine(&bundle(&["event", "time"]), &store);
    let run = first.run("main").run_id("r").start().expect("starts");
    assert_eq!(status(&run, &store), RunStatus::Waiting(WaitingFor::Event));
    first.shutdown_blocking(Duration::ZERO);
    let second = engine(&bundle(&["event", "time"]), &store);
    let explained = || block_on(second.view("r", None)).expect("is read").explain();
    assert!(
        explained().starts_with("r of main: WAITING after step "),
        "{}",
        explained()
    );
    let emit = RunCommand::Emit {
        name: "go".to_owned(),
        data: serde_json::Map::new(),
    };
    let told = block_on(second.send_command("r", &emit)).expect("is stored");
    assert_eq!(told, CommandOutcome::Kept);
    let text = explained();
    assert!(text.starts_with("r of main: UNFINISHED after step "), "{text}");
    assert!(text.contains("\nCause: its next step is ready"), "{text}");
    assert!(text.contains("`pirn runs resume r` continues it.\n"), "{text}");
    second.shutdown_blocking(Duration::from_secs(5));
}

/// Returns commands for the main thread of a run.
fn commands() -> [RunCommand; 5] {
    [
        RunCommand::Cancel {
            reason: "enough".to_owned(),
        },
        RunCommand::Pause,
        RunCommand::Unpause,
        RunCommand::Emit {
            name: "go".to_owned(),
            data: serde_json::Map::new(),
        },
        RunCommand::Pin {
            section: PinSection::Todo,
            value: json!("nothing"),
        },
    ]
}

#[test]
fn commands_to_a_run_whose_detached_threads_continue_are_refused() {
    let mut forked: Value = serde_json::from_str(&bundle(&["event", "time"])).expect("JSON");
    let nodes = forked["nodes"].as_array_mut().expect("nodes");
    let join = nodes.iter_mut().find(|node| node["id"] == "join").expect("a join");
    join["config"]["joinStrategy"] = json!("ANY_COMPLETED");
    join["config"]["onDecided"] = json!("detach");
    let store = MemoryStore::new();
    let engine = engine(&forked.to_string(), &store);
    let run = engine.run("main").run_id("r").start().expect("starts");
    assert_eq!(status(&run, &store), RunStatus::Waiting(WaitingFor::Event));
    run.emit("go", [("n", json!(0))]);
    assert!(run.outcome_blocking().error.is_none(), "the main thread has ended");
    assert!(engine.find("r").is_some(), "the other branch continues");
    for command in commands() {
        let error = block_on(engine.send_command("r", &command)).expect_err("it has ended");
        assert_eq!(error.code(), "RUN_HAS_ENDED", "{command:?}");
    }
    engine.shutdown_blocking(Duration::ZERO);
}

#[test]
fn commands_to_an_ended_run_whose_events_were_dropped_are_refused_because_it_has_ended() {
    let store = MemoryStore::new();
    let engine = engine(&bundle(&["event", "time"]), &store);
    let run = engine.run("main").run_id("r").start().expect("starts");
    run.cancel("enough");
    run.wait_all_ended_blocking();
    let ended = block_on(store.run("r")).expect("is read").expect("is there");
    assert!(block_on(engine.drop_events(&ended)).expect("is reduced"));
    let answer = RunCommand::Answer {
        interaction_id: "r.0.1".to_owned(),
        answer: json!("yes"),
        by: None,
    };
    let say = RunCommand::Say {
        id: Some("m".to_owned()),
        text: "Hello.".to_owned(),
        when: When::BeforeNextRequest,
    };
    for command in commands().into_iter().chain([answer, say]) {
        let error = block_on(engine.send_command("r", &command)).expect_err("it has ended");
        assert_eq!(error.code(), "RUN_HAS_ENDED", "{command:?}");
    }
    let resumed = block_on(engine.resume("r").start()).expect_err("it has ended");
    let asked = block_on(engine.resume("r").interactions()).expect_err("it has ended");
    assert_eq!((resumed.code(), asked.code()), ("RUN_HAS_ENDED", "RUN_HAS_ENDED"));
    let viewed = block_on(engine.view("r", None)).expect_err("it has no events");
    assert_eq!(viewed.code(), "EVENTS_DROPPED", "a read names the reason");
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn an_input_to_an_ending_run_does_not_change_its_final_status() {
    let path = std::env::temp_dir().join(format!("pirn-ending-{}.db", std::process::id()));
    let store = pirn::store::SqliteStore::open(&path).expect("a store");
    let waits = r#"{"id": "main", "nodes": [{"id": "start", "type": "START"},
        {"id": "wait", "type": "WAIT", "config": {"event": "go"}}, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "wait"}, {"from": "wait", "to": "end"}]}"#;
    let engine = Engine::builder().store(store).workflows(waits).arbiters(1).build();
    let engine = engine.expect("builds");
    for _ in 0..20 {
        let run = engine.start("main", Value::Null).expect("starts");
        block_on(run.wait_durable()).expect("is kept");
        run.cancel("enough");
        run.emit("go", json!({}).as_object().cloned().unwrap_or_default());
        run.wait_all_ended_blocking();
        let store = engine.store().expect("it has one");
        let kept = block_on(store.run(run.run_id())).expect("is read").expect("is there");
        assert_eq!(kept.status, RunStatus::Cancelled);
    }
    engine.shutdown_blocking(Duration::from_secs(5));
    drop(engine);
    std::fs::remove_file(&path).unwrap_or(());
}
