//! Scripts that are cached between their steps, so that a step costs what its new results cost.
//!
//! 1. A script is cached after a step in which it waits for results, and taken by the next step: by one thread at a time.
//! 2. A cached script is used only if the recorded inputs of the step extend those that it has received. Otherwise, and if there is
//!    none, the caller evaluates the script from its start, with an equal answer.
//! 3. Number and bytes are limited; the script that was not used for the longest time is released first.
//! 4. A script is released when it ends, and when its state is dropped: its run has ended, is parked or has left the process.
//!
//! The lock is held for single operations on the maps; scripts are dropped without it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use pirn_core::thread::ScriptState;
use serde_json::{Value, json};

use crate::ScriptSettings;
use crate::quickjs::live_script::{LiveScript, Upkeep};
use crate::worker::Process;

/// A cached script.
pub(super) enum Session {
    /// In this process.
    Realm(Box<LiveScript>),
    /// In a worker process that has no other script.
    Process(Process),
}

/// The recorded inputs that a cached script has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of results.
    pub(super) results: usize,
    calls: usize,
    notes: u64,
    /// Token limit that the script has seen.
    total: Option<u64>,
    /// Time of all steps together.
    pub(super) used: Duration,
}

/// The cached scripts of a pool.
pub(super) struct Sessions {
    most: usize,
    most_bytes: usize,
    most_spare: usize,
    state: Mutex<State>,
    /// Makes a thread of the pool call [`Sessions::drop_released`].
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<u64, Kept>,
    bytes: usize,
    /// Number of the next script, and of the next use.
    next: u64,
    released: Vec<Session>,
    /// Worker processes without a script.
    spare: Vec<Process>,
    counts: StepCounts,
    is_closed: bool,
}

struct Kept {
    session: Session,
    position: Position,
    bytes: usize,
    last_use: u64,
}

/// Numbers of steps so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepCounts {
    /// Evaluations of a script from its start.
    pub(super) evaluated: u64,
    /// Steps that continued a cached script.
    pub(super) resumed: u64,
    /// Results passed to scripts.
    pub(super) results: u64,
}

/// Attached to the state of a script: releases the cached script when the state is dropped.
struct Lease {
    sessions: Weak<Sessions>,
    key: u64,
}

impl Position {
    /// The position of a script that has received the recorded inputs of a step, and returned its answer.
    pub(super) fn after(state: &ScriptState, answer: &Value, used: Duration) -> Self {
        let count = |name: &str| answer[name].as_array().map_or(0, Vec::len);
        Self {
            results: state.results.len(),
            calls: state.known.len() + count("calls"),
            notes: state.notes + count("notes") as u64,
            total: total(state),
            used,
        }
    }

    /// Returns true if the recorded inputs are those that the script has received, and further results.
    fn is_before(&self, state: &ScriptState) -> bool {
        let is_next = state.from == self.results + 1 && self.results <= state.results.len();
        let is_recorded = (self.calls, self.notes, self.total) == (state.known.len(), state.notes, total(state));
        is_next && is_recorded
    }
}

/// Returns the token limit that the script sees.
fn total(state: &ScriptState) -> Option<u64> {
    let seen = state.budget.as_ref().map(|budget| budget.total);
    seen.or_else(|| state.tokens.map(|tokens| tokens.total))
}

/// Returns the recorded inputs of a step that are new to a cached script.
pub(super) fn new_inputs(state: &ScriptState, position: &Position) -> Value {
    let results = (position.results..state.results.len()).filter_map(|at| state.results.get(at));
    let results: Vec<_> = results.collect();
    json!({ "results": results, "tokens": state.tokens, "from": state.from })
}

impl Sessions {
    pub(super) fn new(settings: &ScriptSettings) -> Self {
        Self {
            most: settings.live_scripts,
            most_bytes: settings.live_script_bytes,
            most_spare: settings.threads,
            state: Mutex::default(),
            wake: OnceLock::new(),
        }
    }

    /// Sets the function that makes a thread of the pool call [`Sessions::drop_released`].
    pub(super) fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        // Fails if it is set; a pool sets it once.
        let _: Result<(), _> = self.wake.set(Box::new(wake));
    }

    /// Returns false if no script is cached.
    pub(super) fn is_enabled(&self) -> bool {
        self.most > 0
    }

    /// Returns the cached script for a step with these recorded inputs, and its position. `time` is the limit of an evaluation.
    pub(super) fn take(self: &Arc<Self>, state: &ScriptState, time: Duration) -> Option<(Session, Position)> {
        let key = self.key(state)?;
        let mut inner = self.lock();
        let kept = inner.remove(key)?;
        // A script that has used much of its time is evaluated again, so that the limit decides as it does without cached scripts.
        if kept.position.is_before(state) && kept.position.used <= time / 2 {
            return Some((kept.session, kept.position));
        }
        inner.release(kept.session, self.most_spare);
        None
    }

    /// Caches a script for the next step.
    pub(super) fn put(self: &Arc<Self>, state: &ScriptState, session: Session, position: Position, upkeep: Upkeep) {
        let key = self.key(state);
        let mut inner = self.lock();
        let Some(key) = key.filter(|_| !inner.is_closed) else {
            inner.released.push(session);
            return;
        };
        inner.next += 1;
        let last_use = inner.next;
        let bytes = upkeep.bytes;
        let kept = Kept {
            session,
            position,
            bytes,
            last_use,
        };
        // Only a step that exceeded its limit and was answered without its thread leaves another one.
        if let Some(other) = inner.remove(key) {
            inner.released.push(other.session);
        }
        inner.bytes += bytes;
        inner.kept.insert(key, kept);
        while inner.kept.len() > self.most || inner.bytes > self.most_bytes {
            let oldest = inner
                .kept
                .iter()
                .min_by_key(|(_, kept)| kept.last_use)
                .map(|(key, _)| *key);
            let Some(evicted) = oldest.and_then(|oldest| inner.remove(oldest)) else {
                return;
            };
            inner.release(evicted.session, self.most_spare);
        }
    }

    /// Releases a script that is not cached.
    pub(super) fn release(&self, session: Session) {
        self.lock().release(session, self.most_spare);
    }

    /// Returns a worker process without a script.
    pub(super) fn take_spare(&self) -> Option<Process> {
        self.lock().spare.pop()
    }

    /// Drops the released scripts. Freeing their memory may take long.
    pub(super) fn drop_released(&self) {
        let released = std::mem::take(&mut self.lock().released);
        drop(released);
    }

    /// Releases all scripts, and caches no others.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.bytes = 0;
        let all = (
            std::mem::take(&mut inner.kept),
            std::mem::take(&mut inner.released),
            std::mem::take(&mut inner.spare),
        );
        drop(inner);
        drop(all);
    }

    /// Counts an evaluation of a script from its start.
    pub(super) fn count_evaluated(&self, results: usize) {
        let mut inner = self.lock();
        inner.counts.evaluated += 1;
        inner.counts.results += results as u64;
    }

    /// Counts a step that continued a cached script.
    pub(super) fn count_resumed(&self, results: usize) {
        let mut inner = self.lock();
        inner.counts.resumed += 1;
        inner.counts.results += results as u64;
    }

    /// Returns the numbers of steps so far, and the number of cached scripts.
    pub(super) fn counts(&self) -> (StepCounts, usize) {
        let inner = self.lock();
        (inner.counts, inner.kept.len())
    }

    /// Returns the key of a script; `None` if it belongs to another pool.
    fn key(self: &Arc<Self>, state: &ScriptState) -> Option<u64> {
        let attached = state.instance.attached(|| {
            let mut inner = self.lock();
            inner.next += 1;
            Box::new(Lease {
                sessions: Arc::downgrade(self),
                key: inner.next,
            })
        });
        let lease = attached.downcast_ref::<Lease>()?;
        std::ptr::eq(lease.sessions.as_ptr(), Arc::as_ptr(self)).then_some(lease.key)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, key: u64) -> Option<Kept> {
        let kept = self.kept.remove(&key)?;
        self.bytes -= kept.bytes;
        Some(kept)
    }

    fn release(&mut self, session: Session, most_spare: usize) {
        match session {
            // The process drops the script before its next request.
            Session::Process(process) if self.spare.len() < most_spare && !self.is_closed => self.spare.push(process),
            session => self.released.push(session),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The pool has ended.
        let Some(sessions) = self.sessions.upgrade() else {
            return;
        };
        let mut inner = sessions.lock();
        let Some(kept) = inner.remove(self.key) else { return };
        inner.release(kept.session, sessions.most_spare);
        drop(inner);
        // Other work may wait for this thread.
        if let Some(wake) = sessions.wake.get() {
            wake();
        }
    }
}
