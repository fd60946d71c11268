//! Limits on growth: ten times the work costs at most twelve times as much, and a waiting thread and a waiting run stay small. The
//! test counts allocations and bytes, which do not depend on the load of the machine. The file has one test, because the counters
//! are global to the process.

use std::alloc::System;
use std::time::Duration;

use pirn::Engine;
use pirn::store::MemoryStore;
use pirn_benches::Workload;
use pirn_benches::sides::Spin;
use pirn_benches::sides::pirn::{Bench, after_model_calls, stand};
use pirn_benches::sides::workflows;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the allocations and bytes of a round, after a warm-up round.
async fn cost(workload: Workload) -> (f64, f64) {
    let bench = Bench::new(&[workload], Spin::none());
    bench.round(workload).await;
    let region = Region::new(COUNTED);
    bench.round(workload).await;
    let change = region.change();
    (change.allocations as f64, change.bytes_allocated as f64)
}

/// Returns the bytes in use while all threads rest: the minimum of 200 measurements, one per millisecond. An arbiter answers `status`
/// before it frees the buffers of its turn, and a loaded machine may suspend it between the two for longer than many requests take.
#[allow(clippy::disallowed_methods)] // a benchmark measures real time
fn held_at_rest() -> usize {
    let measured = (0..200).map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        held()
    });
    measured.min().expect("measured")
}

fn held() -> usize {
    let stats = COUNTED.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// Returns the allocations of a replay of a run that made `count` model calls, and their bytes.
async fn replayed(count: u64) -> [f64; 2] {
    let (engine, run, _) = after_model_calls(Engine::builder().store(MemoryStore::new()), count, held).await;
    engine.view(run.run_id(), None).await.expect("replays");
    let region = Region::new(COUNTED);
    let view = engine.view(run.run_id(), None).await;
    let change = region.change();
    assert!(view.expect("replays").step >= count, "every turn is replayed");
    run.cancel("enough");
    run.outcome().await;
    [change.allocations as f64, change.bytes_allocated as f64]
}

#[tokio::test]
async fn costs_grow_linearly_and_waiting_threads_stay_small() {
    let tenfold = [
        (Workload::Chain(100), Workload::Chain(1_000)),
        (Workload::Fork(100), Workload::Fork(1_000)),
        (Workload::Any(100), Workload::Any(1_000)),
        (Workload::Talk(100), Workload::Talk(1_000)),
        (Workload::Runs(20), Workload::Runs(200)),
    ];
    for (small, large) in tenfold {
        let ((few, bytes), (many, more)) = (cost(small).await, cost(large).await);
        assert!(
            many <= 12.0 * few,
            "{}: {few} allocations, {many} for ten times the work",
            large.label()
        );
        assert!(
            more <= 12.0 * bytes,
            "{}: {bytes} bytes, {more} for ten times the work",
            large.label()
        );
    }
    let ((few, bytes), (many, more)) = (
        cost(Workload::History(1_000)).await,
        cost(Workload::History(10_000)).await,
    );
    assert!(
        many <= 1.2 * few && more <= 1.2 * bytes,
        "a run costs the same from a history of ten times the messages: {few} and {bytes} bytes, {many} and {more} bytes"
    );
    let ((few, _), (many, _)) = (cost(Workload::Events(100)).await, cost(Workload::Events(1_000)).await);
    assert!(
        many <= 1.2 * few,
        "events cost the same into ten times the triggers: {few}, {many}"
    );

    let threads = 2_000;
    let engine = Engine::builder()
        .workflows(workflows::fork_of_idle(threads).to_string())
        .build()
        .expect("valid");
    let before = held_at_rest();
    let run = engine.start("idle-fork", serde_json::json!(0)).expect("admitted");
    stand(&run, threads + 1, threads + 1).await;
    let bytes = held_at_rest().saturating_sub(before) as f64 / threads as f64;
    assert!((200.0..=1_100.0).contains(&bytes), "a waiting thread has {bytes} bytes");
    // The next measurement would count what this engine frees and what its threads allocate when they start.
    engine.shutdown(Duration::ZERO).await;

    let (runs, arbiters) = (1_000, 2);
    let engine = Engine::builder()
        .workflows(workflows::idle().to_string())
        .arbiters(arbiters)
        .build()
        .expect("valid");
    let start = || engine.start("idle", serde_json::json!(0)).expect("admitted");
    // One run per arbiter: an arbiter that starts later allocates its runtime (15 kB) between the two measurements.
    for _ in 0..arbiters {
        stand(&start(), 1, 1).await;
    }
    let before = held_at_rest();
    let waiting: Vec<_> = (0..runs).map(|_| start()).collect();
    for run in &waiting {
        stand(run, 1, 1).await;
    }
    let bytes = held_at_rest().saturating_sub(before) as f64 / f64::from(runs);
    assert!((1_000.0..=3_600.0).contains(&bytes), "a waiting run has {bytes} bytes");
    for run in &waiting {
        run.cancel("enough");
        run.outcome().await;
    }

    let (few, many) = (replayed(500).await, replayed(2_000).await);
    for (few, many) in few.into_iter().zip(many) {
        assert!(
            many <= 4.8 * few,
            "a replay costs the same for each model call: {few} for 500, {many} for 2,000"
        );
    }
}
