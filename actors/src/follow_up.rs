//! Events that follow from another, because of a trigger.

use std::sync::Arc;

use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{Event, EventType, RaisedEvent};
use serde_json::json;

use crate::protocol::bus::{BusMsg, Source};

/// TRIGGER_FAILED, with this message.
pub(crate) fn failure(trigger_id: &str, message: &str) -> RaisedEvent {
    failed_with(trigger_id, &RunError::new(RunErrorCode::NodeFailed, message))
}

/// TRIGGER_FAILED, with this error.
pub(crate) fn failed_with(trigger_id: &str, error: &RunError) -> RaisedEvent {
    RaisedEvent::new(
        EventType::TriggerFailed,
        [("triggerId", json!(trigger_id)), ("error", json!(error))],
    )
}

/// An event that follows from another, one link further down the chain.
pub(crate) fn raise(event: &Event, raised: RaisedEvent) -> BusMsg {
    BusMsg::Raise {
        follows: true,
        sequence: None,
        source: Source {
            run_id: Arc::clone(&event.run_id),
            workflow_id: Arc::clone(&event.workflow_id),
            thread_id: Arc::clone(&event.thread_id),
            timestamp: event.timestamp,
        },
        raised: RaisedEvent {
            trigger_depth: depth_after(event),
            ..raised
        },
    }
}

/// The number of triggers between the run's own steps and what the event sets off.
pub(crate) fn depth_after(event: &Event) -> u32 {
    event.raised.trigger_depth + 1
}
