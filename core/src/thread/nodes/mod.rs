//! The node types. Each file says how its node is entered and what it makes of answers; this table sends them there.

pub(super) mod asking;
mod code;
pub(in crate::thread) mod consent;
pub(super) mod context;
pub(super) mod fork;
pub(in crate::thread) mod interaction;
pub(super) mod llm;
pub(super) mod loops;
pub(super) mod map;
pub(in crate::thread) mod question;
pub(super) mod route;
pub(super) mod subgraph;
pub(super) mod tool;
pub(super) mod variable;
pub(super) mod wait;

use std::sync::Arc;

use self::question::Interaction;
use super::ThreadMachine;
use super::effect::{Effect, EffectId, Evaluation, Outcome};
use super::safe_point::{PendingMerge, Stop};
use super::step::{StepContext, no_edge};
use crate::error::{RunError, RunErrorCode};
use crate::graph::{NodeIx, NodeKind};
use crate::value::Output;
use serde::{Deserialize, Serialize};

/// The outcome of a node's step.
pub(in crate::thread) enum Progress {
    /// It awaits an answer.
    Wait(NodeRun),
    /// It ended well; its edges say where to go.
    Done(Output),
    /// It ended well and says where to go.
    DoneAt(Output, NodeIx),
    /// The thread ends with this output.
    End(Output),
    /// Its edges were evaluated: the thread goes there.
    Chosen(NodeIx),
    /// The thread looks again whether it may go on.
    SafePoint,
    /// The retry delay is over.
    Retry,
    /// This attempt failed.
    Failed(RunError),
    /// The stop that came while the conversation took in a firing's result has its turn.
    Stopped(Box<Stop>),
}

/// The answer or event that the thread awaits.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::thread) enum NodeRun {
    /// Nothing.
    #[default]
    Idle,
    /// Held or paused before a node.
    SafePoint,
    /// The answer whether triggers hold it.
    AwaitingTriggers {
        id: EffectId,
    },
    /// The conversation takes in what a firing pending.
    Merging {
        id: EffectId,
        merge: PendingMerge,
    },
    /// Which edge holds.
    Edges {
        id: EffectId,
    },
    /// The delay before the next attempt.
    RetryDelay {
        id: EffectId,
    },
    /// END's output.
    End {
        id: EffectId,
    },
    Variable(variable::Stage),
    /// In a box: it gathers much, and most threads wait for something else.
    Llm(Box<llm::Stage>),
    Code(code::Stage),
    Route {
        id: EffectId,
    },
    Join {
        id: EffectId,
    },
    /// Reducers of what a join brought. In a box: few have any.
    Reducing(Box<fork::Reducing>),
    Subgraph(subgraph::Stage),
    Map(map::MapStage),
    Context(context::Stage),
    Tool(tool::ToolStage),
    Interaction(interaction::InteractionStage),
    /// A loop's items.
    LoopStart {
        id: EffectId,
    },
    /// The condition of a loop's break.
    LoopEnd {
        id: EffectId,
    },
    Wait {
        id: EffectId,
    },
}

/// Enters the node the thread stands at.
pub(in crate::thread) fn enter(walk: &mut StepContext<'_>) -> Progress {
    let graph = Arc::clone(walk.thread.graph());
    match &graph.node(walk.thread.at).kind {
        NodeKind::Start | NodeKind::StartFromTrigger => Progress::Done(Arc::clone(&walk.thread.input).into()),
        NodeKind::End { output: None } | NodeKind::ContinueFromTrigger(_) => Progress::End(walk.thread.last.clone()),
        NodeKind::End { output: Some(output) } => {
            let id = evaluate(walk, Evaluation::Value(*output));
            Progress::Wait(NodeRun::End { id })
        }
        NodeKind::Variable { expression, .. } => variable::enter(walk, *expression),
        NodeKind::Llm(node) => llm::enter(walk, node),
        NodeKind::Script { input, .. } | NodeKind::Function { input, .. } => code::enter(walk, input.as_ref()),
        NodeKind::Route { routes, default } => route::enter(walk, routes.is_empty(), *default),
        NodeKind::Fork(fork) => fork::enter_fork(walk, graph.fork(*fork)),
        NodeKind::Join(fork) => fork::enter_join(walk, *fork, graph.fork(*fork)),
        NodeKind::Subgraph { input, agent, .. } => subgraph::enter(walk, input.as_ref(), agent.as_ref()),
        NodeKind::Map(_) => map::enter(walk),
        NodeKind::Context(node) => context::enter(walk, node),
        NodeKind::Tool { arguments, .. } => tool::enter(walk, arguments),
        NodeKind::UserInteraction(_) => interaction::enter(walk),
        NodeKind::LoopStart(node) => loops::enter_start(walk, node),
        NodeKind::LoopEnd { start, break_condition } => loops::enter_end(walk, *start, *break_condition),
        NodeKind::WaitTime(after_ms) => wait::enter_time(walk, *after_ms),
        NodeKind::WaitEvent { event, timeout_ms } => wait::enter_event(walk, event, *timeout_ms),
    }
}

impl NodeRun {
    /// Takes an answer. One that is not awaited leaves everything as it is.
    pub(in crate::thread) fn answer(self, walk: &mut StepContext<'_>, effect: EffectId, outcome: Outcome) -> Progress {
        match self {
            Self::AwaitingTriggers { id } if id == effect => {
                if let Outcome::HeldByFiring(firings) = outcome {
                    walk.hold(firings);
                }
                Progress::SafePoint
            }
            Self::Merging { id, merge } if id == effect => {
                walk.merged(&merge, outcome);
                walk.unless_stopped(|_| Progress::SafePoint)
            }
            Self::Edges { id } if id == effect => chosen_edge(walk, outcome),
            Self::RetryDelay { id } if id == effect => Progress::Retry,
            Self::End { id } if id == effect => value_or(outcome, Progress::End),
            Self::Variable(stage) => variable::answer(walk, stage, effect, outcome),
            Self::Llm(stage) => llm::answer(walk, *stage, effect, outcome),
            Self::Code(stage) => code::answer(walk, stage, effect, outcome),
            Self::Route { id } if id == effect => route::answer(walk, outcome),
            Self::Join { id } if id == effect => fork::answer(walk, outcome),
            Self::Reducing(stage) => fork::reduced(walk, stage, effect, outcome),
            Self::Subgraph(stage) => subgraph::answer(walk, stage, effect, outcome),
            Self::Map(stage) => map::answer(walk, stage, effect, outcome),
            Self::Context(stage) => context::answer(walk, stage, effect, outcome),
            Self::Tool(stage) => tool::answer(walk, stage, effect, outcome),
            Self::Interaction(stage) => interaction::answer(walk, stage, effect, outcome),
            Self::LoopStart { id } if id == effect => loops::answer_start(walk, outcome),
            Self::LoopEnd { id } if id == effect => loops::answer_end(walk, outcome),
            Self::Wait { id } if id == effect => wait::answer(walk, outcome),
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

    /// True if the conversation takes in a firing's result, or compresses: one atomic step, which is not left half
    /// done.
    pub(in crate::thread) fn is_merging(&self) -> bool {
        match self {
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

    /// The questions that it waits with, and what awaits the answer of each.
    pub(in crate::thread) fn interactions(&self, thread: &ThreadMachine) -> Vec<(EffectId, Interaction)> {
        match self {
            Self::Interaction(stage) => stage.interaction(thread).into_iter().collect(),
            Self::Tool(stage) => stage.interaction(thread).into_iter().collect(),
            Self::Llm(stage) => stage.interactions(thread),
            _ => Vec::new(),
        }
    }

    /// Stops what is under way: its answers are no longer wanted.
    pub(in crate::thread) fn abandon(self, walk: &mut StepContext<'_>) {
        match self {
            Self::Idle | Self::SafePoint => {}
            Self::AwaitingTriggers { id }
            | Self::Edges { id }
            | Self::RetryDelay { id }
            | Self::End { id }
            | Self::Route { id }
            | Self::Join { id }
            | Self::LoopStart { id }
            | Self::LoopEnd { id }
            | Self::Wait { id } => walk.out.push(Effect::Drop { id }),
            // A thread is not stopped in the middle of it: `is_merging`.
            Self::Merging { id, merge } => {
                walk.out.push(Effect::Drop { id });
                walk.merged(&merge, Outcome::Failed(failure(Outcome::Done)));
            }
            Self::Reducing(stage) => walk.out.push(Effect::Drop { id: stage.id() }),
            Self::Variable(stage) => walk.out.push(Effect::Drop { id: stage.id() }),
            Self::Code(stage) => walk.out.push(Effect::Drop { id: stage.id() }),
            Self::Tool(stage) => tool::abandon(walk, &stage),
            Self::Interaction(stage) => interaction::abandon(walk, &stage),
            Self::Subgraph(stage) => walk.out.push(Effect::Drop { id: stage.id() }),
            Self::Map(stage) => walk.out.push(Effect::Drop { id: stage.id() }),
            Self::Context(stage) => context::abandon(walk, &stage),
            Self::Llm(stage) => llm::abandon(walk, *stage),
        }
    }
}

/// Asks for an evaluation of the current node's texts.
pub(super) fn evaluate(walk: &mut StepContext<'_>, what: Evaluation) -> EffectId {
    let id = walk.next_effect();
    let node = walk.thread.at;
    walk.out.push(Effect::Evaluate { id, node, what });
    id
}

/// The node's work is done, and left this.
pub(super) fn done(output: Output) -> Progress {
    output.within_limits().map_or_else(Progress::Failed, Progress::Done)
}

/// A value goes on; anything else failed.
pub(super) fn value_or(outcome: Outcome, then: impl FnOnce(Output) -> Progress) -> Progress {
    match outcome {
        Outcome::Value(value) => then(value.into()),
        other => Progress::Failed(failure(other)),
    }
}

/// The error of an outcome that is not what the node asked for.
pub(super) fn failure(outcome: Outcome) -> RunError {
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
            "the host answered with something the node did not ask for",
        ),
    }
}

fn chosen_edge(walk: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    match outcome {
        Outcome::Choice(Some(index)) => match walk.thread.graph().node(walk.thread.at).edges.get(index as usize) {
            Some(edge) => Progress::Chosen(edge.target),
            None => Progress::Failed(no_edge()),
        },
        Outcome::Choice(None) => Progress::Failed(no_edge()),
        other => Progress::Failed(failure(other)),
    }
}
