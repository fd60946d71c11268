//! Raw tokio: the lower bound of the machine, without a graph and without isolation.
#![allow(clippy::disallowed_methods)] // this is the side without a host port
#![allow(clippy::missing_panics_doc)] // a workload that fails is no measurement

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Spin;
use crate::workload::{EVENTS, MESSAGES, WAITS};
use crate::{Round, Sample, Side, Workload, timed, took};

/// Creates the side, with the initial data of `workload`.
pub fn side(workload: Workload, spin: Spin) -> Side {
    let base = texts(match workload {
        Workload::Talk(_) => MESSAGES,
        Workload::History(messages) => messages,
        Workload::Chain(_)
        | Workload::Fork(_)
        | Workload::Map(_)
        | Workload::Any(_)
        | Workload::Events(_)
        | Workload::Cpu(_)
        | Workload::Runs(_) => 0,
    });
    Side {
        name: "raw tokio".to_owned(),
        run: Box::new(move |workload| -> Round {
            let base = Arc::clone(&base);
            Box::pin(async move {
                match workload {
                    Workload::Chain(nodes) => took(chain(nodes as u64).await),
                    Workload::Fork(branches) | Workload::Map(branches) => took(fork(branches).await),
                    Workload::Any(losers) => any(losers).await,
                    Workload::Talk(branches) => took(talk(&base, branches).await),
                    Workload::History(_) => took(talk(&base, 10).await),
                    Workload::Events(triggers) => took(events(triggers).await),
                    Workload::Cpu(branches) => took(cpu(branches, spin).await),
                    Workload::Runs(runs) => took(runs_at_once(runs).await),
                }
            })
        }),
    }
}

fn texts(count: usize) -> Arc<Vec<String>> {
    Arc::new((0..count).map(|n| format!("{n} {}", "x".repeat(200))).collect())
}

/// Sends sequential requests to one actor over a channel.
async fn chain(nodes: u64) -> f64 {
    let (ask, mut asked) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(64);
    tokio::spawn(async move {
        while let Some((value, answer)) = asked.recv().await {
            assert!(answer.send(value + 1).is_ok(), "the asker waits");
        }
    });
    let (us, value) = timed(async {
        let mut value = 0;
        for _ in 0..nodes {
            let (answer, answered) = oneshot::channel();
            ask.send((value, answer)).await.expect("the actor lives");
            value = answered.await.expect("the actor answers");
        }
        value
    })
    .await;
    assert_eq!(value, nodes);
    us
}

async fn fork(branches: usize) -> f64 {
    let (us, count) = timed(async {
        let mut set = JoinSet::new();
        for branch in 0..branches {
            set.spawn(async move { branch });
        }
        let mut count = 0;
        while let Some(branch) = set.join_next().await {
            branch.expect("no panic");
            count += 1;
        }
        count
    })
    .await;
    assert_eq!(count, branches);
    us
}

/// Measures from the event until the winner is reported, and until the losers are dropped.
async fn any(losers: usize) -> Sample {
    let (event, happened) = oneshot::channel::<()>();
    let mut set = JoinSet::new();
    set.spawn(async move { happened.await.is_ok() });
    for _ in 0..losers {
        set.spawn(async {
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            false
        });
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    let start = Instant::now();
    event.send(()).expect("the winner waits");
    let won = set.join_next().await.expect("somebody ends").expect("no panic");
    let decided = start.elapsed().as_secs_f64() * 1e6;
    set.shutdown().await;
    let stopped = start.elapsed().as_secs_f64() * 1e6;
    assert!(won);
    Some(vec![("decided", decided), ("all stopped", stopped)])
}

/// Tasks share a base of messages, and each adds one message.
async fn talk(base: &Arc<Vec<String>>, branches: usize) -> f64 {
    let (us, tails) = timed(async {
        let mut set = JoinSet::new();
        for branch in 0..branches {
            let base = Arc::clone(base);
            set.spawn(async move {
                let tail = vec![format!("{branch} after {}", base.len())];
                (base, tail)
            });
        }
        let mut tails = Vec::with_capacity(branches);
        while let Some(done) = set.join_next().await {
            tails.extend(done.expect("no panic").1);
        }
        tails
    })
    .await;
    assert_eq!(tails.len(), branches);
    us
}

/// Matcher actor with an index: ten triggers for each name, and each trigger compares a number.
async fn events(triggers: usize) -> f64 {
    let names: Vec<Arc<str>> = (0..triggers / 10).map(|n| Arc::from(format!("E{n}"))).collect();
    let mut index: HashMap<Arc<str>, Vec<u64>> = HashMap::new();
    for trigger in 0..triggers {
        let name = &names[trigger % names.len()];
        index
            .entry(Arc::clone(name))
            .or_default()
            .push((trigger / names.len()) as u64);
    }
    let hits = Arc::new(AtomicUsize::new(0));
    let (send, mut events) = mpsc::channel::<(Arc<str>, u64)>(1_024);
    let counted = Arc::clone(&hits);
    let matcher = tokio::spawn(async move {
        while let Some((name, value)) = events.recv().await {
            let triggers = index.get(&name).map_or(&[][..], Vec::as_slice);
            let matched = triggers.iter().filter(|wanted| **wanted == value).count();
            counted.fetch_add(matched, Ordering::Relaxed);
        }
    });
    let (us, ()) = timed(async {
        for event in 0..EVENTS {
            let name = Arc::clone(&names[event % names.len()]);
            send.send((name, (event % 10) as u64)).await.expect("the matcher lives");
        }
        drop(send);
        matcher.await.expect("no panic");
    })
    .await;
    assert_eq!(hits.load(Ordering::Relaxed), EVENTS);
    us
}

async fn cpu(branches: usize, spin: Spin) -> f64 {
    let (us, ()) = timed(async {
        let mut set = JoinSet::new();
        for _ in 0..branches {
            set.spawn(async move { spin.work() });
        }
        while let Some(done) = set.join_next().await {
            done.expect("no panic");
        }
    })
    .await;
    us
}

async fn runs_at_once(runs: usize) -> f64 {
    let (us, ()) = timed(async {
        let mut set = JoinSet::new();
        for _ in 0..runs {
            set.spawn(async move {
                for _ in 0..WAITS {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        while let Some(done) = set.join_next().await {
            done.expect("no panic");
        }
    })
    .await;
    us
}
