//! The objects in the server, by their code: whichever worker it is called in, it does the same.
//!
//! 1. An object does one thing at a time, and each to its end, whatever happens to the worker: the server has the call go on in
//!    another. So a command takes effect whole, once.
//! 2. Nothing in here takes long, asks for the time, or does anything outside of the server: what a run does it does in the
//!    process that carries it. There is nothing that a cancelled call would leave running.
//! 3. Calls go one way: a run calls its base, its contents, its session; those call nobody back. So none waits for another in a ring.
//!    An answer back is sent, and nobody waits for it.
//! 4. State is read key by key (`lazy_state`), each with a way to the server and back: a step of a long run moves as much as one of a short
//!    run. Where there is known to be little, all of it comes with the call.

mod call;
mod content;
mod meta;
mod names;
mod process;
mod queue;
mod run;
mod session;
mod wait;

use std::time::Duration;

use restate_sdk::endpoint::{Endpoint, HandlerOptions, ServiceOptions};
use restate_sdk::service::IntoServiceDefinition;

pub(crate) use call::Target;

/// The layout of the objects' state; other versions of the program do not mix with it.
pub(crate) const LAYOUT: &str = "2";
/// The name of the layout among what is said of each object.
pub(crate) const LAYOUT_NAME: &str = "pirn-layout";

pub(crate) const RUN: &str = "PirnRun";
pub(crate) const SESSION: &str = "PirnSession";
pub(crate) const CONTENT: &str = "PirnContent";
pub(crate) const PROCESS: &str = "PirnProcess";
pub(crate) const QUEUE: &str = "PirnQueue";
pub(crate) const META: &str = "PirnMeta";
pub(crate) const NAMES: &str = "PirnNames";
pub(crate) const WAIT: &str = "PirnWait";
/// The key of what there is one of.
pub(crate) const ONE: &str = "runs";

/// A call that says nothing for so long is asked to make room; one that does not within as much again begins anew elsewhere.
const SILENCE: Duration = Duration::from_secs(10);
/// A command that is sent again within this time has taken effect once.
const REMEMBERED: Duration = Duration::from_mins(10);

fn options(has_state: bool) -> ServiceOptions {
    ServiceOptions::new()
        .metadata(LAYOUT_NAME, LAYOUT)
        .enable_lazy_state(has_state)
        .inactivity_timeout(SILENCE)
        .abort_timeout(SILENCE)
        .idempotency_retention(REMEMBERED)
        .journal_retention(Duration::ZERO)
        // Never given up: what is half done is finished when a worker is there.
        .retry_policy_initial_interval(Duration::from_millis(50))
        .retry_policy_exponentiation_factor(2.0)
        .retry_policy_max_interval(Duration::from_secs(1))
        .retry_policy_max_attempts(u64::from(u32::MAX))
        .retry_policy_pause_on_max_attempts()
}

/// Everything that a worker offers to the server.
pub(crate) fn endpoint() -> Endpoint {
    let eager = || HandlerOptions::new().enable_lazy_state(false);
    let run = options(true)
        .handler("commit_little", eager())
        .handler("assign_little", eager());
    let process = options(true).handler("put", eager()).handler("inbox", eager());
    Endpoint::builder()
        .bind(run::RunObject.into_service_definition().options(run))
        .bind(session::SessionObject.into_service_definition().options(options(true)))
        .bind(content::ContentObject.into_service_definition().options(options(true)))
        .bind(process::ProcessObject.into_service_definition().options(process))
        .bind(queue::QueueObject.into_service_definition().options(options(true)))
        .bind(meta::MetaObject.into_service_definition().options(options(true)))
        .bind(names::NamesObject.into_service_definition().options(options(true)))
        .bind(wait::WaitService.into_service_definition().options(options(false)))
        .build()
}
