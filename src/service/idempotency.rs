//! Idempotency keys: the run that a request with a key started, for as long as the key is remembered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::problem::{Problem, ProblemCode};

/// Bytes that a key may have.
const MAX_KEY: usize = 255;

#[derive(Clone, Default)]
pub(super) struct IdempotencyKeys {
    state: Arc<Mutex<State>>,
    limit: usize,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<String, Known>,
    /// The keys that have a run, in the order of their runs.
    order: VecDeque<String>,
}

struct Known {
    fingerprint: u64,
    /// None while the first request with the key is being handled.
    run_id: Option<String>,
}

/// The result of a claim on a key.
pub(super) enum Claim {
    /// The request is the first with it.
    First(Claimed),
    /// An equal request has started this run.
    Same(String),
}

/// A key whose request is being handled; free again when it is dropped without a run.
pub(super) struct Claimed {
    keys: IdempotencyKeys,
    key: String,
    is_kept: bool,
}

impl IdempotencyKeys {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Arc::default(),
            limit,
        }
    }

    pub(super) fn claim(&self, key: &str, fingerprint: u64) -> Result<Claim, Problem> {
        if key.is_empty() || key.len() > MAX_KEY {
            let detail = format!("Idempotency-Key must have 1 to {MAX_KEY} bytes");
            return Err(Problem::new(ProblemCode::InvalidRequest, detail));
        }
        let mut state = self.state();
        match state.keys.get(key) {
            None => {
                let run_id = None;
                state.keys.insert(key.to_owned(), Known { fingerprint, run_id });
                Ok(Claim::First(Claimed {
                    keys: self.clone(),
                    key: key.to_owned(),
                    is_kept: false,
                }))
            }
            Some(known) if known.fingerprint != fingerprint => {
                let detail = "this Idempotency-Key came with another body before";
                Err(Problem::new(ProblemCode::IdempotencyKeyReused, detail))
            }
            Some(Known { run_id: None, .. }) => {
                let detail = "the first request with this Idempotency-Key is still being handled";
                Err(Problem::new(ProblemCode::IdempotencyKeyInUse, detail).retry_after(1))
            }
            Some(Known {
                run_id: Some(run_id), ..
            }) => Ok(Claim::Same(run_id.clone())),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every holder leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claimed {
    /// The request has started this run.
    pub(super) fn keep(mut self, run_id: &str) {
        self.is_kept = true;
        let limit = self.keys.limit;
        let mut state = self.keys.state();
        if let Some(known) = state.keys.get_mut(&self.key) {
            known.run_id = Some(run_id.to_owned());
        }
        state.order.push_back(self.key.clone());
        while state.order.len() > limit {
            let Some(oldest) = state.order.pop_front() else { break };
            state.keys.remove(&oldest);
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if !self.is_kept {
            self.keys.state().keys.remove(&self.key);
        }
    }
}
