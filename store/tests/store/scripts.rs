//! Scripts of commands that are executed until a failure, and checks of the state after it.

use futures::executor::block_on;
use pirn_store::conformance::{Step, contents_of, steps};
use pirn_store::{MemoryStore, SqliteStore, Store, StoreError};
use pirn_test_disk::{Disk, VFS};

pub(crate) const FILE: &str = "runs.db";

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Step(Box<Step>),
    /// Closes and opens the store, which moves the log into the file.
    Reopen,
    Compact,
}

/// Script, and the expected contents after each of its acts.
pub(crate) struct Script {
    acts: Vec<Act>,
    /// One element more than `acts`.
    pub(crate) contents: Vec<String>,
}

/// Progress of a script.
#[derive(Debug)]
pub(crate) struct Played {
    /// Number of acknowledged acts.
    pub(crate) acts: usize,
    /// Error of the first act that was not acknowledged.
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

    /// Executes the acts from number `from` until the first failure of the disk.
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

    /// Asserts that the disk contains the acknowledged acts, and perhaps the next one as a whole. Returns their number.
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

/// Executes a step. Refusals that the disk did not cause are ignored.
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

/// Asserts that the store answers no more commands after a fatal failure.
fn assert_stopped(store: &SqliteStore, error: &StoreError) {
    use pirn_store::Store;
    let is_full = error.to_string().contains("full");
    let next = block_on(store.meta("m"));
    assert!(
        is_full || matches!(next, Err(StoreError::Stopped { .. })),
        "{error}, and then {next:?}"
    );
}
