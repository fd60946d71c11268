//! Checks triggers in and outside of workflows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::compile_context::CompileContext;
use super::diagnostics::{Diagnostics, child};
use super::snippets::known_names::KnownNames;
use super::snippets::list::Snippets;
use super::structure::references::{WorkflowKind, WorkflowNames};
use crate::definition::json::Step;
use crate::definition::{
    ExecuteTriggeredSubgraph, FaultCode, HistorySelection, ScheduleDefinition, TriggerAction, TriggerDefinition,
};
use crate::event_type::{EVENT_FIELDS, EventType};
use crate::times::{Times, TimesFault};

/// Checks one trigger. `seen` contains the ids of the triggers with this owner; `variables` is `None` if the list is incomplete.
pub(super) fn check_trigger<'t>(
    trigger: &'t TriggerDefinition,
    pointer: &[Step],
    seen: &mut BTreeSet<&'t str>,
    (names, variables): (&WorkflowNames<'_>, Option<&BTreeSet<Arc<str>>>),
    context: &CompileContext<'_>,
    report: &mut Diagnostics<'_>,
) {
    let own = trigger.watches().flat_map(EventType::fields);
    let fields: Vec<&str> = own.chain(&EVENT_FIELDS).copied().collect();
    // a separate table, because the workflow's table is for its nodes
    let mut snippets = Snippets::new(context.syntax, KnownNames::of_trigger(&fields));
    if !seen.insert(&trigger.id) {
        let message = format!("another trigger has the id `{}`", trigger.id);
        report.fault(FaultCode::DuplicateTriggerId, &child(pointer, "id"), message);
    }
    let condition = child(pointer, "condition");
    if trigger.condition.event_type == EventType::Custom
        && trigger.condition.event_name.as_deref().unwrap_or_default().is_empty()
    {
        let message = "a trigger on CUSTOM events needs `eventName`";
        report.fault(FaultCode::MissingField, &child(&condition, "eventName"), message);
    }
    if let Some(schedule) = &trigger.schedule {
        check_schedule(schedule, &trigger.action, pointer, report);
    }
    if let Some(expression) = &trigger.condition.expression {
        snippets.expression(expression, || child(&condition, "expression"), report);
    }
    if let Some(id) = &trigger.workflow_id
        && !names.may_exist(id)
    {
        let message = format!("unknown workflow `{id}`");
        report.fault(
            FaultCode::UnknownWorkflowReference,
            &child(pointer, "workflowId"),
            message,
        );
    }
    let parameters = child(&child(pointer, "action"), "parameters");
    match &trigger.action {
        TriggerAction::StartWorkflow { workflow_id, input } => {
            names.check(
                workflow_id,
                WorkflowKind::Normal,
                &child(&parameters, "workflowId"),
                report,
            );
            if let Some(input) = input
                && !input.source.eq_ignore_ascii_case("event")
            {
                let message = format!("unknown source `{}`: the only one is \"event\"", input.source);
                report.fault(
                    FaultCode::InvalidValue,
                    &child(&child(&parameters, "input"), "source"),
                    message,
                );
            }
        }
        TriggerAction::ExecuteTriggeredSubgraph(action) => {
            check_execute(action, &parameters, names, report);
            let options = action.merge_options.as_ref();
            let passed = options.and_then(|options| options.include_variables.as_ref());
            if let (Some(passed), Some(variables)) = (passed, variables) {
                let pointer = child(&child(&parameters, "mergeOptions"), "includeVariables");
                context.warn_of_unknown_variables(passed, variables, &pointer, report);
            }
        }
        TriggerAction::StopThread { .. } | TriggerAction::PauseThread { .. } | TriggerAction::ResumeThread { .. } => {}
        TriggerAction::SetVariable {
            variable_name,
            value,
            expression,
            scope: _,
        } => {
            report.variable_name(variable_name, &child(&parameters, "variableName"));
            if let Some(expression) = expression {
                snippets.expression(expression, || child(&parameters, "expression"), report);
                if !value.is_null() {
                    report.fault(
                        FaultCode::InvalidValue,
                        &parameters,
                        "either `value` or `expression`, not both",
                    );
                }
            }
        }
        TriggerAction::SendNotification { message, channel: _ } => {
            snippets.template(message, || child(&parameters, "message"), report);
        }
        TriggerAction::Custom {
            function,
            parameters: _,
        } => {
            context.check_function(function, &child(&parameters, "function"), report);
        }
    }
}

fn check_schedule(
    schedule: &ScheduleDefinition,
    action: &TriggerAction,
    pointer: &[Step],
    report: &mut Diagnostics<'_>,
) {
    if !matches!(action, TriggerAction::StartWorkflow { .. }) {
        let message = "a SCHEDULE trigger has no thread to act on: its action is START_WORKFLOW";
        report.fault(FaultCode::InvalidSchedule, &child(pointer, "action"), message);
    }
    check_times(schedule, &child(pointer, "schedule"), report);
}

fn check_times(schedule: &ScheduleDefinition, pointer: &[Step], report: &mut Diagnostics<'_>) {
    let code = FaultCode::InvalidSchedule;
    let faults = Times::read(&schedule.cron, &schedule.timezone).err();
    for fault in faults.into_iter().flatten() {
        match fault {
            TimesFault::Cron(why) => report.fault_with_help(
                code,
                &child(pointer, "cron"),
                format!("the cron expression `{}` cannot be used: {why}", schedule.cron),
                "five fields: minute, hour, day of the month, month, day of the week; `0 3 * * *` is every night at three",
            ),
            TimesFault::Zone(near) => {
                let message = format!("unknown time zone `{}`", schedule.timezone);
                let meant = near.map(|near| format!("did you mean `{near}`?"));
                let help = meant
                    .as_deref()
                    .unwrap_or("a name of the IANA database: `Europe/Berlin`");
                report.fault_with_help(code, &child(pointer, "timezone"), message, help);
            }
            TimesFault::NotBuilt => report.fault(code, pointer, fault.to_string()),
        }
    }
}

fn check_execute(
    action: &ExecuteTriggeredSubgraph,
    pointer: &[Step],
    names: &WorkflowNames<'_>,
    report: &mut Diagnostics<'_>,
) {
    names.check(
        &action.triggered_workflow_id,
        WorkflowKind::Triggered,
        &child(pointer, "triggeredWorkflowId"),
        report,
    );
    report.seconds(Some(action.timeout), || child(pointer, "timeout"));
    let selection = action
        .merge_options
        .as_ref()
        .and_then(|options| options.include_conversation_history.as_ref());
    match selection {
        Some(HistorySelection::Some(options)) => {
            report.history(
                options,
                &child(&child(pointer, "mergeOptions"), "includeConversationHistory"),
            );
        }
        Some(HistorySelection::All(_)) | None => {}
    }
}
