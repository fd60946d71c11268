//! Open calls of this process: calls of the handler `own` of a run, which execute the commits of the run while it makes progress.
//!
//! A commit through an open call is one entry of the call's journal. A commit by a separate call costs the server several times as
//! much.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pirn_store::Assignment;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::local_claims::LocalClaims;
use crate::process_messages::ClaimedRun;
use crate::wire::{CommitCall, CommitReply};

/// Maximum number of open calls of a process.
// A server executes 1,000 calls at a time by default, and heartbeats are among them.
const MOST_OPEN: usize = 200;
/// Time without a commit after which a call ends. Slower steps cost more than the separate calls of their commits.
const IDLE: Duration = Duration::from_millis(200);
/// Maximum duration of a call. Bounds the time for which open calls occupy the server's capacity.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Next event of an open call: an entry of its journal, with which a repeated call reproduces the commits.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum OpenCallEvent {
    Commit(Box<CommitCall>),
    /// The process reads the run, and must see all former commits.
    Read,
    /// The process makes no commit for a while, has released the run, or is gone. It commits by separate calls.
    Idle,
    /// The process did not take over the run.
    Refused,
}

/// Request to an open call.
enum Request {
    Commit(Box<CommitCall>, oneshot::Sender<CommitReply>),
    Read(oneshot::Sender<()>),
}

type Requests = UnboundedSender<Request>;

/// Open calls of this process, by run.
pub(crate) struct OpenCalls {
    held: Arc<LocalClaims>,
    assignments: UnboundedSender<Assignment>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Key of the process object; none while the process is not registered.
    process: Option<Arc<str>>,
    /// Number of calls that have a place.
    places: usize,
    open: BTreeMap<String, Requests>,
}

/// Result of a commit through an open call.
pub(crate) enum CommitAttempt {
    Done(CommitReply),
    /// The call ended before its reply.
    Interrupted,
    /// The run has no open call.
    NoCall,
}

/// Place of one attempt to execute a call. Dropping it ends the attempt's part in the run: a pending commit is then made by a
/// separate call.
pub(crate) struct Place {
    calls: Arc<OpenCalls>,
    run: String,
    /// Requests of the run's engine; none before the run is delivered.
    requests: Option<UnboundedReceiver<Request>>,
    // Weak, so that the registry has the only sender, and removing it ends the call.
    own_requests: Option<WeakUnboundedSender<Request>>,
    /// Request of the present event.
    executed: Option<Request>,
    ends: Instant,
}

impl OpenCalls {
    pub(crate) fn new(held: Arc<LocalClaims>, assignments: UnboundedSender<Assignment>) -> Self {
        Self {
            held,
            assignments,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the name under which this process is registered.
    pub(crate) fn registered(&self, process: Option<Arc<str>>) {
        self.state().process = process;
    }

    /// Reserves a place for a run, and returns it with the name of this process; none if the process takes over no further run.
    pub(crate) fn accept(self: &Arc<Self>, run: &str) -> Option<(Place, Arc<str>)> {
        let mut state = self.state();
        let process = state.process.clone()?;
        // Places of runs that are not delivered yet are not among the claims.
        let undelivered = state.places.saturating_sub(state.open.len());
        if state.places >= MOST_OPEN || self.held.room() <= undelivered {
            return None;
        }
        state.places += 1;
        let place = Place {
            calls: Arc::clone(self),
            run: run.to_owned(),
            requests: None,
            own_requests: None,
            executed: None,
            ends: Instant::now() + MOST_TIME,
        };
        Some((place, process))
    }

    /// Makes a commit through the run's open call.
    pub(crate) async fn commit(&self, run: &str, call: &CommitCall) -> CommitAttempt {
        let Some(requests) = self.requests(run) else {
            return CommitAttempt::NoCall;
        };
        let (reply, replied) = oneshot::channel();
        // An error drops `reply`, so that `replied` fails.
        drop(requests.send(Request::Commit(Box::new(call.clone()), reply)));
        replied.await.map_or(CommitAttempt::Interrupted, CommitAttempt::Done)
    }

    /// Waits until reads of the run see all commits of its open call.
    pub(crate) async fn read(&self, run: &str) {
        let Some(requests) = self.requests(run) else { return };
        let (reply, replied) = oneshot::channel();
        if requests.send(Request::Read(reply)).is_ok() {
            // An error means that the call has ended, after its last commit.
            drop(replied.await);
        }
    }

    /// Waits until reads of all runs see all commits of the open calls.
    pub(crate) async fn read_all(&self) {
        let runs: Vec<String> = self.state().open.keys().cloned().collect();
        futures::future::join_all(runs.iter().map(|run| self.read(run))).await;
    }

    /// Ends the open call of a run that this process releases.
    pub(crate) fn close(&self, run: &str) {
        self.state().open.remove(run);
    }

    /// Sends an assignment to the engine.
    pub(crate) fn assign(&self, assignment: Assignment) {
        // The receiver is gone with the engine: the claim expires.
        drop(self.assignments.send(assignment));
    }

    fn requests(&self, run: &str) -> Option<Requests> {
        self.state().open.get(run).cloned()
    }

    /// Hands a claimed run to the engine. Returns false if the engine does not take it.
    fn deliver(&self, process: &str, given: ClaimedRun, requests: Requests) -> bool {
        let run = given.run.clone();
        if self.state().process.as_deref() != Some(process) {
            // The server took this process for dead since the place was reserved.
            return false;
        }
        if self.held.ticket(&run).is_some() {
            // This process has not released its earlier, expired claim yet.
            if self.held.lose(&run) {
                self.assign(Assignment::Lost(run));
            }
            return false;
        }
        // Before the engine has the run, so that its first commit finds the call.
        self.state().open.insert(run.clone(), requests);
        self.held.has(process, given);
        self.assign(Assignment::Run(run));
        true
    }
}

impl Place {
    /// Waits for the next event. With `given` the run is delivered first.
    pub(crate) async fn next(&mut self, process: &str, given: Option<ClaimedRun>) -> OpenCallEvent {
        if let Some(given) = given {
            let (own, requests) = unbounded_channel();
            (self.own_requests, self.requests) = (Some(own.downgrade()), Some(requests));
            if !self.calls.deliver(process, given, own) {
                return OpenCallEvent::Refused;
            }
        }
        let Some(requests) = &mut self.requests else {
            return OpenCallEvent::Idle;
        };
        let until = self.ends.min(Instant::now() + IDLE);
        match tokio::time::timeout_at(until, requests.recv()).await {
            Ok(Some(request)) => {
                let event = match &request {
                    Request::Commit(call, _) => OpenCallEvent::Commit(call.clone()),
                    Request::Read(_) => OpenCallEvent::Read,
                };
                self.executed = Some(request);
                event
            }
            Ok(None) | Err(_) => OpenCallEvent::Idle,
        }
    }

    /// Answers the request of the last event; `reply` is that to a commit.
    pub(crate) fn answer(&mut self, reply: Option<CommitReply>) {
        match (self.executed.take(), reply) {
            // The requester may be gone.
            (Some(Request::Commit(_, to)), Some(reply)) => drop(to.send(reply)),
            (Some(Request::Read(to)), None) => drop(to.send(())),
            // Another attempt has received the request.
            _ => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.calls.state();
        state.places -= 1;
        let own = self.own_requests.as_ref().and_then(WeakUnboundedSender::upgrade);
        // A later call of the run may have replaced this one.
        if let (Some(own), Some(open)) = (own, state.open.get(&self.run))
            && own.same_channel(open)
        {
            state.open.remove(&self.run);
        }
    }
}
