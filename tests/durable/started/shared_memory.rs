//! A store in memory that several processes share, as processes share a server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::channel::oneshot;
use futures::lock::Mutex as AsyncMutex;
use futures::{FutureExt, StreamExt};
use pirn::store::{
    Assignment, Claims, Commit, MemoryStore, Pending, Precondition, RunStatus, Store, StoreError, forward_to_store,
};

use crate::durable::faults::failing_store::fails;

/// The store of one process. Clones are of this process too.
#[derive(Clone)]
pub(super) struct SharedMemory {
    pub(super) store: MemoryStore,
    state: Arc<Mutex<State>>,
    process: u32,
    assigned: Arc<AsyncMutex<UnboundedReceiver<Assignment>>>,
    /// False: the processes do not claim runs, so that one of them may live at a time.
    pub(super) has_claims: bool,
}

#[derive(Default)]
struct State {
    /// Processes that have claimed the runs, by run.
    owners: BTreeMap<String, u32>,
    killed: BTreeSet<u32>,
    assign: BTreeMap<u32, UnboundedSender<Assignment>>,
    ends: Vec<(String, oneshot::Sender<()>)>,
    answers: Vec<u64>,
}

fn ready<T: Send + 'static>(value: Result<T, StoreError>) -> Pending<T> {
    std::future::ready(value).boxed()
}

impl SharedMemory {
    pub(super) fn new(has_claims: bool) -> Self {
        let (assign, assigned) = unbounded();
        let state = State {
            assign: BTreeMap::from([(0, assign)]),
            ..State::default()
        };
        Self {
            store: MemoryStore::new(),
            state: Arc::new(Mutex::new(state)),
            process: 0,
            assigned: Arc::new(AsyncMutex::new(assigned)),
            has_claims,
        }
    }

    /// Returns the store of a new process.
    pub(super) fn next_process(&self) -> Self {
        let (assign, assigned) = unbounded();
        let mut state = self.state();
        let process = state.assign.len() as u32;
        state.assign.insert(process, assign);
        drop(state);
        Self {
            process,
            assigned: Arc::new(AsyncMutex::new(assigned)),
            ..self.clone()
        }
    }

    /// Makes every later write of this process fail, and releases its claims.
    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.killed.insert(self.process);
        state.owners.retain(|_, owner| *owner != self.process);
        // The worker of the process stops.
        if let Some(assign) = state.assign.get(&self.process) {
            assign.close_channel();
        }
    }

    /// Moves the claim on a run to this process, as if the one of its owner had expired.
    pub(super) fn take(&self, run: &str) {
        let mut state = self.state();
        let before = state.owners.insert(run.to_owned(), self.process);
        if before == Some(self.process) {
            return;
        }
        if let Some(lost) = before.and_then(|before| state.assign.get(&before)) {
            // A killed process receives nothing.
            drop(lost.unbounded_send(Assignment::Lost(run.to_owned())));
        }
        self.assign(&state, Assignment::Run(run.to_owned()));
    }

    /// Sends this process an input for a run.
    pub(super) fn tell_here(&self, request: u64, run: &str) {
        let (run, body) = (run.to_owned(), "{}".to_owned());
        self.assign(&self.state(), Assignment::Tell { request, run, body });
    }

    fn assign(&self, state: &State, assignment: Assignment) {
        let assign = &state.assign[&self.process];
        assign.unbounded_send(assignment).expect("the process lives");
    }

    /// Returns true if this process has answered the request.
    pub(super) fn has_answered(&self, request: u64) -> bool {
        self.state().answers.contains(&request)
    }

    /// Returns true if this process has claimed the run.
    pub(super) fn owns(&self, run: &str) -> bool {
        self.state().owners.get(run) == Some(&self.process)
    }

    /// Returns true if a process has claimed the run.
    pub(super) fn is_owned(&self, run: &str) -> bool {
        self.state().owners.contains_key(run)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self, run: &str) -> bool {
        let run = self.store.run(run).now_or_never().expect("is in memory");
        run.expect("is read").is_none_or(|run| run.status.is_final())
    }
}

impl Store for SharedMemory {
    forward_to_store!(store: location run runs journal contents chain snapshot timers sessions session meta remove remove_session);

    fn claims(&self) -> Option<&dyn Claims> {
        self.has_claims.then_some(self as &dyn Claims)
    }

    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        self.store.set_meta(name, value)
    }

    fn commit(&self, commit: Commit) -> Pending<u64> {
        // Held until the write is done, so that no other process claims the run in between.
        let mut state = self.state();
        if state.killed.contains(&self.process) {
            return fails();
        }
        let run = commit.run.clone();
        if state.owners.get(&run).is_some_and(|owner| *owner != self.process) {
            return ready(Err(StoreError::RunLost { run }));
        }
        let is_claimed = matches!(&commit.follows, Precondition::Start(new) if new.is_carried);
        let is_over = commit.status.is_some_and(RunStatus::is_final);
        let written = self.store.commit(commit).now_or_never().expect("is in memory");
        if written.is_ok() && self.has_claims {
            if is_claimed {
                state.owners.insert(run.clone(), self.process);
            }
            if is_over {
                state.owners.remove(&run);
                // The receivers are notified by the drop.
                state.ends.retain(|(of, _)| *of != run);
            }
        }
        ready(written)
    }
}

impl Claims for SharedMemory {
    fn claim(&self, run: &str) -> Pending<()> {
        let mut state = self.state();
        if state.killed.contains(&self.process) {
            return fails();
        }
        if self.has_ended(run) {
            return ready(Ok(()));
        }
        let owner = *state.owners.entry(run.to_owned()).or_insert(self.process);
        ready(if owner == self.process {
            Ok(())
        } else {
            Err(StoreError::RunHeld {
                run: run.to_owned(),
                by: format!("process {owner}"),
            })
        })
    }

    fn verify(&self, run: &str) -> Pending<()> {
        let state = self.state();
        let is_lost = state.owners.get(run).is_some_and(|owner| *owner != self.process);
        if is_lost || state.killed.contains(&self.process) {
            return ready(Err(StoreError::RunLost { run: run.to_owned() }));
        }
        ready(Ok(()))
    }

    fn release(&self, run: &str, _after_ms: u64) {
        if self.owns(run) {
            self.state().owners.remove(run);
        }
    }

    fn carry(&self, _at_most: usize) {}

    fn assigned(&self) -> Pending<Assignment> {
        let (assigned, location) = (Arc::clone(&self.assigned), Arc::clone(self.location()));
        async move {
            let next = assigned.lock().await.next().await;
            next.ok_or_else(|| StoreError::Stopped {
                file: location,
                why: "the process was killed".to_owned(),
            })
        }
        .boxed()
    }

    fn turn(&self, _session: &str, _run: &str) -> Pending<()> {
        ready(Ok(()))
    }

    fn ended(&self, run: &str) -> Pending<()> {
        let mut state = self.state();
        if self.has_ended(run) {
            return ready(Ok(()));
        }
        let (end, ended) = oneshot::channel();
        state.ends.push((run.to_owned(), end));
        ended.map(|_| Ok(())).boxed()
    }

    fn tell(&self, _run: &str, _request: String) -> Pending<Option<String>> {
        ready(Ok(None))
    }

    fn answer(&self, request: u64, _answer: String) {
        self.state().answers.push(request);
    }
}
