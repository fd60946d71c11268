//! Events that triggers cause.

use std::sync::Arc;

use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, RaisedEvent};
use serde_json::json;

use crate::protocol::bus::{BusMsg, Source};

/// Returns a TRIGGER_FAILED event with this message.
pub(crate) fn failure(trigger_id: &str, message: &str) -> RaisedEvent {
    failed_with(trigger_id, &RunError::new(RunErrorCode::NodeFailed, message))
}

/// Returns a TRIGGER_FAILED event with this error.
pub(crate) fn failed_with(trigger_id: &str, error: &RunError) -> RaisedEvent {
    RaisedEvent::new(
        EventType::TriggerFailed,
        [("triggerId", json!(trigger_id)), ("error", json!(error))],
    )
}

/// Returns an event caused by another, with the next trigger depth.
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

/// Returns the trigger depth of the consequences of an event.
pub(crate) fn depth_after(event: &Event) -> u32 {
    event.raised.trigger_depth.saturating_add(1)
}
