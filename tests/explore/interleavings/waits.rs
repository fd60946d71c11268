//! Checks of nodes that wait for an event.

use pirn::EventType;
use pirn_events::event::Event;
use pirn_tests::world::Ran;

use super::shapes::Shape;

/// Returns the event that the node of a NODE_* event waits for, or `None` if it waits for no event.
pub(crate) fn event_of(shape: &Shape, event: &Event) -> Option<&'static str> {
    let node = event.raised.fields.get("nodeId")?.as_str()?;
    shape.waits.get(node).copied()
}

/// Asserts that a wait ends at the first matching event of its run, at the time of that event, or with its time limit.
pub(crate) fn assert_wait_ends_at_first_event(case: &str, shape: &Shape, ran: &Ran) {
    for (place, begun) in ran.events.iter().enumerate() {
        let Some(awaited) = event_of(shape, begun).filter(|_| begun.raised.event_type == EventType::NodeStarted) else {
            continue;
        };
        let later = &ran.events[place + 1..];
        let first = later.iter().find(|event| event.raised.event_type.as_str() == awaited);
        let ends = |event: &Event| {
            event.thread_id == begun.thread_id && event.raised.fields.get("nodeId") == begun.raised.fields.get("nodeId")
        };
        // A thread that is stopped during the wait raises no further event of the node.
        let Some(end) = later.iter().find(|event| ends(event)) else {
            continue;
        };
        match end.raised.event_type {
            EventType::NodeCompleted => {
                let first = first.map(|event| event.timestamp);
                assert_eq!(first, Some(end.timestamp), "{case}: {awaited} at {end:?}");
            }
            EventType::NodeFailed => {
                // An event in the millisecond of the time limit may arrive after the limit.
                let is_in_time = first.is_some_and(|event| event.timestamp < end.timestamp);
                assert!(!is_in_time, "{case}: {awaited} came before {end:?}: {first:?}");
                assert_eq!(end.raised.fields["error"]["code"], "NODE_TIMEOUT", "{case}: {end:?}");
            }
            _other => {}
        }
    }
}
