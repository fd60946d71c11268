//! Node types, one file each, with functions to enter the node and to process answers. The table below dispatches to them.
//! `questions/` contains USER_INTERACTION and the questions of other nodes.
//!
//! Not here: the walk along edges, retries and safe points, which are equal for all node types (`step.rs`, `retry.rs`,
//! `safe_point.rs` of the folder above).

mod code;
pub(super) mod context;
pub(super) mod fork;
pub(super) mod llm;
pub(super) mod loops;
pub(super) mod map;
pub(super) mod questions;
pub(super) mod request;
pub(super) mod route;
pub(super) mod script;
pub(super) mod subgraph;
pub(super) mod tool;
pub(super) mod variable;
pub(super) mod wait;

use std::sync::Arc;

use pirn_definition::graph::NodeKind;

use super::context::{Progress, StepContext, evaluate, failure, no_edge, value_or};
use super::data::effect::{Effect, EffectId, Evaluation, Outcome};
use super::data::question::Interaction;
use super::data::script_state::ScriptState;
use super::data::stages::NodeRun;
use super::machine::ThreadMachine;

/// Enters the current node.
pub(in crate::thread) fn enter(cx: &mut StepContext<'_>) -> Progress {
    // Cloned, because the node is borrowed while its function changes the thread.
    let graph = Arc::clone(cx.thread.graph());
    match &graph.node(cx.thread.at).kind {
        // The input becomes an output, so that the next node finds it as `output`.
        NodeKind::Start | NodeKind::StartFromTrigger => Progress::Done(Arc::clone(&cx.thread.input).into()),
        NodeKind::End { output: None } | NodeKind::ContinueFromTrigger(_) => Progress::End(cx.thread.last.clone()),
        NodeKind::End { output: Some(output) } => {
            let id = evaluate(cx, Evaluation::Value(*output));
            Progress::Wait(NodeRun::End { id })
        }
        NodeKind::Variable { expression, .. } => variable::enter(cx, *expression),
        NodeKind::Llm(node) => llm::enter(cx, node),
        NodeKind::Script { input, .. } | NodeKind::Function { input, .. } => code::enter(cx, input.as_ref()),
        NodeKind::Orchestration(node) => script::enter(cx, node),
        NodeKind::Route { routes, default } => route::enter(cx, routes.is_empty(), *default),
        NodeKind::Fork(fork) => fork::enter_fork(cx, graph.fork(*fork)),
        NodeKind::Join(fork) => fork::enter_join(cx, *fork, graph.fork(*fork)),
        NodeKind::Subgraph { input, agent, .. } => subgraph::enter(cx, input.as_ref(), agent.as_ref()),
        NodeKind::Map(_) => map::enter(cx),
        NodeKind::Context(node) => context::enter(cx, node),
        NodeKind::Tool { arguments, .. } => tool::enter(cx, arguments),
        NodeKind::UserInteraction(_) => questions::interaction::enter(cx),
        NodeKind::LoopStart(node) => loops::enter_start(cx, node),
        NodeKind::LoopEnd { start, break_condition } => loops::enter_end(cx, *start, *break_condition),
        NodeKind::WaitTime(after_ms) => wait::enter_time(cx, *after_ms),
        NodeKind::WaitEvent { event, timeout_ms } => wait::enter_event(cx, event, *timeout_ms),
    }
}

impl ThreadMachine {
    /// Returns the open questions, each with the effect that awaits its answer.
    pub fn interactions(&self) -> Vec<(EffectId, Interaction)> {
        self.run.interactions(self)
    }

    /// Returns the recorded inputs of the script that the thread executes, if it is at a SCRIPT whose script has made calls.
    pub fn unfinished_script(&self) -> Option<ScriptState> {
        match &self.run {
            NodeRun::Script(stage) => stage.recorded(self),
            _ => None,
        }
    }
}

impl NodeRun {
    /// Processes an answer. Answers to other effects change nothing.
    pub(in crate::thread) fn answer(self, cx: &mut StepContext<'_>, effect: EffectId, outcome: Outcome) -> Progress {
        match self {
            Self::AwaitingTriggers { id } if id == effect => {
                // Any other outcome, such as a failed check, holds nothing.
                if let Outcome::HeldByFiring(firings) = outcome {
                    cx.hold(firings);
                }
                // The result of a firing may have arrived while the check was pending.
                Progress::SafePoint
            }
            Self::Merging { id, merge } if id == effect => {
                cx.merged(&merge, outcome);
                // In this order: the change has happened, so that its variables and its event must not be lost by the stop.
                cx.unless_stopped(|_| Progress::SafePoint)
            }
            Self::Edges { id } if id == effect => chosen_edge(cx, outcome),
            // Only the timer answers this effect, so that its outcome has no content.
            Self::RetryDelay { id } if id == effect => Progress::Retry,
            Self::End { id } if id == effect => value_or(outcome, Progress::End),
            // Stages with several effects compare the id themselves.
            Self::Variable(stage) => variable::answer(cx, stage, effect, outcome),
            Self::Llm(stage) => llm::answer(cx, *stage, effect, outcome),
            Self::Code(stage) => code::answer(cx, stage, effect, outcome),
            Self::Script(stage) => script::answer(cx, stage, effect, outcome),
            Self::Route { id } if id == effect => route::answer(cx, outcome),
            Self::Join { id } if id == effect => fork::answer(cx, outcome),
            Self::Reducing(stage) => fork::reduced(cx, stage, effect, outcome),
            Self::Subgraph(stage) => subgraph::answer(cx, stage, effect, outcome),
            Self::Map(stage) => map::answer(cx, stage, effect, outcome),
            Self::Context(stage) => context::answer(cx, stage, effect, outcome),
            Self::Tool(stage) => tool::answer(cx, stage, effect, outcome),
            Self::Interaction(stage) => questions::interaction::answer(cx, stage, effect, outcome),
            Self::LoopStart { id } if id == effect => loops::answer_start(cx, outcome),
            Self::LoopEnd { id } if id == effect => loops::answer_end(cx, outcome),
            Self::Wait { id } if id == effect => wait::answer(cx, outcome),
            // Late answers to cancelled effects, and duplicates. All states are listed, so that a new one is a compile error here.
            stale @ (Self::Idle
            | Self::SafePoint
            | Self::AwaitingTriggers { .. }
            | Self::Merging { .. }
            | Self::Edges { .. }
            | Self::RetryDelay { .. }
            | Self::End { .. }
            | Self::Route { .. }
            | Self::Join { .. }
            | Self::LoopStart { .. }
            | Self::LoopEnd { .. }
            | Self::Wait { .. }) => Progress::Wait(stale),
        }
    }

    /// Returns the open questions, each with the effect that awaits its answer.
    pub(in crate::thread) fn interactions(&self, thread: &ThreadMachine) -> Vec<(EffectId, Interaction)> {
        match self {
            Self::Interaction(stage) => stage.interaction(thread).into_iter().collect(),
            Self::Tool(stage) => stage.interaction(thread).into_iter().collect(),
            Self::Llm(stage) => stage.interactions(thread),
            Self::Script(stage) => stage.interactions(thread),
            // No other node opens questions.
            _ => Vec::new(),
        }
    }

    /// Cancels the active effects of the node.
    pub(in crate::thread) fn abandon(self, cx: &mut StepContext<'_>) {
        match self {
            // No effect is in flight.
            Self::Idle | Self::SafePoint => {}
            Self::AwaitingTriggers { id }
            | Self::Edges { id }
            | Self::RetryDelay { id }
            | Self::End { id }
            | Self::Route { id }
            | Self::Join { id }
            | Self::LoopStart { id }
            | Self::LoopEnd { id }
            | Self::Wait { id } => cx.out.push(Effect::Drop { id }),
            // Not reached while the conversation applies the change: see `is_merging`.
            Self::Merging { id, merge } => {
                cx.out.push(Effect::Drop { id });
                cx.merged(&merge, Outcome::Failed(failure(Outcome::Done)));
            }
            Self::Reducing(stage) => cx.out.push(Effect::Drop { id: stage.id }),
            Self::Variable(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Code(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Script(stage) => script::abandon(cx, &stage),
            Self::Tool(stage) => tool::abandon(cx, &stage),
            Self::Interaction(stage) => questions::interaction::abandon(cx, &stage),
            Self::Subgraph(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Map(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Context(stage) => context::abandon(cx, &stage),
            Self::Llm(stage) => llm::abandon(cx, *stage),
        }
    }
}

fn chosen_edge(cx: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    match outcome {
        Outcome::Choice(Some(index)) => match cx.thread.graph().node(cx.thread.at).edges.get(index as usize) {
            // The index comes from the host or the journal: an invalid one fails the node instead of the process.
            Some(edge) => Progress::Chosen(edge.target),
            None => Progress::Failed(no_edge()),
        },
        Outcome::Choice(None) => Progress::Failed(no_edge()),
        other => Progress::Failed(failure(other)),
    }
}
