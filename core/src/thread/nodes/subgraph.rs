//! SUBGRAPH: runs another workflow as a child thread and waits.

use std::sync::Arc;

use pirn_definition::definition::{AgentConfig, ConversationMode};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{NodeKind, ValueSpec};
use serde_json::Value;

use crate::thread::context::{Progress, StepContext, evaluate, failure, value_or};
use crate::thread::data::effect::{Callee, Effect, EffectId, Evaluation, Outcome};
use crate::thread::data::stages::{NodeRun, SubgraphStage};

pub(super) fn enter(cx: &mut StepContext<'_>, input: Option<&ValueSpec>, agent: Option<&AgentConfig>) -> Progress {
    // Before the input is evaluated: without a role the child could not send its first prompt.
    if let Some(agent) = agent.filter(|agent| agent.role.as_ref().is_none_or(|role| role.trim().is_empty())) {
        let message = format!("sub-agent {} has no role", agent.id);
        return Progress::Failed(RunError::new(RunErrorCode::SubAgentRoleMissing, message));
    }
    if input.is_some() {
        let id = evaluate(cx, Evaluation::Input);
        return Progress::Wait(NodeRun::Subgraph(SubgraphStage::Input { id }));
    }
    // Builds a deferred output: the child's input is a JSON value.
    let input = Arc::clone(cx.thread.last.value());
    child(cx, input)
}

pub(super) fn answer(cx: &mut StepContext<'_>, stage: SubgraphStage, effect: EffectId, outcome: Outcome) -> Progress {
    if stage.id() != effect {
        return Progress::Wait(NodeRun::Subgraph(stage));
    }
    match (stage, outcome) {
        (SubgraphStage::Input { .. }, Outcome::Value(input)) => child(cx, input),
        (SubgraphStage::Child { .. }, Outcome::Child { output }) => {
            let graph = Arc::clone(cx.thread.graph());
            match &graph.node(cx.thread.at).kind {
                NodeKind::Subgraph {
                    output: Some(expression),
                    ..
                } => {
                    // The thread's own last output stays: a retry after a failed expression passes it to the child again.
                    let id = evaluate(cx, Evaluation::Value(*expression));
                    let child = output.into();
                    Progress::Wait(NodeRun::Subgraph(SubgraphStage::Output { id, child }))
                }
                _ => Progress::Done(output.into()),
            }
        }
        // Without `done`: the evaluator has its own limits.
        (SubgraphStage::Output { .. }, outcome) => value_or(outcome, Progress::Done),
        (SubgraphStage::Input { .. } | SubgraphStage::Child { .. }, other) => Progress::Failed(failure(other)),
    }
}

fn child(cx: &mut StepContext<'_>, input: Arc<Value>) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    let NodeKind::Subgraph { conversation, .. } = &graph.node(cx.thread.at).kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    if let Err(error) = cx.start_agents(1) {
        return Progress::Failed(error);
    }
    if *conversation == ConversationMode::Share {
        // The child raises the events of a shared conversation in this thread's name.
        cx.may_be_held_by(&[EventType::MessageAdded, EventType::CompressionCompleted]);
    }
    let id = cx.next_effect();
    // The supervisor finds the called workflow and the agent at the node.
    let node = cx.thread.at;
    cx.out.push(Effect::Child {
        id,
        node,
        callee: Callee::OfNode,
        input,
        conversation: *conversation,
    });
    Progress::Wait(NodeRun::Subgraph(SubgraphStage::Child { id }))
}
