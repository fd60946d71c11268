//! Names of contents for starting runs. Concurrent starts with an equal content share one call of the content object.
//!
//! A content object executes one call at a time, so a call for each run would limit the starts of a workflow to the rate of
//! calls of one object: that of the workflow's definition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use pirn_store::{Commit, ContentHash, Precondition, StoreError};
use tokio::sync::oneshot;

use crate::client::Server;
use crate::local_claims::random_name;
use crate::objects::Target;
use crate::wire::{CallKey, NameAllCall, UnnameCall};

/// Maximum number of runs in one call.
const MOST_IN_CALL: usize = 200;

/// Pending names, by content.
#[derive(Default)]
pub(crate) struct StartNames {
    pending: Mutex<BTreeMap<String, Arc<Pending>>>,
}

#[derive(Default)]
struct Pending {
    waiting: Mutex<Vec<Waiting>>,
    /// Held during a call.
    calling: tokio::sync::Mutex<()>,
}

impl Pending {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting {
    by: String,
    text: Option<String>,
    named: oneshot::Sender<Result<bool, StoreError>>,
}

/// Returns the contents that are named before the commit is sent: those of a start that can only be refused because the run exists.
pub(crate) fn of_start(commit: &Commit) -> Vec<ContentHash> {
    let Precondition::Start(new) = &commit.follows else {
        return Vec::new();
    };
    let is_chained = commit.contents.iter().any(|content| content.follows().is_some());
    if new.base.is_some() || commit.session.is_some() || commit.snapshot.is_some() || is_chained {
        return Vec::new();
    }
    let mut hashes: Vec<ContentHash> = std::iter::once(new.definition)
        .chain(new.contents.iter().copied())
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Returns the name under which an attempt to start a run names contents. The name is unique for each attempt, so removing the
/// names of a refused attempt does not free contents of a started run.
pub(crate) fn namer(run: &str, key: &CallKey) -> String {
    format!("start {key} {run}")
}

impl StartNames {
    /// Names the contents of a start for `by`. `text` returns the text of a content that may be missing on the server.
    ///
    /// # Errors
    /// A content without text is not stored, or the server does not answer. Nothing stays named.
    pub(crate) async fn name(
        &self,
        server: &Server,
        hashes: &[ContentHash],
        by: &str,
        text: impl Fn(&ContentHash) -> Option<String>,
    ) -> Result<(), StoreError> {
        let named = join_all(hashes.iter().map(|hash| self.name_one(server, hash, by, text(hash)))).await;
        let failed = hashes.iter().zip(&named).find_map(|(hash, named)| match named {
            Ok(true) => None,
            Ok(false) => Some(StoreError::NoSuchContent { hash: *hash }),
            Err(error) => Some(error.clone()),
        });
        let Some(failed) = failed else { return Ok(()) };
        let unnames = hashes.iter().zip(&named).filter(|(_, named)| matches!(named, Ok(true)));
        join_all(unnames.map(|(hash, _)| async {
            let target = Target::content(&hash.to_string(), "unname");
            // After a failure the content stays stored without a reader.
            drop(server.call::<u64>(&target, None, &UnnameCall::freeing(by)).await);
        }))
        .await;
        Err(failed)
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Pending>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn name_one(
        &self,
        server: &Server,
        hash: &ContentHash,
        by: &str,
        text: Option<String>,
    ) -> Result<bool, StoreError> {
        let hash = hash.to_string();
        let (named, mut is_named) = oneshot::channel();
        let pending = {
            let mut all = self.pending();
            let pending = Arc::clone(all.entry(hash.clone()).or_default());
            pending.waiting().push(Waiting {
                by: by.to_owned(),
                text,
                named,
            });
            pending
        };
        // Those that arrive during a call share the next one.
        let calling = pending.calling.lock().await;
        if let Ok(named) = is_named.try_recv() {
            return named;
        }
        let batch: Vec<Waiting> = {
            let mut waiting = pending.waiting();
            let most = MOST_IN_CALL.min(waiting.len());
            waiting.drain(..most).collect()
        };
        let call = NameAllCall {
            text: batch.iter().find_map(|waiting| waiting.text.clone()),
            by: batch.iter().map(|waiting| waiting.by.clone()).collect(),
        };
        let named = server
            .call::<bool>(&Target::content(&hash, "name_all"), Some(&random_name()), &call)
            .await;
        self.forget(&hash, &pending);
        for waiting in batch {
            // Its start may be gone with the store.
            drop(waiting.named.send(named.clone()));
        }
        drop(calling);
        // The lock serves starts in the order of `waiting`, so this one was in the batch.
        is_named.await.unwrap_or(named)
    }

    /// Removes the entry of a content for which no start waits.
    fn forget(&self, hash: &str, pending: &Pending) {
        // Locked first, as for a new start, so that none is added between the two.
        let mut all = self.pending();
        if pending.waiting().is_empty() {
            all.remove(hash);
        }
    }
}
