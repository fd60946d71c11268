//! A disk in memory, for SQLite to write to (`Connection::open_with_flags_and_vfs(disk.path(), .., VFS)`).
//!
//! Every write, truncation, sync and deletion is an *operation* with a number. The disk separates synced from unsynced data, so a
//! test can cut the power at any operation and look at what a real disk may then hold: none of the unsynced data, all of it, a
//! subset in any order, or a torn last write. Operations can also fail.

mod vfs;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::ffi;

/// Name under which SQLite finds the disks.
pub const VFS: &str = "pirn-test-disk";

/// Time limit of `Disk::wait_for_blocked_sync`: far more than a real sync takes.
const LONG: Duration = Duration::from_mins(1);

/// A disk in memory. Its contents are freed when it is dropped and none of its files is open.
#[derive(Debug)]
pub struct Disk {
    number: u64,
    shared: Shared,
}

pub(crate) type Shared = Arc<Platter>;

#[derive(Debug, Default)]
pub(crate) struct Platter {
    state: Mutex<State>,
    /// Wakes all waiters, which check their conditions again.
    changed: Condvar,
}

impl Platter {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sync(&self, name: &str) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.is_held {
            state.waiting += 1;
            self.changed.notify_all();
            let held = self.changed.wait_while(state, |state| state.is_held);
            state = held.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.sync(name)
    }
}

/// A fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The power is cut before the operation.
    PowerBefore,
    /// Returns `compressed` with speculative compression, which starts before the limit is reached while the thread continues.
    PowerAfter,
    /// The operation has no effect and fails with EIO.
    Fails,
    /// The operation takes effect and reports a failure nevertheless.
    FailsAfter,
    /// Half of the bytes are written, then the operation fails with EIO.
    ShortWrite,
    /// The disk is full for this operation and all later ones, until [`Disk::make_room`].
    Full,
    /// The disk is read-only from this operation on.
    ReadOnly,
}

/// The part of the unsynced writes that survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// All unsynced writes survive.
    All,
    /// No unsynced write survives.
    Nothing,
    /// All unsynced writes survive, but the last one only in part.
    LastTorn,
    /// Any subset of the writes survives, in any order, some of them torn. The number is the seed of the choice.
    Any(u64),
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes are written.
    Write,
    /// A file is cut off or lengthened.
    Truncate,
    /// A file is made durable.
    Sync,
    /// A file is deleted.
    Delete,
}

/// An operation that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Kind of the operation.
    pub kind: Kind,
    /// Name of the file.
    pub file: String,
    /// Number of bytes written, or the new length.
    pub len: usize,
}

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is switched by itself
pub(crate) struct State {
    files: BTreeMap<String, File>,
    operations: Vec<Operation>,
    trouble: Option<(u64, Trouble)>,
    power_is_off: bool,
    is_full: bool,
    is_read_only: bool,
    /// True while syncs block.
    is_held: bool,
    waiting: usize,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// The content as a program sees it; `None` after the file was deleted.
    now: Option<Vec<u8>>,
    /// The content that is certain to survive a power cut.
    durable: Option<Vec<u8>>,
    /// Changes since the last sync.
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
    Delete,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

fn disks() -> MutexGuard<'static, HashMap<u64, Shared>> {
    static DISKS: OnceLock<Mutex<HashMap<u64, Shared>>> = OnceLock::new();
    DISKS
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Returns the disk of a path and the file's name on it.
pub(crate) fn find(path: &str) -> Option<(Shared, String)> {
    let (number, name) = path.strip_prefix('/')?.split_once('/')?;
    let disk = disks().get(&number.parse().ok()?)?.clone();
    Some((disk, name.to_owned()))
}

impl Disk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        vfs::register();
        Self::with(State::default())
    }

    fn with(state: State) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Platter {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        disks().insert(number, shared.clone());
        Self { number, shared }
    }

    /// Returns the path of a file of this disk.
    pub fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.number)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Returns the operations so far.
    pub fn operations(&self) -> Vec<Operation> {
        self.state().operations.clone()
    }

    /// Returns the number of operations so far.
    pub fn count(&self) -> u64 {
        self.state().operations.len() as u64
    }

    /// Applies `trouble` to the operation with number `at`. The first operation has number 0.
    pub fn trouble(&self, at: u64, trouble: Trouble) {
        self.state().trouble = Some((at, trouble));
    }

    /// Makes every later sync block.
    pub fn block_syncs(&self) {
        self.state().is_held = true;
    }

    /// Waits until a sync is blocked.
    ///
    /// # Panics
    ///
    /// Panics if no sync is blocked within a minute, so that a test of a write that is never synced fails and does not hang.
    pub fn wait_for_blocked_sync(&self) {
        let none_waits = |state: &mut State| state.waiting == 0;
        let waited = self.shared.changed.wait_timeout_while(self.state(), LONG, none_waits);
        let (state, ended) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!ended.timed_out(), "nothing is synced");
    }

    /// Releases the blocked syncs and stops blocking new ones.
    pub fn release_syncs(&self) {
        self.state().is_held = false;
        self.shared.changed.notify_all();
    }

    /// Makes space available again after `Trouble::Full`.
    pub fn make_room(&self) {
        self.state().is_full = false;
    }

    /// Returns true if the power is off.
    pub fn is_off(&self) -> bool {
        self.state().power_is_off
    }

    /// Returns the disk as it is found when the power is on again.
    #[must_use]
    pub fn after_power_cut(&self, survives: Survives) -> Self {
        let state = self.state();
        let mut dice = Dice(match survives {
            Survives::Any(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            Survives::All | Survives::Nothing | Survives::LastTorn => 1,
        });
        let files = state.files.iter().filter_map(|(name, file)| {
            let content = file.surviving(survives, &mut dice)?;
            let file = File {
                now: Some(content.clone()),
                durable: Some(content),
                unsynced: Vec::new(),
            };
            Some((name.clone(), file))
        });
        let files = files.collect();
        drop(state);
        Self::with(State {
            files,
            ..State::default()
        })
    }

    /// Returns the names of the existing files.
    pub fn files(&self) -> Vec<String> {
        let state = self.state();
        state
            .files
            .iter()
            .filter(|(_, file)| file.now.is_some())
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns the contents of a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        self.state()
            .files
            .get(name)
            .and_then(|file| file.now.clone())
            .unwrap_or_default()
    }

    /// Flips one bit of a file without an operation, as silent corruption does.
    pub fn flip(&self, name: &str, bit: usize) {
        if let Some(File { now, durable, .. }) = self.state().files.get_mut(name) {
            for bytes in [now, durable].into_iter().flatten() {
                if let Some(byte) = bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        disks().remove(&self.number);
    }
}

impl File {
    fn surviving(&self, survives: Survives, dice: &mut Dice) -> Option<Vec<u8>> {
        let mut content = self.durable.clone();
        match survives {
            Survives::Nothing => {}
            Survives::All => content.clone_from(&self.now),
            Survives::LastTorn => {
                for (at, change) in self.unsynced.iter().enumerate() {
                    let is_last = at + 1 == self.unsynced.len();
                    change.apply(&mut content, if is_last { 1 } else { 2 });
                }
            }
            Survives::Any(_) => {
                let mut changes: Vec<&Change> = self.unsynced.iter().filter(|_| dice.roll(2) == 0).collect();
                for at in (1..changes.len()).rev() {
                    changes.swap(at, dice.roll(at as u64 + 1) as usize);
                }
                for change in changes {
                    change.apply(&mut content, 1 + dice.roll(2));
                }
            }
        }
        content
    }
}

impl Change {
    /// Applies the change. Unless `halves` is 2, only the first half of a write is applied.
    fn apply(&self, content: &mut Option<Vec<u8>>, halves: u64) {
        match self {
            Self::Write(offset, bytes) => {
                let len = if halves == 2 { bytes.len() } else { bytes.len() / 2 };
                let content = content.get_or_insert_default();
                if content.len() < offset + len {
                    content.resize(offset + len, 0);
                }
                content[*offset..offset + len].copy_from_slice(&bytes[..len]);
            }
            Self::Truncate(len) => {
                content.get_or_insert_default().resize(*len, 0);
            }
            Self::Delete => *content = None,
        }
    }
}

/// An SQLite error code.
type Refused = i32;

impl State {
    pub(crate) fn exists(&self, name: &str) -> bool {
        self.files.get(name).is_some_and(|file| file.now.is_some())
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Creates a file. Its existence is not durable before a sync.
    pub(crate) fn create(&mut self, name: &str) -> Result<(), Refused> {
        if self.power_is_off || self.is_read_only {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        self.files
            .entry(name.to_owned())
            .or_default()
            .now
            .get_or_insert_default();
        Ok(())
    }

    pub(crate) fn len(&self, name: &str) -> usize {
        self.files
            .get(name)
            .and_then(|file| file.now.as_ref())
            .map_or(0, Vec::len)
    }

    /// Reads into the buffer and returns the number of bytes read.
    pub(crate) fn read(&self, name: &str, offset: usize, into: &mut [u8]) -> Result<usize, Refused> {
        if self.power_is_off {
            return Err(ffi::SQLITE_IOERR_READ);
        }
        let content = self
            .files
            .get(name)
            .and_then(|file| file.now.as_deref())
            .unwrap_or_default();
        let there = content.get(offset..).unwrap_or_default();
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    pub(crate) fn write(&mut self, name: &str, offset: usize, bytes: &[u8]) -> Result<(), Refused> {
        let change = Change::Write(offset, bytes.to_vec());
        self.operate(name, Kind::Write, bytes.len(), Some(change), ffi::SQLITE_IOERR_WRITE)
    }

    pub(crate) fn truncate(&mut self, name: &str, len: usize) -> Result<(), Refused> {
        self.operate(
            name,
            Kind::Truncate,
            len,
            Some(Change::Truncate(len)),
            ffi::SQLITE_IOERR_TRUNCATE,
        )
    }

    pub(crate) fn delete(&mut self, name: &str) -> Result<(), Refused> {
        self.operate(name, Kind::Delete, 0, Some(Change::Delete), ffi::SQLITE_IOERR_DELETE)
    }

    pub(crate) fn sync(&mut self, name: &str) -> Result<(), Refused> {
        self.operate(name, Kind::Sync, 0, None, ffi::SQLITE_IOERR_FSYNC)
    }

    fn operate(
        &mut self,
        name: &str,
        kind: Kind,
        len: usize,
        change: Option<Change>,
        code: i32,
    ) -> Result<(), Refused> {
        let number = self.operations.len() as u64;
        let trouble = self.trouble.filter(|(at, _)| *at == number).map(|(_, trouble)| trouble);
        match trouble {
            Some(Trouble::PowerBefore) => self.power_is_off = true,
            Some(Trouble::Full) => self.is_full = true,
            Some(Trouble::ReadOnly) => self.is_read_only = true,
            Some(Trouble::PowerAfter | Trouble::Fails | Trouble::FailsAfter | Trouble::ShortWrite) | None => {}
        }
        if self.power_is_off {
            return Err(code);
        }
        self.operations.push(Operation {
            kind,
            file: name.to_owned(),
            len,
        });
        if self.is_read_only {
            return Err(ffi::SQLITE_READONLY);
        }
        // Only a change that makes a file longer needs space.
        let grows = match &change {
            Some(Change::Write(offset, bytes)) => offset + bytes.len() > self.len(name),
            Some(Change::Truncate(_) | Change::Delete) | None => false,
        };
        if self.is_full && grows {
            return Err(ffi::SQLITE_FULL);
        }
        match (trouble, change) {
            (Some(Trouble::ShortWrite), Some(Change::Write(offset, mut bytes))) => {
                bytes.truncate(bytes.len() / 2);
                self.change(name, Change::Write(offset, bytes));
                return Err(code);
            }
            (Some(Trouble::Fails | Trouble::ShortWrite), _) => return Err(code),
            (_, Some(change)) => self.change(name, change),
            (_, None) => self.make_durable(name),
        }
        match trouble {
            Some(Trouble::FailsAfter) => Err(code),
            Some(Trouble::PowerAfter) => {
                self.power_is_off = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, name: &str, change: Change) {
        let file = self.files.entry(name.to_owned()).or_default();
        change.apply(&mut file.now, 2);
        file.unsynced.push(change);
    }

    /// Makes the file durable and its folder with it: creations and deletions of other files become durable too.
    fn make_durable(&mut self, name: &str) {
        for (other, file) in &mut self.files {
            if other == name {
                file.durable.clone_from(&file.now);
                file.unsynced.clear();
            } else if file.now.is_none() {
                file.durable = None;
                file.unsynced.clear();
            } else if file.durable.is_none() {
                file.durable = Some(Vec::new());
            }
        }
    }
}

#[derive(Debug)]
struct Dice(u64);

impl Dice {
    /// Returns a random number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}
