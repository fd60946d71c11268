//! Virtual objects of the server. Their handlers behave identically in each worker.
//!
//! 1. The server executes one exclusive call of an object at a time, and restarts the call on another worker if its worker
//!    fails. So a command takes effect atomically, once.
//! 2. No handler runs long or has effects outside of the server: models and tools are called by the process that owns the run.
//!    So cancelling a call stops all of its work. One handler waits for a process, and so has a journal: `own` of a run executes
//!    the commits of the run's owner while they follow each other closely (`open_calls.rs`). Each is one entry of its journal,
//!    from which a repeated call reproduces the state.
//! 3. Calls form a DAG: a run calls its base, contents and session, which make no calls back. Deadlock is impossible.
//!    Notifications in the other direction are one-way calls.
//! 4. State is read by key (`lazy_state`), at one round trip each, so that a step of a long run moves no more bytes than a step
//!    of a short run. For small runs (`commit_little`, `assign_little`, `own`) the server sends all state with the call instead.
//!
//! Not here: calls from the engine to the server (`store.rs`, `client.rs`).

mod call;
mod content;
mod meta;
mod names;
mod process;
mod queue;
mod run;
mod session;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use restate_sdk::endpoint::{Endpoint, HandlerOptions, ServiceOptions};
use restate_sdk::service::IntoServiceDefinition;

pub(crate) use call::Target;

use crate::connect::ConnectError;
use crate::open_calls::OpenCalls;

/// Layout of the objects' state. A program of another version refuses to use the server.
pub(crate) const LAYOUT: &str = "3";
/// Name of the layout in the metadata of each service.
pub(crate) const LAYOUT_NAME: &str = "pirn-layout";

pub(crate) const RUN: &str = "PirnRun";
pub(crate) const SESSION: &str = "PirnSession";
pub(crate) const CONTENT: &str = "PirnContent";
pub(crate) const PROCESS: &str = "PirnProcess";
pub(crate) const QUEUE: &str = "PirnQueue";
pub(crate) const META: &str = "PirnMeta";
pub(crate) const NAMES: &str = "PirnNames";
pub(crate) const WAIT: &str = "PirnWait";
/// Key of objects with one instance.
pub(crate) const ONE: &str = "runs";

/// Inactivity and abort timeout: a call without progress is suspended, and if it does not react is retried elsewhere.
const SILENCE: Duration = Duration::from_secs(10);
/// Retention of idempotency keys: a command that is sent again within this time takes effect once.
const REMEMBERED: Duration = Duration::from_mins(10);

fn options(has_state: bool) -> ServiceOptions {
    ServiceOptions::new()
        .metadata(LAYOUT_NAME, LAYOUT)
        .enable_lazy_state(has_state)
        .inactivity_timeout(SILENCE)
        .abort_timeout(SILENCE)
        .idempotency_retention(REMEMBERED)
        // The journal of a finished call would retain all texts of a commit.
        .journal_retention(Duration::ZERO)
        // Retried without end: a half-executed command is completed as soon as a worker is available.
        .retry_policy_initial_interval(Duration::from_millis(50))
        .retry_policy_exponentiation_factor(2.0)
        .retry_policy_max_interval(Duration::from_secs(1))
        .retry_policy_max_attempts(u64::from(u32::MAX))
        .retry_policy_pause_on_max_attempts()
}

/// Creates the endpoint with all objects.
/// A call must be signed by one of the keys; without keys every call is accepted.
/// Runs of calls of `own` are delivered to `open`.
pub(crate) fn endpoint(identity_keys: &[String], open: Arc<OpenCalls>) -> Result<Endpoint, ConnectError> {
    // State is sent with the call: saves the round trips, and the state of these calls is small.
    let eager = || HandlerOptions::new().enable_lazy_state(false);
    let run = options(true)
        .handler("commit_little", eager())
        .handler("assign_little", eager())
        .handler("own", eager());
    let process = options(true).handler("put", eager()).handler("inbox", eager());
    let mut builder = Endpoint::builder();
    for key in identity_keys {
        let added = builder.identity_key(key.trim());
        builder = added.map_err(|error| ConnectError::IdentityKey(format!("{key}: {error}")))?;
    }
    let endpoint = builder
        .bind(run::RunObject { open }.into_service_definition().options(run))
        .bind(session::SessionObject.into_service_definition().options(options(true)))
        .bind(content::ContentObject.into_service_definition().options(options(true)))
        .bind(process::ProcessObject.into_service_definition().options(process))
        .bind(queue::QueueObject.into_service_definition().options(options(true)))
        .bind(meta::MetaObject.into_service_definition().options(options(true)))
        .bind(names::NamesObject.into_service_definition().options(options(true)))
        .bind(wait::WaitService.into_service_definition().options(options(false)))
        .build();
    Ok(endpoint)
}
