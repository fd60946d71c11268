//! Limits on the memory of a replay. The allocator counts the bytes in use and their maximum, which do not depend on the load of the
//! machine. The file has one test, because the counters are global to the process.

use peak_alloc::PeakAlloc;
use pirn::Engine;
use pirn::store::MemoryStore;
use pirn_benches::sides::pirn::after_model_calls;

#[global_allocator]
static COUNTED: PeakAlloc = PeakAlloc;

/// Returns the bytes that a waiting run of `count` model calls holds, and the maximum that its replay holds in addition to the events
/// that it returns.
async fn replayed(count: u64) -> (f64, f64) {
    let builder = Engine::builder().store(MemoryStore::new());
    let (engine, run, live) = after_model_calls(builder, count, || COUNTED.current_usage()).await;
    engine.view(run.run_id(), None).await.expect("replays");
    let before = COUNTED.current_usage();
    COUNTED.reset_peak_usage();
    let mut view = engine.view(run.run_id(), None).await.expect("replays");
    let (most, whole) = (COUNTED.peak_usage(), COUNTED.current_usage());
    assert!(view.step >= count, "every turn is replayed");
    drop(std::mem::take(&mut view.events));
    let events = whole.saturating_sub(COUNTED.current_usage());
    run.cancel("enough");
    run.outcome().await;
    (live, most.saturating_sub(before + events) as f64)
}

#[tokio::test]
async fn a_replay_holds_at_most_three_times_the_memory_of_its_run_and_the_same_for_each_model_call() {
    let ((_, few), (live, many)) = (replayed(500).await, replayed(2_000).await);
    assert!(few > 0.0, "a replay allocates");
    assert!(many <= 4.8 * few, "{few} bytes for 500 model calls, {many} for 2,000");
    assert!(many <= 3.0 * live, "a run holds {live} bytes, its replay {many}");
}
