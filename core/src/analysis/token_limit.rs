//! `TOKEN_LIMIT_WITHOUT_COMPRESSION`: the limit is announced, but nothing answers and nothing ever shrinks.

use super::raises::can_match;
use super::{Analysis, Flow, Set};
use crate::definition::{FaultCode, TriggerDefinition};
use crate::event::EventType;
use crate::graph::site::at;
use crate::graph::{ContextNode, NodeKind};

/// Reports a `config.tokenLimit` of which that holds.
pub(super) fn report(flow: &Flow<'_>, set: &Set<'_>, found: &mut Analysis) {
    let graph = flow.graph;
    if graph.config.token_limit.is_none() || graph.triggered {
        return;
    }
    found.work += (graph.nodes.len() + graph.triggers.len() + set.triggers.len()) as u64;
    let own = graph.triggers.iter().any(answers);
    let outer = || {
        let watches = |trigger: &TriggerDefinition| {
            let workflow = trigger.workflow_id.as_deref();
            answers(trigger) && workflow.is_none_or(|id| id == &*graph.workflow_id)
        };
        set.triggers.iter().any(|trigger| watches(&trigger.value))
    };
    if own || outer() || graph.nodes.iter().any(|node| shrinks(&node.kind)) {
        return;
    }
    let message =
        "no trigger waits for TOKEN_LIMIT_EXCEEDED and no node shortens the conversation: nothing happens at the limit";
    let code = FaultCode::TokenLimitWithoutCompression;
    found.warn(flow.origin, code, &at!["config", "tokenLimit"], message);
}

fn answers(trigger: &TriggerDefinition) -> bool {
    let event = trigger.condition.event_type;
    matches!(event, EventType::TokenLimitExceeded | EventType::TokenUsageWarning) && can_match(trigger)
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
        | NodeKind::Function { .. }
        | NodeKind::Route { .. }
        | NodeKind::Fork(_)
        | NodeKind::Join(_)
        | NodeKind::Subgraph { .. }
        | NodeKind::WaitTime(_)
        | NodeKind::WaitEvent { .. }
        | NodeKind::ContinueFromTrigger(_) => false,
    }
}
