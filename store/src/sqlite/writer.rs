//! Writer thread of the store. While one transaction is synced, new commands queue up and form the next transaction (group
//! commit): a command waits for at most two syncs, not for one sync of each command before it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use futures::channel::oneshot;

use super::file::backup::{Meanwhile, back_up};
use super::file::file_checksum::FileChecksum;
use super::file::lock::FileLock;
use super::file::open::{OpenStore, open};
use super::file::path::Files;
use crate::error::{Pending, StoreError};
use crate::figures::{StoreFigures, StoreMeter};
use crate::keys::StoreKeys;
use crate::sqlite::fault::Fault;
use crate::sqlite::tables::Tables;

/// Maximum number of writes in one transaction.
// Bounds the time until the first command of a batch is answered. Equal to the last of `BATCH_BOUNDS`.
const MAX_BATCH: usize = 1024;

/// Number of log pages (4 MiB) from which the log is checkpointed. Moving the recent records doubles it.
const CHECKPOINT_PAGES: i64 = 1024;

/// Number of free pages that are cut off right after a removal (1 MiB).
const SHRUNK_AFTER_REMOVAL: u32 = 256;

/// Number of pages cut off at a time when no command waits, and between commands under load.
pub(super) const SHRUNK_AT_ONCE: u32 = 32;
const SHRUNK_BETWEEN: u32 = 8;

/// Number of commands or batches of writes between two steps of a backup.
const BATCHES_BETWEEN_STEPS: u32 = 4;

/// Number of transactions after which pages are cut off under load.
const TRANSACTIONS_BETWEEN: u32 = 8;

/// Command for the thread.
enum Command {
    Write(Box<dyn Job>),
    Read(Box<dyn Job>),
    BackUp(PathBuf, oneshot::Sender<Result<(), StoreError>>),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// Work with a reply. The two are separate, because a reply is sent after the work is durable.
trait Job: Send {
    /// Executes the work. Called again after a rollback.
    fn run(&mut self, tables: &mut Tables) -> Result<(), Fault>;
    fn tell(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Work<T, F> {
    to_do: F,
    value: Option<T>,
    to: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&mut Tables) -> Result<T, Fault> + Send> Job for Work<T, F> {
    fn run(&mut self, tables: &mut Tables) -> Result<(), Fault> {
        // Replaced if the job is repeated after a rollback.
        self.value = Some((self.to_do)(tables)?);
        Ok(())
    }

    fn tell(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, to, .. } = *self;
        if let Some(answer) = outcome.map(|()| value).transpose() {
            // The caller may have dropped its future; the command stays executed.
            let _gone = to.send(answer);
        }
    }
}

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
    file: Arc<str>,
    meter: Arc<StoreMeter>,
}

impl Writer {
    /// Opens a store and starts its thread. Blocks until it is open.
    pub(super) fn start(path: PathBuf, vfs: Option<String>, keys: Option<StoreKeys>) -> Result<Self, StoreError> {
        // Unbounded, because a call must not block. Most callers wait for their answer.
        let (commands, waiting) = channel();
        let meter = Arc::<StoreMeter>::default();
        let measured = Arc::clone(&meter);
        let (opened, is_open) = channel();
        let named: Arc<str> = path.to_string_lossy().into();
        // Opened by the thread, because a backup shares the connection within it.
        let thread = Builder::new().name("pirn-store".to_owned()).spawn(move || {
            let store = match open(&path, vfs.as_deref(), keys.as_ref()) {
                Ok(store) => store,
                Err(error) => {
                    // The caller waits for the answer.
                    let _waiting = opened.send(Err(error));
                    return;
                }
            };
            let _waiting = opened.send(Ok(Arc::clone(&store.tables.file)));
            serve(store, waiting, measured);
        });
        let failed = |why: String| StoreError::Failed {
            file: named.clone(),
            run: None,
            why,
        };
        let thread = thread.map_err(|error| failed(format!("cannot start its writer thread: {error}")))?;
        let file = is_open
            .recv()
            .unwrap_or_else(|_| Err(failed("its writer thread panicked".to_owned())));
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                // The lock is released before the error is returned.
                let _ended = thread.join();
                return Err(error);
            }
        };
        Ok(Self {
            commands,
            thread: Some(thread),
            file,
            meter,
        })
    }

    pub(super) fn file(&self) -> &Arc<str> {
        &self.file
    }

    pub(super) fn figures(&self) -> StoreFigures {
        self.meter.figures()
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Tables) -> Result<T, Fault> + Send + 'static,
    ) -> Pending<T> {
        self.send(work, Command::Write)
    }

    pub(super) fn read<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Tables) -> Result<T, Fault> + Send + 'static,
    ) -> Pending<T> {
        self.send(work, Command::Read)
    }

    fn send<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Tables) -> Result<T, Fault> + Send + 'static,
        command: impl FnOnce(Box<dyn Job>) -> Command,
    ) -> Pending<T> {
        let (to, answer) = oneshot::channel();
        let job = Work {
            to_do: work,
            value: None,
            to,
        };
        // If the thread has ended, the command and the sender of its answer are dropped.
        let _sent = self.commands.send(command(Box::new(job)));
        // Built now, because the future must not borrow the writer.
        let gone = self.gone();
        Box::pin(async move { answer.await.unwrap_or(Err(gone)) })
    }

    /// Writes a copy of the store.
    pub(super) fn back_up(&self, to: PathBuf) -> Pending<()> {
        let (answer, answered) = oneshot::channel();
        // If the thread has ended, the sender of the answer is dropped.
        let _sent = self.commands.send(Command::BackUp(to, answer));
        let gone = self.gone();
        Box::pin(async move { answered.await.unwrap_or(Err(gone)) })
    }

    fn gone(&self) -> StoreError {
        StoreError::Stopped {
            file: self.file.clone(),
            why: "its writer has ended".to_owned(),
        }
    }

    /// Waits for earlier commands, checkpoints the log and releases the file.
    pub(super) fn close(mut self) -> Result<(), StoreError> {
        let (to, answer) = oneshot::channel();
        let _sent = self.commands.send(Command::Close(to));
        let outcome = futures::executor::block_on(answer).unwrap_or_else(|_| Err(self.gone()));
        self.join();
        outcome
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The result is ignored: after a panic, waiting callers get an error because their senders were dropped.
            let _ended = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // `close` has taken the thread.
        if self.thread.is_some() {
            let (to, _answer) = oneshot::channel();
            let _sent = self.commands.send(Command::Close(to));
            self.join();
        }
    }
}

fn serve(opened: OpenStore, waiting: Receiver<Command>, meter: Arc<StoreMeter>) {
    let OpenStore {
        tables,
        mut hold,
        files,
    } = opened;
    let mut thread = Thread {
        tables,
        files,
        meter,
        stopped: None,
        transactions: 0,
        waiting,
        next: None,
    };
    while let Some(command) = thread.next() {
        match command {
            Command::Read(job) => thread.read(job),
            Command::Write(job) => thread.write_with(job),
            Command::BackUp(to, answer) => {
                let outcome = thread.back_up(&to);
                // The caller may have dropped its future.
                let _gone = answer.send(outcome);
            }
            Command::Close(to) => {
                let outcome = thread.close(hold.as_mut());
                // Released before the answer, so that the caller can open the store again.
                drop(hold);
                let _gone = to.send(outcome);
                // Commands that are still in the channel are dropped, and their callers get `Stopped`.
                return;
            }
        }
    }
}

struct Thread {
    tables: Tables,
    files: Option<Files>,
    meter: Arc<StoreMeter>,
    /// First failure after which the state of the disk is unknown.
    stopped: Option<StoreError>,
    transactions: u32,
    waiting: Receiver<Command>,
    /// Command that was received but is no write: it runs after the batch that came before it.
    next: Option<Command>,
}

impl Thread {
    /// Returns the next command. Shrinks the file after a removal while no command waits.
    fn next(&mut self) -> Option<Command> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        while self.tables.is_shrinking && self.stopped.is_none() {
            match self.waiting.try_recv() {
                Ok(command) => return Some(command),
                // The handle was dropped without `Close`, which `Drop` prevents.
                Err(TryRecvError::Disconnected) => return None,
                // The step is small, because a command that arrives during the step waits for it.
                Err(TryRecvError::Empty) => self.shrink(SHRUNK_AT_ONCE),
            }
        }
        self.waiting.recv().ok()
    }

    /// Executes a write together with those that wait behind it.
    fn write_with(&mut self, job: Box<dyn Job>) {
        let mut jobs = vec![job];
        // Commands that arrived during the last sync form the batch. Nothing waits for more of them.
        while jobs.len() < MAX_BATCH && self.next.is_none() {
            match self.waiting.try_recv() {
                Ok(Command::Write(job)) => jobs.push(job),
                Ok(other) => self.next = Some(other),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        self.write(jobs);
    }

    fn back_up(&mut self, to: &Path) -> Result<(), StoreError> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        let copied = back_up(self, |thread| &mut thread.tables, to, Self::execute_waiting);
        copied.map_err(|fault| fault.told(&self.tables.file))
    }

    /// Executes commands between two steps of a backup.
    fn execute_waiting(&mut self) -> Meanwhile {
        // Bounded: a step of the backup follows after a few batches of any load.
        for _ in 0..BATCHES_BETWEEN_STEPS {
            let Some(command) = self.next.take().or_else(|| self.waiting.try_recv().ok()) else {
                break;
            };
            match command {
                Command::Read(job) => self.read(job),
                Command::Write(job) => self.write_with(job),
                Command::BackUp(_, answer) => {
                    let (file, run) = (self.tables.file.clone(), None);
                    let why = "another backup of the store is being written: try again when it is complete".to_owned();
                    let _gone = answer.send(Err(StoreError::Failed { file, run, why }));
                }
                close @ Command::Close(_) => {
                    self.next = Some(close);
                    return Meanwhile::Stop;
                }
            }
        }
        // After a fatal error, the pages to copy are unknown.
        if self.stopped.is_some() {
            Meanwhile::Stop
        } else {
            Meanwhile::Continue
        }
    }

    /// Shrinks right after a removal, so that a small removal is complete before the next command.
    fn begin_to_shrink(&mut self) {
        let goes = SHRUNK_AFTER_REMOVAL / SHRUNK_AT_ONCE;
        for _ in 0..goes {
            if self.tables.is_shrinking {
                self.shrink(SHRUNK_AT_ONCE);
            }
        }
    }

    fn shrink(&mut self, pages: u32) {
        match self.tables.shrink_some(pages) {
            Ok(_) => self.checkpoint_if_due(),
            Err(fault) => {
                // Shrinking failed, for example because the disk is full. The next removal starts it again.
                self.tables.is_shrinking = false;
                drop(self.failed(fault));
            }
        }
    }

    fn read(&mut self, mut job: Box<dyn Job>) {
        let outcome = match &self.stopped {
            // Reads fail too: the pages in the cache may not be those on the disk.
            Some(stopped) => Err(stopped.clone()),
            None => job.run(&mut self.tables).map_err(|fault| self.failed(fault)),
        };
        job.tell(outcome);
    }

    fn write(&mut self, jobs: Vec<Box<dyn Job>>) {
        if let Some(stopped) = &self.stopped {
            let stopped = stopped.clone();
            for job in jobs {
                job.tell(Err(stopped.clone()));
            }
            return;
        }
        let mut refused = Vec::with_capacity(jobs.len());
        let mut jobs = jobs;
        // Taken before the transaction, so that a failure can undo the whole batch in memory.
        let (before, was_shrinking) = (self.tables.recent.mark(), self.tables.is_shrinking);
        // Files are checked after the commit. A file that is replaced later takes durable writes with it: the check cannot
        // prevent that.
        let written = self.transaction(&mut jobs, &mut refused);
        match written.and_then(|()| self.in_place()) {
            Ok(()) => {
                self.tables.recent.committed();
                // Counted before the answers are sent: a caller that has its answer sees the write in the figures.
                let kept = refused.iter().filter(|refused| refused.is_none()).count();
                self.meter.durable(kept as u64);
                for (job, refused) in jobs.into_iter().zip(refused) {
                    job.tell(refused.map_or(Ok(()), Err));
                }
                self.transactions = self.transactions.wrapping_add(1);
                if self.tables.is_shrinking && !was_shrinking {
                    // After the answers, so that no caller waits for it.
                    self.begin_to_shrink();
                } else if self.tables.is_shrinking && self.transactions.is_multiple_of(TRANSACTIONS_BETWEEN) {
                    self.shrink(SHRUNK_BETWEEN);
                }
                // Also after the answers: a checkpoint syncs the file.
                self.checkpoint_if_due();
            }
            Err(fault) => {
                let error = self.failed(fault);
                // None of the jobs is durable, so all of them get the error.
                self.tables.roll_back(before);
                for job in jobs {
                    job.tell(Err(error.clone()));
                }
            }
        }
    }

    /// Executes all jobs in one transaction. `refused` receives the errors of single jobs; an error of the transaction is returned.
    fn transaction(&mut self, jobs: &mut [Box<dyn Job>], refused: &mut Vec<Option<StoreError>>) -> Result<(), Fault> {
        if self.none_is_refused(jobs)? {
            refused.resize_with(jobs.len(), || None);
            return Ok(());
        }
        self.one_by_one(jobs, refused)
    }

    /// Executes the jobs without savepoints, and rolls all of them back if one is refused: savepoints cost more than most jobs, and
    /// refusals are rare.
    fn none_is_refused(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<bool, Fault> {
        let (before, next_key) = (self.tables.recent.mark(), self.tables.next_key);
        self.execute("BEGIN IMMEDIATE")?;
        for job in jobs {
            match job.run(&mut self.tables) {
                Ok(()) => {}
                // The transaction is gone or its state is unknown, so the whole batch fails.
                Err(fault @ Fault::Sql(_)) if fault.is_fatal() || self.tables.sql.is_autocommit() => return Err(fault),
                Err(_) => {
                    self.execute("ROLLBACK")?;
                    self.tables.recent.take_back(before);
                    // The keys were given to runs that do not exist now.
                    self.tables.next_key = next_key;
                    return Ok(false);
                }
            }
        }
        self.execute("COMMIT")?;
        Ok(true)
    }

    /// Executes each job under a savepoint.
    fn one_by_one(&mut self, jobs: &mut [Box<dyn Job>], refused: &mut Vec<Option<StoreError>>) -> Result<(), Fault> {
        self.execute("BEGIN IMMEDIATE")?;
        for job in jobs.iter_mut() {
            let before = self.tables.recent.mark();
            // A savepoint for each job, so that a refused one does not undo the others.
            self.execute("SAVEPOINT command")?;
            match job.run(&mut self.tables) {
                Ok(()) => {
                    self.execute("RELEASE command")?;
                    refused.push(None);
                }
                Err(fault @ Fault::Sql(_)) if fault.is_fatal() || self.tables.sql.is_autocommit() => return Err(fault),
                Err(fault) => {
                    self.execute("ROLLBACK TO command")?;
                    self.execute("RELEASE command")?;
                    self.tables.recent.take_back(before);
                    // Only this caller gets the error. The rest of the batch is committed.
                    refused.push(Some(fault.told(&self.tables.file)));
                }
            }
        }
        self.execute("COMMIT")
    }

    fn execute(&self, sql: &str) -> Result<(), Fault> {
        self.tables.sql.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn checkpoint_if_due(&mut self) {
        let emptied = match self.tables.log_pages() {
            // Each checkpoint writes every changed page once, so a longer log writes pages of busy runs less often.
            Ok(pages) if pages < CHECKPOINT_PAGES => Ok(()),
            Ok(pages) if pages < 2 * CHECKPOINT_PAGES => self.tables.begin_log_again(),
            // A single transaction grew the log: truncate it.
            Ok(_) => self.tables.checkpoint(),
            Err(fault) => Err(fault),
        };
        // Answered writes are safe in the log. A full disk may be temporary; a fatal error stops the store.
        if let Err(fault) = emptied {
            drop(self.failed(fault));
        }
    }

    /// Refuses writes to files that were removed or replaced.
    fn in_place(&mut self) -> Result<(), Fault> {
        let Some(why) = self.files.as_ref().and_then(Files::is_gone) else {
            return Ok(());
        };
        let (file, run) = (self.tables.file.clone(), None);
        let failed = StoreError::Failed { file, run, why };
        // Further commits would go to a file without a name, and the data would be lost when it is closed.
        self.stopped = Some(self.stopped_by(&failed));
        Err(failed.into())
    }

    fn stopped_by(&self, error: &StoreError) -> StoreError {
        StoreError::Stopped {
            file: self.tables.file.clone(),
            why: error.to_string(),
        }
    }

    /// Converts an error, and stops the store if it is fatal.
    fn failed(&mut self, fault: Fault) -> StoreError {
        let is_fatal = fault.is_fatal();
        let error = fault.told(&self.tables.file);
        if is_fatal {
            self.stopped = Some(self.stopped_by(&error));
        }
        error
    }

    fn close(mut self, hold: Option<&mut FileLock>) -> Result<(), StoreError> {
        if let Some(stopped) = self.stopped.take() {
            // No checkpoint: it would write pages whose state is unknown to the file.
            return Err(stopped);
        }
        self.tables
            .checkpoint()
            .map_err(|fault| fault.told(&self.tables.file))?;
        let Tables {
            sql, file, next_key, ..
        } = self.tables;
        // Closed before the file is opened again: closing that descriptor would release SQLite's POSIX locks.
        drop(sql);
        if let Some(hold) = hold {
            // Without the checksum, the next open checks the store.
            let closed = FileChecksum::of(Path::new(&*file), next_key);
            let _written = closed.and_then(|closed| closed.map_or(Ok(()), |closed| hold.was_closed(&closed)));
        }
        Ok(())
    }
}
