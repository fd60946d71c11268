//! Idempotency keys: the run that a request with a key started, for as long as the key is remembered.
//!
//! A store of runs keeps the keys too, in as many places of the store as keys are remembered, the oldest overwritten first.
//! A key is durable with the id of its run before that run starts: of a process that ends in between the key is free again,
//! because no run has that id.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::problem::{Problem, ProblemCode};
use crate::store::{ContentHash, Store, StoreError};

/// Bytes that a key may have.
const MAX_KEY: usize = 255;

#[derive(Clone)]
pub(super) struct IdempotencyKeys(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    limit: usize,
    store: Option<Arc<dyn Store>>,
    /// The keys that the store has are known.
    read: OnceCell<()>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<String, Known>,
    /// The keys that have a run, in the order of their runs.
    order: VecDeque<String>,
    /// The number of the next key that is kept.
    next: u64,
}

struct Known {
    fingerprint: String,
    /// None while the first request with the key is being handled.
    run_id: Option<String>,
}

/// A key as a store has it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    number: u64,
    key: String,
    fingerprint: String,
    run_id: String,
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
    fingerprint: String,
    /// The store's name for its place there.
    place: Option<String>,
    is_kept: bool,
}

impl IdempotencyKeys {
    pub(super) fn new(limit: usize, store: Option<Arc<dyn Store>>) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            limit,
            store,
            read: OnceCell::new(),
        }))
    }

    pub(super) async fn claim(&self, key: &str, fingerprint: ContentHash) -> Result<Claim, Problem> {
        if key.is_empty() || key.len() > MAX_KEY {
            let detail = format!("Idempotency-Key must have 1 to {MAX_KEY} bytes");
            return Err(Problem::new(ProblemCode::InvalidRequest, detail));
        }
        let read = self.0.read.get_or_try_init(|| self.read()).await;
        read.map_err(|error| not_kept(&error))?;
        let fingerprint = fingerprint.to_string();
        let mut state = self.state();
        match state.keys.get(key) {
            None => {
                let known = Known {
                    fingerprint: fingerprint.clone(),
                    run_id: None,
                };
                state.keys.insert(key.to_owned(), known);
                Ok(Claim::First(Claimed {
                    keys: self.clone(),
                    key: key.to_owned(),
                    fingerprint,
                    place: None,
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

    /// The keys that the store has.
    async fn read(&self) -> Result<(), StoreError> {
        let Some(store) = &self.0.store else { return Ok(()) };
        let mut found = Vec::new();
        for place in 0..self.0.limit as u64 {
            let Some(text) = store.meta(&name(place)).await? else {
                break;
            };
            // Free, or of a later version.
            let kept: Option<Kept> = serde_json::from_str(&text).unwrap_or_default();
            found.extend(kept);
        }
        found.sort_by_key(|kept| kept.number);
        let mut known = Vec::with_capacity(found.len());
        for kept in found {
            let has_begun = store.run(&kept.run_id).await?.is_some();
            known.push((kept, has_begun));
        }
        let mut state = self.state();
        for (kept, has_begun) in known {
            state.next = kept.number + 1;
            if has_begun {
                state.order.push_back(kept.key.clone());
                let known = Known {
                    fingerprint: kept.fingerprint,
                    run_id: Some(kept.run_id),
                };
                state.keys.insert(kept.key, known);
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every holder leaves it whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claimed {
    /// The request is to start a run of this id: where keys are kept this one is, before the run starts.
    pub(super) async fn starts(&mut self, run_id: &str) -> Result<(), Problem> {
        let Some(store) = &self.keys.0.store else { return Ok(()) };
        let number = {
            let mut state = self.keys.state();
            state.next += 1;
            state.next - 1
        };
        let kept = Kept {
            number,
            key: self.key.clone(),
            fingerprint: self.fingerprint.clone(),
            run_id: run_id.to_owned(),
        };
        let text = serde_json::to_string(&kept).unwrap_or_default();
        let place = name(number % self.keys.0.limit.max(1) as u64);
        let kept = store.set_meta(&place, Some(text)).await;
        self.place = Some(place);
        kept.map_err(|error| not_kept(&error))
    }

    /// That run was refused: the key is free.
    pub(super) async fn refused(self) {
        if let (Some(store), Some(place)) = (&self.keys.0.store, &self.place) {
            // Where the store fails now, no run has the id, unless it was taken before.
            drop(store.set_meta(place, Some("null".to_owned())).await);
        }
    }

    /// The request has started this run.
    pub(super) fn keep(mut self, run_id: &str) {
        self.is_kept = true;
        let limit = self.keys.0.limit;
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

/// The store's name for one of the places of keys.
fn name(place: u64) -> String {
    format!("idempotency key {place}")
}

fn not_kept(error: &StoreError) -> Problem {
    Problem::new(ProblemCode::StoreFailed, error.to_string())
}
