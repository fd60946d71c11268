//! A service: the state that its requests share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalogue::Catalogue;
use crate::http::access::Access;
use crate::http::caller::{Caller, Grant};
use crate::http::problem::{Problem, ProblemCode};
use crate::http::tenant::Scope;
use crate::limits::{Limits, StreamGate};
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::metrics::recent::RecentMetrics;
use crate::options::Options;
use crate::runs::followed::FollowedRuns;
use crate::runs::idempotency::IdempotencyKeys;
use crate::runs::quota::Quotas;
use crate::runs::scoped::{ScopedArchive, ScopedRuns};
use crate::runs::store::archive::NoArchive;
use crate::runs::store::histories::Histories;
use crate::runs::store::replays::Replays;
use crate::runs::store::stored::{Archive, StoredRuns};
use crate::runs::{Run, Runs};
use crate::studio::StudioMode;
use pirn::{Engine, Events, ShutdownReport};
use pirn_definition::definition::Fault;

/// A service over an engine. Cheap to clone: clones share the state.
///
/// ```
/// # use pirn::Engine;
/// use pirn_service::{Options, Service};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let engine = Engine::builder().build()?;
/// let service = Service::new(engine, Options::default());
/// let app = service.router();
/// // ... serve it; on a stop signal:
/// let left = service.shut_down(std::time::Duration::from_secs(10)).await;
/// assert_eq!(left.runs_cancelled, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    /// The sender of the request for which this handle was made. Runs of other tenants do not exist for it.
    caller: Arc<Caller>,
}

/// Maximum time for a connection to another service of the store.
const FORWARD_CONNECT_TIME: Duration = Duration::from_secs(3);

/// The last result of the readiness probe, with its time.
type Readiness = tokio::sync::Mutex<Option<(Instant, Result<(), Problem>)>>;

struct Shared {
    engine: Engine,
    limits: Limits,
    archive: Archive,
    replays: Replays,
    explorations: Replays,
    histories: Histories,
    inputs: Budget,
    stream_bytes: Budget,
    enqueue_only: bool,
    studio: StudioMode,
    access: RwLock<Arc<Access>>,
    catalogue: RwLock<Arc<Catalogue>>,
    runs: Runs,
    followed: FollowedRuns,
    keys: IdempotencyKeys,
    quotas: Quotas,
    streams: StreamGate,
    metrics: Metrics,
    recent_metrics: RecentMetrics,
    /// True once the metrics are sampled.
    is_sampling: AtomicBool,
    tasks: TaskTracker,
    /// The runtime that serves requests. Needed for runs that the engine starts itself: they are announced on engine threads.
    runtime: OnceLock<Handle>,
    /// Runs that started before the runtime was set, with their events. Their recorders are spawned when it is set.
    early: Mutex<Vec<(Arc<Run>, Events)>>,
    is_draining: AtomicBool,
    /// Cancelled when the engine has stopped: no log is filled any more.
    stopped: CancellationToken,
    forwarder: OnceLock<Option<reqwest::Client>>,
    readiness: Readiness,
}

impl Service {
    /// Creates a service for every workflow that the engine has at present.
    pub fn new(engine: Engine, options: Options) -> Self {
        let catalogue = Catalogue::of(&engine, |_| Some(&[]));
        let replays = Replays::new(&options.limits);
        let archive = match (options.archive, engine.store()) {
            (Some(archive), _) => Archive::Other(archive),
            (None, Some(_)) => Archive::Stored(StoredRuns::new(engine.clone(), &options.limits, replays.clone())),
            (None, None) => Archive::Other(Arc::new(NoArchive)),
        };
        let service = Self {
            caller: Arc::new(Caller::anyone()),
            shared: Arc::new(Shared {
                limits: options.limits.clone(),
                archive,
                histories: Histories::new(engine.clone(), &options.limits, replays.clone()),
                replays,
                explorations: Replays::explorations(&options.limits),
                inputs: Budget::new(options.limits.input_bytes),
                stream_bytes: Budget::new(options.limits.stream_bytes),
                enqueue_only: options.enqueue_only,
                studio: options.studio.built(),
                access: RwLock::new(Arc::new(options.access)),
                catalogue: RwLock::new(Arc::new(catalogue)),
                runs: Runs::new(&options.limits),
                followed: FollowedRuns::new(options.limits.followed_runs),
                keys: IdempotencyKeys::new(options.limits.idempotency_keys, engine.store().cloned()),
                quotas: Quotas::new(options.tenant_limits),
                streams: StreamGate::new(options.limits.streams),
                metrics: Metrics::default(),
                recent_metrics: RecentMetrics::new(options.limits.metrics_interval),
                is_sampling: AtomicBool::new(false),
                tasks: TaskTracker::new(),
                runtime: OnceLock::new(),
                early: Mutex::default(),
                is_draining: AtomicBool::new(false),
                stopped: CancellationToken::new(),
                forwarder: OnceLock::new(),
                readiness: Readiness::default(),
                engine,
            }),
        };
        service.enter_runtime();
        service.watch_started();
        service
    }

    pub(super) fn runtime(&self) -> &OnceLock<Handle> {
        &self.shared.runtime
    }

    /// Returns the runs that wait for the runtime, with their events.
    pub(super) fn early(&self) -> MutexGuard<'_, Vec<(Arc<Run>, Events)>> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.shared.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a function that upgrades a weak reference to the service. The engine stores it and must not own the service: that
    /// would be a reference cycle.
    pub(super) fn weak(&self) -> impl Fn() -> Option<Self> + Send + Sync + use<> {
        let shared: Weak<Shared> = Arc::downgrade(&self.shared);
        let caller = Arc::clone(&self.caller);
        move || {
            Some(Self {
                shared: shared.upgrade()?,
                caller: Arc::clone(&caller),
            })
        }
    }

    /// Replaces the offered workflows by these, as registered with the engine at present, each with the warnings of its file. Running
    /// runs are not affected.
    ///
    /// # Errors
    /// Returns one message for each workflow with an `inputSchema` that is not a JSON Schema; the offer is unchanged then.
    pub fn publish(&self, offered: &BTreeMap<String, Vec<Fault>>) -> Result<(), Vec<String>> {
        let catalogue = Catalogue::of(&self.shared.engine, |id| offered.get(id).map(Vec::as_slice));
        let faults = catalogue.faults();
        if !faults.is_empty() {
            return Err(faults);
        }
        *self.shared.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalogue);
        Ok(())
    }

    /// Replaces the accepted tokens; if empty, no token is needed.
    pub fn set_tokens(&self, tokens: Vec<String>) {
        let mut access = self.shared.access.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut access).tokens = tokens;
    }

    /// Replaces the accepted tokens with separate rights.
    pub fn set_grants(&self, grants: Vec<Grant>) {
        let mut access = self.shared.access.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut access).grants = grants;
    }

    /// Returns a handle for the requests of a caller.
    pub(super) fn of_caller(&self, caller: Caller) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            caller: Arc::new(caller),
        }
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the runs that the caller may use.
    pub(super) fn scope(&self) -> &Scope {
        &self.caller.scope
    }

    /// Stops starting runs; `/readyz` answers 503 from now on.
    pub fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::SeqCst);
    }

    /// Drains the service, waits `grace` for unfinished runs, cancels the rest (durable ones remain in their store, unfinished), and
    /// stops the engine. Then waits until every stream can be read to its end.
    pub async fn shut_down(&self, grace: Duration) -> ShutdownReport {
        self.drain();
        let report = self.shared.engine.shutdown(grace).await;
        self.shared.stopped.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.runs.changes().close();
        report
    }

    pub(super) fn readiness(&self) -> &Readiness {
        &self.shared.readiness
    }

    pub(super) fn is_draining(&self) -> bool {
        self.shared.is_draining.load(Ordering::SeqCst)
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(super) fn has_store(&self) -> bool {
        self.shared.engine.store().is_some()
    }

    pub(super) fn workflow_definition(&self, id: &str) -> Option<String> {
        self.shared.engine.workflow_definition(id)
    }

    /// Returns the ids of the model profiles.
    pub(super) fn profile_ids(&self) -> Vec<String> {
        self.shared.engine.profile_ids()
    }

    pub(super) fn workflow_ids(&self) -> Vec<String> {
        self.shared.engine.workflow_ids()
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(super) fn enqueue_only(&self) -> bool {
        self.shared.enqueue_only
    }

    pub(super) fn studio(&self) -> StudioMode {
        self.shared.studio
    }

    /// Returns the runs of the caller that are not in memory.
    pub(super) fn archive(&self) -> ScopedArchive<'_> {
        ScopedArchive::new(&self.shared.archive, self.scope())
    }

    pub(super) fn replays(&self) -> &Replays {
        &self.shared.replays
    }

    pub(super) fn explorations(&self) -> &Replays {
        &self.shared.explorations
    }

    pub(super) fn histories(&self) -> &Histories {
        &self.shared.histories
    }

    /// Returns the memory budget of request bodies and of the inputs of unfinished runs.
    pub(super) fn inputs(&self) -> &Budget {
        &self.shared.inputs
    }

    /// Returns the memory budget of events that streams are sending.
    pub(super) fn stream_bytes(&self) -> &Budget {
        &self.shared.stream_bytes
    }

    pub(super) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.shared.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.shared.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes runs from memory that were removed from the store.
    pub(super) fn forget_removed(&self, ids: &[String]) {
        for id in ids {
            self.shared.runs.forget_ended(id);
        }
        if let Archive::Stored(stored) = &self.shared.archive {
            stored.forget_runs(ids);
        }
        self.histories().forget_runs(ids);
    }

    /// Returns the runs of the caller that are in memory.
    pub(super) fn runs(&self) -> ScopedRuns<'_> {
        ScopedRuns::new(&self.shared.runs, self.scope())
    }

    /// Returns the runs of other processes whose events streams read.
    pub(super) fn followed(&self) -> &FollowedRuns {
        &self.shared.followed
    }

    /// Returns the token that is cancelled when the engine has stopped.
    pub(super) fn stopped(&self) -> &CancellationToken {
        &self.shared.stopped
    }

    /// Returns the client that forwards requests to services of the same store; `None` if TLS cannot be initialised.
    pub(super) fn forwarder(&self) -> Option<&reqwest::Client> {
        let client = self.shared.forwarder.get_or_init(|| {
            let client = reqwest::Client::builder()
                .connect_timeout(FORWARD_CONNECT_TIME)
                .redirect(reqwest::redirect::Policy::none())
                // The services of a store reach each other directly.
                .no_proxy()
                // With HTTP/2, a proxy in front of the owner would limit the number of streams, and slow ones would delay the others.
                .http1_only()
                .build();
            client
                .inspect_err(|error| tracing::warn!(%error, "requests cannot be forwarded"))
                .ok()
        });
        client.as_ref()
    }

    pub(super) fn keys(&self) -> &IdempotencyKeys {
        &self.shared.keys
    }

    pub(super) fn quotas(&self) -> &Quotas {
        &self.shared.quotas
    }

    pub(super) fn streams(&self) -> &StreamGate {
        &self.shared.streams
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(super) fn recent_metrics(&self) -> &RecentMetrics {
        &self.shared.recent_metrics
    }

    /// Returns true for the first call only.
    pub(super) fn begin_sampling(&self) -> bool {
        !self.shared.is_sampling.swap(true, Ordering::SeqCst)
    }

    /// Runs `work` to completion even if the client disconnects: axum drops a handler's future with its connection, so the work is
    /// spawned as a task.
    pub(super) async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.tasks().spawn(work).await;
        done.unwrap_or_else(|error| Err(Problem::new(ProblemCode::Internal, error.to_string())))
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.shared.tasks
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("engine", &self.shared.engine)
            .finish_non_exhaustive()
    }
}
