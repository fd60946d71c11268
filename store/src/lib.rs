//! The storage of durable runs.
//!
//! A run is its definition, what it started from, and the ordered list of what came from outside: its *journal*. A [`Store`]
//! keeps journals and what belongs to them, and promises, whatever kills the process or the machine:
//!
//! 1. A [`Commit`] is durable when its answer comes, and takes effect whole or not at all.
//! 2. Commands take effect in the order in which they are given; in a store that carries out several at a time, those of one run
//!    do ([`lanes`]).
//! 3. A record says what it follows. Two writers of one run can not both go on: the second is refused ([`StoreError::Moved`]).
//! 4. What is read is what was written. Damage is found and told ([`StoreError::Damaged`]); nothing is made up for it.
//! 5. After a write that the system could not vouch for, nothing more is written ([`StoreError::Stopped`]).
//!
//! [`MemoryStore`] keeps everything while the process lives; `SqliteStore` (feature `sqlite`) keeps it in one file. A store of
//! your own goes through the same suite, `conformance` (feature `conformance`).
//!
//! ```
//! use futures::executor::block_on;
//! use pirn_store::{Commit, Content, MemoryStore, NewRun, Record, RunStatus, Store};
//!
//! let store = MemoryStore::new();
//! let definition = Content::new("{\"id\": \"greet\"}");
//! let run = NewRun::new("greet", definition.hash(), 1_000);
//! block_on(store.commit(Commit::start("run-1", run).content(definition)))?;
//! block_on(store.commit(Commit::after("run-1", 0).record(Record::new(1_005, "\"hello\"")).status(RunStatus::Completed)))?;
//! assert_eq!(block_on(store.journal("run-1", 0, 100))?[0].body, "\"hello\"");
//! # Ok::<(), pirn_store::StoreError>(())
//! ```

mod claims;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod content;
mod error;
pub mod export;
mod figures;
pub mod lanes;
mod memory;
mod pending;
mod record;
mod run;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;

pub use claims::{Assignment, Claims};
pub use commit::{Commit, Follows, NewRun, SessionWrite, TimerChange};
pub use content::{Content, ContentHash};
pub use error::StoreError;
pub use figures::{BATCH_BOUNDS, StoreFigures, StoreMeter};
pub use memory::MemoryStore;
pub use pending::Pending;
pub use record::Record;
pub use run::{Base, MAX_FORKS, Run, RunFilter, RunPlace, RunStatus, Session, Snapshot, Timer, WaitingFor};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::{Removed, Store};
