//! LOOP_START and LOOP_END: the nodes between them run once for each item.

use std::sync::Arc;

use super::{NodeRun, Progress, evaluate, failure};
use crate::definition::{LoopLimit, VariableScope};
use crate::error::{RunError, RunErrorCode};
use crate::graph::{LoopNode, NodeIx, NodeKind, SnippetIx};
use crate::script::is_truthy;
use crate::thread::effect::{Evaluation, Outcome};
use crate::thread::loops::{LoopFrame, LoopTurn};
use crate::thread::step::StepContext;

/// Length of a thread's history above which the entries of finished iterations are removed.
// Without a bound the history of a long loop would grow with its iterations.
const MAX_KEPT_HISTORY: usize = 1000;

pub(super) fn enter_start(walk: &mut StepContext<'_>, node: &LoopNode) -> Progress {
    if let Some(frame) = own_frame(walk, walk.thread.at)
        // Taken: entering the node again by another edge restarts the loop.
        && std::mem::take(&mut frame.is_next)
    {
        return iterate(walk, node);
    }
    // A counter has no expression to evaluate.
    if node.iterable.is_some() {
        let id = evaluate(walk, Evaluation::Input);
        return Progress::Wait(NodeRun::LoopStart { id });
    }
    begin(walk, node, None)
}

pub(super) fn answer_start(walk: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    let graph = Arc::clone(walk.thread.graph());
    match (&graph.node(walk.thread.at).kind, outcome) {
        (NodeKind::LoopStart(node), Outcome::Value(iterable)) => begin(walk, node, Some(iterable)),
        (_, other) => Progress::Failed(failure(other)),
    }
}

fn begin(walk: &mut StepContext<'_>, node: &LoopNode, iterable: Option<Arc<serde_json::Value>>) -> Progress {
    let at = walk.thread.at;
    // Drops a frame that an earlier pass left behind, for example by `onError`.
    leave(walk, at);
    let mut frame = match LoopFrame::new(at, iterable, node.max_iterations) {
        Ok(frame) => frame,
        Err(error) => return Progress::Failed(error),
    };
    // LOOP_END is entered without a frame and passes the output on.
    if frame.is_empty() {
        return Progress::DoneAt(walk.thread.last.clone(), node.end);
    }
    // LOOP_START is included in both counts: the node was entered already.
    frame.steps = walk.thread.steps;
    frame.history = walk.thread.history.len();
    // Moved into the frame: the enclosing loop is active again when this one ends.
    frame.outer = walk.thread.loops.take();
    walk.thread.loops = Some(Arc::new(frame));
    iterate(walk, node)
}

fn iterate(walk: &mut StepContext<'_>, node: &LoopNode) -> Progress {
    // Both callers have just set or found the frame.
    let Some(item) = walk.thread.loops.as_ref().map(|frame| frame.item()) else {
        return Progress::Failed(failure(Outcome::Done));
    };
    if let Some(name) = &node.variable {
        match walk.thread.variables.assign(name, Arc::clone(&item), false) {
            // The event has the stored value, which the type of the variable may have converted.
            Ok(value) => walk.variable_changed(name, &value, VariableScope::Thread, 0),
            Err(error) => return Progress::Failed(error),
        }
    }
    Progress::Done(item.into())
}

pub(super) fn enter_end(walk: &mut StepContext<'_>, start: NodeIx, break_condition: SnippetIx) -> Progress {
    // A loop without items arrives here without a frame.
    if own_frame(walk, start).is_none() {
        return Progress::Done(walk.thread.last.clone());
    }
    let id = evaluate(walk, Evaluation::Value(break_condition));
    Progress::Wait(NodeRun::LoopEnd { id })
}

pub(super) fn answer_end(walk: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    let graph = Arc::clone(walk.thread.graph());
    let NodeKind::LoopEnd { start, .. } = graph.node(walk.thread.at).kind else {
        return Progress::Failed(failure(outcome));
    };
    match outcome {
        // By the rules of JavaScript, as for conditions of edges.
        Outcome::Value(holds) if is_truthy(&holds) => finish(walk, start),
        Outcome::Value(_) => advance(walk, start),
        other => Progress::Failed(failure(other)),
    }
}

fn advance(walk: &mut StepContext<'_>, start: NodeIx) -> Progress {
    let graph = Arc::clone(walk.thread.graph());
    let NodeKind::LoopStart(node) = &graph.node(start).kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // Read before `own_frame`, which borrows the thread.
    let history = walk.thread.history.len();
    let Some(frame) = own_frame(walk, start) else {
        return Progress::Failed(failure(Outcome::Done));
    };
    match (frame.turn(), node.on_limit) {
        (LoopTurn::Next, _) => {
            frame.advance();
            frame.is_next = true;
            let (steps, before) = (frame.steps, frame.history);
            if history > MAX_KEPT_HISTORY {
                // Only the iteration that ended: earlier ones are below the limit and stay as they are.
                walk.thread.history.truncate(before);
            } else {
                frame.history = history;
            }
            // `maxSteps` bounds one iteration. `maxIterations` bounds their number.
            walk.thread.steps = steps;
            // LOOP_END stores the index of its start: no edge is evaluated for this.
            Progress::DoneAt(walk.thread.last.clone(), start)
        }
        (LoopTurn::Over, _) | (LoopTurn::Limit, LoopLimit::Finish) => finish(walk, start),
        (LoopTurn::Limit, LoopLimit::Fail) => {
            // `Limit` is returned only with a maximum.
            let most = node.max_iterations.unwrap_or_default();
            // Before the failure: an `onError` target is outside of the loop, and a retry starts it again.
            leave(walk, start);
            let message = format!("the loop has run {most} times, its `maxIterations`, and there are items left");
            Progress::Failed(RunError::new(RunErrorCode::LoopLimitExceeded, message))
        }
    }
}

fn finish(walk: &mut StepContext<'_>, start: NodeIx) -> Progress {
    leave(walk, start);
    Progress::Done(walk.thread.last.clone())
}

/// Returns the frame of a loop. Drops the frames inside it, which remain if `onError` left the inner loops.
fn own_frame<'w>(walk: &'w mut StepContext<'_>, start: NodeIx) -> Option<&'w mut LoopFrame> {
    let is_open = |frame: &Arc<LoopFrame>| {
        std::iter::successors(Some(frame), |frame| frame.outer.as_ref()).any(|frame| frame.start == start)
    };
    if !walk.thread.loops.as_ref().is_some_and(is_open) {
        return None;
    }
    // The search above has found the frame, so that this ends at it.
    while let Some(inner) = walk.thread.loops.take_if(|frame| frame.start != start) {
        walk.thread.loops.clone_from(&inner.outer);
    }
    // Copies the frame if a branch still shares it: its iteration must not change.
    walk.thread.loops.as_mut().map(Arc::make_mut)
}

/// Ends a loop, and the loops inside it.
fn leave(walk: &mut StepContext<'_>, start: NodeIx) {
    if let Some(frame) = own_frame(walk, start) {
        let outer = frame.outer.take();
        walk.thread.loops = outer;
    }
}
