//! The power goes at every operation of the disk, in every workflow.

use pirn_store::SqliteStore;
use pirn_test_disk::{Disk, Survives, Trouble, VFS};

use crate::driver::{Scene, play};
use crate::outside::{Receiver, Workflows};
use crate::workflows;

/// One of them each time, beside what chance leaves.
const TIDY: [Survives; 3] = [Survives::All, Survives::Nothing, Survives::LastTorn];

fn open(disk: &Disk) -> Option<SqliteStore> {
    match SqliteStore::open_on(VFS, disk.path("runs.db")) {
        Ok(store) => Some(store),
        Err(error) if disk.is_off() => {
            assert_eq!(error.code(), "STORE_ERROR");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// How many orders of each workflow, by the environment for a longer look.
fn orders() -> u64 {
    std::env::var("PIRN_CRASH_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// What the uninterrupted run asked for, was told and came to is what the interrupted one did, and nothing was asked for more
/// than once but what was under way when the power went.
fn check(found: &Receiver, whole: &Receiver, before: &Receiver, case: &dyn Fn() -> String) {
    assert_eq!(found.reports, whole.reports, "the outcome, {}", case());
    assert_eq!(found.events, whole.events, "the events, {}", case());
    let keys = |receiver: &Receiver| receiver.asked.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(whole), "what was asked for, {}", case());
    let again: Vec<_> = found.asked.iter().filter(|(_, times)| **times > 1).collect();
    assert!(
        again.len() <= 1,
        "one thing at a time is under way: {again:?}, {}",
        case()
    );
    for (key, times) in again {
        assert!(
            *times == 2 && before.asked.contains_key(key),
            "{key} was asked for {times} times, {}",
            case()
        );
    }
}

#[test]
fn a_run_that_is_killed_at_any_operation_comes_to_the_same() {
    let workflows = workflows::all();
    // What happens while a store is made is the store's own tests' to try.
    let made = Disk::new();
    open(&made).expect("opens").close().expect("closes");
    assert!(workflows.len() >= 20);
    let (mut points, mut repeats) = (0_u64, 0_u64);
    for (number, bundle) in workflows.into_iter().enumerate() {
        for seed in 0..orders() {
            let scene = Scene {
                bundle: bundle.clone(),
                workflows: Workflows::of(&bundle),
                seed,
            };
            let disk = made.after_power_cut(Survives::All);
            let mut whole = Receiver::default();
            let store = open(&disk).expect("opens");
            play(&scene, &store, &mut whole).expect("ends");
            drop(store);
            assert_eq!(whole.reports.len(), 1);
            for at in 0..disk.count() {
                let disk = made.after_power_cut(Survives::All);
                disk.trouble(at, Trouble::PowerAfter);
                let mut before = Receiver::default();
                if let Some(store) = open(&disk) {
                    let played = play(&scene, &store, &mut before);
                    assert!(played.is_err() || before.reports == whole.reports);
                }
                for survives in [
                    TIDY[at as usize % TIDY.len()],
                    Survives::Any(at),
                    Survives::Any(at + 1_000),
                ] {
                    let case = || {
                        format!(
                            "workflow {number}, order {seed}, power off after operation {at}, {survives:?} survives"
                        )
                    };
                    let disk = disk.after_power_cut(survives);
                    let store = open(&disk).expect("opens");
                    let mut found = before.clone();
                    play(&scene, &store, &mut found).unwrap_or_else(|error| panic!("{error}, {}", case()));
                    check(&found, &whole, &before, &case);
                    points += 1;
                    repeats += u64::from(found.asked.values().any(|times| *times > 1));
                }
            }
        }
    }
    println!("{points} crash points, {repeats} with a repeat");
    assert!(points >= 10_000, "only {points} crash points");
    assert!(repeats > 100, "only {repeats} had anything to repeat");
}
