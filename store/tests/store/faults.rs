//! Failures of every operation, in every way.

use pirn_test_disk::{Disk, Kind, Survives, Trouble};

use super::scripts::Script;

#[test]
fn a_failure_of_any_operation_is_reported_and_loses_nothing() {
    let script = Script::new(3, 30);
    let whole = Disk::new();
    assert!(script.play(&whole, 0).error.is_none());
    for trouble in [
        Trouble::Fails,
        Trouble::FailsAfter,
        Trouble::ShortWrite,
        Trouble::ReadOnly,
    ] {
        for at in 0..whole.count() {
            let disk = Disk::new();
            disk.trouble(at, trouble);
            let played = script.play(&disk, 0);
            let case = || {
                format!(
                    "{trouble:?} at operation {at}, {:?}",
                    disk.operations().get(at as usize)
                )
            };
            let error = played.error.as_ref().unwrap_or_else(|| panic!("{}: not told", case()));
            assert_eq!(error.code(), "STORE_ERROR", "{}: {error}", case());
            for survives in [Survives::All, Survives::Nothing, Survives::Any(at)] {
                script.is_as_after(&disk.after_power_cut(survives), played.acts, &|| {
                    format!("{}, {survives:?}", case())
                });
            }
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written() {
    let script = Script::new(4, 30);
    let whole = Disk::new();
    assert!(script.play(&whole, 0).error.is_none());
    let operations = whole.operations();
    // Before there is a log, the file is being created, and a failure undoes that.
    let made = operations
        .iter()
        .position(|operation| operation.file.ends_with("-wal"))
        .expect("a log");
    let syncs = operations
        .iter()
        .enumerate()
        .skip(made)
        .filter(|(_, operation)| operation.kind == Kind::Sync);
    for (at, _) in syncs {
        let disk = Disk::new();
        disk.trouble(at as u64, Trouble::Fails);
        let played = script.play(&disk, 0);
        assert!(played.error.is_some());
        assert_eq!(disk.operations().get(at + 1), None, "after the sync {at} that failed");
    }
}

#[test]
fn a_full_disk_refuses_commits_until_space_is_available() {
    let script = Script::new(6, 30);
    let whole = Disk::new();
    assert!(script.play(&whole, 0).error.is_none());
    for at in 0..whole.count() {
        let disk = Disk::new();
        disk.trouble(at, Trouble::Full);
        let played = script.play(&disk, 0);
        let case = || format!("full at operation {at}");
        if let Some(error) = &played.error {
            assert_eq!(error.code(), "STORE_ERROR", "{}: {error}", case());
            assert!(error.to_string().contains("full"), "{}: {error}", case());
        }
        disk.make_room();
        disk.trouble(u64::MAX, Trouble::Full);
        let acts = script.is_as_after(&disk, played.acts, &case);
        assert!(script.play(&disk, acts).error.is_none(), "{}", case());
        script.is_as_after(&disk, script.contents.len() - 1, &case);
    }
}
