//! Progress of an unfinished run, computed from its events, for its report.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use serde::Serialize;
use serde_json::Value;

/// Maximum number of nodes that are retained; the oldest are dropped.
const MAX_NODES: usize = 10_000;

/// A node that the main thread has entered.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeProgress {
    node_id: String,
    status: &'static str,
    attempts: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_paused: bool,
    nodes: VecDeque<NodeProgress>,
}

impl Progress {
    /// Processes an event of the main thread.
    pub(crate) fn observe(&self, event: &Event) {
        let data = &event.raised.fields;
        match event.raised.event_type {
            EventType::ThreadPaused => self.state().is_paused = true,
            EventType::ThreadResumed => self.state().is_paused = false,
            EventType::NodeStarted => {
                let attempts = data.get("attempt").and_then(Value::as_u64).unwrap_or(1);
                let node_id = data.get("nodeId").and_then(Value::as_str).unwrap_or_default();
                let mut state = self.state();
                let again = |last: &&mut NodeProgress| attempts > 1 && last.node_id == node_id;
                if let Some(last) = state.nodes.back_mut().filter(again) {
                    (last.status, last.attempts) = ("RUNNING", attempts);
                } else {
                    if state.nodes.len() >= MAX_NODES {
                        state.nodes.pop_front();
                    }
                    state.nodes.push_back(NodeProgress {
                        node_id: node_id.to_owned(),
                        status: "RUNNING",
                        attempts,
                    });
                }
            }
            EventType::NodeCompleted => self.ended("COMPLETED"),
            EventType::NodeFailed => self.ended("FAILED"),
            _other => {}
        }
    }

    fn ended(&self, status: &'static str) {
        if let Some(last) = self.state().nodes.back_mut() {
            last.status = status;
        }
    }

    /// Returns the status of an unfinished run.
    pub(crate) fn status(&self) -> &'static str {
        if self.state().is_paused { "PAUSED" } else { "RUNNING" }
    }

    /// Frees the nodes: the report of the ended run contains them.
    pub(crate) fn forget(&self) {
        self.state().nodes = VecDeque::new();
    }

    pub(crate) fn nodes(&self) -> Vec<NodeProgress> {
        self.state().nodes.iter().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
