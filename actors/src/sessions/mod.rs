//! The sessions of an engine: the order of their runs, and the state that each run starts with.
//!
//! [`SessionQueues`] determines the order. Its mutex is held for one operation at a time. A run is queued on its caller's thread
//! when it is requested, and holds a `SessionSeat` from then on. Dropping the seat releases the position, so no outcome of a run
//! can block the session.
//!
//! Not here: the rules of a queue (`pirn_core::session`), and sessions in a shared store.

mod memory;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use pirn_conversation::conversation::{Conversation, Tokenizer};
use pirn_core::run::{SessionLeft, SessionSeed, SessionState, ToSupervisor};
use pirn_core::session::{SessionPlace, SessionQueues, SessionTurn, TooManyWait};
use pirn_definition::error::{RunError, RunErrorCode};

pub use crate::history::recounted;
use crate::host::Host;
pub use memory::MemorySessions;

/// Storage for the state of sessions.
pub trait SessionKeeper: Send + Sync + 'static {
    /// Returns the unfinished runs of earlier processes that belong to a session.
    fn unfinished(&self) -> BoxFuture<'static, Result<Vec<SessionPlace>, RunError>>;

    /// Waits for a run's turn, if other processes may execute runs of its session. None if this process executes all of them;
    /// they then run in the order of their requests.
    fn turn(&self, _session: &Arc<str>, _run: &Arc<str>) -> Option<BoxFuture<'static, Result<(), RunError>>> {
        None
    }

    /// Returns the state that the last run of a session saved, with token counts of this tokenizer or else of that run's. Version
    /// 0 if the session is new.
    fn state(
        &self,
        session: &Arc<str>,
        tokenizer: Option<Arc<dyn Tokenizer>>,
    ) -> BoxFuture<'static, Result<SessionState, RunError>>;

    /// Saves the state of a run that leaves the session. The run's own records are durable at this point.
    fn left(&self, left: SessionLeft);

    /// True if an unfinished run of this process retains its position in the session until it ends. Otherwise the store
    /// determines the order, or the position is released.
    fn keeps_places(&self) -> bool;
}

/// The state of a new session.
pub fn empty_session(tokenizer: &str) -> SessionState {
    SessionState {
        version: 0,
        tokenizer: tokenizer.into(),
        conversation: Conversation::new(),
        variables: std::collections::BTreeMap::new(),
        stored: None,
    }
}

/// Notified when a run has its turn.
type Waiter = oneshot::Sender<()>;

/// Sessions of an engine; see the module.
pub(crate) struct Sessions {
    keeper: Arc<dyn SessionKeeper>,
    state: Mutex<State>,
    first_number: u64,
    next_number: AtomicU64,
}

struct State {
    queues: SessionQueues<Waiter>,
    /// The runs of earlier processes have been added.
    is_known: bool,
}

impl Sessions {
    /// `max_waiting` is the maximum number of runs that wait for one session. Runs of earlier processes have numbers below
    /// `first_number`.
    pub(crate) fn new(keeper: Arc<dyn SessionKeeper>, max_waiting: usize, first_number: u64) -> Self {
        let state = State {
            queues: SessionQueues::new(max_waiting),
            is_known: false,
        };
        Self {
            keeper,
            state: Mutex::new(state),
            first_number,
            next_number: AtomicU64::new(first_number),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a new run.
    ///
    /// # Errors
    /// `SESSION_BUSY` if too many runs wait for the session.
    pub(crate) fn enter(
        self: &Arc<Self>,
        session: Arc<str>,
        keeps_on_failure: bool,
        run: &Arc<str>,
    ) -> Result<SessionSeat, RunError> {
        let seed = SessionSeed {
            id: session,
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            keeps_on_failure,
            is_aside: false,
        };
        let seat = self.seat(seed, run, true);
        match self.state().queues.enter(seat.place()) {
            Ok(()) => Ok(seat),
            Err(TooManyWait(most)) => {
                let message = format!("{most} runs wait for session {}, no more are taken", seat.seed.id);
                Err(RunError::new(RunErrorCode::SessionBusy, message))
            }
        }
    }

    /// Queues a resumed run. Call [`Self::know`] first.
    pub(crate) fn enter_again(self: &Arc<Self>, seed: SessionSeed, run: &Arc<str>) -> SessionSeat {
        let seat = self.seat(seed, run, false);
        self.state().queues.enter_again(seat.place());
        seat
    }

    fn seat(self: &Arc<Self>, seed: SessionSeed, run: &Arc<str>, is_new: bool) -> SessionSeat {
        SessionSeat {
            sessions: Arc::clone(self),
            run: Arc::clone(run),
            seed,
            is_new,
            has_begun: !is_new,
            is_left: false,
        }
    }

    /// Loads the unfinished runs of earlier processes, once. They precede the runs of this process.
    pub(crate) fn know(self: &Arc<Self>) -> BoxFuture<'static, Result<(), RunError>> {
        if self.state().is_known {
            return std::future::ready(Ok(())).boxed();
        }
        let (sessions, unfinished) = (Arc::clone(self), self.keeper.unfinished());
        async move {
            let runs = unfinished.await?;
            let mut state = sessions.state();
            // Another caller may have loaded them concurrently, and some of them may have ended since.
            if !std::mem::replace(&mut state.is_known, true) {
                let earlier = |run: &SessionPlace| run.number < sessions.first_number;
                state.queues.know(runs.into_iter().filter(earlier));
            }
            Ok(())
        }
        .boxed()
    }

    /// Waits for a run's turn among the runs of this process. None if the host stops.
    async fn turn_here(
        self: &Arc<Self>,
        place: &SessionPlace,
        is_new: bool,
        host: &Host,
    ) -> Option<Result<(), RunError>> {
        if let Err(error) = outside(host, self.know()).await? {
            return Some(Err(error));
        }
        let (waiter, told) = oneshot::channel();
        // A separate statement, so that the lock is released before the await.
        let turn = self.state().queues.ask(&place.session, &place.run, is_new, waiter);
        match turn {
            SessionTurn::Now(_) => Some(Ok(())),
            SessionTurn::Later => told.await.ok().map(Ok),
            // An error, because no process executes that run and the wait would not end.
            SessionTurn::Behind(run) => {
                let message = format!(
                    "run {run} of session {} comes first and no process owns it: resume or cancel it",
                    place.session
                );
                Some(Err(RunError::new(RunErrorCode::SessionBusy, message)))
            }
        }
    }

    /// Returns an unfinished run without an owner that precedes this run in its session.
    pub(crate) fn abandoned_before(&self, session: &str, run: &str) -> Option<Arc<str>> {
        self.state().queues.abandoned_before(session, run).cloned()
    }
}

/// The position of a run in its session. Dropping it releases the position, except for an unfinished durable run: that one may
/// retain it until it is resumed.
pub(crate) struct SessionSeat {
    sessions: Arc<Sessions>,
    seed: SessionSeed,
    run: Arc<str>,
    is_new: bool,
    has_begun: bool,
    is_left: bool,
}

impl SessionSeat {
    /// Returns the data stored in the run.
    pub(crate) fn seed(&self) -> SessionSeed {
        self.seed.clone()
    }

    fn place(&self) -> SessionPlace {
        SessionPlace {
            session: Arc::clone(&self.seed.id),
            number: self.seed.number,
            run: Arc::clone(&self.run),
        }
    }

    /// Waits for the run's turn. Returns the session's state, or an error; none if the host stops.
    pub(crate) fn turn(
        &mut self,
        host: Host,
        tokenizer: Arc<dyn Tokenizer>,
    ) -> impl Future<Output = Option<Result<SessionState, RunError>>> + use<> {
        // From here on an unfinished durable run retains its position.
        self.has_begun = true;
        // Clones, because the supervisor owns the seat while the future waits.
        let (sessions, place, is_new) = (Arc::clone(&self.sessions), self.place(), self.is_new);
        async move {
            let refused = match sessions.keeper.turn(&place.session, &place.run) {
                Some(turn) => outside(&host, turn).await?.err(),
                None => sessions.turn_here(&place, is_new, &host).await?.err(),
            };
            if let Some(error) = refused {
                return Some(Err(error));
            }
            outside(&host, sessions.keeper.state(&place.session, Some(tokenizer))).await
        }
    }

    /// True if the run waits for one that this process does not execute.
    pub(crate) fn is_behind_stored(&self) -> bool {
        let state = self.sessions.state();
        if self.sessions.keeper.keeps_places() {
            return state.queues.abandoned_before(&self.seed.id, &self.run).is_some();
        }
        // The queue has the runs of this process only, and the store determines the order.
        state.queues.is_first(&self.seed.id, &self.run)
    }

    /// Releases the position of a run that is removed from its engine before it has ended. Returns the runs of the session that this
    /// process still executes.
    pub(crate) fn leave_unfinished(self) -> Vec<Arc<str>> {
        let (sessions, session) = (Arc::clone(&self.sessions), Arc::clone(&self.seed.id));
        drop(self);
        sessions.state().queues.owned(&session)
    }

    /// Marks the run as created without an owner: its position is retained as for an unfinished run of an earlier process.
    pub(crate) fn begins_elsewhere(mut self) {
        self.has_begun = true;
    }

    /// Leaves the session and saves the run's state.
    pub(crate) fn leave(&mut self, left: Option<SessionLeft>) {
        // Saved before the next run has its turn, because that one reads the state.
        if let Some(left) = left {
            self.sessions.keeper.left(left);
        }
        self.go();
    }

    fn go(&mut self) {
        // `leave` and `drop` both come here; the second call must not remove a later run's position.
        if !std::mem::replace(&mut self.is_left, true) {
            // A separate statement, so that the lock is released before the next run is woken.
            let next = self.sessions.state().queues.leave(&self.place());
            if let Some(next) = next {
                // The receiver may be gone; dropping its seat then notifies the next run.
                next.send(()).unwrap_or(());
            }
        }
    }
}

impl Drop for SessionSeat {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        if self.has_begun && self.sessions.keeper.keeps_places() {
            self.sessions.state().queues.abandon(&self.seed.id, &self.run);
        } else {
            self.go();
        }
    }
}

/// Runs a future that waits for the outside world. None if the host stops first.
async fn outside<T: Send + 'static>(host: &Host, mut work: BoxFuture<'static, T>) -> Option<T> {
    // A ready result needs no external work, during which a virtual clock is as slow as the real one.
    if let Some(done) = (&mut work).now_or_never() {
        return Some(done);
    }
    let (tell, told) = oneshot::channel();
    // The receiver may have been dropped.
    let working = host.external(None, async move { tell.send(work.await).map_or((), |()| ()) }.boxed());
    let done = told.await.ok();
    // Held until the result is there: the drop of the handle would abort the work.
    drop(working);
    done
}

/// Converts to the run's input.
pub(crate) fn told(turn: Result<SessionState, RunError>) -> ToSupervisor {
    ToSupervisor::Session(Box::new(turn))
}
