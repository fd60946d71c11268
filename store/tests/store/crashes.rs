//! Power cuts at every operation.

use futures::executor::block_on;
use pirn_store::{Commit, Content, NewRun, Record, Store};
use pirn_test_disk::{Disk, Kind, Survives, Trouble};

use super::scripts::Script;

const VARIANTS: [Survives; 7] = [
    Survives::All,
    Survives::Nothing,
    Survives::LastTorn,
    Survives::Any(1),
    Survives::Any(2),
    Survives::Any(3),
    Survives::Any(4),
];

/// Number of random scripts. `PIRN_CRASH_SEEDS` sets it for a longer test.
fn seeds() -> u64 {
    std::env::var("PIRN_CRASH_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

#[test]
fn acknowledged_commits_survive_a_power_cut_at_every_operation() {
    let mut points = 0_u64;
    for seed in 0..seeds() {
        let script = Script::new(seed, 40);
        let whole = Disk::new();
        assert!(script.play(&whole, 0).error.is_none());
        for at in 0..whole.count() {
            let disk = Disk::new();
            disk.trouble(at, Trouble::PowerAfter);
            let played = script.play(&disk, 0);
            assert!(disk.is_off());
            for survives in VARIANTS {
                let case = || format!("seed {seed}, power off after operation {at}, {survives:?} survives");
                let after = disk.after_power_cut(survives);
                let acts = script.is_as_after(&after, played.acts, &case);
                points += 1;
                // The remaining acts can still be executed.
                if at % 11 == 0 {
                    assert!(script.play(&after, acts).error.is_none(), "{}", case());
                    script.is_as_after(&after, script.contents.len() - 1, &case);
                }
            }
        }
    }
    println!("{points} power cuts");
}

#[test]
fn a_power_cut_during_recovery_loses_nothing() {
    let script = Script::new(5, 25);
    let whole = Disk::new();
    assert!(script.play(&whole, 0).error.is_none());
    for at in (0..whole.count()).step_by(13) {
        let disk = Disk::new();
        disk.trouble(at, Trouble::PowerAfter);
        let played = script.play(&disk, 0);
        for survives in [Survives::All, Survives::Any(at)] {
            for second in 0.. {
                let recovering = disk.after_power_cut(survives);
                recovering.trouble(second, Trouble::PowerAfter);
                drop(super::scripts::open(&recovering));
                if !recovering.is_off() {
                    break;
                }
                let case =
                    || format!("power off after operation {at}, {survives:?} survives, off again after {second}");
                script.is_as_after(&recovering.after_power_cut(Survives::Any(second)), played.acts, &case);
            }
        }
    }
}

/// Number of steps that fill the log, and of those that overwrite its start.
const FILLING: u64 = 68;
const AFTER: u64 = 6;

fn long_step(step: u64) -> Record {
    let bytes = if step < FILLING { 64 << 10 } else { 50 };
    Record::new(step, format!("{step} {}", "x".repeat(bytes)))
}

/// Returns the number of acknowledged steps.
fn fill_the_log(disk: &Disk) -> u64 {
    let Ok(store) = super::scripts::open(disk) else {
        return 0;
    };
    let definition = Content::new("{}");
    let start = Commit::start("long", NewRun::new("flow", definition.hash(), 1)).content(definition);
    if block_on(store.commit(start)).is_err() {
        return 0;
    }
    let fails = |step: &u64| block_on(store.commit(Commit::after("long", *step).record(long_step(*step)))).is_err();
    (0..FILLING + AFTER).find(fails).unwrap_or(FILLING + AFTER)
}

#[test]
fn a_commit_that_overwrites_the_start_of_the_log_survives_a_power_cut() {
    let whole = Disk::new();
    assert_eq!(fill_the_log(&whole), FILLING + AFTER);
    let operations = whole.operations();
    let of_log = |kind: Kind| {
        move |operation: &&pirn_test_disk::Operation| operation.file.ends_with("-wal") && operation.kind == kind
    };
    // Truncated once at the open and once at the close.
    assert!(
        operations.iter().filter(of_log(Kind::Truncate)).count() <= 2,
        "it keeps its length"
    );
    let (last, mut points) = (whole.count(), 0);
    let filled = last * 2 / 5;
    for at in (filled..last).filter(|at| last - at < 44 || at % 401 == 0) {
        let disk = Disk::new();
        disk.trouble(at, Trouble::PowerAfter);
        let acknowledged = fill_the_log(&disk);
        for survives in [Survives::All, Survives::Nothing, Survives::LastTorn, Survives::Any(at)] {
            let store = super::scripts::open(&disk.after_power_cut(survives));
            let store = store.unwrap_or_else(|error| panic!("power off after operation {at}, {survives:?}: {error}"));
            let journal = block_on(store.journal("long", 0, 1_000)).expect("is read");
            let steps = journal.len() as u64;
            assert!(
                (acknowledged..=acknowledged + 1).contains(&steps),
                "power off after operation {at}, {survives:?}: {steps} steps of {acknowledged}"
            );
            assert!((0..).zip(&journal).all(|(step, record)| *record == long_step(step)));
            points += 1;
        }
    }
    println!("{points} power cuts");
}
