//! `TOKEN_LIMIT_WITHOUT_COMPRESSION`: a token limit is set and nothing reacts to it, or a compression is configured and nothing
//! ever compresses.

use serde_json::json;

use crate::analysis::facts::emitted_events::can_match;
use crate::analysis::{Analysis, Flow, WorkflowSet};
use crate::definition::{CompressionConfig, FaultCode, TriggerDefinition};
use crate::event_type::EventType;
use crate::graph::diagnostics::pointer;
use crate::graph::{ContextNode, NodeKind};

/// Reports a `config.tokenLimit` or a `config.compression` without effect.
pub(in crate::analysis) fn report(flow: &Flow<'_>, set: &WorkflowSet<'_>, found: &mut Analysis) {
    let graph = flow.graph;
    let (limit, compression) = (graph.config.token_limit, graph.config.compression.as_ref());
    if graph.triggered || (limit.is_none() && compression.is_none()) {
        return;
    }
    found.work += (graph.nodes.len() + graph.triggers.len() + set.triggers.len()) as u64;
    let any = |answers: fn(&TriggerDefinition) -> bool| {
        let watches = |trigger: &TriggerDefinition| {
            let workflow = trigger.workflow_id.as_deref();
            answers(trigger) && workflow.is_none_or(|id| id == &*graph.workflow_id)
        };
        graph.triggers.iter().any(answers) || set.triggers.iter().any(|trigger| watches(&trigger.value))
    };
    if any(answers) {
        if compression.is_some_and(|how| how.speculative_at.is_some()) && !any(begins_early) {
            let message = "`speculativeAt` has no effect: no trigger starts a workflow on TOKEN_LIMIT_EXCEEDED";
            let pointer = pointer!["config", "compression", "speculativeAt"];
            found.warn(flow.origin, FaultCode::TokenLimitWithoutCompression, &pointer, message);
        }
        return;
    }
    let is_shortened = graph.nodes.iter().any(|node| shrinks(&node.kind));
    let (pointer, message) = match (compression, limit) {
        (Some(_), Some(_)) => (
            pointer!["config", "compression"],
            "`config.compression` has no effect: no trigger waits for TOKEN_LIMIT_EXCEEDED at `config.tokenLimit`",
        ),
        (Some(_), None) => (
            pointer!["config", "compression"],
            "`config.compression` has no effect: no trigger waits for TOKEN_LIMIT_EXCEEDED, and there is no \
             `config.tokenLimit` (a profile may have one)",
        ),
        (None, Some(_)) if !is_shortened => (
            pointer!["config", "tokenLimit"],
            "no trigger waits for TOKEN_LIMIT_EXCEEDED and no node shortens the conversation: nothing happens at the \
             limit",
        ),
        (None, Some(_) | None) => return,
    };
    let code = FaultCode::TokenLimitWithoutCompression;
    let fault = flow.origin.fault(code, &pointer, message);
    found.warnings.push(fault.with_help(what_to_write(compression)));
}

/// Returns the JSON of a trigger and a workflow that compress with these parameters, for the help text.
fn what_to_write(compression: Option<&CompressionConfig>) -> String {
    let default = || CompressionConfig {
        strategy: Some("summarize".to_owned()),
        ..CompressionConfig::default()
    };
    let how = compression.filter(|how| how.strategy.is_some()).cloned();
    let CompressionConfig {
        strategy, parameters, ..
    } = how.unwrap_or_else(default);
    let trigger = json!({"id": "compress", "condition": {"eventType": EventType::TokenLimitExceeded.as_str()}, "action": {
        "type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "compress"}}});
    let workflow = json!({"id": "compress",
        "nodes": [
            {"id": "start", "type": "START_FROM_TRIGGER"},
            {"id": "compress", "type": "CONTEXT_PROCESSOR",
                "config": {"operation": "compress", "strategy": strategy, "parameters": parameters}},
            {"id": "continue", "type": "CONTINUE_FROM_TRIGGER"}],
        "edges": [{"from": "start", "to": "compress"}, {"from": "compress", "to": "continue"}]});
    format!(
        "add to the workflow's `triggers`: {trigger} and add this workflow, in a separate file or in `workflows`: {workflow} \
         or let the program that embeds Pirn call EngineBuilder::compression"
    )
}

fn answers(trigger: &TriggerDefinition) -> bool {
    let event = trigger.condition.event_type;
    let is_token = matches!(
        event,
        EventType::TokenLimitExceeded | EventType::TokenUsageWarning | EventType::TokenLimitApproached
    );
    is_token && can_match(trigger)
}

fn begins_early(trigger: &TriggerDefinition) -> bool {
    trigger.watches().any(|event| event == EventType::TokenLimitApproached) && can_match(trigger)
}

fn shrinks(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Context(operation) => match operation {
            ContextNode::Compress(_)
            | ContextNode::Truncate(_)
            | ContextNode::Clear { .. }
            | ContextNode::Replace { .. }
            | ContextNode::Filter(_) => true,
            ContextNode::Insert { .. } | ContextNode::Pin { .. } => false,
        },
        NodeKind::Start
        | NodeKind::StartFromTrigger
        | NodeKind::End { .. }
        | NodeKind::Variable { .. }
        | NodeKind::Llm(_)
        | NodeKind::Script { .. }
        | NodeKind::Orchestration(_)
        | NodeKind::Function { .. }
        | NodeKind::Route { .. }
        | NodeKind::Fork(_)
        | NodeKind::Join(_)
        | NodeKind::Subgraph { .. }
        | NodeKind::Map(_)
        | NodeKind::WaitTime(_)
        | NodeKind::WaitEvent { .. }
        | NodeKind::Tool { .. }
        | NodeKind::UserInteraction(_)
        | NodeKind::LoopStart(_)
        | NodeKind::LoopEnd { .. }
        | NodeKind::ContinueFromTrigger(_) => false,
    }
}
