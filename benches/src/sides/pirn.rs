//! Workloads on the real engine, with isolation, containment and supervision.

#![allow(clippy::missing_panics_doc)] // a workload that fails is no measurement

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use pirn::{
    Engine, EngineBuilder, EventFilter, History, Message, Role, RunHandle, RunStatus, ThreadReport, ThreadStatus,
};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};

use super::{Spin, workflows};
use crate::workload::{EVENTS, MESSAGES};
use crate::{Round, Sample, Side, Workload, timed, took};

/// Engine, and the state that its functions update.
#[derive(Clone)]
pub struct Bench {
    engine: Engine,
    stamps: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Instant>>>,
    hits: Arc<AtomicUsize>,
    all_hit: Arc<Notify>,
    /// Conversations by number of messages.
    bases: Arc<BTreeMap<usize, History>>,
}

/// Creates the side, with an engine for all of `workloads`, and a subscriber to every event if `is_heard`.
#[allow(clippy::disallowed_methods)] // a benchmark has no host port
pub fn side(workloads: &[Workload], spin: Spin, is_heard: bool) -> Side {
    let bench = Bench::new(workloads, spin);
    if is_heard {
        let mut events = bench.engine.events(EventFilter::default(), 1 << 16);
        tokio::spawn(async move { while events.next().await.is_some() {} });
    }
    Side {
        name: if is_heard { super::HEARD } else { super::PIRN }.to_owned(),
        run: Box::new(move |workload| -> Round {
            let bench = bench.clone();
            Box::pin(async move { bench.round(workload).await })
        }),
    }
}

impl Bench {
    /// Creates an engine for these workloads.
    pub fn new(workloads: &[Workload], spin: Spin) -> Self {
        Self::on(Engine::builder(), workloads, spin)
    }

    /// Creates an engine on one thread under a virtual clock, where counts do not depend on thread scheduling.
    pub fn counted(workloads: &[Workload]) -> Self {
        Self::on(Engine::builder().virtual_time(None), workloads, Spin::none())
    }

    #[allow(clippy::disallowed_methods)] // a benchmark measures real time
    pub(super) fn on(builder: EngineBuilder, workloads: &[Workload], spin: Spin) -> Self {
        let (stamp, stamps) = mpsc::unbounded_channel();
        let hits = Arc::new(AtomicUsize::new(0));
        let all_hit = Arc::new(Notify::new());
        let (counted, tell) = (Arc::clone(&hits), Arc::clone(&all_hit));
        let mut builder = builder
            .function("next", |input| Ok(json!(input.as_u64().unwrap_or(0) + 1)))
            .function("stamp", move |_| {
                stamp
                    .send(Instant::now())
                    .map_err(|_| "the clock is not read".to_owned())?;
                Ok(Value::Null)
            })
            .function("hit", move |_| {
                if counted.fetch_add(1, Ordering::Relaxed) + 1 == EVENTS {
                    tell.notify_one();
                }
                Ok(Value::Null)
            })
            .async_function("spin", move |_| Box::pin(async move { Ok(json!(spin.work())) }))
            .workflows(workflows::waits().to_string())
            .workflows(workflows::idle().to_string());
        for workload in workloads {
            let workflow = match workload {
                Workload::Chain(nodes) => workflows::chain(*nodes),
                Workload::Fork(branches) => workflows::fork(*branches),
                Workload::Map(items) => workflows::map(*items),
                Workload::Any(losers) => workflows::any(*losers),
                Workload::Talk(branches) => workflows::talk(*branches),
                Workload::History(_) => workflows::talk(10),
                Workload::Cpu(branches) => workflows::cpu(*branches),
                Workload::Events(triggers) => workflows::triggers(*triggers),
                Workload::Runs(_) => continue,
            };
            builder = builder.workflows(workflow.to_string());
        }
        let engine = builder.build().expect("the workloads are valid");
        // Created here and not in the first round: an instruction count is a process with rounds minus one without.
        let bases = workloads.iter().filter_map(|workload| {
            let (workflow, count) = match workload {
                Workload::Talk(branches) => (format!("talk-{branches}"), MESSAGES),
                Workload::History(count) => ("talk-10".to_owned(), *count),
                Workload::Chain(_)
                | Workload::Fork(_)
                | Workload::Map(_)
                | Workload::Any(_)
                | Workload::Events(_)
                | Workload::Cpu(_)
                | Workload::Runs(_) => return None,
            };
            Some((count, engine.history(&workflow, messages(count))))
        });
        Self {
            bases: Arc::new(bases.collect()),
            engine,
            stamps: Arc::new(tokio::sync::Mutex::new(stamps)),
            hits,
            all_hit,
        }
    }

    /// Executes one round.
    pub async fn round(&self, workload: Workload) -> Sample {
        match workload {
            Workload::Chain(nodes) => took(self.run(&format!("chain-{nodes}"), None).await),
            Workload::Fork(branches) => took(self.run(&format!("fork-{branches}"), None).await),
            Workload::Map(items) => took(self.run(&format!("map-{items}"), None).await),
            Workload::Talk(branches) => took(self.run(&format!("talk-{branches}"), Some(MESSAGES)).await),
            Workload::History(messages) => took(self.run("talk-10", Some(messages)).await),
            Workload::Cpu(branches) => took(self.run(&format!("cpu-{branches}"), None).await),
            Workload::Any(losers) => self.any(losers).await,
            Workload::Events(triggers) => took(self.events(triggers).await),
            Workload::Runs(runs) => took(self.runs(runs).await),
        }
    }

    async fn run(&self, workflow: &str, messages: Option<usize>) -> f64 {
        let mut prepared = self.engine.run(workflow).input(json!(0));
        if let Some(count) = messages {
            prepared = prepared.conversation(self.bases[&count].clone());
        }
        let (us, report) = timed(async { prepared.start().expect("admitted").outcome().await }).await;
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        us
    }

    /// Measures from the event until the node after the join runs, and until every loser has ended.
    #[allow(clippy::disallowed_methods)] // a benchmark measures real time
    async fn any(&self, losers: usize) -> Sample {
        let run = self.engine.start(format!("any-{losers}"), json!(0)).expect("admitted");
        // The winner is the first branch and must wait already: an event without a waiter is discarded.
        stand(&run, losers + 2, 2).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let start = Instant::now();
        run.emit("go", Map::new());
        let report = run.outcome().await;
        let stopped = start.elapsed();
        let decided = self.stamps.lock().await.recv().await.expect("stamped") - start;
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        let ended = |status| report.threads.iter().filter(|thread| thread.status == status).count();
        assert_eq!(
            (ended(ThreadStatus::Completed), ended(ThreadStatus::Cancelled)),
            (2, losers),
            "none runs on"
        );
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        Some(vec![("decided", us(decided)), ("all stopped", us(stopped))])
    }

    async fn events(&self, triggers: usize) -> f64 {
        let run = self.engine.start("source", json!(0)).expect("admitted");
        let names: Vec<Arc<str>> = (0..triggers / 10).map(|n| format!("E{n}").into()).collect();
        self.hits.store(0, Ordering::Relaxed);
        let (us, ()) = timed(async {
            for event in 0..EVENTS {
                run.emit(Arc::clone(&names[event % names.len()]), [("v", json!(event % 10))]);
                if event % 256 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            self.all_hit.notified().await;
        })
        .await;
        run.emit("over", Map::new());
        run.outcome().await;
        us
    }

    async fn runs(&self, runs: usize) -> f64 {
        let (us, ()) = timed(async {
            let started: Vec<_> = (0..runs)
                .map(|_| self.engine.start("waits", json!(0)).expect("admitted"))
                .collect();
            for run in started {
                assert_eq!(run.outcome().await.status, ThreadStatus::Completed);
            }
        })
        .await;
        us
    }
}

/// Waits until a run has `threads` threads, including the main thread, and the first `turns` of them have had their first turn.
pub async fn stand(run: &RunHandle, threads: usize, turns: usize) {
    let stands = |status: RunStatus| {
        let had_turn = |thread: &&ThreadReport| thread.status != ThreadStatus::Created;
        status.threads.len() == threads && status.threads.iter().filter(had_turn).count() >= turns
    };
    while !run.status().await.is_some_and(stands) {
        tokio::task::yield_now().await;
    }
    // Answered after the last of these turns, which holds the buffers of its effects until it ends.
    run.status().await;
}

/// Starts a run that makes `count` model calls and then waits. Returns the engine, the run, and the bytes that the run holds by
/// `held`, which returns the bytes in use.
pub async fn after_model_calls(
    builder: EngineBuilder,
    count: u64,
    held: impl Fn() -> usize,
) -> (Engine, RunHandle, f64) {
    let has_arrived = Arc::new(AtomicBool::new(false));
    let arrives = Arc::clone(&has_arrived);
    let engine = builder
        .workflows(workflows::turns(count).to_string())
        .function("arrive", move |_| {
            arrives.store(true, Ordering::Relaxed);
            Ok(Value::Null)
        })
        .build()
        .expect("valid");
    let before = held();
    let run = engine.start("turns", json!(0)).expect("admitted");
    while !has_arrived.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    stand(&run, 1, 1).await;
    let bytes = held().saturating_sub(before) as f64;
    (engine, run, bytes)
}

fn messages(count: usize) -> Vec<Message> {
    (0..count)
        .map(|n| Message::new(Role::User, format!("{n} {}", "x".repeat(200))))
        .collect()
}
