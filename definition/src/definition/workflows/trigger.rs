//! Triggers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::definition::{HistorySelection, InDoubt, ScheduleDefinition};
use crate::event_type::EventType;

/// A trigger: `{id, name?, type: "EVENT", condition, action, maxTriggers?, status?|enabled?}`, or of type SCHEDULE with
/// `schedule` instead of `condition`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriggerDefinition {
    /// Id, unique in its workflow or, outside of workflows, in the engine.
    pub id: String,
    /// Name for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Restricts a trigger that is defined outside of workflows to events of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// Restricts the trigger to events of this thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The event that the trigger watches; of a SCHEDULE trigger always SCHEDULE_DUE.
    #[serde(default = "due", skip_serializing_if = "is_due")]
    pub condition: TriggerCondition,
    /// The times at which a trigger of type SCHEDULE fires, with START_WORKFLOW as its action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleDefinition>,
    /// Action of the trigger.
    pub action: TriggerAction,
    /// Maximum number of firings; 0 or absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_triggers: Option<u64>,
    /// Policy for a function or notification that was in progress when the process of a durable run ended; absent: `keyed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt>,
    /// True to enable the trigger (default; `status: "ENABLED"|"DISABLED"` is accepted too).
    #[serde(default = "yes")]
    pub enabled: bool,
}

impl TriggerDefinition {
    /// Creates a trigger that fires for every event of a type, in every thread, without limit.
    pub fn on(id: impl Into<String>, event_type: EventType, action: TriggerAction) -> Self {
        Self {
            id: id.into(),
            name: None,
            description: None,
            workflow_id: None,
            thread_id: None,
            condition: TriggerCondition {
                event_type,
                event_name: None,
                expression: None,
            },
            action,
            schedule: None,
            max_triggers: None,
            in_doubt: None,
            enabled: true,
        }
    }

    /// Creates a trigger that starts a workflow at the times of a schedule.
    pub fn scheduled(id: impl Into<String>, schedule: ScheduleDefinition, workflow_id: impl Into<String>) -> Self {
        let action = TriggerAction::StartWorkflow {
            workflow_id: workflow_id.into(),
            input: None,
        };
        Self {
            schedule: Some(schedule),
            ..Self::on(id, EventType::ScheduleDue, action)
        }
    }
}

impl TriggerDefinition {
    /// Returns the types of events that fire the trigger. A trigger that starts a workflow at TOKEN_LIMIT_EXCEEDED also fires at
    /// TOKEN_LIMIT_APPROACHED, for the speculative compression.
    pub fn watches(&self) -> impl Iterator<Item = EventType> + use<> {
        let own = self.condition.event_type;
        let begins_early = own == EventType::TokenLimitExceeded && self.action.type_and_workflow().1.is_some();
        [own]
            .into_iter()
            .chain(begins_early.then_some(EventType::TokenLimitApproached))
    }

    /// True if the thread that raised this event waits for the action. A speculative compression runs in the background.
    pub fn holds_the_thread(&self, event: EventType) -> bool {
        event != EventType::TokenLimitApproached && self.action.holds_the_thread()
    }
}

fn is_due(condition: &TriggerCondition) -> bool {
    condition.event_type == EventType::ScheduleDue
}

fn due() -> TriggerCondition {
    TriggerCondition {
        event_type: EventType::ScheduleDue,
        event_name: None,
        expression: None,
    }
}

fn yes() -> bool {
    true
}

/// The event that a trigger watches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriggerCondition {
    /// The event's type.
    pub event_type: EventType,
    /// The name of a CUSTOM event (required for CUSTOM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_name: Option<String>,
    /// Expression over `event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
}

/// The action of a trigger: `{type, parameters}`; type words are accepted in either case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    tag = "type",
    content = "parameters",
    rename_all = "SCREAMING_SNAKE_CASE",
    deny_unknown_fields
)]
pub enum TriggerAction {
    /// Starts a detached run of a normal workflow.
    #[serde(rename_all = "camelCase")]
    StartWorkflow {
        /// Id of the workflow.
        workflow_id: String,
        /// Fields of the event that become the run's input; absent: the whole event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<TriggerInput>,
    },
    /// Runs an isolated sub-workflow for the thread that raised the event.
    ExecuteTriggeredSubgraph(ExecuteTriggeredSubgraph),
    /// Cancels a thread.
    #[serde(rename_all = "camelCase")]
    StopThread {
        /// The thread; absent: the one that raised the event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread_id: Option<String>,
    },
    /// Pauses a thread at its next safe point.
    #[serde(rename_all = "camelCase")]
    PauseThread {
        /// The thread; absent: the one that raised the event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread_id: Option<String>,
    },
    /// Resumes a paused thread.
    #[serde(rename_all = "camelCase")]
    ResumeThread {
        /// The thread; absent: the one that raised the event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread_id: Option<String>,
    },
    /// Sets a variable of the thread that raised the event, or a global one.
    #[serde(rename_all = "camelCase")]
    SetVariable {
        /// Name of the variable (`variable` is an alias).
        #[serde(alias = "variable")]
        variable_name: String,
        /// A literal value.
        #[serde(default)]
        value: Value,
        /// An expression over `event` instead of a value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expression: Option<String>,
        /// Scope of the variable (default `thread`).
        #[serde(default)]
        scope: crate::definition::VariableScope,
    },
    /// Notifies the host: a NOTIFICATION event, and a call of the engine's notification hook.
    #[serde(rename_all = "camelCase")]
    SendNotification {
        /// Template over `event`.
        message: String,
        /// Channel, an arbitrary word for the hook.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
    },
    /// Calls a registered function with `{event, parameters}`.
    #[serde(rename_all = "camelCase")]
    Custom {
        /// Name of the function.
        function: String,
        /// Parameters for the function.
        #[serde(default)]
        parameters: Map<String, Value>,
    },
}

impl TriggerAction {
    /// Returns the action's `type`, and the id of the workflow that it starts.
    pub fn type_and_workflow(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::StartWorkflow { workflow_id, .. } => ("START_WORKFLOW", Some(workflow_id)),
            Self::ExecuteTriggeredSubgraph(execute) => {
                ("EXECUTE_TRIGGERED_SUBGRAPH", Some(&execute.triggered_workflow_id))
            }
            Self::StopThread { .. } => ("STOP_THREAD", None),
            Self::PauseThread { .. } => ("PAUSE_THREAD", None),
            Self::ResumeThread { .. } => ("RESUME_THREAD", None),
            Self::SetVariable { .. } => ("SET_VARIABLE", None),
            Self::SendNotification { .. } => ("SEND_NOTIFICATION", None),
            Self::Custom { .. } => ("CUSTOM", None),
        }
    }

    /// True if the action makes the thread that raised the event wait for it.
    fn holds_the_thread(&self) -> bool {
        match self {
            Self::ExecuteTriggeredSubgraph(execute) => execute.wait_for_completion,
            Self::StartWorkflow { .. }
            | Self::StopThread { .. }
            | Self::PauseThread { .. }
            | Self::ResumeThread { .. }
            | Self::SetVariable { .. }
            | Self::SendNotification { .. }
            | Self::Custom { .. } => false,
        }
    }
}

/// The fields of an event that become a run's input: `{source: "event", fields[]}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriggerInput {
    /// Source of the input, always `event`.
    pub source: String,
    /// Fields of the event to pass; empty: all.
    #[serde(default)]
    pub fields: Vec<String>,
}

/// EXECUTE_TRIGGERED_SUBGRAPH's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecuteTriggeredSubgraph {
    /// Id of the workflow, which starts with START_FROM_TRIGGER.
    pub triggered_workflow_id: String,
    /// True to stop the main thread at its next safe point until the child has ended.
    #[serde(default = "yes")]
    pub wait_for_completion: bool,
    /// Time limit of the child in seconds (default 30).
    #[serde(default = "thirty_seconds")]
    pub timeout: f64,
    /// True to record the child's node history.
    #[serde(default = "yes")]
    pub record_history: bool,
    /// True to include the child's nodes in the main thread's history too, marked.
    #[serde(default)]
    pub merge_history: bool,
    /// The state of the main thread that the child receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_options: Option<MergeOptions>,
}

impl ExecuteTriggeredSubgraph {
    /// Creates parameters that start this workflow and wait for it.
    pub fn of(triggered_workflow_id: impl Into<String>) -> Self {
        Self {
            triggered_workflow_id: triggered_workflow_id.into(),
            wait_for_completion: true,
            timeout: thirty_seconds(),
            record_history: true,
            merge_history: false,
            merge_options: None,
        }
    }
}

fn thirty_seconds() -> f64 {
    30.0
}

/// The state of the main thread that a triggered sub-workflow receives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MergeOptions {
    /// Variables to pass as `variables` of the sub-workflow's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_variables: Option<Vec<String>>,
    /// Messages to pass as `conversationHistory` of the sub-workflow's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_conversation_history: Option<HistorySelection>,
}
