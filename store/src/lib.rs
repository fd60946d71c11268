//! Storage of durable runs.
//!
//! A run consists of its definition, its initial contents, and its *journal*: the ordered list of its external inputs. A [`Store`]
//! stores journals and related data, with these guarantees against crashes and power failures:
//!
//! 1. A [`Commit`] is durable when it is answered, and is atomic.
//! 2. Commands take effect in the order in which they are given. A store that executes several concurrently guarantees the order
//!    for the commands of each run ([`command_order`]).
//! 3. A commit names its preceding step. Of two concurrent writers of a run, the second is refused ([`StoreError::Moved`]).
//! 4. Reads return the written data. Damage is detected and reported ([`StoreError::Damaged`]), never repaired by guesses.
//! 5. After a failed write with an unknown effect on the disk, the store stops ([`StoreError::Stopped`]).
//!
//! [`MemoryStore`] stores runs in memory; `SqliteStore` (feature `sqlite`) stores them in one file. Test your own store with the
//! suite in `conformance` (feature `conformance`).
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
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! conformance  sqlite
//!   ↓
//! export  forward  memory  starter
//!   ↓
//! store
//!   ↓
//! claims
//!   ↓
//! commit
//!   ↓
//! error
//!   ↓
//! keys  run
//!   ↓
//! command_order  content  figures
//! ```
//!
//! Reading order:
//! 1. `store`: the trait [`Store`], with `commit`, `run` and `content` as its data.
//! 2. `memory`: the smallest implementation.
//! 3. `conformance`: the rules of a store as tests.
//! 4. `sqlite`: start with `file::open`, then `writer`.

mod claims;
pub mod command_order;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod content;
mod error;
pub mod export;
mod figures;
mod forward;
#[cfg(feature = "sqlite")]
mod keys;
mod memory;
mod run;
#[cfg(feature = "sqlite")]
mod sqlite;
mod starter;
mod store;

pub use claims::{Assignment, Claims, advertised_in, process_label};
pub use commit::{Commit, NewRun, Precondition, SessionWrite, TimerChange};
pub use content::{Content, ContentHash};
pub use error::{Pending, StoreError};
pub use figures::{BATCH_BOUNDS, StoreFigures, StoreMeter};
#[cfg(feature = "sqlite")]
pub use keys::{InvalidKeys, KeyId, StoreKeys};
pub use memory::MemoryStore;
pub use run::{Base, MAX_FORKS, Record, Run, RunFilter, RunPlace, RunStatus, Session, Snapshot, Timer, WaitingFor};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use starter::{has_live_starter, is_started, removable, starter_of};
pub use store::{Removed, Store};
