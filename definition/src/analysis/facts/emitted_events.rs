//! Events that the threads of a workflow raise, and those that a trigger's action causes.

use super::conditions::{Truth, truth_of};
use crate::analysis::Flow;
use crate::definition::{TriggerAction, TriggerDefinition};
use crate::event_type::EventType;
use crate::graph::{ContextNode, Graph, NodeKind};

/// True if a thread of the workflow may raise such an event. If the nodes do not determine it, the result is true.
pub(in crate::analysis) fn may_emit(graph: &Graph, event: EventType) -> bool {
    let any = |wanted: fn(&NodeKind) -> bool| graph.nodes.iter().any(|node| wanted(&node.kind));
    let has_llm = || any(|kind| matches!(kind, NodeKind::Llm(_)));
    match event {
        EventType::TokenLimitExceeded
        | EventType::TokenUsageWarning
        | EventType::TokenLimitApproached
        | EventType::RequestPrepared
        | EventType::RequestRepaired
        | EventType::CacheCollapsed => has_llm(),
        EventType::ToolCallStarted | EventType::ToolCallCompleted | EventType::ToolCallFailed => {
            has_llm() || any(|kind| matches!(kind, NodeKind::Tool { .. }))
        }
        EventType::ScriptLog => any(|kind| matches!(kind, NodeKind::Script { .. })),
        EventType::LlmToken => has_llm() || any(|kind| matches!(kind, NodeKind::Context(ContextNode::Compress(_)))),
        EventType::ThreadForkStarted
        | EventType::ThreadForkCompleted
        | EventType::ThreadJoinStarted
        | EventType::ThreadJoinConditionMet => forks(graph),
        EventType::SubgraphStarted | EventType::SubgraphCompleted => calls(graph),
        EventType::InteractionRequested
        | EventType::InteractionAnswered
        | EventType::InteractionWithdrawn
        | EventType::InteractionTimedOut => {
            // A tool call may need a person's consent.
            has_llm() || any(|kind| matches!(kind, NodeKind::UserInteraction(_) | NodeKind::Tool { .. }))
        }
        EventType::ThreadStarted
        | EventType::ThreadCompleted
        | EventType::ThreadFailed
        | EventType::ThreadCancelled
        | EventType::ThreadPaused
        | EventType::ThreadResumed
        | EventType::NodeStarted
        | EventType::NodeCompleted
        | EventType::NodeFailed
        | EventType::MessageAdded
        | EventType::CompressionCompleted
        | EventType::CompressionFailed
        | EventType::TriggeredSubgraphStarted
        | EventType::TriggeredSubgraphCompleted
        | EventType::TriggeredSubgraphFailed
        | EventType::TriggerFailed
        | EventType::VariableChanged
        | EventType::CheckpointCreated
        | EventType::EffectInDoubt
        | EventType::BudgetWarning
        | EventType::BudgetOverrun
        | EventType::Notification
        | EventType::UserMessage
        | EventType::Custom => true,
        EventType::ScheduleDue => false,
        EventType::ArtifactKept | EventType::ArtifactDropped => graph.config.artifact_tokens.is_some() && has_llm(),
        EventType::EventDropped => !graph.awaited_events.is_empty(),
    }
}

/// Returns the events of a run without failures, raised by its own threads, excluding those of called workflows.
pub(in crate::analysis) fn emitted_by_run(graph: &Graph) -> Vec<EventType> {
    let mut events = vec![
        EventType::ThreadStarted,
        EventType::NodeStarted,
        EventType::NodeCompleted,
        EventType::ThreadCompleted,
    ];
    let has = |wanted: fn(&NodeKind) -> bool| graph.nodes.iter().any(|node| wanted(&node.kind));
    if has(|kind| matches!(kind, NodeKind::Variable { .. })) {
        events.push(EventType::VariableChanged);
    }
    if has(|kind| matches!(kind, NodeKind::Llm(_))) {
        events.push(EventType::MessageAdded);
    }
    if has(|kind| matches!(kind, NodeKind::UserInteraction(_))) {
        events.extend([EventType::InteractionRequested, EventType::InteractionAnswered]);
    }
    if calls(graph) {
        events.extend([EventType::SubgraphStarted, EventType::SubgraphCompleted]);
    }
    if forks(graph) {
        events.extend([
            EventType::ThreadForkStarted,
            EventType::ThreadForkCompleted,
            EventType::ThreadJoinStarted,
            EventType::ThreadJoinConditionMet,
        ]);
    }
    events
}

/// Returns the events that a trigger's action emits in the thread that raised its event; `target` is the started workflow.
pub(in crate::analysis) fn emitted_by_action(trigger: &TriggerDefinition, target: Option<&Flow<'_>>) -> Vec<EventType> {
    let event = trigger.condition.event_type;
    let is_over = matches!(
        event,
        EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled
    );
    match &trigger.action {
        TriggerAction::SendNotification { .. } => vec![EventType::Notification],
        TriggerAction::SetVariable { .. } if !is_over => vec![EventType::VariableChanged],
        TriggerAction::ExecuteTriggeredSubgraph(_) if !is_over => {
            let mut events = vec![
                EventType::TriggeredSubgraphStarted,
                EventType::TriggeredSubgraphCompleted,
            ];
            if target.is_some_and(|target| hands_variables_back(target.graph)) {
                events.push(EventType::VariableChanged);
            }
            events
        }
        TriggerAction::StopThread { thread_id: None } if !is_over => vec![EventType::ThreadCancelled],
        // a paused thread is not paused again, and only a paused one is resumed
        TriggerAction::PauseThread { thread_id: None } if !is_over && event != EventType::ThreadPaused => {
            vec![EventType::ThreadPaused]
        }
        TriggerAction::ResumeThread { thread_id: None } if event == EventType::ThreadPaused => {
            vec![EventType::ThreadResumed]
        }
        TriggerAction::SetVariable { .. }
        | TriggerAction::ExecuteTriggeredSubgraph(_)
        | TriggerAction::StopThread { .. }
        | TriggerAction::PauseThread { .. }
        | TriggerAction::ResumeThread { .. }
        | TriggerAction::StartWorkflow { .. }
        | TriggerAction::Custom { .. } => Vec::new(),
    }
}

/// Returns the workflow that a trigger's action starts.
pub(in crate::analysis) fn started_by(action: &TriggerAction) -> Option<&str> {
    match action {
        TriggerAction::StartWorkflow { workflow_id, .. } => Some(workflow_id),
        TriggerAction::ExecuteTriggeredSubgraph(execute) => Some(&execute.triggered_workflow_id),
        TriggerAction::StopThread { .. }
        | TriggerAction::PauseThread { .. }
        | TriggerAction::ResumeThread { .. }
        | TriggerAction::SetVariable { .. }
        | TriggerAction::SendNotification { .. }
        | TriggerAction::Custom { .. } => None,
    }
}

/// True if the trigger is enabled and may match.
pub(in crate::analysis) fn can_match(trigger: &TriggerDefinition) -> bool {
    trigger.enabled
        && trigger.schedule.is_none()
        && truth_of(trigger.condition.expression.as_deref()) != Truth::Never
        && (trigger.condition.event_name.is_none() || trigger.condition.event_type == EventType::Custom)
}

/// True if the trigger fires at every event of its type without limit. A trigger in a workflow counts its firings for each run
/// separately, so `maxTriggers` does not limit an action that starts another run.
pub(in crate::analysis) fn is_unbounded(trigger: &TriggerDefinition, stands_inside: bool) -> bool {
    let starts_a_run = matches!(trigger.action, TriggerAction::StartWorkflow { .. });
    let is_counted = trigger.max_triggers.is_some_and(|most| most > 0);
    can_match(trigger)
        && truth_of(trigger.condition.expression.as_deref()) == Truth::Always
        && (!is_counted || (stands_inside && starts_a_run))
        && trigger.thread_id.is_none()
}

fn forks(graph: &Graph) -> bool {
    let has_map = || graph.nodes.iter().any(|node| matches!(node.kind, NodeKind::Map(_)));
    !graph.forks.is_empty() || has_map()
}

fn calls(graph: &Graph) -> bool {
    let is_call = |node: &crate::graph::Node| matches!(node.kind, NodeKind::Subgraph { .. }) && !node.edges.is_empty();
    graph.nodes.iter().any(is_call)
}

fn hands_variables_back(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| match &node.kind {
        NodeKind::ContinueFromTrigger(config) => config.variable_callback.is_some(),
        _ => false,
    })
}
