//! Nesting of events, which is counted without building their objects.

use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_definition::value::{MAX_LEVELS, Output, is_too_deep, levels};
use pirn_events::event::{Event, EventData, RaisedEvent};
use serde_json::{Value, json};

/// Returns a value of `levels` nested lists.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!([value]))
}

#[test]
fn the_levels_of_an_event_are_those_of_its_json_however_its_fields_are_stored() {
    for depth in [0, 1, 2, MAX_LEVELS - 3, MAX_LEVELS - 2, MAX_LEVELS - 1, MAX_LEVELS] {
        let value = || nested(depth);
        let output = Output::from(Arc::new(value()));
        let raised = [
            RaisedEvent::new(EventType::NodeCompleted, [("output", value())]),
            RaisedEvent::new(EventType::NodeCompleted, [("nodeId", json!("n")), ("output", value())]),
            RaisedEvent::of(EventType::NodeCompleted, [("output", &output)]),
            RaisedEvent::of(EventType::NodeCompleted, [("output", &Arc::new(value()))]),
            RaisedEvent::custom("name", [("key", value())]),
            RaisedEvent::custom("name", [("key", json!("k")), ("other", value())]),
            RaisedEvent::custom("name", EventData::from_iter([("key".to_owned(), value())])),
        ];
        for raised in raised {
            let event = Event {
                sequence: 1,
                timestamp: 1,
                run_id: "run".into(),
                workflow_id: "workflow".into(),
                thread_id: "thread".into(),
                raised,
            };
            let json = event.to_json();
            assert_eq!(
                event.raised.is_too_deep(),
                is_too_deep(&json),
                "{depth} levels: {event:?}"
            );
            let lazy = Arc::new(event).lazy_json();
            assert_eq!(
                lazy.levels().min(MAX_LEVELS + 1),
                levels(&json),
                "{depth} levels: {lazy:?}"
            );
            assert_eq!(**lazy.value(), json);
        }
    }
}
