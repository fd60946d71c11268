//! Metrics in Prometheus' text format. They belong to one service: nothing is registered for the whole process.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{Counter, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use pirn_core::conversation::Spent;
use pirn_core::event::{Event, EventType};
use serde_json::{Value, json};

use crate::RunReport;

/// Bounds of a histogram's buckets, seconds.
const SECONDS: &[f64] = &[0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 3_600.0];

/// Joins of a run whose decision is awaited; beyond them the time of a decision is not measured.
const MAX_OPEN_JOINS: usize = 10_000;

const COUNTERS: &[(&str, &str)] = &[
    (RUNS_STARTED, "Runs started, by workflow"),
    (RUNS_ENDED, "Runs ended, by workflow and status"),
    (STEPS, "Nodes ended (each attempt), by type and result"),
    (JOINS, "Joins decided, by result"),
    (TOOL_CALLS, "Tool calls ended, by tool and result"),
    (COMPRESSIONS, "Compressions, by result"),
    (TOKENS_SAVED, "Tokens that compressions saved"),
    (TOKENS, "Tokens that providers reported, by workflow and kind"),
    (
        MODEL_TOKENS,
        "Tokens that providers reported, by profile and kind; the kinds add up",
    ),
    (TRIGGERED, "Triggered sub-workflows ended, by result"),
    (
        IN_DOUBT,
        "Calls of which a run that goes on did not know whether they had been made, by kind and resolution",
    ),
    (EVENTS_LOST, "Events that came too fast to be recorded"),
    (REQUESTS, "HTTP requests answered, by method, route and status"),
    (REFUSALS, "HTTP requests refused, by code"),
];

const RUNS_STARTED: &str = "pirn_runs_started_total";
const RUNS_ENDED: &str = "pirn_runs_ended_total";
const STEPS: &str = "pirn_steps_total";
const JOINS: &str = "pirn_joins_total";
const TOOL_CALLS: &str = "pirn_tool_calls_total";
const COMPRESSIONS: &str = "pirn_compressions_total";
const TOKENS_SAVED: &str = "pirn_compression_tokens_saved_total";
const TOKENS: &str = "pirn_tokens_total";
const MODEL_TOKENS: &str = "pirn_model_tokens_total";
const MODEL_COST: &str = "pirn_model_cost_total";
const TRIGGERED: &str = "pirn_triggered_subgraphs_total";
const IN_DOUBT: &str = "pirn_effects_in_doubt_total";
const EVENTS_LOST: &str = "pirn_events_lost_total";
const REQUESTS: &str = "pirn_http_requests_total";
const REFUSALS: &str = "pirn_http_refusals_total";
const RUN_SECONDS: &str = "pirn_run_duration_seconds";
const JOIN_SECONDS: &str = "pirn_join_decision_seconds";
const LIVE_RUNS: &str = "pirn_runs_live";
const OPEN_STREAMS: &str = "pirn_streams_open";

pub(super) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let builder = PrometheusBuilder::new();
        // Refused only where there are no buckets.
        let builder = builder
            .set_buckets(SECONDS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        for (name, about) in COUNTERS {
            recorder.describe_counter(KeyName::from_const_str(name), None, (*about).into());
        }
        let seconds = Some(Unit::Seconds);
        recorder.describe_histogram(RUN_SECONDS.into(), seconds, "Time from a run's start to its end".into());
        recorder.describe_histogram(
            JOIN_SECONDS.into(),
            seconds,
            "Time that a JOIN waited until it was decided".into(),
        );
        recorder.describe_gauge(LIVE_RUNS.into(), None, "Runs under way in the engine".into());
        recorder.describe_gauge(OPEN_STREAMS.into(), None, "Event streams that are open".into());
        Self {
            handle: recorder.handle(),
            recorder,
        }
    }

    pub(super) fn started(&self, workflow: &str) {
        self.count(RUNS_STARTED, [("workflow", workflow)]).increment(1);
    }

    pub(super) fn answered(&self, method: &str, route: &str, status: u16, refusal: Option<&'static str>) {
        let status = status.to_string();
        let labels = [("method", method), ("route", route), ("status", status.as_str())];
        self.count(REQUESTS, labels).increment(1);
        if let Some(code) = refusal {
            self.count(REFUSALS, [("code", code)]).increment(1);
        }
    }

    /// Measures one run.
    pub(super) fn of_run<'a>(&'a self, workflow: &'a str) -> RunMeter<'a> {
        RunMeter {
            metrics: self,
            workflow,
            joins: BTreeMap::new(),
        }
    }

    /// Everything, in the text format. `usage`: what was reported of each profile so far.
    pub(super) fn render(&self, live_runs: usize, open_streams: usize, usage: &BTreeMap<String, Spent>) -> String {
        for (name, value) in [(LIVE_RUNS, live_runs), (OPEN_STREAMS, open_streams)] {
            self.recorder
                .register_gauge(&Key::from_name(name), &ABOUT)
                .set(value as f64);
        }
        for (profile, spent) in usage {
            let kinds = [
                ("input", spent.input),
                ("cachedRead", spent.cached_read),
                ("cachedWrite", spent.cached_write),
                ("output", spent.output),
                ("reasoning", spent.reasoning),
            ];
            for (kind, tokens) in kinds.into_iter().filter(|(_, tokens)| *tokens > 0) {
                let labels = [("profile", profile.as_str()), ("kind", kind)];
                self.count(MODEL_TOKENS, labels).absolute(tokens);
            }
        }
        self.handle.run_upkeep();
        let mut text = self.handle.render();
        write_costs(&mut text, usage);
        text
    }

    fn count<const N: usize>(&self, name: &'static str, labels: [(&'static str, &str); N]) -> Counter {
        self.recorder.register_counter(&key(name, labels), &ABOUT)
    }

    fn time(&self, name: &'static str, workflow: &str, milliseconds: u64) {
        let histogram = self
            .recorder
            .register_histogram(&key(name, [("workflow", workflow)]), &ABOUT);
        histogram.record(milliseconds as f64 / 1_000.0);
    }
}

/// Costs are fractions of a currency, and the recorder's counters are whole numbers: they are written here.
fn write_costs(text: &mut String, usage: &BTreeMap<String, Spent>) {
    let costs = || usage.iter().filter_map(|(profile, spent)| Some((profile, spent.cost?)));
    if costs().next().is_none() {
        return;
    }
    text.extend([
        format!("# HELP {MODEL_COST} Cost of what providers reported, by profile, in the currency of its prices\n"),
        format!("# TYPE {MODEL_COST} counter\n"),
    ]);
    for (profile, cost) in costs() {
        let profile = profile.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let (currency, amount) = (cost.currency, cost.amount());
        text.extend([format!(
            "{MODEL_COST}{{profile=\"{profile}\",currency=\"{currency}\"}} {amount}\n"
        )]);
    }
    text.push('\n');
}

static ABOUT: Metadata<'static> = Metadata::new("pirn", Level::INFO, None);

fn key<const N: usize>(name: &'static str, labels: [(&'static str, &str); N]) -> Key {
    let labels = labels.map(|(name, value)| Label::new(name, value.to_owned()));
    Key::from_parts(name, labels.to_vec())
}

/// The metrics that one run adds.
pub(super) struct RunMeter<'a> {
    metrics: &'a Metrics,
    workflow: &'a str,
    /// When a JOIN began to wait, by the thread that waits: it waits for one at a time.
    joins: BTreeMap<Arc<str>, u64>,
}

impl RunMeter<'_> {
    pub(super) fn observe(&mut self, event: &Event) {
        let field = |name: &str| event.raised.data.get(name).and_then(Value::as_str).unwrap_or_default();
        let event_type = event.raised.event_type;
        match event_type {
            EventType::NodeCompleted | EventType::NodeFailed => {
                let node_type = field("nodeType");
                let result = result(event_type == EventType::NodeCompleted);
                self.metrics
                    .count(STEPS, [("type", node_type), ("result", result)])
                    .increment(1);
                if node_type == "JOIN" {
                    self.metrics.count(JOINS, [("result", result)]).increment(1);
                    if let Some(began) = self.joins.remove(&event.thread_id) {
                        let waited = event.timestamp.saturating_sub(began);
                        self.metrics.time(JOIN_SECONDS, self.workflow, waited);
                    }
                }
            }
            EventType::EffectInDoubt => {
                let labels = [("kind", field("kind")), ("resolution", field("resolution"))];
                self.metrics.count(IN_DOUBT, labels).increment(1);
            }
            EventType::ThreadJoinStarted if self.joins.len() < MAX_OPEN_JOINS => {
                self.joins.insert(Arc::clone(&event.thread_id), event.timestamp);
            }
            EventType::ToolCallCompleted | EventType::ToolCallFailed => {
                let labels = [
                    ("tool", field("name")),
                    ("result", result(event_type == EventType::ToolCallCompleted)),
                ];
                self.metrics.count(TOOL_CALLS, labels).increment(1);
            }
            EventType::CompressionCompleted | EventType::CompressionFailed => {
                let is_done = event_type == EventType::CompressionCompleted;
                self.metrics
                    .count(COMPRESSIONS, [("result", result(is_done))])
                    .increment(1);
                let stats = event.raised.data.get("result").and_then(|result| result.get("stats"));
                if let Some(saved) = stats.and_then(|stats| stats["tokensSaved"].as_u64()) {
                    self.metrics.count(TOKENS_SAVED, []).increment(saved);
                }
            }
            EventType::TriggeredSubgraphCompleted | EventType::TriggeredSubgraphFailed => {
                let is_done = event_type == EventType::TriggeredSubgraphCompleted;
                self.metrics
                    .count(TRIGGERED, [("result", result(is_done))])
                    .increment(1);
            }
            _other => {}
        }
    }

    pub(super) fn lost(&self, events: u64) {
        self.metrics.count(EVENTS_LOST, []).increment(events);
    }

    pub(super) fn ended(&self, report: &RunReport) {
        let labels = [("workflow", self.workflow), ("status", report.status.as_str())];
        self.metrics.count(RUNS_ENDED, labels).increment(1);
        self.metrics.time(RUN_SECONDS, self.workflow, report.elapsed_ms);
        // Whatever kinds of tokens are reported are counted by the names that the report gives them; money is none.
        if let Value::Object(kinds) = json!(report.tokens.spent) {
            for (kind, tokens) in &kinds {
                if let Some(tokens) = tokens.as_u64().filter(|tokens| *tokens > 0) {
                    let labels = [("workflow", self.workflow), ("kind", kind)];
                    self.metrics.count(TOKENS, labels).increment(tokens);
                }
            }
        }
    }
}

fn result(is_good: bool) -> &'static str {
    if is_good { "completed" } else { "failed" }
}
