//! Node types, one file each, with functions to enter the node and to process answers. The table below dispatches to them.
//!
//! Not here: the walk along edges, retries and safe points, which are equal for all node types (`step.rs`, `retry.rs`,
//! `safe_point.rs` of the folder above).

mod code;
pub(in crate::thread) mod consent;
pub(super) mod context;
pub(super) mod fork;
pub(in crate::thread) mod interaction;
pub(super) mod llm;
pub(super) mod loops;
pub(super) mod map;
pub(in crate::thread) mod question;
pub(super) mod request;
pub(super) mod route;
pub(super) mod script;
pub(super) mod subgraph;
pub(super) mod tool;
pub(super) mod variable;
pub(super) mod wait;

use std::sync::Arc;

use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{NodeIx, NodeKind};
use pirn_definition::value::Output;

use self::question::Interaction;
use super::ThreadMachine;
use super::effect::{Effect, EffectId, Evaluation, Outcome};
use super::safe_point::{DeferredStop, PendingMerge};
use super::step::{StepContext, no_edge};
use serde::{Deserialize, Serialize};

/// Result of a node's step.
pub(in crate::thread) enum Progress {
    /// The node awaits an answer.
    Wait(NodeRun),
    /// The node completed; an edge selects the next node.
    Done(Output),
    /// The node completed and selects the next node.
    DoneAt(Output, NodeIx),
    /// The thread completes with this output.
    End(Output),
    /// The conditions of the edges were evaluated: continue at this node.
    Chosen(NodeIx),
    /// Return to the safe point and check again whether the thread may continue.
    SafePoint,
    /// The retry delay has passed.
    Retry,
    /// The attempt failed.
    Failed(RunError),
    /// Perform a stop that arrived while the conversation applied a firing's result.
    Stopped(Box<DeferredStop>),
}

/// The answer that the thread awaits.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::thread) enum NodeRun {
    /// The thread awaits no answer.
    #[default]
    Idle,
    /// Held or paused before a node.
    SafePoint,
    /// The node waits for the answer whether triggers hold the thread.
    AwaitingTriggers {
        id: EffectId,
    },
    /// The conversation to apply the result of a firing.
    Merging {
        id: EffectId,
        // Boxed: every waiting thread has the size of the largest state.
        merge: Box<PendingMerge>,
    },
    /// The conditions of the outgoing edges.
    Edges {
        id: EffectId,
    },
    /// The delay before the next attempt.
    RetryDelay {
        id: EffectId,
    },
    /// The output expression of END.
    End {
        id: EffectId,
    },
    Variable(variable::Stage),
    /// State of an LLM node. Boxed because it is large and most threads wait for something else.
    Llm(Box<llm::Stage>),
    Code(code::Stage),
    /// State of a SCRIPT node. Boxed because it is large.
    Script(Box<script::ScriptStage>),
    Route {
        id: EffectId,
    },
    Join {
        id: EffectId,
    },
    /// Reducers for the variables of a join. Boxed because few joins have any.
    Reducing(Box<fork::JoinReduction>),
    Subgraph(subgraph::Stage),
    Map(map::MapStage),
    Context(context::Stage),
    Tool(tool::ToolStage),
    Interaction(interaction::InteractionStage),
    /// The items of a loop.
    LoopStart {
        id: EffectId,
    },
    /// The break condition of a loop.
    LoopEnd {
        id: EffectId,
    },
    Wait {
        id: EffectId,
    },
}

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
        NodeKind::UserInteraction(_) => interaction::enter(cx),
        NodeKind::LoopStart(node) => loops::enter_start(cx, node),
        NodeKind::LoopEnd { start, break_condition } => loops::enter_end(cx, *start, *break_condition),
        NodeKind::WaitTime(after_ms) => wait::enter_time(cx, *after_ms),
        NodeKind::WaitEvent { event, timeout_ms } => wait::enter_event(cx, event, *timeout_ms),
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
            Self::Interaction(stage) => interaction::answer(cx, stage, effect, outcome),
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

    /// Returns true while the conversation applies a firing's result or a compression. The change is atomic and cannot be
    /// cancelled.
    pub(in crate::thread) fn is_merging(&self) -> bool {
        match self {
            // Every state is listed: a new atomic state that is missing here would be cancelled in the middle.
            Self::Merging { .. } => true,
            Self::Llm(stage) => stage.is_merging(),
            Self::Context(stage) => stage.is_compressing(),
            Self::Idle
            | Self::SafePoint
            | Self::AwaitingTriggers { .. }
            | Self::Edges { .. }
            | Self::RetryDelay { .. }
            | Self::End { .. }
            | Self::Variable(_)
            | Self::Code(_)
            | Self::Script(_)
            | Self::Route { .. }
            | Self::Join { .. }
            | Self::Reducing(_)
            | Self::Subgraph(_)
            | Self::Map(_)
            | Self::Tool(_)
            | Self::Interaction(_)
            | Self::LoopStart { .. }
            | Self::LoopEnd { .. }
            | Self::Wait { .. } => false,
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

    /// Returns the names of the deferred tools that the last request offered.
    pub(in crate::thread) fn revealed_tools(&self) -> &[Arc<str>] {
        match self {
            Self::Llm(stage) => stage.revealed_tools(),
            // No other node calls tools of a request.
            _ => &[],
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
            Self::Reducing(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Variable(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Code(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Script(stage) => script::abandon(cx, &stage),
            Self::Tool(stage) => tool::abandon(cx, &stage),
            Self::Interaction(stage) => interaction::abandon(cx, &stage),
            Self::Subgraph(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Map(stage) => cx.out.push(Effect::Drop { id: stage.id() }),
            Self::Context(stage) => context::abandon(cx, &stage),
            Self::Llm(stage) => llm::abandon(cx, *stage),
        }
    }
}

/// Requests the evaluation of expressions or templates of the current node.
pub(super) fn evaluate(cx: &mut StepContext<'_>, what: Evaluation) -> EffectId {
    let id = cx.next_effect();
    let node = cx.thread.at;
    cx.out.push(Effect::Evaluate { id, node, what });
    id
}

/// Completes the node with this output.
pub(super) fn done(output: Output) -> Progress {
    // Only for values from outside: expressions and literals have their own limits.
    output.within_limits().map_or_else(Progress::Failed, Progress::Done)
}

/// Continues with the value of an outcome, or fails.
pub(super) fn value_or(outcome: Outcome, then: impl FnOnce(Output) -> Progress) -> Progress {
    match outcome {
        Outcome::Value(value) => then(value.into()),
        other => Progress::Failed(failure(other)),
    }
}

/// Converts an unexpected outcome to an error.
pub(super) fn failure(outcome: Outcome) -> RunError {
    // Every outcome is listed: a new one must be handled or rejected by each node.
    match outcome {
        Outcome::Failed(error) => error,
        Outcome::Done
        | Outcome::Value(_)
        | Outcome::Logged(_)
        | Outcome::Choice(_)
        | Outcome::Texts(_)
        | Outcome::Prepared(_)
        | Outcome::Reply(_)
        | Outcome::Tool(_)
        | Outcome::NeedsConsent(_)
        | Outcome::Summarize(..)
        | Outcome::Joined(_)
        | Outcome::Child { .. }
        | Outcome::Elapsed
        | Outcome::Event { .. }
        | Outcome::Answered(_)
        | Outcome::HeldByFiring(_) => RunError::new(
            RunErrorCode::NodeFailed,
            "the host returned an outcome that does not match the node's effect",
        ),
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
