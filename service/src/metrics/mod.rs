//! The metrics of a service, and their export formats. They belong to one service: nothing is registered globally.

mod metric;
#[cfg(feature = "otel")]
pub(super) mod otlp;
pub(super) mod prometheus;
pub(super) mod recent;
mod series;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use serde_json::{Value, json};

pub(super) use metric::MetricId;
use pirn::{RunReport, TokenUsage};
pub(super) use series::Series;

/// Maximum number of pending JOINs in a run that are timed.
const MAX_OPEN_JOINS: usize = 10_000;

/// Metrics that the service counts when events happen.
#[derive(Default)]
pub(super) struct Metrics {
    series: Mutex<Series>,
}

impl Metrics {
    pub(super) fn started(&self, workflow: &str) {
        self.count(MetricId::RunsStarted, [("workflow", workflow)], 1);
    }

    pub(super) fn answered(&self, method: &str, route: &str, status: u16, refusal: Option<&'static str>) {
        let status = status.to_string();
        let labels = [("method", method), ("route", route), ("status", status.as_str())];
        self.count(MetricId::Requests, labels, 1);
        if let Some(code) = refusal {
            self.count(MetricId::Refusals, [("code", code)], 1);
        }
    }

    pub(super) fn tenant_refused(&self, tenant: &str, limit: &'static str) {
        self.count(MetricId::TenantRefusals, [("tenant", tenant), ("limit", limit)], 1);
    }

    /// Returns a meter for one run. Events up to the time `replayed_until` were counted by the process that executed the run then.
    pub(super) fn of_run<'a>(&'a self, workflow: &'a str, replayed_until: u64) -> RunMeter<'a> {
        RunMeter {
            metrics: self,
            workflow,
            replayed_until,
            joins: BTreeMap::new(),
        }
    }

    /// Returns the present values.
    pub(super) fn series(&self) -> Series {
        self.lock().clone()
    }

    fn count<const N: usize>(&self, id: MetricId, labels: [(&'static str, &str); N], amount: u64) {
        self.lock().add(id, owned(labels), amount as f64);
    }

    fn time(&self, id: MetricId, workflow: &str, milliseconds: u64) {
        let seconds = milliseconds as f64 / 1_000.0;
        self.lock().record(id, owned([("workflow", workflow)]), seconds);
    }

    fn lock(&self) -> MutexGuard<'_, Series> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns labels with owned values, for storage in a series.
pub(super) fn owned<const N: usize>(labels: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
    labels.map(|(name, value)| (name, value.to_owned())).to_vec()
}

/// The metrics of one run.
pub(super) struct RunMeter<'a> {
    metrics: &'a Metrics,
    workflow: &'a str,
    /// Time of the last event that is not counted, in milliseconds since the Unix epoch.
    replayed_until: u64,
    /// Start times of JOINs that wait, by thread: a thread waits for one JOIN at a time.
    joins: BTreeMap<Arc<str>, u64>,
}

impl RunMeter<'_> {
    pub(super) fn observe(&mut self, event: &Event) {
        let field = |name: &str| event.raised.fields.text(name).unwrap_or_default();
        let event_type = event.raised.event_type;
        // The start of a JOIN counts nothing, and the JOIN may be decided later.
        if event.timestamp <= self.replayed_until && event_type != EventType::ThreadJoinStarted {
            return;
        }
        match event_type {
            EventType::NodeCompleted | EventType::NodeFailed => {
                let node_type = field("nodeType");
                let result = result(event_type == EventType::NodeCompleted);
                self.metrics
                    .count(MetricId::Steps, [("type", node_type), ("result", result)], 1);
                if node_type == "JOIN" {
                    self.metrics.count(MetricId::Joins, [("result", result)], 1);
                    if let Some(began) = self.joins.remove(&event.thread_id) {
                        let waited = event.timestamp.saturating_sub(began);
                        self.metrics.time(MetricId::JoinDecision, self.workflow, waited);
                    }
                }
            }
            EventType::EffectInDoubt => {
                let labels = [("kind", field("kind")), ("resolution", field("resolution"))];
                self.metrics.count(MetricId::InDoubt, labels, 1);
            }
            EventType::ThreadJoinStarted if self.joins.len() < MAX_OPEN_JOINS => {
                self.joins.insert(Arc::clone(&event.thread_id), event.timestamp);
            }
            EventType::ToolCallCompleted | EventType::ToolCallFailed => {
                let labels = [
                    ("tool", field("name")),
                    ("result", result(event_type == EventType::ToolCallCompleted)),
                ];
                self.metrics.count(MetricId::ToolCalls, labels, 1);
            }
            EventType::CompressionCompleted | EventType::CompressionFailed => {
                let is_done = event_type == EventType::CompressionCompleted;
                self.metrics
                    .count(MetricId::Compressions, [("result", result(is_done))], 1);
                let stats = event.raised.fields.get("result").and_then(|result| result.get("stats"));
                if let Some(saved) = stats.and_then(|stats| stats["tokensSaved"].as_u64()) {
                    self.metrics.count(MetricId::TokensSaved, [], saved);
                }
            }
            EventType::CacheCollapsed => {
                let reason = field("reason");
                self.metrics.count(MetricId::CacheCollapses, [("reason", reason)], 1);
                let lost = event.raised.fields.get("lostTokens").and_then(Value::as_u64);
                if let Some(lost) = lost {
                    self.metrics
                        .count(MetricId::CacheTokensLost, [("reason", reason)], lost);
                }
            }
            EventType::TriggeredSubgraphCompleted | EventType::TriggeredSubgraphFailed => {
                let is_done = event_type == EventType::TriggeredSubgraphCompleted;
                self.metrics
                    .count(MetricId::Triggered, [("result", result(is_done))], 1);
            }
            _other => {}
        }
    }

    pub(super) fn lost(&self, events: u64) {
        self.metrics.count(MetricId::EventsLost, [], events);
    }

    /// Counts the end of the run with its duration, and its tokens without those that it shares with another run.
    pub(super) fn ended(&self, report: &RunReport, duration_ms: u64, shared: TokenUsage) {
        let labels = [("workflow", self.workflow), ("status", report.status.as_str())];
        self.metrics.count(MetricId::RunsEnded, labels, 1);
        self.metrics.time(MetricId::RunDuration, self.workflow, duration_ms);
        // Count all token kinds of the report by their field names; fields that are no integers, such as the cost, are skipped.
        let shared = json!(shared);
        if let Value::Object(kinds) = json!(report.tokens.spent) {
            for (kind, tokens) in &kinds {
                let shared = shared[kind].as_u64().unwrap_or_default();
                let own = tokens.as_u64().map(|tokens| tokens.saturating_sub(shared));
                if let Some(tokens) = own.filter(|tokens| *tokens > 0) {
                    let labels = [("workflow", self.workflow), ("kind", kind)];
                    self.metrics.count(MetricId::Tokens, labels, tokens);
                }
            }
        }
    }
}

fn result(is_good: bool) -> &'static str {
    if is_good { "completed" } else { "failed" }
}
