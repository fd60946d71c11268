//! Scripts that are played until something goes wrong, and what may be found after it.

use futures::executor::block_on;
use pirn_store::conformance::{Step, contents_of, steps};
use pirn_store::{MemoryStore, SqliteStore, Store, StoreError};
use pirn_test_disk::{Disk, VFS};

pub(crate) const FILE: &str = "runs.db";

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Step(Box<Step>),
    /// Closed and opened: what is in the log goes into the file.
    Reopen,
    Compact,
}

/// A script, and what there is after so many of its acts.
pub(crate) struct Script {
    acts: Vec<Act>,
    /// One more than acts.
    pub(crate) contents: Vec<String>,
}

/// A script's progress.
#[derive(Debug)]
pub(crate) struct Played {
    /// So many acts were acknowledged.
    pub(crate) acts: usize,
    /// The first that was not says why.
    pub(crate) error: Option<StoreError>,
}

impl Script {
    pub(crate) fn new(seed: u64, count: usize) -> Self {
        let oracle = MemoryStore::new();
        let (mut acts, mut contents) = (Vec::new(), vec![contents_of(&oracle)]);
        for (at, step) in steps(seed, count).into_iter().enumerate() {
            step.apply(&oracle);
            acts.push(Act::Step(Box::new(step)));
            contents.push(contents_of(&oracle));
            if at % 9 == 8 {
                acts.push(if at % 18 == 8 { Act::Reopen } else { Act::Compact });
                contents.push(contents_of(&oracle));
            }
        }
        Self { acts, contents }
    }

    /// Plays it, from the act of this number, until the first failure that is the disk's.
    pub(crate) fn play(&self, disk: &Disk, from: usize) -> Played {
        let mut store = match open(disk) {
            Ok(store) => store,
            Err(error) => {
                let error = Some(error);
                return Played { acts: from, error };
            }
        };
        for (at, act) in self.acts.iter().enumerate().skip(from) {
            let done = match act {
                Act::Step(step) => apply(step, &store),
                Act::Compact => block_on(store.shrink(true)).map(drop),
                Act::Reopen => match store.close().and_then(|()| open(disk)) {
                    Ok(open) => {
                        store = open;
                        continue;
                    }
                    Err(error) => {
                        let error = Some(error);
                        return Played { acts: at, error };
                    }
                },
            };
            if let Err(error) = done {
                assert_stopped(&store, &error);
                let error = Some(error);
                return Played { acts: at, error };
            }
        }
        let error = store.close().err();
        Played {
            acts: self.acts.len(),
            error,
        }
    }

    /// The disk holds what was acknowledged, or that with the act after it, whole.
    pub(crate) fn is_as_after(&self, disk: &Disk, acts: usize, case: &dyn Fn() -> String) -> usize {
        let store = open(disk).unwrap_or_else(|error| panic!("{}: {error}", case()));
        let found = contents_of(&store);
        if found == self.contents[acts] {
            return acts;
        }
        if self.contents.get(acts + 1) == Some(&found) {
            return acts + 1;
        }
        panic!(
            "{}: after {acts} acts there is\n{found}\nin place of\n{}",
            case(),
            self.contents[acts]
        );
    }
}

pub(crate) fn open(disk: &Disk) -> Result<SqliteStore, StoreError> {
    SqliteStore::open_on(VFS, disk.path(FILE))
}

/// A refusal that is not the disk's is an answer like any other.
fn apply(step: &Step, store: &SqliteStore) -> Result<(), StoreError> {
    use pirn_store::Store;
    let answer = match step.clone() {
        Step::Commit(commit) => block_on(store.commit(*commit)).map(drop),
        Step::Remove(ids) => block_on(store.remove(ids, false)).map(drop),
        Step::SetMeta(name, value) => block_on(store.set_meta(name, value)),
        Step::RemoveSession(id) => block_on(store.remove_session(id)).map(drop),
    };
    answer.or_else(|error| {
        if error.code() == "STORE_ERROR" {
            Err(error)
        } else {
            Ok(())
        }
    })
}

/// After a failure that leaves open what is on the disk nothing is answered any more.
fn assert_stopped(store: &SqliteStore, error: &StoreError) {
    use pirn_store::Store;
    let is_full = error.to_string().contains("full");
    let next = block_on(store.meta("m"));
    assert!(
        is_full || matches!(next, Err(StoreError::Stopped { .. })),
        "{error}, and then {next:?}"
    );
}
