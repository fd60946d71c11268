//! Checks of nodes that wait for an event.

use pirn::EventType;
use pirn_core::event::Event;
use pirn_tests::world::Ran;

use super::shapes::Shape;

/// The event that the node of a NODE_* event waits for; none where it waits for none.
pub(crate) fn event_of(shape: &Shape, event: &Event) -> Option<&'static str> {
    let node = event.raised.fields.get("nodeId")?.as_str()?;
    shape.waits.get(node).copied()
}

/// A wait ends with the first event of its run that it waits for, when that comes, or with its time limit.
pub(crate) fn heard_the_first(case: &str, shape: &Shape, ran: &Ran) {
    for (place, begun) in ran.events.iter().enumerate() {
        let Some(awaited) = event_of(shape, begun).filter(|_| begun.raised.event_type == EventType::NodeStarted) else {
            continue;
        };
        let later = &ran.events[place + 1..];
        let first = later.iter().find(|event| event.raised.event_type.as_str() == awaited);
        let ends = |event: &Event| {
            event.thread_id == begun.thread_id && event.raised.fields.get("nodeId") == begun.raised.fields.get("nodeId")
        };
        // A thread that is stopped in it says nothing of the node.
        let Some(end) = later.iter().find(|event| ends(event)) else {
            continue;
        };
        match end.raised.event_type {
            EventType::NodeCompleted => {
                let first = first.map(|event| event.timestamp);
                assert_eq!(first, Some(end.timestamp), "{case}: {awaited} at {end:?}");
            }
            EventType::NodeFailed => {
                // What comes in the millisecond of the time limit may come after it.
                let is_in_time = first.is_some_and(|event| event.timestamp < end.timestamp);
                assert!(!is_in_time, "{case}: {awaited} came before {end:?}: {first:?}");
                assert_eq!(end.raised.fields["error"]["code"], "NODE_TIMEOUT", "{case}: {end:?}");
            }
            _other => {}
        }
    }
}
