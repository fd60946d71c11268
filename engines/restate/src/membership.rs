//! Membership of this process: heartbeats, requests for runs, and received messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use pirn_store::{Assignment, StoreError};
use tokio::sync::{Mutex, Notify};

use crate::client::Server;
use crate::local_claims::{LocalClaims, random_name};
use crate::objects::Target;
use crate::open_calls::OpenCalls;
use crate::process_messages::{ClaimReply, ClaimedRun, NumberedMessage, ProcessMessage};
use crate::wire::{BeatCall, ReleaseCall, Ticket, WaitMailCall, WantsCall};

/// Heartbeats in one claim duration.
const BEATS: u32 = 4;
/// Delay before a run is offered again because this process has not released its earlier claim yet.
const GIVEN_BACK: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(1);

/// Connection of this process to its process object.
pub(crate) struct Membership {
    pub(crate) server: Server,
    pub(crate) held: Arc<LocalClaims>,
    /// Duration of a claim without a heartbeat.
    pub(crate) claim: Duration,
    /// Label for error messages.
    pub(crate) name: String,
    /// Key of the process object; none while the process is not registered.
    pub(crate) process: Mutex<Option<Arc<str>>>,
    pub(crate) is_known: Notify,
    pub(crate) open: Arc<OpenCalls>,
}

impl Membership {
    /// Returns the key of this process's object, and registers the process if necessary.
    pub(crate) async fn process(&self) -> Result<Arc<str>, StoreError> {
        // Held across the call, so that two commands do not register two processes.
        let mut known = self.process.lock().await;
        if let Some(process) = &*known {
            return Ok(Arc::clone(process));
        }
        // A new name each time, because a process that was declared dead cannot return under its name.
        let process: Arc<str> = format!("{} {}", self.name, &random_name()[..12]).into();
        self.beat(&process, true).await?;
        // A new process object has no request in the queue.
        self.held.begin_anew();
        *known = Some(Arc::clone(&process));
        self.open.registered(Some(Arc::clone(&process)));
        self.is_known.notify_one();
        Ok(process)
    }

    async fn beat(&self, process: &str, is_first: bool) -> Result<bool, StoreError> {
        let call = BeatCall {
            is_first,
            lasts_ms: self.claim.as_millis() as u64,
        };
        // The key makes a repeated call count as one heartbeat.
        let key = random_name();
        // Taken before the call: the timer of the server starts later, so the local estimate is conservative.
        let said = Instant::now();
        let lives = self
            .server
            .call(&Target::process(process, "beat"), Some(&key), &call)
            .await?;
        // An answer that the process is dead must not extend its claims.
        if is_first || lives {
            self.held.lived(said);
        }
        Ok(lives)
    }

    /// Sends a heartbeat. Returns true if the server does not take this process for dead.
    pub(crate) async fn is_alive(&self) -> Result<bool, StoreError> {
        let process = self.process.lock().await.clone();
        match process {
            Some(process) => self.beat(&process, false).await,
            // The process was declared dead and has not registered again.
            None => Ok(false),
        }
    }

    /// Runs the membership loops until the future is dropped.
    pub(crate) async fn live(&self) {
        loop {
            let process = self.process.lock().await.clone();
            match process {
                Some(process) => {
                    // Only `beats` ends: the process is dead for the server. That cancels the other two loops.
                    tokio::select! {
                        () = self.beats(&process) => self.died().await,
                        () = self.mail(&process) => {}
                        () = self.wants(&process) => {}
                    }
                }
                // A process that only starts runs registers with its first claim.
                None if self.held.takes_over() => {
                    if let Err(error) = self.process().await {
                        tracing::warn!(%error, "registering this process with the server failed, and is retried");
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

    /// Sends heartbeats until the server takes this process for dead.
    async fn beats(&self, process: &str) {
        loop {
            // A deadline and not a pause, so that reports in between do not delay the heartbeat.
            let next = tokio::time::Instant::now() + self.claim / BEATS;
            while tokio::time::timeout_at(next, self.held.leaves.notified()).await.is_ok() {
                self.leave(process).await;
            }
            // At least once for each heartbeat, so that few claims do not wait until a batch is full.
            self.leave(process).await;
            match self.beat(process, false).await {
                Ok(true) => {}
                Ok(false) => return,
                // The next one may arrive in time. Only the server decides that the process is dead.
                Err(error) => tracing::warn!(%error, "a heartbeat to the server failed"),
            }
        }
    }

    /// Reports ended claims to the process object.
    async fn leave(&self, process: &str) {
        let left = self.held.take_left();
        if left.is_empty() {
            return;
        }
        let told = self
            .server
            .call::<()>(&Target::process(process, "drops"), None, &left)
            .await;
        if let Err(error) = told {
            tracing::debug!(%error, "reporting ended claims to the server failed");
            // Deleting a claim twice has no effect, so a report whose answer was lost is repeated.
            self.held.leave_again(left);
        }
    }

    async fn died(&self) {
        // First: commands that need a claim from now on register a new process.
        *self.process.lock().await = None;
        self.open.registered(None);
        for run in self.held.runs() {
            if self.held.lose(&run) {
                self.open.assign(Assignment::Lost(run));
            }
        }
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
                    tracing::warn!(%error, "requesting runs from the queue failed");
                    // The request may or may not have arrived, so the next round sends it again. `want` replaces the former one.
                    self.held.begin_anew();
                    tokio::time::sleep(LATER).await;
                    continue;
                }
            }
            // A stored permit is not lost if the number of claims changed during the call.
            self.held.wake.notified().await;
        }
    }

    async fn mail(&self, process: &str) {
        // A new process object numbers its messages from 1.
        let mut taken = 0;
        loop {
            let call = WaitMailCall {
                process: process.to_owned(),
                taken,
                // The wait ends after a claim's duration, and the next one confirms the messages that were taken.
                lasts_ms: self.claim.as_millis() as u64,
            };
            let mail: Vec<NumberedMessage> = match self.server.wait("mail", &call).await {
                Ok(mail) => mail,
                Err(error) => {
                    tracing::warn!(%error, "receiving messages for this process failed");
                    tokio::time::sleep(LATER).await;
                    continue;
                }
            };
            let mut given_back = Vec::new();
            for NumberedMessage { number, mail } in mail {
                // Delivered again: the object retains a message until a later call confirms its number.
                if number <= taken {
                    continue;
                }
                match mail {
                    ProcessMessage::Run(given) => {
                        self.held.was_sent();
                        given_back.extend(self.take(process, *given));
                    }
                    ProcessMessage::Nothing => self.held.was_sent(),
                    ProcessMessage::Tell { promise, run, body } => {
                        let request = self.held.request(promise);
                        self.open.assign(Assignment::Tell { request, run, body });
                    }
                }
                // Confirmed by the next call, after the messages were handed to the engine.
                taken = number;
            }
            // Runs that arrived may have left room for a further request.
            self.held.wake.notify_one();
            // Release in parallel, because each release waits for the server.
            join_all(given_back.into_iter().map(|(run, call)| self.give_back(run, call))).await;
        }
    }

    /// Accepts an assigned run if there is room. Otherwise returns the call that releases it.
    fn take(&self, process: &str, given: ClaimedRun) -> Option<(String, ReleaseCall)> {
        let run = given.run.clone();
        let back = |after: Duration| ReleaseCall {
            ticket: Ticket {
                process: process.to_owned(),
                epoch: given.epoch,
            },
            after_ms: after.as_millis() as u64,
            is_offered: true,
        };
        if self.held.ticket(&run).is_some() {
            // The run is assigned again while this process has not released its earlier, expired claim.
            let back = back(GIVEN_BACK);
            if self.held.lose(&run) {
                self.open.assign(Assignment::Lost(run.clone()));
            }
            return Some((run, back));
        }
        // The limit may have been lowered, or a run was resumed explicitly, since the request.
        if self.held.room() == 0 {
            return Some((run, back(Duration::ZERO)));
        }
        self.held.has(process, given);
        self.open.assign(Assignment::Run(run));
        None
    }

    async fn give_back(&self, run: String, call: ReleaseCall) {
        match self.release(&run, &call).await {
            Ok(()) => {}
            Err(error) => tracing::warn!(run_id = run, %error, "releasing the run failed"),
        }
    }

    pub(crate) async fn release(&self, run: &str, call: &ReleaseCall) -> Result<(), StoreError> {
        self.server.call::<()>(&Target::run(run, "release"), None, call).await?;
        // Must follow the call of the run object: until then the claim must stay listed, so that it expires with the process.
        self.held.left(run, call.ticket.epoch);
        Ok(())
    }

    pub(crate) async fn claim(&self, process: &str, run: &str) -> Result<ClaimReply, StoreError> {
        // The claim takes effect once. Without a key, a repeated call would be refused because of the first one.
        let key = random_name();
        self.server.call(&Target::run(run, "claim"), Some(&key), &process).await
    }
}
