//! Checks of a run that a trigger stops.

use pirn::ThreadStatus;
use pirn_core::thread::NodeStatus;
use pirn_tests::world::Ran;

use super::cast::unpadded_all;
use super::invariants::{is_match, of, own};
use super::shapes::{Does, Shape};

/// Result of a tool call that was cancelled.
const CANCELLED: &str = "The tool call was cancelled before it had a result.";

/// Returns true if a trigger stopped the main thread. Asserts that the run was stopped if and only if a matching event was
/// raised. Only in a run that is not calm, the end may come before the stop.
pub(crate) fn is_stopped(case: &str, shape: &Shape, ran: &Ran) -> bool {
    let first = ran
        .events
        .iter()
        .find(|event| of(shape, Does::Stop).any(|watch| is_match(watch, event)));
    let is_stopped = ran.report.status == ThreadStatus::Cancelled;
    if !is_stopped {
        assert_eq!(
            (ran.code(), ran.report.status),
            ("", ThreadStatus::Completed),
            "{case}: {:?}",
            ran.report.error
        );
        assert!(first.is_none() || !shape.is_calm, "{case}: {first:?} stopped nobody");
        return false;
    }
    assert_eq!(ran.code(), "CANCELLED", "{case}");
    let Some(first) = first else {
        panic!("{case}: nobody stopped it: {:?}", ran.report.error);
    };
    let main = |event: &&std::sync::Arc<pirn_events::event::Event>| *event.thread_id == *ran.report.thread_id;
    let last = ran.events.iter().rfind(main).map(|event| event.timestamp);
    assert_eq!(last, Some(first.timestamp), "{case}: it is stopped at once");
    true
}

/// Asserts that the main thread entered the nodes of the whole run up to the stop, and that the nodes before the last ended as
/// there.
pub(crate) fn assert_prefix_of_path<T: PartialEq + std::fmt::Debug>(
    case: &str,
    way: &[(String, Option<T>, u32)],
    whole: &[(String, Option<T>, u32)],
) {
    let Some((last, behind)) = way.split_last() else {
        panic!("{case}: it went nowhere");
    };
    assert_eq!(Some(behind), whole.get(..behind.len()), "{case}: main's way is its own");
    assert_eq!(Some(&last.0), whole.get(behind.len()).map(|node| &node.0), "{case}");
}

/// Asserts that the messages of every completed node are visible, in the order of the run without triggers.
pub(crate) fn assert_messages_of_completed_nodes(case: &str, ran: &Ran, plain: &Ran) {
    let mut said = own(ran);
    // The node in which the run was stopped adds this message.
    if said.last().is_some_and(|last| last == CANCELLED) {
        said.pop();
    }
    let expected = unpadded_all(plain.visible());
    let in_order: Vec<&String> = expected.iter().filter(|unpadded| said.contains(unpadded)).collect();
    assert_eq!(said.iter().collect::<Vec<_>>(), in_order, "{case}: {:?}", ran.visible());
    let done = |id: &str| {
        let mut nodes = ran.report.nodes.iter();
        nodes.any(|node| *node.node_id == *id && node.status == NodeStatus::Completed)
    };
    for unpadded in &expected {
        let by = unpadded.split_whitespace().find_map(node_of);
        let is_due = by.is_none_or(|id| done(&id));
        assert!(
            said.contains(unpadded) || !is_due,
            "{case}: {unpadded} is lost: {:?}",
            ran.visible()
        );
    }
}

/// Returns the main thread's node whose completion adds the messages of this node: a branch's messages are added at the JOIN.
fn node_of(id: &str) -> Option<String> {
    let (main, path) = id.split_once('p').unwrap_or((id, ""));
    let is_number = main.strip_prefix('n')?.parse::<u32>().is_ok();
    let node = if path.is_empty() {
        id.to_owned()
    } else {
        format!("{main}-join")
    };
    is_number.then_some(node)
}
