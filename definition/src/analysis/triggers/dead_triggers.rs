//! `TRIGGER_NEVER_FIRES`: no event matches the trigger.

use std::collections::BTreeMap;

use crate::analysis::facts::conditions::{Truth, truth_of};
use crate::analysis::facts::emitted_events::may_emit;
use crate::analysis::{Analysis, WorkflowSet};
use crate::definition::FaultCode;
use crate::event_type::EventType;

/// Reports each such enabled trigger.
pub(in crate::analysis) fn report(set: &WorkflowSet<'_>, found: &mut Analysis) {
    let places = set.places();
    // cache: whether each workflow may raise an event type
    let mut known: BTreeMap<(usize, &str), bool> = BTreeMap::new();
    for placed in set
        .every_trigger()
        .filter(|placed| placed.trigger.enabled && placed.trigger.schedule.is_none())
    {
        found.work += 1;
        let condition = &placed.trigger.condition;
        let id = &placed.trigger.id;
        let event = condition.event_type;
        let word = event.as_str();
        let watched = placed
            .flow
            .or_else(|| places.get(placed.trigger.workflow_id.as_deref()?).copied());
        let (key, message) = if condition.event_name.is_some() && event != EventType::Custom {
            let message =
                format!("`{id}` never fires: `eventName` applies to CUSTOM events only, and its event type is {word}");
            ("eventName", message)
        } else if truth_of(condition.expression.as_deref()) == Truth::Never {
            (
                "expression",
                format!("`{id}` never fires: its expression is never true"),
            )
        } else if let Some(flow) = watched {
            let graph = set.flows[flow].graph;
            let may = *known.entry((flow, event.as_str())).or_insert_with(|| {
                found.work += graph.nodes.len() as u64;
                may_emit(graph, event)
            });
            if may {
                continue;
            }
            let workflow = &graph.workflow_id;
            let message = format!("`{id}` never fires: no node of `{workflow}` emits {word}");
            ("eventType", message)
        } else {
            continue;
        };
        let pointer = placed.pointer(["condition", key]);
        found.warn(placed.origin, FaultCode::TriggerNeverFires, &pointer, message);
    }
}
