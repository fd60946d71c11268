//! Run that a schedule starts.

use pirn_definition::Millis;
use pirn_definition::definition::{TriggerAction, TriggerDefinition};
use pirn_definition::event_type::EventType;
use serde_json::{Map, Value, json};

use crate::run::data::effect::DetachedStart;

/// Returns the run that a SCHEDULE trigger starts at a time that local clocks show as `scheduled_at`; `None` if its action starts
/// none. The input is the event SCHEDULE_DUE, or the fields of it that the action names.
pub fn scheduled(trigger: &TriggerDefinition, due: Millis, scheduled_at: &str) -> Option<DetachedStart> {
    let TriggerAction::StartWorkflow { workflow_id, input } = &trigger.action else {
        return None;
    };
    let event = [
        ("type", json!(EventType::ScheduleDue.as_str())),
        ("triggerId", json!(trigger.id)),
        ("scheduledAt", json!(scheduled_at)),
        ("timestamp", json!(due)),
    ];
    let wanted = input.as_ref().map_or(&[][..], |input| &input.fields);
    let fields = event
        .into_iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Map<_, _>>();
    Some(DetachedStart {
        // Firings of a run are numbered from 1. No run has fired this one.
        firing: 0,
        workflow_id: workflow_id.clone(),
        input: Value::Object(fields),
        messages: Vec::new(),
        is_unlimited: false,
        summary_profile: None,
        // A schedule starts a new chain of triggers.
        trigger_depth: 0,
    })
}
