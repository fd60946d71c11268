//! Ten times the work costs at most twelve times, and a waiting thread and a waiting run stay small. Counts allocations and bytes,
//! which do not depend on the load of the machine. One test, because the counters are global to the process.

use std::alloc::System;

use pirn_benches::Workload;
use pirn_benches::sides::Spin;
use pirn_benches::sides::pirn::{Bench, stand};
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

#[tokio::test]
async fn costs_grow_with_the_work_and_waiting_is_cheap() {
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
    let engine = pirn::Engine::builder()
        .workflows(workflows::fork_of_idle(threads).to_string())
        .build()
        .expect("valid");
    let region = Region::new(COUNTED);
    let run = engine.start("idle-fork", serde_json::json!(0)).expect("admitted");
    stand(&run, threads + 1, threads + 1).await;
    let change = region.change();
    let bytes = (change.bytes_allocated as f64 - change.bytes_deallocated as f64) / threads as f64;
    assert!((200.0..=1_100.0).contains(&bytes), "a waiting thread has {bytes} bytes");
    run.cancel("enough");
    run.outcome().await;

    let runs = 1_000;
    let engine = pirn::Engine::builder()
        .workflows(workflows::idle().to_string())
        .build()
        .expect("valid");
    let start = || engine.start("idle", serde_json::json!(0)).expect("admitted");
    stand(&start(), 1, 1).await;
    let region = Region::new(COUNTED);
    let waiting: Vec<_> = (0..runs).map(|_| start()).collect();
    for run in &waiting {
        stand(run, 1, 1).await;
    }
    let change = region.change();
    let bytes = (change.bytes_allocated as f64 - change.bytes_deallocated as f64) / f64::from(runs);
    assert!((1_000.0..=3_600.0).contains(&bytes), "a waiting run has {bytes} bytes");
    for run in &waiting {
        run.cancel("enough");
        run.outcome().await;
    }
}
