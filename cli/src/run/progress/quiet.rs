//! Failures that did not fail the run, for `--quiet`: of branches, items and called workflows, and those that a script noted.

use std::thread::JoinHandle;

use pirn::{BlockingEvents, Event, EventType, SubscriptionItem};

use super::view::Facts;

/// Types of events that report such failures.
pub(crate) const TYPES: &[EventType] = &[EventType::ThreadFailed, EventType::ScriptLog];

/// Maximum number of failures that are printed; further ones are counted.
const MAX_SHOWN: usize = 20;

/// Collects the failures until the events end.
pub(crate) fn collect(events: BlockingEvents) -> Option<JoinHandle<Vec<String>>> {
    let thread = std::thread::Builder::new().name("pirn-failures".to_owned());
    let collecting = thread.spawn(move || {
        let (mut failures, mut more) = (Vec::new(), 0_u64);
        for item in events {
            let SubscriptionItem::Event(event) = &item else {
                continue;
            };
            match failure(event) {
                Some(failure) if failures.len() < MAX_SHOWN => failures.push(failure),
                Some(_) => more += 1,
                None => {}
            }
        }
        if more > 0 {
            failures.push(format!("{more} more failed"));
        }
        failures
    });
    collecting.ok()
}

fn failure(event: &Event) -> Option<String> {
    let facts = Facts(event);
    if event.raised.event_type == EventType::ScriptLog {
        return (facts.text("level") == "error")
            .then(|| format!("{}: {}", facts.text("nodeId"), facts.text("message")));
    }
    let path = facts.text("pathId");
    let name = if path.is_empty() { &*event.workflow_id } else { &path };
    Some(format!("{name} failed: {}", facts.error()))
}
