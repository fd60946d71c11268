//! Workloads of the peers on Pirn, compared with raw tokio, and with graph-flow if that is built (`benches/run`).
//! Compare only the ratios of one execution on one machine.

pub mod cli;
pub mod command;
pub mod compare;
pub mod limit;
pub mod memory;
pub mod others;
pub mod picture;
pub mod processes;
pub mod report;
pub mod sides;
pub mod table;
pub mod workload;

use std::future::Future;
use std::pin::Pin;

pub use workload::Workload;

/// Times of one round of a workload in microseconds, by part; none if the side does not support the workload.
pub type Sample = Option<Vec<(&'static str, f64)>>;

/// Future of a round.
pub type Round = Pin<Box<dyn Future<Output = Sample> + Send>>;

/// Implementation of the workloads.
pub struct Side {
    /// Name and version.
    pub name: String,
    /// Executes one round. Preparation is not included in the time.
    pub run: Box<dyn Fn(Workload) -> Round + Send + Sync>,
}

/// Measures a future. Returns microseconds and its output.
#[allow(clippy::disallowed_methods)] // a benchmark measures real time
pub async fn timed<T>(work: impl Future<Output = T>) -> (f64, T) {
    let start = std::time::Instant::now();
    let value = work.await;
    (start.elapsed().as_secs_f64() * 1e6, value)
}

/// Returns a sample without parts.
pub fn took(us: f64) -> Sample {
    Some(vec![("", us)])
}
