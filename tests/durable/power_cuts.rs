//! The power is cut at every operation of the disk, under the shipped actors and the shipped store.

use pirn::store::SqliteStore;
use pirn_test_disk::{Disk, Survives, Trouble, VFS};

use super::crashes::compare;
use super::faults::external_effects::{Known, Outside};
use super::faults::failing_store::{Crash, Failing};
use super::small_workflows;

/// Returns the faults at operation `at`, and the part of the unsynced data that survives each of them.
fn leftovers(at: u64) -> [(Trouble, Survives); 3] {
    [
        (Trouble::PowerBefore, Survives::All),
        (Trouble::PowerAfter, Survives::Nothing),
        (Trouble::PowerAfter, Survives::Any(at)),
    ]
}

fn open(disk: &Disk) -> Option<Failing<SqliteStore>> {
    match SqliteStore::open_on(VFS, disk.path("runs.db")) {
        Ok(store) => Some(Failing::new(store, Crash::Never)),
        Err(_) if disk.is_off() => None,
        Err(error) => panic!("{error}"),
    }
}

/// Executes the run until the power is cut.
fn play_until(bundle: &str, disk: &Disk) -> Known {
    let outside = Outside::default();
    if let Some(store) = open(disk) {
        outside.play(bundle, &store);
    }
    outside.known().clone()
}

#[test]
fn a_run_resumes_with_an_unchanged_result_after_a_power_cut_at_any_operation() {
    let made = Disk::new();
    drop(open(&made).expect("opens"));
    let (mut points, mut repeats) = (0_u32, 0_u32);
    for (name, bundle) in small_workflows::all() {
        let disk = made.after_power_cut(Survives::All);
        let whole = play_until(&bundle, &disk);
        assert_eq!(whole.reports.len(), 1, "{name}");
        assert_eq!(whole.reports[0]["status"], "COMPLETED", "{name}: {}", whole.reports[0]);
        let compresses = whole
            .events
            .values()
            .any(|event| event["type"] == "COMPRESSION_COMPLETED");
        assert_eq!(compresses, name.ends_with("compression"), "{name}");
        for at in 0..disk.count() {
            let mut cut: Option<(Trouble, Disk, Known)> = None;
            for (trouble, survives) in leftovers(at) {
                if cut.as_ref().is_none_or(|(of, ..)| *of != trouble) {
                    let disk = made.after_power_cut(Survives::All);
                    disk.trouble(at, trouble);
                    let before = play_until(&bundle, &disk);
                    cut = Some((trouble, disk, before));
                }
                let Some((_, disk, before)) = &cut else { continue };
                let case = format!("{name}, {trouble:?} operation {at}, {survives:?} survives");
                let disk = disk.after_power_cut(survives);
                let outside = Outside::of(before.clone());
                let store = open(&disk).expect("opens");
                assert!(outside.play(&bundle, &store), "{case}: it ends in the end");
                let found = outside.known().clone();
                compare(&bundle, before, &found, &whole, &case);
                points += 1;
                repeats += u32::from(found.asked.values().any(|times| *times > 1));
            }
        }
    }
    println!("{points} crash points, {repeats} with a repeat");
    assert!(points > 300, "only {points}");
    assert!(repeats > 20, "only {repeats}");
}
