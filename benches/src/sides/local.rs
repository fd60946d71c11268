//! Workloads on an engine that runs its actors on the measuring thread, like a single-threaded embedding program.
//! Workloads with models, tools or async functions are left out, because those run on other threads.

#![allow(clippy::disallowed_methods)] // a benchmark has no host port

use std::future::Future;

use pirn::Engine;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use super::Spin;
use super::pirn::Bench;
use crate::{Round, Sample, Side, Workload};

/// Creates the side: a thread that executes local tasks, and measures there.
///
/// # Errors
/// Fails if no thread can be started.
pub fn side(workload: Workload) -> std::io::Result<Side> {
    let (ask, mut asked) = mpsc::unbounded_channel::<(Workload, oneshot::Sender<Sample>)>();
    let thread = std::thread::Builder::new().name("bench-local".to_owned());
    thread.spawn(move || {
        on_a_local_thread(async move {
            let bench = bench(workload);
            while let Some((workload, answer)) = asked.recv().await {
                // The requester waits without a timeout.
                answer.send(bench.round(workload).await).unwrap_or(());
            }
        })
    })?;
    Ok(Side {
        name: super::LOCAL.to_owned(),
        run: Box::new(move |workload| -> Round {
            let ask = ask.clone();
            Box::pin(async move {
                if matches!(workload, Workload::Cpu(_)) {
                    return None;
                }
                let (answer, answered) = oneshot::channel();
                ask.send((workload, answer)).ok()?;
                answered.await.ok()?
            })
        }),
    })
}

/// Executes rounds on the calling thread, for a profiler.
///
/// # Errors
/// Fails if no runtime can be built.
pub fn rounds(workload: Workload, rounds: usize) -> std::io::Result<Vec<Sample>> {
    on_a_local_thread(async move {
        let bench = bench(workload);
        let mut samples = Vec::new();
        for _ in 0..rounds {
            samples.push(bench.round(workload).await);
        }
        samples
    })
}

/// Executes a future as a local task of the calling thread, as arbiters and servers do. The future of `block_on` itself would be
/// woken through the operating system.
fn on_a_local_thread<T: 'static>(work: impl Future<Output = T> + 'static) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = LocalSet::new();
    let work = thread.spawn_local(work);
    Ok(thread.block_on(&runtime, work)?)
}

fn bench(workload: Workload) -> Bench {
    Bench::on(Engine::builder().local(), &[workload], Spin::none())
}
