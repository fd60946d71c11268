//! Queue of commands: those of one run are sent in FIFO order, those of different runs concurrently.

use std::sync::Arc;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use pirn_store::command_order::{CommandOrder, Extent, Lane};
use pirn_store::{Pending, StoreError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::commit::PendingCommit;
use crate::connection::connect::Connection;
use crate::connection::fault::Fault;
use crate::reply::answer;

/// Command with its position among those of its run.
pub(crate) enum Job {
    Commit(Box<PendingCommit>),
    /// Command that changes nothing. Waiting reads are pipelined.
    Read(Box<dyn Ask>),
    Ask(Box<dyn Ask>),
}

impl Job {
    fn lane(&mut self) -> Option<&mut Lane> {
        match self {
            Self::Commit(commit) => commit.lane.as_mut(),
            Self::Read(asked) | Self::Ask(asked) => asked.lane(),
        }
    }

    /// Waits for the turn of the command.
    async fn in_turn(mut self) -> Self {
        if let Some(lane) = self.lane() {
            lane.turn().await;
        }
        self
    }
}

/// Query that may be sent again after its answer was lost.
pub(crate) trait Ask: Send {
    fn ask<'a>(&'a mut self, on: &'a Connection) -> BoxFuture<'a, Result<(), Fault>>;
    fn fail(&mut self, error: StoreError);
    fn lane(&mut self) -> Option<&mut Lane>;
}

struct PendingQuery<T, F> {
    ask: F,
    /// Position among the commands of the run; none once the query is done.
    lane: Option<Lane>,
    answer: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T, F> PendingQuery<T, F> {
    /// Sends the answer after the lane is free, so that the caller finds the next command of the run not blocked.
    fn answered(&mut self, result: Result<T, StoreError>) {
        self.lane = None;
        answer(&mut self.answer, result);
    }
}

impl<T, F> Ask for PendingQuery<T, F>
where
    T: Send,
    F: for<'a> Fn(&'a Connection) -> BoxFuture<'a, Result<Result<T, StoreError>, Fault>> + Send,
{
    fn ask<'a>(&'a mut self, on: &'a Connection) -> BoxFuture<'a, Result<(), Fault>> {
        // Called again for each attempt, so the query clones its parameters instead of moving them.
        let asking = (self.ask)(on);
        Box::pin(async {
            let result = asking.await?;
            self.answered(result);
            Ok(())
        })
    }

    fn fail(&mut self, error: StoreError) {
        self.answered(Err(error));
    }

    fn lane(&mut self) -> Option<&mut Lane> {
        self.lane.as_mut()
    }
}

/// Sender of commands.
#[derive(Clone)]
pub(crate) struct Queue {
    pub(crate) jobs: UnboundedSender<Job>,
    pub(crate) command_order: Arc<CommandOrder>,
    pub(crate) name: Arc<str>,
}

impl Queue {
    /// Enqueues a query in the lane of its extent.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        job: fn(Box<dyn Ask>) -> Job,
        extent: Extent<'_>,
        ask: impl for<'a> Fn(&'a Connection) -> BoxFuture<'a, Result<Result<T, StoreError>, Fault>> + Send + 'static,
    ) -> Pending<T> {
        let (answer, answered) = oneshot::channel();
        let asked = PendingQuery {
            ask,
            // Entered here and not when the command is sent, because the order of calls is the order of commands.
            lane: Some(self.command_order.enter(extent)),
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
        // If the thread has ended, the command and its sender are dropped, and the answer is `Stopped`.
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

/// Senders to the connections, one for each kind of command.
pub(crate) struct CommandSenders {
    pub(crate) commits: UnboundedSender<PendingCommit>,
    pub(crate) reads: UnboundedSender<Box<dyn Ask>>,
    pub(crate) asks: UnboundedSender<Box<dyn Ask>>,
}

impl CommandSenders {
    fn take(&self, job: Job) {
        // The receivers live as long as `execute`, which owns this.
        match job {
            Job::Commit(commit) => drop(self.commits.send(*commit)),
            Job::Read(read) => drop(self.reads.send(read)),
            Job::Ask(ask) => drop(self.asks.send(ask)),
        }
    }

    /// Forwards each command when it is its turn, until all senders are dropped.
    pub(crate) async fn hand_on(self, mut given: UnboundedReceiver<Job>) {
        let mut waiting = FuturesUnordered::new();
        loop {
            tokio::select! {
                // A disabled branch while the set is empty.
                Some(job) = waiting.next() => self.take(job),
                job = given.recv() => match job {
                    Some(mut job) => {
                        // The usual case, without a future in the set.
                        if job.lane().is_none_or(Lane::is_free) {
                            self.take(job);
                        } else {
                            waiting.push(job.in_turn());
                        }
                    }
                    // All senders are dropped. The commands that still wait for their turn are sent below.
                    None => break,
                },
            }
        }
        while let Some(job) = waiting.next().await {
            self.take(job);
        }
    }
}
