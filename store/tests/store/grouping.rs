//! Group commits: commands that arrive during a sync are committed together.

use futures::executor::block_on;
use futures::future::join_all;
use pirn_store::{BATCH_BOUNDS, Commit, Content, NewRun, Record, Store};
use pirn_test_disk::{Disk, Kind};

use super::scripts::open;

fn syncs(disk: &Disk) -> usize {
    disk.operations()
        .iter()
        .filter(|operation| operation.kind == Kind::Sync)
        .count()
}

fn begin(store: &dyn Store, runs: usize) {
    let definition = Content::new("{}");
    for run in 0..runs {
        let new = NewRun::new("flow", definition.hash(), 1);
        block_on(store.commit(Commit::start(format!("run-{run}"), new).content(definition.clone()))).expect("begins");
    }
}

#[test]
fn commits_that_wait_for_a_sync_share_the_next_sync() {
    let disk = Disk::new();
    let store = open(&disk).expect("opens");
    begin(&store, 40);
    let before = syncs(&disk);
    disk.block_syncs();
    let step = |run: usize| store.commit(Commit::after(format!("run-{run}"), 0).record(Record::new(2, "1")));
    let first = step(0);
    disk.wait_for_blocked_sync();
    let others: Vec<_> = (1..40).map(step).collect();
    disk.release_syncs();
    assert_eq!(block_on(first), Ok(1));
    assert!(block_on(join_all(others)).into_iter().all(|answer| answer == Ok(1)));
    assert_eq!(syncs(&disk) - before, 2);
    // Batches of one: the 40 starts, and the first step.
    let figures = store.figures().expect("it counts");
    let others_at = BATCH_BOUNDS.iter().position(|bound| *bound >= 39).expect("a bound");
    let mut batches = [0; BATCH_BOUNDS.len()];
    (batches[0], batches[others_at]) = (41, 1);
    assert_eq!((figures.writes, figures.batches), (80, batches));
}

#[test]
fn a_lone_commit_costs_one_sync() {
    let disk = Disk::new();
    let store = open(&disk).expect("opens");
    begin(&store, 1);
    let before = syncs(&disk);
    for step in 0..10 {
        block_on(store.commit(Commit::after("run-0", step).record(Record::new(2, "1")))).expect("commits");
    }
    // The first commit after a checkpoint also syncs the header of the log.
    assert_eq!(syncs(&disk) - before, 10);
}

#[test]
fn a_refused_commit_does_not_affect_other_commits() {
    let disk = Disk::new();
    let store = open(&disk).expect("opens");
    begin(&store, 3);
    disk.block_syncs();
    let first = store.commit(Commit::after("run-0", 0).record(Record::new(2, "1")));
    disk.wait_for_blocked_sync();
    let fits = store.commit(Commit::after("run-1", 0).record(Record::new(2, "1")));
    let refused = store.commit(Commit::after("run-2", 7).record(Record::new(2, "1")));
    let follows = store.commit(Commit::after("run-1", 1).record(Record::new(2, "2")));
    disk.release_syncs();
    assert_eq!(
        (block_on(first), block_on(fits), block_on(follows)),
        (Ok(1), Ok(1), Ok(2))
    );
    assert_eq!(block_on(refused).map_err(|error| error.code()), Err("STORE_CONFLICT"));
    let figures = store.figures().expect("it counts");
    assert_eq!(
        (figures.writes, &figures.batches[..2]),
        (6, &[4, 1][..]),
        "what was refused is no write"
    );
}

#[test]
fn a_commit_is_acknowledged_only_when_durable() {
    let disk = Disk::new();
    let store = open(&disk).expect("opens");
    begin(&store, 1);
    disk.block_syncs();
    let mut answer = store.commit(Commit::after("run-0", 0).record(Record::new(2, "1")));
    disk.wait_for_blocked_sync();
    let told = block_on(async { futures::poll!(&mut answer).is_ready() });
    assert!(!told);
    disk.release_syncs();
    assert_eq!(block_on(answer), Ok(1));
}

#[test]
fn the_log_is_truncated_to_bound_its_size() {
    let disk = Disk::new();
    let store = open(&disk).expect("opens");
    begin(&store, 1);
    let large = "x".repeat(1 << 20);
    let mut longest = 0;
    for step in 0..40 {
        block_on(store.commit(Commit::after("run-0", step).record(Record::new(2, large.as_str())))).expect("commits");
        longest = longest.max(disk.read("runs.db-wal").len());
    }
    // 40 MiB were written; the log is truncated at 8 MiB.
    assert!(longest < 11 << 20, "{longest} bytes");
}
