//! This process as the server knows it: says that it lives, and takes what it is sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use pirn_store::{Assignment, StoreError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Notify};

use crate::client::Server;
use crate::held::{Held, random_name};
use crate::objects::Target;
use crate::wire::{BeatCall, ClaimReply, Mail, Numbered, Ticket, WaitMailCall, WantsCall};

/// It says so when this part of a claim has passed.
const BEATS: u32 = 4;
/// A run that this process has not let go of yet is offered again after so long.
const GIVEN_BACK: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Keeper {
    pub(crate) server: Server,
    pub(crate) held: Arc<Held>,
    /// A claim lasts so long without a word.
    pub(crate) claim: Duration,
    /// For people.
    pub(crate) name: String,
    /// The name under which the server knows it; none: it does not.
    pub(crate) process: Mutex<Option<Arc<str>>>,
    pub(crate) is_known: Notify,
    pub(crate) assignments: UnboundedSender<Assignment>,
}

impl Keeper {
    /// The name under which the server knows this process.
    pub(crate) async fn process(&self) -> Result<Arc<str>, StoreError> {
        let mut known = self.process.lock().await;
        if let Some(process) = &*known {
            return Ok(Arc::clone(process));
        }
        let process: Arc<str> = format!("{} {}", self.name, &random_name()[..12]).into();
        self.beat(&process, true).await?;
        self.held.begin_anew();
        *known = Some(Arc::clone(&process));
        self.is_known.notify_one();
        Ok(process)
    }

    async fn beat(&self, process: &str, is_first: bool) -> Result<bool, StoreError> {
        let call = BeatCall {
            is_first,
            lasts_ms: self.claim.as_millis() as u64,
        };
        let key = random_name();
        let said = Instant::now();
        let lives = self
            .server
            .call(&Target::process(process, "beat"), Some(&key), &call)
            .await?;
        if is_first || lives {
            self.held.lived(said);
        }
        Ok(lives)
    }

    /// True if the server has not taken this process for dead.
    pub(crate) async fn is_alive(&self) -> Result<bool, StoreError> {
        let process = self.process.lock().await.clone();
        match process {
            Some(process) => self.beat(&process, false).await,
            None => Ok(false),
        }
    }

    /// Until it is dropped.
    pub(crate) async fn live(&self) {
        loop {
            let process = self.process.lock().await.clone();
            match process {
                Some(process) => {
                    tokio::select! {
                        () = self.beats(&process) => self.died().await,
                        () = self.mail(&process) => {}
                        () = self.wants(&process) => {}
                    }
                }
                None if self.held.takes_over() => {
                    if let Err(error) = self.process().await {
                        tracing::warn!(%error, "the server does not know this process yet");
                        tokio::time::sleep(LATER).await;
                    }
                }
                None => {
                    tokio::select! {
                        () = self.is_known.notified() => {}
                        () = self.held.wake.notified() => {}
                    }
                }
            }
        }
    }

    /// Says that it lives, until the server took it for dead.
    async fn beats(&self, process: &str) {
        loop {
            tokio::time::sleep(self.claim / BEATS).await;
            match self.beat(process, false).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::warn!(%error, "the server was not told that this process lives"),
            }
        }
    }

    async fn died(&self) {
        *self.process.lock().await = None;
        for run in self.held.runs() {
            if self.held.lose(&run) {
                self.assign(Assignment::Lost(run));
            }
        }
    }

    fn assign(&self, assignment: Assignment) {
        // Where nobody listens any more, the claim runs out.
        drop(self.assignments.send(assignment));
    }

    async fn wants(&self, process: &str) {
        loop {
            if let Some(runs) = self.held.wants() {
                let call = WantsCall {
                    process: process.to_owned(),
                    runs,
                };
                let asked = self.server.call::<()>(&Target::queue("want"), None, &call).await;
                if let Err(error) = asked {
                    tracing::warn!(%error, "the queue was not asked for runs");
                    self.held.begin_anew();
                    tokio::time::sleep(LATER).await;
                    continue;
                }
            }
            self.held.wake.notified().await;
        }
    }

    async fn mail(&self, process: &str) {
        let mut taken = 0;
        loop {
            let call = WaitMailCall {
                process: process.to_owned(),
                taken,
                lasts_ms: self.claim.as_millis() as u64,
            };
            let mail: Vec<Numbered> = match self.server.wait("mail", &call).await {
                Ok(mail) => mail,
                Err(error) => {
                    tracing::warn!(%error, "what this process is sent was not heard");
                    tokio::time::sleep(LATER).await;
                    continue;
                }
            };
            let mut runs = Vec::new();
            for Numbered { number, mail } in mail {
                if number <= taken {
                    continue;
                }
                match mail {
                    Mail::Run(run) => runs.push(run),
                    Mail::Tell { promise, run, body } => {
                        let request = self.held.request(promise);
                        self.assign(Assignment::Tell { request, run, body });
                    }
                }
                taken = number;
            }
            // Side by side: each waits for the server.
            let room = self.held.room();
            let taking = runs.iter().enumerate().map(|(number, run)| async move {
                self.held.was_sent();
                if let Err(error) = self.take(process, run, number < room).await {
                    tracing::warn!(run_id = run, %error, "the run was not claimed");
                }
                self.held.wake.notify_one();
            });
            join_all(taking).await;
        }
    }

    /// Claims a run that the queue has sent, where it fits beside those that are carried.
    async fn take(&self, process: &str, run: &str, fits: bool) -> Result<(), StoreError> {
        if self.held.ticket(run).is_some() {
            // It was this process's once, which has not let go of it yet.
            if self.held.lose(run) {
                self.assign(Assignment::Lost(run.to_owned()));
            }
            return self.server.later(&Target::queue("offer"), GIVEN_BACK, &run).await;
        }
        if !fits {
            return self.server.later(&Target::queue("offer"), Duration::ZERO, &run).await;
        }
        if let ClaimReply::Claimed(epoch) = self.claim(process, run).await? {
            let process = process.to_owned();
            self.held.put(run, Ticket { process, epoch });
            self.assign(Assignment::Run(run.to_owned()));
        }
        Ok(())
    }

    pub(crate) async fn claim(&self, process: &str, run: &str) -> Result<ClaimReply, StoreError> {
        let key = random_name();
        self.server.call(&Target::run(run, "claim"), Some(&key), &process).await
    }
}
