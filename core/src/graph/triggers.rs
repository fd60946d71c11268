//! Triggers, inside a workflow and outside.

use std::collections::BTreeSet;

use super::context::CompileContext;
use super::references::{Known, Names};
use super::site::{Site, and};
use super::snippets::Snippets;
use crate::definition::json::Step;
use crate::definition::{ExecuteTriggeredSubgraph, FaultCode, HistorySelection, TriggerAction, TriggerDefinition};
use crate::event::EventType;

/// Checks one trigger. `way` leads to it; `seen` has the ids of those that stand with it.
pub(super) fn check_trigger<'t>(
    trigger: &'t TriggerDefinition,
    way: &[Step],
    seen: &mut BTreeSet<&'t str>,
    names: &Names<'_>,
    context: &CompileContext<'_>,
    site: &mut Site<'_>,
) {
    // a table of its own: the workflow's is for what its threads evaluate
    let mut snippets = Snippets::new(context.syntax);
    if !seen.insert(&trigger.id) {
        let message = format!("another trigger is called `{}` too", trigger.id);
        site.fault(FaultCode::DuplicateTriggerId, &and(way, "id"), message);
    }
    let condition = and(way, "condition");
    if trigger.condition.event_type == EventType::Custom
        && trigger.condition.event_name.as_deref().unwrap_or_default().is_empty()
    {
        let message = "a trigger on CUSTOM events needs `eventName`";
        site.fault(FaultCode::MissingField, &and(&condition, "eventName"), message);
    }
    if let Some(expression) = &trigger.condition.expression {
        snippets.expression(expression, || and(&condition, "expression"), site);
    }
    if let Some(id) = &trigger.workflow_id
        && names.find(id).is_none()
    {
        let message = format!("no workflow is called `{id}`");
        site.fault(FaultCode::UnknownWorkflowReference, &and(way, "workflowId"), message);
    }
    let parameters = and(&and(way, "action"), "parameters");
    match &trigger.action {
        TriggerAction::StartWorkflow { workflow_id, input } => {
            names.check(workflow_id, Known::Normal, &and(&parameters, "workflowId"), site);
            if let Some(input) = input
                && input.source != "event"
            {
                let message = format!("`{}` is no source: the only one is \"event\"", input.source);
                site.fault(
                    FaultCode::InvalidValue,
                    &and(&and(&parameters, "input"), "source"),
                    message,
                );
            }
        }
        TriggerAction::ExecuteTriggeredSubgraph(action) => check_execute(action, &parameters, names, site),
        TriggerAction::StopThread { .. } | TriggerAction::PauseThread { .. } | TriggerAction::ResumeThread { .. } => {}
        TriggerAction::SetVariable {
            variable_name,
            value,
            expression,
            scope: _,
        } => {
            if variable_name.is_empty() {
                let message = "a variable needs a name that is not empty";
                site.fault(FaultCode::InvalidValue, &and(&parameters, "variableName"), message);
            }
            if let Some(expression) = expression {
                snippets.expression(expression, || and(&parameters, "expression"), site);
                if !value.is_null() {
                    site.fault(
                        FaultCode::InvalidValue,
                        &parameters,
                        "either `value` or `expression`, not both",
                    );
                }
            }
        }
        TriggerAction::SendNotification { message, channel: _ } => {
            snippets.template(message, || and(&parameters, "message"), site);
        }
        TriggerAction::Custom {
            function,
            parameters: _,
        } => {
            context.check_function(function, &and(&parameters, "function"), site);
        }
    }
}

fn check_execute(action: &ExecuteTriggeredSubgraph, way: &[Step], names: &Names<'_>, site: &mut Site<'_>) {
    names.check(
        &action.triggered_workflow_id,
        Known::Triggered,
        &and(way, "triggeredWorkflowId"),
        site,
    );
    site.seconds(Some(action.timeout), || and(way, "timeout"));
    let selection = action
        .merge_options
        .as_ref()
        .and_then(|options| options.include_conversation_history.as_ref());
    match selection {
        Some(HistorySelection::Some(options)) => {
            site.history(options, &and(&and(way, "mergeOptions"), "includeConversationHistory"));
        }
        Some(HistorySelection::All(_)) | None => {}
    }
}
