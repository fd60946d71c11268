//! Built-in compression: a triggered sub-workflow and its trigger.

use serde_json::{Value, json};

/// Id of the built-in compression workflow.
const WORKFLOW: &str = "pirn-compression";

/// Id of its trigger in events and firing records.
const TRIGGER: &str = "pirn-compression-trigger";

/// Compression of a conversation that exceeds its token limit. Use it with [`EngineBuilder::compression`]: every workflow of the
/// engine with a `tokenLimit` (from the workflow or its profile) is compressed before the model call that would exceed it.
///
/// ```
/// use pirn::{Compression, Engine};
///
/// let engine = Engine::builder()
///     .workflows(include_str!("../../examples/compression-002/main.json"))
///     .compression(&Compression::summarize().keep_recent(2))
///     .build()?;
/// let report = engine.start("long-talk", serde_json::Value::Null)?.outcome_blocking();
/// assert_eq!(report.firings.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The strategy is set here. `config.compression` of a workflow is only an input for a custom compression workflow.
///
/// [`EngineBuilder::compression`]: super::EngineBuilder::compression
#[derive(Clone, Debug, PartialEq)]
pub struct Compression {
    strategy: &'static str,
    parameters: serde_json::Map<String, Value>,
    waits: bool,
    timeout: f64,
    speculative_at: Option<f64>,
}

impl Compression {
    /// A model summarizes all but the recent messages: that of a [`profile`](Self::profile), else that of the node whose request exceeded
    /// the limit. A [`checklist`](Self::checklist) precedes the summary, and replaces it if the model is offline.
    pub fn summarize() -> Self {
        Self::of("summarize")
    }

    /// Quotes the rules, constraints, goals, preferences, decisions and facts of all but the recent messages verbatim, without a model.
    pub fn checklist() -> Self {
        Self::of("checklist")
    }

    /// Retains the system messages and the last `count` others.
    pub fn keep_system_recent(count: u32) -> Self {
        Self::of("keep_system_recent").with("count", json!(count))
    }

    /// Retains the latest messages that fit in `max_tokens`; system messages stay.
    pub fn sliding_window(max_tokens: u64) -> Self {
        Self::of("sliding_window").with("maxTokens", json!(max_tokens))
    }

    /// Sets the profile of the model that writes the summary.
    #[must_use]
    pub fn profile(self, id: impl Into<String>) -> Self {
        self.with("profileId", Value::String(id.into()))
    }

    /// Sets the number of recent messages that a summary does not change (default 4).
    #[must_use]
    pub fn keep_recent(self, count: u32) -> Self {
        self.with("keepRecent", json!(count))
    }

    /// Compresses without blocking the thread: the result is applied at a later safe point, and messages added in the meantime
    /// follow it.
    #[must_use]
    pub fn alongside(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Starts compression early, in the background: before the model call whose request reaches this share of the token limit. The
    /// thread continues, and the result is applied at a later safe point; at the limit the thread waits for it. The share is above
    /// 0 and below 1. A workflow's `config.compression.speculativeAt` takes precedence.
    #[must_use]
    pub fn speculative_at(mut self, share: f64) -> Self {
        self.speculative_at = Some(share);
        self
    }

    pub(super) fn begins_early_at(&self) -> Option<f64> {
        self.speculative_at
    }

    /// Sets the timeout in seconds, after which the conversation stays unchanged (default 30).
    #[must_use]
    pub fn timeout(mut self, seconds: f64) -> Self {
        self.timeout = seconds;
        self
    }

    /// Returns the workflow and the trigger as a bundle, for printing or editing.
    pub fn bundle(&self) -> Value {
        let mut bundle = json!({
            "workflows": [{
                "id": WORKFLOW,
                "name": "Ready-made compression",
                "nodes": [
                    { "id": "start", "type": "START_FROM_TRIGGER" },
                    { "id": "compress", "type": "CONTEXT_PROCESSOR", "config": {
                        "operation": "compress", "strategy": self.strategy, "parameters": self.parameters,
                    } },
                    { "id": "continue", "type": "CONTINUE_FROM_TRIGGER" },
                ],
                "edges": [{ "from": "start", "to": "compress" }, { "from": "compress", "to": "continue" }],
            }],
            "triggers": [{
                "id": TRIGGER,
                "type": "EVENT",
                "condition": { "eventType": "TOKEN_LIMIT_EXCEEDED" },
                "action": { "type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {
                    "triggeredWorkflowId": WORKFLOW, "waitForCompletion": self.waits, "timeout": self.timeout,
                } },
            }],
        });
        // The printed bundle also states the share, although the engine takes it from `begins_early_at`.
        if let Some(share) = self.speculative_at {
            bundle["workflows"][0]["config"] = json!({ "compression": { "speculativeAt": share } });
        }
        bundle
    }

    fn of(strategy: &'static str) -> Self {
        Self {
            strategy,
            parameters: serde_json::Map::new(),
            // By default the thread waits, because the next model call would exceed the limit otherwise.
            waits: true,
            timeout: 30.0,
            speculative_at: None,
        }
    }

    fn with(mut self, name: &str, value: Value) -> Self {
        self.parameters.insert(name.to_owned(), value);
        self
    }
}
