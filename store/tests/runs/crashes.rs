//! Power cuts at every disk operation of every workflow.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

use pirn_store::SqliteStore;
use pirn_test_disk::{Disk, Survives, Trouble, VFS};

use super::driver::{Scene, play};
use super::external::Receiver;
use super::fixtures::Workflows;
use super::workflows;

/// Power cuts before and after operation `at`. Unsynced writes survive all, not at all, the last one torn, or in two random parts.
fn leftovers(at: u64) -> [(Trouble, Survives); 6] {
    [
        (Trouble::PowerBefore, Survives::All),
        (Trouble::PowerAfter, Survives::All),
        (Trouble::PowerAfter, Survives::Nothing),
        (Trouble::PowerAfter, Survives::LastTorn),
        (Trouble::PowerAfter, Survives::Any(at)),
        (Trouble::PowerAfter, Survives::Any(at + 1_000)),
    ]
}

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

/// Number of schedules of each workflow. `PIRN_CRASH_SEEDS` sets it for a longer test.
fn orders() -> u64 {
    std::env::var("PIRN_CRASH_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

/// Compares an interrupted run with an uninterrupted one: outcome, events and performed effects must be equal, and only the effect
/// that was pending at the power cut may be performed twice.
pub(super) fn check(found: &Receiver, whole: &Receiver, before: &Receiver, case: &dyn Fn() -> String) {
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

/// Counters of the power cuts in one workflow.
#[derive(Default)]
struct Tally {
    points: u64,
    repeats: u64,
}

/// Cuts the power at every operation of one run, in every way, and resumes the run.
fn crash_everywhere(scene: &Scene, made: &Disk, number: usize, tally: &mut Tally) {
    let disk = made.after_power_cut(Survives::All);
    let mut whole = Receiver::default();
    let store = open(&disk).expect("opens");
    play(scene, &store, &mut whole).expect("ends");
    drop(store);
    assert_eq!(whole.reports.len(), 1);
    for at in 0..disk.count() {
        let mut cut: Option<(Trouble, Disk, Receiver)> = None;
        for (trouble, survives) in leftovers(at) {
            let case = || {
                let order = scene.seed;
                format!("workflow {number}, order {order}, {trouble:?} operation {at}, {survives:?} survives")
            };
            if cut.as_ref().is_none_or(|(before, ..)| *before != trouble) {
                let disk = made.after_power_cut(Survives::All);
                disk.trouble(at, trouble);
                let mut before = Receiver::default();
                if let Some(store) = open(&disk) {
                    let played = play(scene, &store, &mut before);
                    assert!(played.is_err() || before.reports == whole.reports, "{}", case());
                }
                cut = Some((trouble, disk, before));
            }
            let Some((_, disk, before)) = &cut else { continue };
            let disk = disk.after_power_cut(survives);
            let store = open(&disk).expect("opens");
            let mut found = before.clone();
            play(scene, &store, &mut found).unwrap_or_else(|error| panic!("{error}, {}", case()));
            check(&found, &whole, before, &case);
            tally.points += 1;
            tally.repeats += u64::from(found.asked.values().any(|times| *times > 1));
        }
    }
}

#[test]
fn a_run_killed_at_any_operation_reaches_an_equal_result() {
    let workflows = workflows::all();
    // Crashes during the creation of a store are tested with the store itself.
    let made = Disk::new();
    open(&made).expect("opens").close().expect("closes");
    assert!(workflows.len() >= 20);
    let next = AtomicUsize::new(0);
    let threads = available_parallelism().map_or(2, NonZero::get);
    let tallies = thread::scope(|scope| {
        let work = || {
            let mut tally = Tally::default();
            while let number = next.fetch_add(1, Ordering::Relaxed)
                && let Some(bundle) = workflows.get(number)
            {
                for seed in 0..orders() {
                    let scene = Scene {
                        bundle: bundle.clone(),
                        workflows: Workflows::of(bundle),
                        seed,
                    };
                    crash_everywhere(&scene, &made, number, &mut tally);
                }
            }
            tally
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Vec<_>>()
    });
    let points: u64 = tallies.iter().map(|tally| tally.points).sum();
    let repeats: u64 = tallies.iter().map(|tally| tally.repeats).sum();
    println!("{points} crash points, {repeats} with a repeat");
    assert!(points >= 10_000, "only {points} crash points");
    assert!(repeats > 100, "only {repeats} had anything to repeat");
}
