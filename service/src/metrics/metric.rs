//! The metrics of a service: one list for all export formats.

/// A metric's OpenTelemetry name; its unit, where `s` is seconds and braces contain the counted thing; its kind, and a description.
/// The Prometheus name is derived from the name, the unit and the kind.
pub(super) struct MetricDescriptor {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) text: &'static str,
    pub(super) kind: Kind,
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A value that only increases.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Counts values in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

impl MetricDescriptor {
    /// Returns the Prometheus name, translated by OpenTelemetry's conventions.
    pub(super) fn prometheus(&self) -> String {
        let unit = if self.unit == "s" { "_seconds" } else { "" };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }
}

macro_rules! metrics {
    ($($id:ident = $kind:expr, $name:literal, $unit:literal, $text:literal;)*) => {
        /// A metric.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum MetricId {
            $($id,)*
        }

        impl MetricId {
            pub(super) fn descriptor(self) -> MetricDescriptor {
                match self {
                    $(Self::$id => MetricDescriptor { name: $name, unit: $unit, text: $text, kind: $kind },)*
                }
            }
        }
    };
}

use Kind::{Counter, Gauge, Histogram};

metrics! {
    RunsStarted = Counter, "pirn.runs.started", "{run}", "Runs started, by workflow";
    RunsEnded = Counter, "pirn.runs.ended", "{run}", "Runs ended, by workflow and status";
    RunsLive = Gauge, "pirn.runs.live", "{run}", "Runs in progress in the engine";
    RunDuration = Histogram(SECONDS), "pirn.run.duration", "s", "Time from a run's start to its end";
    Steps = Counter, "pirn.steps", "{node}", "Nodes ended (each attempt), by type and result";
    Joins = Counter, "pirn.joins", "{join}", "Joins decided, by result";
    JoinDecision = Histogram(SECONDS), "pirn.join.decision", "s", "Time that a JOIN waited until it was decided";
    Triggered = Counter, "pirn.triggered_subgraphs", "{run}", "Triggered sub-workflows ended, by result";
    ToolCalls = Counter, "pirn.tool_calls", "{call}", "Tool calls ended, by tool and result";
    Compressions = Counter, "pirn.compressions", "{compression}", "Compressions, by result";
    TokensSaved = Counter, "pirn.compression.tokens_saved", "{token}", "Tokens that compressions saved";
    CacheCollapses = Counter, "pirn.cache.collapses", "{request}", "Requests that read less than half of the expected tokens from the provider's cache, by reason";
    CacheTokensLost = Counter, "pirn.cache.tokens_lost", "{token}", "Tokens that these requests did not read from the cache, by reason";
    Tokens = Counter, "pirn.tokens", "{token}", "Tokens that providers reported, by workflow and kind";
    ModelTokens = Counter, "pirn.model.tokens", "{token}", "Tokens that providers reported, by profile and kind; the kinds add up";
    ModelCost = Counter, "pirn.model.cost", "{currency}", "Cost of what providers reported, by profile, in the currency of its prices";
    RequestTokens = Histogram(&TOKEN_BOUNDS), "gen_ai.client.token.usage", "{token}", "Tokens of each model request, by provider, model and type";
    RequestDuration = Histogram(&DURATION_BOUNDS), "gen_ai.client.operation.duration", "s",
        "Time of each model request, by provider, model and kind of failure";
    InDoubt = Counter, "pirn.effects_in_doubt", "{call}",
        "Calls in doubt after a resume, by kind and resolution";
    EventsLost = Counter, "pirn.events_lost", "{event}", "Events dropped because the recorder was too slow";
    MailboxDepth = Gauge, "pirn.mailbox.depth", "{message}", "Messages waiting in mailboxes, by kind of actor";
    StoreWrites = Counter, "pirn.store.commits", "{commit}", "Commits made durable by the store";
    StoreBatch = Histogram(&BATCH_BOUNDS), "pirn.store.batch_size", "{commit}", "Commits made durable by one sync of the store";
    OpenStreams = Gauge, "pirn.streams.open", "{stream}", "Open event streams";
    Requests = Counter, "pirn.http.requests", "{request}", "HTTP requests answered, by method, route and status";
    TenantRefusals = Counter, "pirn.tenant.refusals", "{run}", "Starts refused because of a limit of a tenant, by tenant and limit";
    Refusals = Counter, "pirn.http.refusals", "{request}", "HTTP requests refused, by code";
}

/// Bucket bounds of durations, in seconds.
const SECONDS: &[f64] = &[0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 3_600.0];

/// Bucket bounds of batch sizes, as stores count them.
const BATCH_BOUNDS: [f64; pirn::store::BATCH_BOUNDS.len()] = divided(pirn::store::BATCH_BOUNDS, 1.0);

/// Bucket bounds of tokens and of durations in seconds, as engines count them.
const TOKEN_BOUNDS: [f64; pirn::models::TOKEN_BOUNDS.len()] = divided(pirn::models::TOKEN_BOUNDS, 1.0);
const DURATION_BOUNDS: [f64; pirn::models::DURATION_BOUNDS_MS.len()] =
    divided(pirn::models::DURATION_BOUNDS_MS, 1_000.0);

const fn divided<const N: usize>(bounds: [u64; N], by: f64) -> [f64; N] {
    let mut divided = [0.0; N];
    let mut place = 0;
    while place < N {
        divided[place] = bounds[place] as f64 / by;
        place += 1;
    }
    divided
}
