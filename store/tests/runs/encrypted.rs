//! Runs in an encrypted store have the results of runs in a plain one.

use pirn_store::SqliteStore;
use pirn_test_disk::{Disk, Survives, Trouble, VFS};
use proptest::prelude::*;

use super::crashes::check;
use super::driver::{Scene, play};
use super::external::Receiver;
use super::fixtures::Workflows;
use super::workflows;
use crate::store::encrypted::keys;

fn open(disk: &Disk, of: &[u8]) -> Option<SqliteStore> {
    let path = disk.path("runs.db");
    let opened = if of.is_empty() {
        SqliteStore::open_on(VFS, path)
    } else {
        SqliteStore::open_encrypted_on(VFS, path, keys(of))
    };
    match opened {
        Ok(store) => Some(store),
        Err(_) if disk.is_off() => None,
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    /// `first` has the keys before the power cut: none, one that is replaced afterwards, or the last one.
    #[test]
    fn a_run_in_an_encrypted_store_resumes_after_a_power_cut_with_the_results_of_a_plain_one(
        number in any::<prop::sample::Index>(),
        seed in 0..4_u64,
        at in any::<prop::sample::Index>(),
        survives in prop::sample::select(vec![Survives::All, Survives::Nothing, Survives::LastTorn, Survives::Any(3)]),
        first in prop::sample::select(vec![&b""[..], b"a", b"b"]),
    ) {
        let bundles = workflows::all();
        let bundle = bundles[number.index(bundles.len())].clone();
        let workflows = Workflows::of(&bundle);
        let scene = Scene { bundle, workflows, seed };
        let mut whole = Receiver::default();
        play(&scene, &open(&Disk::new(), b"").expect("opens"), &mut whole).expect("ends");

        // As plain, in a store with a key that is not interrupted.
        let made = Disk::new();
        open(&made, first).expect("opens").close().expect("closes");
        let disk = made.after_power_cut(Survives::All);
        let mut found = Receiver::default();
        let store = open(&disk, b"ba").expect("opens");
        play(&scene, &store, &mut found).expect("ends");
        store.close().expect("closes");
        check(&found, &whole, &Receiver::default(), &|| "not interrupted".to_owned());

        let at = at.index(disk.count() as usize) as u64;
        let disk = made.after_power_cut(Survives::All);
        disk.trouble(at, Trouble::PowerAfter);
        let mut before = Receiver::default();
        if let Some(store) = open(&disk, first) {
            // Fails, unless the cut comes after its last operation.
            let _cut = play(&scene, &store, &mut before);
        }
        let case = || format!("seed {seed}, power off after operation {at}, {survives:?} survives");
        let disk = disk.after_power_cut(survives);
        let mut found = before.clone();
        let store = open(&disk, b"ba").expect("opens");
        play(&scene, &store, &mut found).unwrap_or_else(|error| panic!("{error}, {}", case()));
        check(&found, &whole, &before, &case);
    }
}
