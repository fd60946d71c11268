//! Connections that execute commands.
//!
//! Waiting commits are sent together in one transaction, and each is applied whole or refused; waiting reads are pipelined.
//! While one connection waits for the server's disk, the other sends the next commits. When a connection is lost, unanswered
//! commands are sent again on the next one: commits are numbered, so that a resent one takes effect once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use pirn_store::{StoreError, StoreMeter};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::commit::{FAULTY, PendingCommit};
use crate::connection::connect::{Connection, Server};
use crate::connection::fault::Fault;
use crate::queue::{Ask, CommandSenders, Job};

/// Number of connections that execute commits.
const WRITERS: usize = 2;
/// Maximum number of commits in one transaction, and of pipelined reads.
const TOGETHER: usize = 128;
/// Maximum number of attempts of a command that fails by serialization conflicts or deadlocks.
const TRIES: u32 = 20;
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LAST_DELAY: Duration = Duration::from_secs(1);

/// Executes commands until all senders are dropped.
pub(crate) async fn execute(server: Server, patience: Duration, meter: Arc<StoreMeter>, given: UnboundedReceiver<Job>) {
    let (commits, given_commits) = unbounded_channel();
    let (reads, given_reads) = unbounded_channel();
    let (asks, given_asks) = unbounded_channel();
    // One connection for each kind: a long removal must not delay commits, and reads must not wait for their syncs.
    let carriers = CommandSenders { commits, reads, asks };
    // The two writers share one receiver, so all three kinds have the same type here.
    let (given_commits, given_reads, given_asks) = (
        Mutex::new(given_commits),
        Mutex::new(given_reads),
        Mutex::new(given_asks),
    );
    let carrier = || CommandExecutor {
        server: server.clone(),
        connection: None,
        was_lost: false,
        patience,
        meter: Arc::clone(&meter),
    };
    let writers = join_all((0..WRITERS).map(|_| carrier().write(&given_commits)));
    tokio::join!(
        carriers.hand_on(given),
        writers,
        carrier().read(&given_reads),
        carrier().ask_each(&given_asks)
    );
}

/// Waits for at least one command and returns up to `most`; none once all senders are dropped.
async fn waiting<T>(given: &Mutex<UnboundedReceiver<T>>, most: usize) -> Option<Vec<T>> {
    // Held while the first command is awaited: the other writer then waits here for the next one.
    let mut given = given.lock().await;
    let mut taken = vec![given.recv().await?];
    // Only commands that wait already are taken, so an idle server answers a single one at once.
    while taken.len() < most {
        match given.try_recv() {
            Ok(another) => taken.push(another),
            Err(_) => break,
        }
    }
    Some(taken)
}

/// Connection that executes one kind of command.
struct CommandExecutor {
    server: Server,
    connection: Option<Connection>,
    was_lost: bool,
    /// Time for which commands are retried after the connection is lost.
    patience: Duration,
    meter: Arc<StoreMeter>,
}

impl CommandExecutor {
    async fn write(mut self, given: &Mutex<UnboundedReceiver<PendingCommit>>) {
        while let Some(commits) = waiting(given, TOGETHER).await {
            self.commit(commits).await;
        }
    }

    async fn ask_each(mut self, given: &Mutex<UnboundedReceiver<Box<dyn Ask>>>) {
        while let Some(asks) = waiting(given, 1).await {
            // One at a time, because a request such as a removal has a separate transaction on this connection.
            for mut asked in asks {
                self.ask(&mut *asked).await;
            }
        }
    }

    /// Executes reads, pipelined. A read that fails is retried alone.
    async fn read(mut self, given: &Mutex<UnboundedReceiver<Box<dyn Ask>>>) {
        while let Some(mut reads) = waiting(given, TOGETHER).await {
            // Without a connection, each read goes through `ask` below, which waits and tries again.
            if let Ok(connection) = self.connected().await {
                let asked = join_all(reads.iter_mut().map(|read| read.ask(connection))).await;
                let mut asked = asked.into_iter();
                // An answered read has no caller. Repeating it is harmless, because a read changes nothing.
                reads.retain(|_| asked.next().is_none_or(|asked| asked.is_err()));
            }
            for mut read in reads {
                self.ask(&mut *read).await;
            }
        }
    }

    async fn ask(&mut self, asked: &mut dyn Ask) {
        let mut tries = Tries::new(self.patience);
        loop {
            let asking = match self.connected().await {
                Ok(connection) => asked.ask(connection).await,
                Err(fault) => Err(fault),
            };
            let Err(fault) = asking else { return };
            if let Err(error) = self.again(fault, &mut tries).await {
                return asked.fail(error);
            }
        }
    }

    async fn commit(&mut self, mut commits: Vec<PendingCommit>) {
        // A single commit is one statement, which is a transaction without `BEGIN` and `COMMIT`.
        if commits.len() > 1 {
            let mut tries = Tries::new(self.patience);
            loop {
                let sending = match self.connected().await {
                    Ok(connection) => together(connection, &commits).await,
                    Err(fault) => Err(fault),
                };
                match sending {
                    Ok(rows) => {
                        let answered = commits.iter_mut().zip(rows).map(|(commit, row)| commit.answered(&row));
                        let kept = answered.filter(|is_kept| *is_kept).count();
                        // Counted before the answers are sent: a caller that has its answer sees the commit in the figures.
                        self.meter.durable(kept as u64);
                        // After the whole batch is durable: an answer promises that.
                        return commits.iter_mut().for_each(PendingCommit::tell);
                    }
                    // The outcome of the transaction is unknown. It is sent again as it is: numbered commits take effect once.
                    Err(fault @ Fault::Lost(_)) => {
                        if let Err(error) = self.again(fault, &mut tries).await {
                            for commit in &mut commits {
                                commit.fail(error.clone());
                            }
                            return;
                        }
                    }
                    // One commit conflicts or fails and has aborted the transaction: send each alone.
                    Err(_) => break,
                }
            }
        }
        for mut commit in commits {
            let mut tries = Tries::new(self.patience);
            loop {
                let sending = match self.connected().await {
                    Ok(connection) => commit.send(connection).await,
                    Err(fault) => Err(fault),
                };
                match sending {
                    Ok(row) => {
                        self.meter.durable(commit.answered(&row).into());
                        commit.tell();
                        break;
                    }
                    Err(fault) => {
                        if let Err(error) = self.again(fault, &mut tries).await {
                            commit.fail(error);
                            break;
                        }
                    }
                }
            }
        }
    }

    async fn connected(&mut self) -> Result<&Connection, Fault> {
        if self.connection.is_none() {
            // `open` checks the schemas again: another version may have upgraded them while the connection was lost.
            let opened = self.server.open(None).await;
            let connection = opened.map_err(|error| Fault::Lost(error.in_full()))?;
            if std::mem::take(&mut self.was_lost) {
                tracing::info!(server = &*self.server.name, "connected again");
            }
            self.connection = Some(connection);
        }
        self.connection
            .as_ref()
            .ok_or_else(|| Fault::Lost("not connected".to_owned()))
    }

    /// Waits before the next attempt, or returns the error of the last one.
    async fn again(&mut self, fault: Fault, tries: &mut Tries) -> Result<(), StoreError> {
        let file = Arc::clone(&self.server.name);
        let failed = |why| StoreError::Failed { file, run: None, why };
        match fault {
            Fault::Failed(why) => Err(failed(why)),
            Fault::Refused(code, run) if code == "NO_SUCH_RUN" => Err(StoreError::NoSuchRun { run }),
            Fault::Refused(code, of) => Err(failed(format!("{code} {of}"))),
            // Counted and not timed: the server answers, and conflicts end within a few attempts.
            Fault::Again(why) => tries.another().await.ok_or_else(|| failed(why)),
            Fault::Lost(why) => {
                // Logged once for a connection, and not for every attempt to open the next one.
                if self.connection.take().is_some() {
                    tracing::warn!(server = &*self.server.name, why, "the connection is lost");
                    self.was_lost = true;
                }
                // Limited by time and not by count, because the duration of a server's restart is unknown.
                tries.later().await.ok_or_else(|| failed(why))
            }
        }
    }
}

/// Sends commits as one transaction. After an error either no commit has taken effect, or every one has.
async fn together(on: &Connection, commits: &[PendingCommit]) -> Result<Vec<tokio_postgres::Row>, Fault> {
    // Prepared before `BEGIN`, because preparing would wait for an answer in the middle of the pipeline.
    on.prepare(crate::commit::SQL).await?;
    let sends = join_all(commits.iter().map(|commit| commit.send(on)));
    // Futures are polled, and so sent, in this order. Pipelining saves a round trip for each commit.
    let (begun, rows, ended) = tokio::join!(biased; on.execute("BEGIN"), sends, on.execute("COMMIT"));
    // The error of a commit is more precise than that of `COMMIT`, which fails as a consequence.
    let rows: Result<Vec<_>, Fault> = rows.into_iter().collect();
    begun?;
    let rows = rows?;
    ended?;
    if rows.len() == commits.len() {
        return Ok(rows);
    }
    Err(Fault::Failed(FAULTY.to_owned()))
}

struct Tries {
    left: u32,
    until: Instant,
    delay: Duration,
}

impl Tries {
    fn new(patience: Duration) -> Self {
        Self {
            left: TRIES,
            until: Instant::now() + patience,
            delay: FIRST_DELAY,
        }
    }

    async fn another(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        tokio::time::sleep(FIRST_DELAY).await;
        Some(())
    }

    async fn later(&mut self) -> Option<()> {
        if Instant::now() > self.until {
            return None;
        }
        tokio::time::sleep(self.delay).await;
        // Doubled, so that many processes do not overload a server that is starting.
        self.delay = (self.delay * 2).min(LAST_DELAY);
        Some(())
    }
}
