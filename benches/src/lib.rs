//! The peers' workloads on Pirn, each beside raw tokio, and beside graph-flow where that is built (`benches/run`).
//! Only ratios of one run on one machine mean anything.

pub mod cli;
pub mod command;
pub mod compare;
pub mod limit;
pub mod memory;
pub mod others;
pub mod picture;
pub mod report;
pub mod sides;
pub mod table;
pub mod workload;

use std::future::Future;
use std::pin::Pin;

pub use workload::Workload;

/// The times of one round of a workload, by what was measured, in microseconds; none where a side has no such thing.
pub type Sample = Option<Vec<(&'static str, f64)>>;

/// A round under way.
pub type Round = Pin<Box<dyn Future<Output = Sample> + Send>>;

/// Something that can do the workloads.
pub struct Side {
    /// Its name and version.
    pub name: String,
    /// Does one round. What it needs is made before the clock starts.
    pub run: Box<dyn Fn(Workload) -> Round + Send + Sync>,
}

/// The time that `work` takes, in microseconds, and its output.
#[allow(clippy::disallowed_methods)] // a benchmark measures real time
pub async fn timed<T>(work: impl Future<Output = T>) -> (f64, T) {
    let start = std::time::Instant::now();
    let value = work.await;
    (start.elapsed().as_secs_f64() * 1e6, value)
}

/// The time a round took.
pub fn took(us: f64) -> Sample {
    Some(vec![("", us)])
}
