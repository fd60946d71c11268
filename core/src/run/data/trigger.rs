//! A trigger that fired: the workflow or the call that it starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::definition::{ExecuteTriggeredSubgraph, InDoubt, TriggerAction, TriggerDefinition};
use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, RaisedEvent};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A firing of a trigger that starts a workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Firing {
    /// Trigger that fired.
    pub trigger: Arc<TriggerDefinition>,
    /// Event on which it fired.
    pub event: Arc<Event>,
}

impl Firing {
    /// Returns the number of triggers between the run's steps and the effects of this firing.
    pub fn trigger_depth(&self) -> u32 {
        self.event.raised.trigger_depth.saturating_add(1)
    }

    /// Returns true if a token event caused the firing.
    pub fn is_token_event(&self) -> bool {
        matches!(
            self.event.raised.event_type,
            EventType::TokenLimitExceeded | EventType::TokenUsageWarning | EventType::TokenLimitApproached
        )
    }

    /// Returns true for a compression that starts early, in the background.
    pub(in crate::run) fn is_early(&self) -> bool {
        self.event.raised.event_type == EventType::TokenLimitApproached
    }

    /// Returns true if the started run receives the event only and needs no state of the thread that raised it.
    pub fn is_alone(&self) -> bool {
        matches!(self.trigger.action, TriggerAction::StartWorkflow { .. }) && !self.is_token_event()
    }

    /// Returns true if the thread waits for the firing.
    pub fn holds(&self) -> bool {
        self.trigger.holds_the_thread(self.event.raised.event_type)
    }

    /// Drops the fields of the event, to save memory: a run may have many firings. Type, depth and origin remain.
    pub(in crate::run) fn forget_event(&mut self) {
        let event = &self.event;
        let raised = RaisedEvent::new(event.raised.event_type, []).at_depth(event.raised.trigger_depth);
        // A new event, because others may share the old one.
        self.event = Arc::new(Event {
            sequence: event.sequence,
            timestamp: event.timestamp,
            run_id: Arc::clone(&event.run_id),
            workflow_id: Arc::clone(&event.workflow_id),
            thread_id: Arc::clone(&event.thread_id),
            raised,
        });
    }

    pub(in crate::run) fn execute(&self) -> Option<&ExecuteTriggeredSubgraph> {
        match &self.trigger.action {
            TriggerAction::ExecuteTriggeredSubgraph(execute) => Some(execute),
            TriggerAction::StartWorkflow { .. }
            | TriggerAction::StopThread { .. }
            | TriggerAction::PauseThread { .. }
            | TriggerAction::ResumeThread { .. }
            | TriggerAction::SetVariable { .. }
            | TriggerAction::SendNotification { .. }
            | TriggerAction::Custom { .. } => None,
        }
    }
}

/// Number of a trigger's call in its run.
pub type CallNo = u64;

/// A call by a trigger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerCall {
    /// Id of the trigger.
    pub trigger_id: Arc<str>,
    /// Event on which the trigger fired.
    pub event: Arc<Event>,
    /// Function or hook to call.
    pub target: CallTarget,
    /// Policy for a call that is interrupted by the end of the process.
    pub in_doubt: InDoubt,
    /// True if the run's outcome waits for the call; else only the run's settlement waits for it.
    pub holds_outcome: bool,
}

/// Target of a trigger's call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallTarget {
    /// A registered function.
    Function {
        /// Name of the function.
        name: String,
        /// Parameters, passed together with the event.
        parameters: Map<String, Value>,
    },
    /// The engine's notification hook.
    Notification {
        /// Text of the notification.
        message: String,
        /// Channel name, interpreted by the hook.
        channel: Option<String>,
    },
}

/// Open calls of a run's triggers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct TriggerCalls {
    pub(in crate::run) last: CallNo,
    pub(in crate::run) open: BTreeMap<CallNo, Arc<TriggerCall>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_trigger_depth_of_a_journal_does_not_overflow() {
        // The event of a record may have any depth: the file of an imported run may have been edited.
        let firing: Firing = serde_json::from_value(json!({
            "trigger": {"id": "t", "condition": {"eventType": "CUSTOM"}, "action": {"type": "STOP_THREAD", "parameters": {}}},
            "event": {
                "type": "CUSTOM", "sequence": 1, "timestamp": 0, "runId": "r", "workflowId": "w", "threadId": "r.0",
                "triggerDepth": u32::MAX, "data": {},
            },
        }))
        .expect("a firing");
        assert_eq!(firing.event.raised.trigger_depth, u32::MAX);
        assert_eq!(firing.trigger_depth(), u32::MAX);
    }
}
