//! Raw tokio: what the machine allows, with no graph and no isolation.
#![allow(clippy::disallowed_methods)] // this is the side without a host port
#![allow(clippy::missing_panics_doc)] // a workload that fails is no measurement

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::timed;

/// W1: `nodes` requests to one actor over a channel, one after another.
pub async fn chain(nodes: u64) -> f64 {
    let (ask, mut asked) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(64);
    tokio::spawn(async move {
        while let Some((value, answer)) = asked.recv().await {
            assert!(answer.send(value + 1).is_ok(), "the asker waits");
        }
    });
    timed(async {
        let mut value = 0;
        for _ in 0..nodes {
            let (answer, answered) = oneshot::channel();
            ask.send((value, answer)).await.expect("the actor lives");
            value = answered.await.expect("the actor answers");
        }
        assert_eq!(value, nodes);
    })
    .await
}

/// W2: `branches` tasks, joined.
pub async fn fork(branches: usize) -> f64 {
    timed(async {
        let mut set = JoinSet::new();
        for branch in 0..branches {
            set.spawn(async move { branch });
        }
        let mut count = 0;
        while let Some(branch) = set.join_next().await {
            branch.expect("no panic");
            count += 1;
        }
        assert_eq!(count, branches);
    })
    .await
}

/// W4: `branches` tasks share a base of messages, each adds one of its own.
pub async fn conversation(base: &Arc<Vec<String>>, branches: usize) -> f64 {
    timed(async {
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
        assert_eq!(tails.len(), branches);
    })
    .await
}

/// W10: `runs` tasks at once, each `nodes` waits of a millisecond.
pub async fn concurrent(runs: usize, nodes: usize) -> f64 {
    timed(async {
        let mut set = JoinSet::new();
        for _ in 0..runs {
            set.spawn(async move {
                for _ in 0..nodes {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        while let Some(done) = set.join_next().await {
            done.expect("no panic");
        }
    })
    .await
}
