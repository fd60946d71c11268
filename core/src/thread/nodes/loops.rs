//! LOOP_START and LOOP_END: the nodes between them run once for each item.

use std::sync::Arc;

use pirn_definition::definition::{LoopLimit, VariableScope};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{LoopNode, NodeIx, NodeKind, SnippetIx};
use pirn_definition::script::is_truthy;

use crate::thread::context::{Progress, StepContext, evaluate, failure};
use crate::thread::data::effect::{Evaluation, Outcome};
use crate::thread::data::loops::{LoopFrame, LoopTurn};
use crate::thread::data::stages::NodeRun;

/// Length of a thread's history above which the entries of finished iterations are removed.
// Without a bound the history of a long loop would grow with its iterations.
const MAX_KEPT_HISTORY: usize = 1000;

pub(super) fn enter_start(cx: &mut StepContext<'_>, node: &LoopNode) -> Progress {
    if let Some(frame) = own_frame(cx, cx.thread.at)
        // Taken: entering the node again by another edge restarts the loop.
        && std::mem::take(&mut frame.is_next)
    {
        return iterate(cx, node);
    }
    // A counter has no expression to evaluate.
    if node.iterable.is_some() {
        let id = evaluate(cx, Evaluation::Input);
        return Progress::Wait(NodeRun::LoopStart { id });
    }
    begin(cx, node, None)
}

pub(super) fn answer_start(cx: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    match (&graph.node(cx.thread.at).kind, outcome) {
        (NodeKind::LoopStart(node), Outcome::Value(iterable)) => begin(cx, node, Some(iterable)),
        (_, other) => Progress::Failed(failure(other)),
    }
}

fn begin(cx: &mut StepContext<'_>, node: &LoopNode, iterable: Option<Arc<serde_json::Value>>) -> Progress {
    let at = cx.thread.at;
    // Drops a frame that an earlier pass left behind, for example by `onError`.
    leave(cx, at);
    let mut frame = match LoopFrame::new(at, iterable, node.max_iterations) {
        Ok(frame) => frame,
        Err(error) => return Progress::Failed(error),
    };
    // LOOP_END is entered without a frame and passes the output on.
    if frame.is_empty() {
        return Progress::DoneAt(cx.thread.last.clone(), node.end);
    }
    // LOOP_START is included in both counts: the node was entered already.
    frame.steps = cx.thread.steps;
    frame.history = cx.thread.history.len();
    // Moved into the frame: the enclosing loop is active again when this one ends.
    frame.outer = cx.thread.loops.take();
    cx.thread.loops = Some(Arc::new(frame));
    iterate(cx, node)
}

fn iterate(cx: &mut StepContext<'_>, node: &LoopNode) -> Progress {
    // Both callers have just set or found the frame.
    let Some(item) = cx.thread.loops.as_ref().map(|frame| frame.item()) else {
        return Progress::Failed(failure(Outcome::Done));
    };
    if let Some(name) = &node.variable {
        match cx.thread.variables.assign(name, Arc::clone(&item), false) {
            // The event has the stored value, which the type of the variable may have converted.
            Ok(value) => cx.variable_changed(name, &value, VariableScope::Thread, 0),
            Err(error) => return Progress::Failed(error),
        }
    }
    Progress::Done(item.into())
}

pub(super) fn enter_end(cx: &mut StepContext<'_>, start: NodeIx, break_condition: SnippetIx) -> Progress {
    // A loop without items arrives here without a frame.
    if own_frame(cx, start).is_none() {
        return Progress::Done(cx.thread.last.clone());
    }
    let id = evaluate(cx, Evaluation::Value(break_condition));
    Progress::Wait(NodeRun::LoopEnd { id })
}

pub(super) fn answer_end(cx: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    let NodeKind::LoopEnd { start, .. } = graph.node(cx.thread.at).kind else {
        return Progress::Failed(failure(outcome));
    };
    match outcome {
        // By the rules of JavaScript, as for conditions of edges.
        Outcome::Value(holds) if is_truthy(&holds) => finish(cx, start),
        Outcome::Value(_) => advance(cx, start),
        other => Progress::Failed(failure(other)),
    }
}

fn advance(cx: &mut StepContext<'_>, start: NodeIx) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    let NodeKind::LoopStart(node) = &graph.node(start).kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // Read before `own_frame`, which borrows the thread.
    let history = cx.thread.history.len();
    let Some(frame) = own_frame(cx, start) else {
        return Progress::Failed(failure(Outcome::Done));
    };
    match (frame.turn(), node.on_limit) {
        (LoopTurn::Next, _) => {
            frame.advance();
            frame.is_next = true;
            let (steps, before) = (frame.steps, frame.history);
            if history > MAX_KEPT_HISTORY {
                // Only the iteration that ended: earlier ones are below the limit and stay as they are.
                cx.thread.history.truncate(before);
            } else {
                frame.history = history;
            }
            // `maxSteps` bounds one iteration. `maxIterations` bounds their number.
            cx.thread.steps = steps;
            // LOOP_END stores the index of its start: no edge is evaluated for this.
            Progress::DoneAt(cx.thread.last.clone(), start)
        }
        (LoopTurn::Over, _) | (LoopTurn::Limit, LoopLimit::Finish) => finish(cx, start),
        (LoopTurn::Limit, LoopLimit::Fail) => {
            // `Limit` is returned only with a maximum.
            let most = node.max_iterations.unwrap_or_default();
            // Before the failure: an `onError` target is outside of the loop, and a retry starts it again.
            leave(cx, start);
            let message = format!("the loop has run {most} times, its `maxIterations`, and there are items left");
            Progress::Failed(RunError::new(RunErrorCode::LoopLimitExceeded, message))
        }
    }
}

fn finish(cx: &mut StepContext<'_>, start: NodeIx) -> Progress {
    leave(cx, start);
    Progress::Done(cx.thread.last.clone())
}

/// Returns the frame of a loop. Drops the frames inside it, which remain if `onError` left the inner loops.
fn own_frame<'w>(cx: &'w mut StepContext<'_>, start: NodeIx) -> Option<&'w mut LoopFrame> {
    let is_open = |frame: &Arc<LoopFrame>| {
        std::iter::successors(Some(frame), |frame| frame.outer.as_ref()).any(|frame| frame.start == start)
    };
    if !cx.thread.loops.as_ref().is_some_and(is_open) {
        return None;
    }
    // The search above has found the frame, so that this ends at it.
    while let Some(inner) = cx.thread.loops.take_if(|frame| frame.start != start) {
        cx.thread.loops.clone_from(&inner.outer);
    }
    // Copies the frame if a branch still shares it: its iteration must not change.
    cx.thread.loops.as_mut().map(Arc::make_mut)
}

/// Ends a loop, and the loops inside it.
fn leave(cx: &mut StepContext<'_>, start: NodeIx) {
    if let Some(frame) = own_frame(cx, start) {
        let outer = frame.outer.take();
        cx.thread.loops = outer;
    }
}
