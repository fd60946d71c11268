//! The power goes at every operation.

use pirn_test_disk::{Disk, Survives, Trouble};

use crate::scripts::Script;

const VARIANTS: [Survives; 7] = [
    Survives::All,
    Survives::Nothing,
    Survives::LastTorn,
    Survives::Any(1),
    Survives::Any(2),
    Survives::Any(3),
    Survives::Any(4),
];

/// Number of random scripts, by the environment for a longer look.
fn seeds() -> u64 {
    std::env::var("PIRN_CRASH_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_every_operation() {
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
                // The rest can be played, as if nothing had been.
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
fn a_power_cut_while_a_store_recovers_loses_nothing() {
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
                drop(crate::scripts::open(&recovering));
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
