//! An engine without threads for its actors: they run as a task on the thread that built the engine.

use std::future::Future;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use pirn::{
    BuildError, Compression, Engine, EngineBuilder, EventType, NotLocalContext, RunErrorCode, RunHandle, RunReport,
    ShutdownReport, SubscriptionItem, ThreadStatus,
};
use pirn_tests::world::{code, forked, line, long_conversation, node, say, wait, workflow};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs the future on a current-thread runtime with local tasks.
fn on_a_local_thread<T>(work: impl Future<Output = T>) -> T {
    LocalSet::new().block_on(&runtime(), work)
}

fn until_go(id: &str) -> Value {
    let nodes = [
        node("s", "START", json!({})),
        node("w", "WAIT", json!({"event": "go"})),
        node("e", "END", json!({"output": "output.data.answer"})),
    ];
    workflow(id, &nodes, &["s>w>e"])
}

/// Functions, scripts, models, a fork, a conversation that is compressed by a trigger, and an event.
fn builder() -> EngineBuilder {
    let call = |id: &str| node(id, "CODE", json!({"function": "next"}));
    let paths = [
        vec![call("a0"), say("a1", "from a")],
        vec![code("b0", "return 7"), say("b1", "from b")],
        vec![wait("c0", 5), call("c1")],
    ];
    let join = json!({"joinStrategy": "ALL_COMPLETED", "mainPathId": "p1"});
    let ask = |id: &str| {
        node(
            id,
            "LLM",
            json!({"profileId": "main", "prompt": format!("question {id}")}),
        )
    };
    let mut talk = line("talk", &[ask("A"), ask("B")]);
    talk["config"] = json!({"tokenLimit": 300});
    let bundle = json!({
        "workflows": [forked(&paths, false, &join), talk, until_go("gate"), line("hour", &[wait("w", 3_600_000)]),
            line("bad", &[node("x", "CODE", json!({"function": "panics"}))])],
        "profiles": [{"id": "main", "provider": "echo"}],
    });
    Engine::builder()
        .function("next", |input| Ok(json!(input.as_u64().unwrap_or(0) + 1)))
        .function("panics", |_| panic!("on purpose"))
        .compression(&Compression::summarize().keep_recent(2))
        .workflows(bundle.to_string())
}

fn local() -> Engine {
    built(builder().local())
}

#[track_caller]
fn built(builder: EngineBuilder) -> Engine {
    builder.build().unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn started(engine: &Engine, id: &str) -> RunHandle {
    engine.start(id, Value::Null).unwrap_or_else(|error| panic!("{error}"))
}

/// A report as JSON, without the fields that differ between runs.
fn normalized(report: &RunReport) -> Value {
    let text = serde_json::to_string(report).expect("a report is JSON");
    let mut told: Value = serde_json::from_str(&text.replace(&report.run_id, "RUN")).expect("still JSON");
    told["elapsedMs"] = Value::Null;
    for firing in told["firings"].as_array_mut().into_iter().flatten() {
        firing["timestamp"] = Value::Null;
    }
    for message in told["conversation"]["messages"].as_array_mut().into_iter().flatten() {
        if let Some(message) = message.as_object_mut() {
            message.remove("timestamp");
        }
    }
    told
}

async fn reports(engine: &Engine) -> Vec<Value> {
    let talk = engine.run("talk").conversation(long_conversation()).start();
    let runs = [
        started(engine, "forked"),
        talk.unwrap_or_else(|error| panic!("{error}")),
        started(engine, "gate"),
        started(engine, "bad"),
    ];
    // An event is missed by a WAIT that has not started, so it is raised until the run ends.
    while runs[2].try_outcome().is_none() {
        runs[2].emit("go", Map::from_iter([("answer".to_owned(), json!(1))]));
        runs[2].status().await;
        tokio::task::yield_now().await;
    }
    let mut reports = Vec::new();
    for run in runs {
        reports.push(normalized(&*run.outcome().await));
    }
    reports
}

#[test]
fn a_local_engine_and_arbiters_report_equal_results() {
    let on_arbiters = runtime().block_on(async { reports(&built(builder())).await });
    let here = on_a_local_thread(async { reports(&local()).await });
    assert_eq!(on_arbiters[0]["status"], json!("COMPLETED"));
    assert_eq!(on_arbiters[1]["firings"].as_array().map(Vec::len), Some(1));
    assert_eq!(on_arbiters[3]["error"]["code"], json!("ACTOR_PANICKED"));
    assert_eq!(here, on_arbiters);
}

#[test]
fn inline_functions_run_on_the_engines_thread_and_async_functions_on_another() {
    let seen: Arc<Mutex<Vec<(&str, ThreadId)>>> = Arc::default();
    let note = |what: &'static str| {
        let seen = Arc::clone(&seen);
        move || {
            let noted = seen
                .lock()
                .map(|mut seen| seen.push((what, std::thread::current().id())));
            noted.map(|()| Value::Null).map_err(|_| "poisoned".to_owned())
        }
    };
    let (inline, work) = (note("inline"), note("work"));
    let nodes = [
        node("a", "CODE", json!({"function": "inline"})),
        node("b", "CODE", json!({"function": "work"})),
    ];
    let builder = Engine::builder()
        .local()
        .function("inline", move |_| inline())
        .async_function("work", move |_| {
            let work = work.clone();
            Box::pin(async move { work() })
        })
        .workflows(line("both", &nodes).to_string());
    let here = std::thread::current().id();
    on_a_local_thread(async {
        let engine = built(builder);
        assert_eq!(started(&engine, "both").outcome().await.status, ThreadStatus::Completed);
    });
    let seen = seen.lock().expect("not poisoned");
    assert_eq!(seen[0], ("inline", here));
    assert_eq!(seen[1].0, "work");
    assert_ne!(seen[1].1, here, "work would hold the thread up");
}

#[test]
fn an_hour_passes_at_once_under_a_paused_clock() {
    on_a_local_thread(async {
        tokio::time::pause();
        let before = tokio::time::Instant::now();
        let report = started(&local(), "hour").outcome().await;
        assert_eq!(report.status, ThreadStatus::Completed);
        // The runtime's clock has a resolution of one millisecond.
        assert!(
            (3_600_000..3_600_010).contains(&report.elapsed_ms),
            "{}",
            report.elapsed_ms
        );
        assert!(before.elapsed() >= Duration::from_hours(1));
    });
}

#[test]
fn a_local_engine_cannot_be_built_on_a_thread_without_local_tasks() {
    #[track_caller]
    fn refused(built: Result<Engine, BuildError>, missing: NotLocalContext) {
        match built {
            Err(BuildError::Local(why)) => assert_eq!(why, missing),
            other => panic!("{other:?} where {missing:?} is missing"),
        }
    }
    let build = || builder().local().build();
    refused(build(), NotLocalContext::Runtime);
    runtime().block_on(async { refused(build(), NotLocalContext::LocalTasks) });
    let timeless = Builder::new_current_thread().build().expect("a runtime");
    LocalSet::new().block_on(&timeless, async { refused(build(), NotLocalContext::Timers) });
    let elsewhere = Runtime::new().expect("a runtime");
    let spawned = elsewhere.block_on(elsewhere.spawn(async move { builder().local().build() }));
    refused(spawned.expect("no panic"), NotLocalContext::LocalTasks);
    // A refused build leaves no state behind.
    on_a_local_thread(async {
        let engine = local();
        assert!(reports(&engine).await.len() > 1);
    });
}

#[test]
fn a_local_engine_has_neither_arbiters_nor_virtual_time() {
    on_a_local_thread(async {
        let [arbiters, virtual_time] = [builder().local().arbiters(2), builder().virtual_time(None).local()];
        let refused = [arbiters, virtual_time].map(|builder| builder.build().err().map(|error| error.to_string()));
        assert_eq!(
            refused.map(Option::unwrap_or_default),
            [
                "an engine accepts local actors or arbiters, not both",
                "an engine accepts local actors or virtual time, not both"
            ]
        );
    });
}

#[test]
fn a_shutdown_cancels_running_runs_and_ends_all_tasks() {
    on_a_local_thread(async {
        let engine = local();
        let runs = [started(&engine, "gate"), started(&engine, "hour")];
        let report = engine.shutdown(Duration::ZERO).await;
        let cancelled = ShutdownReport {
            runs_cancelled: 2,
            ..ShutdownReport::default()
        };
        assert_eq!(report, cancelled);
        for run in runs {
            assert_eq!(run.outcome().await.status, ThreadStatus::Cancelled);
        }
        let refused = engine.start("gate", Value::Null).expect_err("closed");
        assert_eq!(refused.code, RunErrorCode::Cancelled);
        assert_eq!(engine.shutdown(Duration::ZERO).await.runs_left, 0, "again");
    });
}

#[test]
fn a_local_shutdown_waits_for_runs_that_end_within_the_grace_period() {
    on_a_local_thread(async {
        let engine = local();
        let run = started(&engine, "gate");
        let mut shutdown = Box::pin(engine.shutdown(Duration::from_mins(1)));
        let done = std::future::poll_fn(|context| {
            // Raised at every turn, because an event is missed by a WAIT that has not started.
            run.emit("go", Map::new());
            if shutdown.as_mut().poll(context).is_pending() {
                context.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(())
        });
        done.await;
        assert_eq!(run.outcome().await.status, ThreadStatus::Completed);
    });
}

#[test]
fn dropping_the_last_handle_ends_the_tasks_of_the_engine() {
    let (runtime, thread) = (runtime(), LocalSet::new());
    thread.block_on(&runtime, async {
        let engine = local();
        drop(started(&engine, "gate"));
        engine.clone().triggers(None).await;
    });
    // Completes when no task is left.
    runtime.block_on(thread);
}

#[test]
fn dropping_the_local_set_ends_an_engine_with_live_handles() {
    let (runtime, thread) = (runtime(), LocalSet::new());
    let (engine, run) = thread.block_on(&runtime, async {
        let engine = local();
        let run = started(&engine, "gate");
        run.status().await;
        (engine, run)
    });
    let waiting = std::thread::spawn({
        let run = run.clone();
        move || run.outcome_blocking()
    });
    drop(thread);
    for report in [waiting.join().expect("no panic"), run.outcome_blocking()] {
        let error = report.error.as_ref().map(|error| (error.code, error.message.as_str()));
        assert_eq!(error, Some((RunErrorCode::Cancelled, "the engine has stopped")));
    }
    run.wait_all_ended_blocking();
    let refused = engine.start("gate", Value::Null).expect_err("nobody is there");
    assert_eq!(refused.message, "the engine has stopped");
    assert!(engine.load("more", &until_go("more").to_string()).is_ok());
    assert_eq!(
        engine.shutdown_blocking(Duration::from_mins(1)),
        ShutdownReport::default()
    );
    runtime.block_on(async {
        assert!(run.status().await.is_none());
        assert!(engine.triggers(None).await.is_empty());
        engine.shutdown(Duration::from_mins(1)).await;
    });
}

#[test]
fn other_threads_use_a_local_engine_by_messages() {
    on_a_local_thread(async {
        let engine = local();
        let (done, other) = tokio::sync::oneshot::channel();
        let caller = std::thread::spawn(move || {
            let mut prepared = engine.run("gate");
            let mut events = prepared.blocking_events(&[EventType::NodeStarted], 16);
            let run = prepared.start().unwrap_or_else(|error| panic!("{error}"));
            let heard = events
                .by_ref()
                .take(2)
                .all(|heard| matches!(heard, SubscriptionItem::Event(_)));
            run.emit("go", Map::new());
            let status = run.outcome_blocking().status;
            let report = engine.shutdown_blocking(Duration::from_mins(1));
            done.send((heard, status, report)).unwrap_or(());
        });
        let (heard, status, report) = other.await.expect("told");
        assert!(heard);
        assert_eq!(status, ThreadStatus::Completed);
        assert_eq!(report, ShutdownReport::default());
        caller.join().expect("no panic");
    });
}

#[test]
fn a_blocking_call_on_the_engines_thread_returns_instead_of_deadlocking() {
    on_a_local_thread(async {
        let engine = local();
        let mut prepared = engine.run("gate");
        let mut events = prepared.blocking_events(&[EventType::NodeStarted], 16);
        let run = prepared.start().unwrap_or_else(|error| panic!("{error}"));
        assert!(events.next().is_none(), "nothing has come");
        let report = run.outcome_blocking();
        assert_eq!((report.status, report.error.is_some()), (ThreadStatus::Running, true));
        run.wait_all_ended_blocking();
        engine.wait_idle();
        while run.try_outcome().is_none() {
            run.emit("go", Map::new());
            tokio::task::yield_now().await;
        }
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
        assert_eq!(events.by_ref().count(), 3, "it is there by now");
        let left = started(&engine, "hour");
        assert_eq!(engine.shutdown_blocking(Duration::ZERO).runs_left, 1);
        assert_eq!(left.outcome().await.status, ThreadStatus::Cancelled);
    });
}

#[test]
fn the_thread_of_a_local_engine_may_use_the_engine_outside_of_its_tasks() {
    let (runtime, thread) = (runtime(), LocalSet::new());
    let engine = thread.block_on(&runtime, async { local() });
    let run = started(&engine, "forked");
    let more = engine.load("more", &until_go("more").to_string());
    assert!(more.is_ok());
    run.cancel("no longer needed");
    assert!(run.try_outcome().is_none(), "nothing turns here");
    let report = thread.block_on(&runtime, run.outcome());
    assert_eq!(report.status, ThreadStatus::Cancelled);
    drop((engine, run));
    runtime.block_on(thread);
}

#[test]
fn a_trigger_loaded_into_a_local_engine_applies_to_the_next_run() {
    let trigger = json!({"triggers": [{"id": "t", "type": "EVENT",
        "action": {"type": "CUSTOM", "parameters": {"function": "count"}},
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'start'"}}]});
    let fired = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&fired);
    on_a_local_thread(async {
        let engine = built(
            builder()
                .local()
                .function("count", move |_| Ok(json!(counted.fetch_add(1, Relaxed)))),
        );
        engine.load("trigger", &trigger.to_string()).expect("valid");
        started(&engine, "forked").wait_all_ended().await;
        engine.shutdown(Duration::from_mins(1)).await;
    });
    assert_eq!(fired.load(Relaxed), 1);
}

#[test]
fn several_engines_share_a_thread_and_a_process() {
    let threads: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(|| {
                on_a_local_thread(async {
                    let engines = [local(), local(), built(builder().arbiters(1))];
                    let mut told = Vec::new();
                    for engine in &engines {
                        told.push(reports(engine).await);
                    }
                    drop(engines);
                    told
                })
            })
        })
        .collect();
    let told: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().expect("no panic"))
        .collect();
    assert_eq!(told.len(), 6);
    assert!(told.iter().all(|reports| *reports == told[0]));
}

#[test]
fn a_function_of_a_run_may_start_another_run_and_drop_the_last_handle() {
    let held: Arc<Mutex<Option<Engine>>> = Arc::default();
    let taken = Arc::clone(&held);
    let (runtime, thread) = (runtime(), LocalSet::new());
    let nodes = [node("x", "CODE", json!({"function": "again"}))];
    let builder = Engine::builder()
        .local()
        .function("again", move |_| {
            let engine = taken.lock().map_err(|_| "poisoned".to_owned())?.take();
            let engine = engine.ok_or("somebody has it")?;
            let second = engine.start("idle", Value::Null).map_err(|error| error.to_string())?;
            Ok(json!(second.try_outcome().is_none()))
        })
        .workflows(json!({"workflows": [line("first", &nodes), line("idle", &[])]}).to_string());
    let outcome = thread.block_on(&runtime, async {
        let engine = built(builder);
        let run = started(&engine, "first");
        held.lock().expect("not poisoned").replace(engine);
        run.outcome().await
    });
    assert_eq!(
        (outcome.status, &outcome.output),
        (ThreadStatus::Completed, &json!(true))
    );
    runtime.block_on(thread);
}

#[test]
fn inputs_received_before_a_runs_first_turn_are_handled_before_it() {
    let called = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&called);
    let builder = Engine::builder()
        .local()
        .function("call", move |_| Ok(json!(calls.fetch_add(1, Relaxed))))
        .workflows(line("one", &[node("call", "CODE", json!({"function": "call"}))]).to_string());
    on_a_local_thread(async {
        let engine = built(builder);
        let cancelled = started(&engine, "one");
        cancelled.cancel("not at all");
        assert_eq!(cancelled.outcome().await.status, ThreadStatus::Cancelled);
        let paused = started(&engine, "one");
        paused.pause();
        let stands = async || paused.status().await.map(|status| status.status);
        // Queried before the first turn, and after it.
        assert_eq!(stands().await, Some(ThreadStatus::Created));
        while stands().await == Some(ThreadStatus::Created) {}
        assert_eq!((stands().await, called.load(Relaxed)), (Some(ThreadStatus::Paused), 0));
        paused.resume();
        assert_eq!(paused.outcome().await.output, json!(0));
    });
}
