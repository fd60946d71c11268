//! The sessions of an engine: whose turn it is in each, and what it begins with.
//!
//! The order is [`SessionQueues`]' and is one mutex, held for one step. A run takes its place when it is asked for, on its
//! caller's thread, and holds a `SessionSeat` from then on: whatever ends the run gives its place up.

mod memory;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use pirn_core::conversation::{Conversation, Tokenizer};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::run::{SessionLeft, SessionSeed, SessionState, ToSupervisor};
use pirn_core::session::{SessionPlace, SessionQueues, SessionTurn, TooManyWait};

pub use crate::history::recounted;
use crate::host::Host;
pub use memory::MemorySessions;

/// The place where sessions are kept between their runs.
pub trait SessionKeeper: Send + Sync + 'static {
    /// The runs of earlier processes that belong to a session and have not ended.
    fn unfinished(&self) -> BoxFuture<'static, Result<Vec<SessionPlace>, RunError>>;

    /// The wait for a run's turn in its session, where other processes have runs of it too; none where this one has them all, and
    /// they go in the order in which they were asked for.
    fn turn(&self, _session: &Arc<str>, _run: &Arc<str>) -> Option<BoxFuture<'static, Result<(), RunError>>> {
        None
    }

    /// The state that the last run of a session left, counted by this tokenizer, or by that run's; of version 0 where there
    /// is none.
    fn state(
        &self,
        session: &Arc<str>,
        tokenizer: Option<Arc<dyn Tokenizer>>,
    ) -> BoxFuture<'static, Result<SessionState, RunError>>;

    /// A run leaves this, which is durable by now where anything is.
    fn left(&self, left: SessionLeft);

    /// True if a run that this process leaves has its place in its session until it ends, because this process alone says whose turn
    /// it is.
    fn keeps_places(&self) -> bool;
}

/// The state of a session that no run has left anything in.
pub fn empty_session(tokenizer: &str) -> SessionState {
    SessionState {
        version: 0,
        tokenizer: tokenizer.into(),
        conversation: Conversation::new(),
        variables: std::collections::BTreeMap::new(),
        stored: None,
    }
}

/// Told when a run has its turn.
type Waiter = oneshot::Sender<()>;

/// See the module.
pub(crate) struct Sessions {
    keeper: Arc<dyn SessionKeeper>,
    state: Mutex<State>,
    first_number: u64,
    next_number: AtomicU64,
}

struct State {
    queues: SessionQueues<Waiter>,
    /// The runs of earlier processes have been put in.
    is_known: bool,
}

impl Sessions {
    /// So many runs wait for one session; this process's runs come after all whose number is lower.
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

    /// A run is asked for.
    ///
    /// # Errors
    /// `SESSION_BUSY` where too many wait.
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

    /// A run goes on; after [`Self::know`].
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

    /// Finds out, once, which runs of earlier processes come before those of this one.
    pub(crate) fn know(self: &Arc<Self>) -> BoxFuture<'static, Result<(), RunError>> {
        if self.state().is_known {
            return std::future::ready(Ok(())).boxed();
        }
        let (sessions, unfinished) = (Arc::clone(self), self.keeper.unfinished());
        async move {
            let runs = unfinished.await?;
            let mut state = sessions.state();
            // Somebody else may have found out meanwhile, and some of them may have ended since.
            if !std::mem::replace(&mut state.is_known, true) {
                let earlier = |run: &SessionPlace| run.number < sessions.first_number;
                state.queues.know(runs.into_iter().filter(earlier));
            }
            Ok(())
        }
        .boxed()
    }

    /// Waits for a run's turn among those of this process; none where the host stops.
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
        let turn = self.state().queues.ask(&place.session, &place.run, is_new, waiter);
        match turn {
            SessionTurn::Now(_) => Some(Ok(())),
            SessionTurn::Later => told.await.ok().map(Ok),
            SessionTurn::Behind(run) => {
                let message = format!(
                    "run {run} of session {} comes first, and nobody carries it: resume or cancel it",
                    place.session
                );
                Some(Err(RunError::new(RunErrorCode::SessionBusy, message)))
            }
        }
    }

    /// A run of the session that comes before this one and that nobody carries.
    pub(crate) fn abandoned_before(&self, session: &str, run: &str) -> Option<Arc<str>> {
        self.state().queues.abandoned_before(session, run).cloned()
    }
}

/// The place of a run in the order of its session. Dropping it gives it up; but a durable run that has not ended may keep its
/// place, for whoever goes on with it.
pub(crate) struct SessionSeat {
    sessions: Arc<Sessions>,
    seed: SessionSeed,
    run: Arc<str>,
    is_new: bool,
    has_begun: bool,
    is_left: bool,
}

impl SessionSeat {
    /// For the run itself.
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

    /// The run has begun, and asks for its turn: what the session hands it, or why it is refused; none where the host stops.
    pub(crate) fn turn(
        &mut self,
        host: Host,
        tokenizer: Arc<dyn Tokenizer>,
    ) -> impl Future<Output = Option<Result<SessionState, RunError>>> + use<> {
        self.has_begun = true;
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

    /// The run begins where nobody carries it: its place is that of one that a process has left.
    pub(crate) fn begins_elsewhere(mut self) {
        self.has_begun = true;
    }

    /// The run is done with its session, and leaves this.
    pub(crate) fn leave(&mut self, left: Option<SessionLeft>) {
        if let Some(left) = left {
            self.sessions.keeper.left(left);
        }
        self.go();
    }

    fn go(&mut self) {
        if !std::mem::replace(&mut self.is_left, true) {
            let next = self.sessions.state().queues.leave(&self.seed.id, &self.run);
            if let Some(next) = next {
                // One that is gone by now has given its place up, or does.
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

/// Waits for the outside world; none where the host stops meanwhile.
async fn outside<T: Send + 'static>(host: &Host, mut work: BoxFuture<'static, T>) -> Option<T> {
    if let Some(done) = (&mut work).now_or_never() {
        return Some(done);
    }
    let (tell, told) = oneshot::channel();
    // Whoever waits may be gone.
    let working = host.external(None, async move { tell.send(work.await).map_or((), |()| ()) }.boxed());
    let done = told.await.ok();
    drop(working);
    done
}

/// As the run is told it.
pub(crate) fn told(turn: Result<SessionState, RunError>) -> ToSupervisor {
    ToSupervisor::Session(Box::new(turn))
}
