//! The peers' workloads on Pirn, each beside raw tokio in the same run. `cargo run --release -p pirn-benches` prints the
//! ratios; absolute times mean nothing here.

pub mod pirn_side;
pub mod raw_side;

/// The middle one of some durations, in microseconds.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// How long `work` takes, in microseconds.
#[allow(clippy::disallowed_methods)] // a benchmark measures real time
pub async fn timed(work: impl Future<Output = ()>) -> f64 {
    let start = std::time::Instant::now();
    work.await;
    start.elapsed().as_secs_f64() * 1e6
}
