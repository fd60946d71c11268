//! Commands on their way to the server: one connection, in the order given.
//!
//! Commits that wait are sent together, in one transaction, each whole or not at all; reads that wait too. Where the connection is lost, what has no
//! answer is sent again on the next one: a commit has a number, and takes effect once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::future::{BoxFuture, join_all};
use pirn_store::{Pending, StoreError, StoreMeter};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::commit::{Committing, FAULTY};
use crate::connect::{Connection, Server};
use crate::fault::Fault;
use crate::reply::answer;

/// So many commits are one transaction at most, and so many reads are asked together.
const TOGETHER: usize = 128;
/// So often a command that was in another's way is tried.
const TRIES: u32 = 20;
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LAST_DELAY: Duration = Duration::from_secs(1);

/// A command.
pub(crate) enum Job {
    Commit(Box<Committing>),
    /// It changes nothing: those that wait are asked together.
    Read(Box<dyn Ask>),
    Ask(Box<dyn Ask>),
}

/// Something that is asked of the server, again where its answer was lost.
pub(crate) trait Ask: Send {
    fn ask<'a>(&'a mut self, on: &'a Connection) -> BoxFuture<'a, Result<(), Fault>>;
    fn fail(&mut self, error: StoreError);
}

struct Asked<T, F> {
    ask: F,
    answer: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T, F> Ask for Asked<T, F>
where
    T: Send,
    F: for<'a> Fn(&'a Connection) -> BoxFuture<'a, Result<Result<T, StoreError>, Fault>> + Send,
{
    fn ask<'a>(&'a mut self, on: &'a Connection) -> BoxFuture<'a, Result<(), Fault>> {
        let asking = (self.ask)(on);
        Box::pin(async {
            let result = asking.await?;
            answer(&mut self.answer, result);
            Ok(())
        })
    }

    fn fail(&mut self, error: StoreError) {
        answer(&mut self.answer, Err(error));
    }
}

/// The way in.
#[derive(Clone)]
pub(crate) struct Queue {
    pub(crate) jobs: UnboundedSender<Job>,
    pub(crate) name: Arc<str>,
}

impl Queue {
    /// Gives a command.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        job: fn(Box<dyn Ask>) -> Job,
        ask: impl for<'a> Fn(&'a Connection) -> BoxFuture<'a, Result<Result<T, StoreError>, Fault>> + Send + 'static,
    ) -> Pending<T> {
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            ask,
            answer: Some(answer),
        };
        self.give(job(Box::new(asked)), answered)
    }

    pub(crate) fn give<T: Send + 'static>(
        &self,
        job: Job,
        answered: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Pending<T> {
        let name = Arc::clone(&self.name);
        // Where the thread is gone, nobody answers.
        drop(self.jobs.send(job));
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| {
                Err(StoreError::Stopped {
                    file: name,
                    why: "the store was closed".to_owned(),
                })
            })
        })
    }
}

/// Carries commands out until nobody can give any more.
pub(crate) struct Carrier {
    pub(crate) server: Server,
    pub(crate) connection: Option<Connection>,
    pub(crate) jobs: UnboundedReceiver<Job>,
    /// A server that does not come back in so much time has failed.
    pub(crate) patience: Duration,
    pub(crate) meter: Arc<StoreMeter>,
}

impl Carrier {
    pub(crate) async fn live(mut self) {
        let mut next = None;
        loop {
            let job = match next.take() {
                Some(job) => job,
                None => match self.jobs.recv().await {
                    Some(job) => job,
                    None => return,
                },
            };
            match job {
                Job::Ask(mut asked) => self.ask(&mut *asked).await,
                Job::Read(first) => {
                    let mut reads = vec![first];
                    while reads.len() < TOGETHER && next.is_none() {
                        match self.jobs.try_recv() {
                            Ok(Job::Read(read)) => reads.push(read),
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    self.read(reads).await;
                }
                Job::Commit(first) => {
                    let mut commits = vec![*first];
                    while commits.len() < TOGETHER && next.is_none() {
                        match self.jobs.try_recv() {
                            Ok(Job::Commit(commit)) => commits.push(*commit),
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    self.commit(commits).await;
                }
            }
        }
    }

    /// Asks without waiting in between; each that has no answer then once more, for itself.
    async fn read(&mut self, mut reads: Vec<Box<dyn Ask>>) {
        if let Ok(connection) = self.connected().await {
            let asked = join_all(reads.iter_mut().map(|read| read.ask(connection))).await;
            let mut asked = asked.into_iter();
            reads.retain(|_| asked.next().is_none_or(|asked| asked.is_err()));
        }
        for mut read in reads {
            self.ask(&mut *read).await;
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

    async fn commit(&mut self, mut commits: Vec<Committing>) {
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
                        // Before anybody is told: who was answered finds the write counted.
                        self.meter.durable(kept as u64);
                        return commits.iter_mut().for_each(Committing::tell);
                    }
                    Err(fault @ Fault::Lost(_)) => {
                        if let Err(error) = self.again(fault, &mut tries).await {
                            for commit in &mut commits {
                                commit.fail(error.clone());
                            }
                            return;
                        }
                    }
                    // One of them is in the way: then each for itself.
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
            let opened = self.server.open(None).await;
            let connection = opened.map_err(|error| Fault::Lost(error.to_string()))?;
            tracing::info!(server = &*self.server.name, "connected again");
            self.connection = Some(connection);
        }
        self.connection
            .as_ref()
            .ok_or_else(|| Fault::Lost("not connected".to_owned()))
    }

    /// Waits until it can be tried again.
    async fn again(&mut self, fault: Fault, tries: &mut Tries) -> Result<(), StoreError> {
        let file = Arc::clone(&self.server.name);
        let failed = |why| StoreError::Failed { file, run: None, why };
        match fault {
            Fault::Failed(why) => Err(failed(why)),
            Fault::Refused(code, run) if code == "NO_SUCH_RUN" => Err(StoreError::NoSuchRun { run }),
            Fault::Refused(code, of) => Err(failed(format!("{code} {of}"))),
            Fault::Again(why) => tries.another().await.ok_or_else(|| failed(why)),
            Fault::Lost(why) => {
                if self.connection.take().is_some() {
                    tracing::warn!(server = &*self.server.name, why, "the connection is lost");
                }
                tries.later().await.ok_or_else(|| failed(why))
            }
        }
    }
}

/// Sends commits as one transaction. An error: none of them took effect, or all did.
async fn together(on: &Connection, commits: &[Committing]) -> Result<Vec<tokio_postgres::Row>, Fault> {
    on.prepared(crate::commit::SQL).await?;
    let sends = join_all(commits.iter().map(|commit| commit.send(on)));
    // Polled in this order, they are sent in this order, and nobody waits in between.
    let (begun, rows, ended) = tokio::join!(biased; on.execute("BEGIN"), sends, on.execute("COMMIT"));
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
        self.delay = (self.delay * 2).min(LAST_DELAY);
        Some(())
    }
}
