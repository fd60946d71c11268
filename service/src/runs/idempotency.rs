//! Idempotency keys: each key maps to the run that its first request started, while the key is retained.
//!
//! With a store, the keys are durable. The store retains as many keys as the limit, and the oldest is overwritten first. A key is
//! durable together with the id of its run before that run starts. If the process ends in between, the key is free again, because
//! no run has that id. In a store that several processes share, the first process to settle a key decides the run's id, and the
//! others start no run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::http::problem::{Problem, ProblemCode};
use crate::http::tenant::Scope;
use crate::runs::now;
use pirn::store::{ContentHash, Store, StoreError};

/// Number of empty slots after which no stored key is expected. A slot is empty if its write failed, and later slots may have been
/// written at the same time.
const MAX_GAP: u64 = 1_024;

/// Maximum length of a key in bytes.
const MAX_KEY: usize = 255;

#[derive(Clone)]
pub(crate) struct IdempotencyKeys(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    limit: usize,
    store: Option<Arc<dyn Store>>,
    /// Set once the keys of the store have been loaded.
    read: OnceCell<()>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<String, KeyEntry>,
    /// Keys with a run, in the order in which the runs were started.
    order: VecDeque<String>,
    /// The number of the next key that is stored.
    next: u64,
    /// Numbers of keys that the store has refused. Their slots are empty, and are written first.
    unwritten: BTreeSet<u64>,
}

struct KeyEntry {
    fingerprint: String,
    /// `None` while the first request with the key is being handled.
    run_id: Option<String>,
}

/// A key as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredKey {
    number: u64,
    key: String,
    fingerprint: String,
    run_id: String,
}

/// The result of a claim on a key.
pub(crate) enum Claim {
    /// The request is the first with this key.
    First(KeyClaim),
    /// An equal request has started this run.
    Same(String),
}

/// A key with a request in progress. Dropping it without a run frees the key.
pub(crate) struct KeyClaim {
    keys: IdempotencyKeys,
    key: String,
    fingerprint: String,
    /// Location of the key in the store.
    place: Option<Place>,
    is_known: bool,
    is_kept: bool,
}

enum Place {
    /// A numbered slot, by its name in the store.
    Numbered(String),
    /// An entry for this key only, with this value, in a store that several processes share.
    Own(String),
}

/// A key as it is stored in a store that several processes share.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SharedKey {
    fingerprint: String,
    run_id: String,
    /// Milliseconds since 1970.
    at: u64,
}

/// Time after which a run that another process had to start, and that does not exist, counts as never started: that process has
/// died.
const STARTS_WITHIN_MS: u64 = 60_000;

impl IdempotencyKeys {
    pub(crate) fn new(limit: usize, store: Option<Arc<dyn Store>>) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            limit,
            store,
            read: OnceCell::new(),
        }))
    }

    pub(crate) async fn claim(&self, scope: &Scope, key: &str, fingerprint: ContentHash) -> Result<Claim, Problem> {
        if key.is_empty() || key.len() > MAX_KEY {
            let detail = format!("Idempotency-Key must have 1 to {MAX_KEY} bytes");
            return Err(Problem::new(ProblemCode::InvalidRequest, detail));
        }
        let key = &*scope.key(key);
        let read = self.0.read.get_or_try_init(|| self.read()).await;
        read.map_err(|error| store_problem(&error))?;
        let fingerprint = fingerprint.to_string();
        let mut state = self.state();
        match state.keys.get(key) {
            None => {
                let known = KeyEntry {
                    fingerprint: fingerprint.clone(),
                    run_id: None,
                };
                state.keys.insert(key.to_owned(), known);
                Ok(Claim::First(KeyClaim {
                    keys: self.clone(),
                    key: key.to_owned(),
                    fingerprint,
                    place: None,
                    is_known: false,
                    is_kept: false,
                }))
            }
            Some(known) if known.fingerprint != fingerprint => Err(reused()),
            Some(KeyEntry { run_id: None, .. }) => Err(in_use()),
            Some(KeyEntry {
                run_id: Some(run_id), ..
            }) => Ok(Claim::Same(run_id.clone())),
        }
    }

    /// Loads the keys of the store.
    async fn read(&self) -> Result<(), StoreError> {
        // In a shared store other processes add keys, so each key is looked up when a request has it.
        let Some(store) = self.0.store.as_ref().filter(|store| store.claims().is_none()) else {
            return Ok(());
        };
        let (mut found, mut gap) = (Vec::new(), 0);
        for place in 0..self.0.limit as u64 {
            let Some(text) = store.meta(&name(place)).await? else {
                gap += 1;
                if gap > MAX_GAP {
                    break;
                }
                continue;
            };
            gap = 0;
            // The slot is free, or was written by a later version.
            let kept: Option<StoredKey> = serde_json::from_str(&text).unwrap_or_default();
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
                let known = KeyEntry {
                    fingerprint: kept.fingerprint,
                    run_id: Some(kept.run_id),
                };
                state.keys.insert(kept.key, known);
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases the idempotency keys of these runs in a store that one process uses. No service may have the store open.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn forget_keys(store: &dyn Store, run_ids: &BTreeSet<String>) -> Result<(), StoreError> {
    let mut gap = 0;
    for place in 0.. {
        let name = name(place);
        let Some(text) = store.meta(&name).await? else {
            gap += 1;
            if gap > MAX_GAP {
                break;
            }
            continue;
        };
        gap = 0;
        let kept: Option<StoredKey> = serde_json::from_str(&text).unwrap_or_default();
        if kept.is_some_and(|kept| run_ids.contains(&kept.run_id)) {
            // As `refused`: the slot stays, because the slots after it are read too.
            store.set_meta(&name, Some("null".to_owned())).await?;
        }
    }
    Ok(())
}

impl KeyClaim {
    /// Persists the key with the id of the run to start, before the run starts. Returns the id to use: a different one if another
    /// process has handled an equal request.
    pub(crate) async fn starts(&mut self, run_id: &str) -> Result<String, Problem> {
        let Some(store) = &self.keys.0.store else {
            return Ok(run_id.to_owned());
        };
        if let Some(claims) = store.claims() {
            let own = SharedKey {
                fingerprint: self.fingerprint.clone(),
                run_id: run_id.to_owned(),
                at: now(),
            };
            let own = serde_json::to_string(&own).unwrap_or_default();
            let settled = claims
                .settle(&own_name(&self.key), own.clone(), self.keys.0.limit)
                .await;
            let settled = settled.map_err(|error| store_problem(&error))?;
            self.is_known = settled != own;
            self.place = Some(Place::Own(settled.clone()));
            let settled: SharedKey = serde_json::from_str(&settled).map_err(|_| reused())?;
            if settled.fingerprint != self.fingerprint {
                return Err(reused());
            }
            // The other process may be between settling the key and starting the run: the client must retry. After the time limit
            // that process counts as dead, and this one starts the run under the settled id.
            let is_new = settled.at.saturating_add(STARTS_WITHIN_MS) > now();
            if self.is_known && is_new {
                let begun = store
                    .run(&settled.run_id)
                    .await
                    .map_err(|error| store_problem(&error))?;
                begun.ok_or_else(in_use)?;
            }
            return Ok(settled.run_id);
        }
        let number = {
            let mut state = self.keys.state();
            state.unwritten.pop_first().unwrap_or_else(|| {
                state.next += 1;
                state.next - 1
            })
        };
        let kept = StoredKey {
            number,
            key: self.key.clone(),
            fingerprint: self.fingerprint.clone(),
            run_id: run_id.to_owned(),
        };
        let text = serde_json::to_string(&kept).unwrap_or_default();
        let place = name(number % self.keys.0.limit.max(1) as u64);
        let kept = store.set_meta(&place, Some(text)).await;
        if let Err(error) = kept {
            self.keys.state().unwritten.insert(number);
            return Err(store_problem(&error));
        }
        self.place = Some(Place::Numbered(place));
        Ok(run_id.to_owned())
    }

    /// True if another process has handled an equal request, or is about to.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Frees the key after its run was refused.
    pub(crate) async fn refused(self) {
        let Some(store) = &self.keys.0.store else { return };
        // Ignore errors of the store: no run has the id, unless it was taken before.
        match (&self.place, store.claims()) {
            (Some(Place::Numbered(place)), _) => drop(store.set_meta(place, Some("null".to_owned())).await),
            (Some(Place::Own(value)), Some(claims)) if !self.is_known => {
                drop(claims.unsettle(&own_name(&self.key), value.clone()).await);
            }
            _ => {}
        }
    }

    /// Records that the request has started this run.
    pub(crate) fn keep(mut self, run_id: &str) {
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

impl Drop for KeyClaim {
    fn drop(&mut self) {
        if !self.is_kept {
            self.keys.state().keys.remove(&self.key);
        }
    }
}

/// Returns the name of a key's entry in a store that several processes share.
fn own_name(key: &str) -> String {
    format!("idempotency key {key}")
}

fn in_use() -> Problem {
    let detail = "the first request with this Idempotency-Key is still in progress";
    Problem::new(ProblemCode::IdempotencyKeyInUse, detail).retry_after(1)
}

fn reused() -> Problem {
    let detail = "an earlier request had this Idempotency-Key and another body";
    Problem::new(ProblemCode::IdempotencyKeyReused, detail)
}

/// Returns the name of a numbered slot in the store.
fn name(place: u64) -> String {
    format!("idempotency key {place}")
}

fn store_problem(error: &StoreError) -> Problem {
    Problem::new(ProblemCode::StoreFailed, error.to_string())
}
