//! ROUTE: continues at the first route, by priority, with a true condition.

use std::sync::Arc;

use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{NodeIx, NodeKind};

use crate::thread::context::{Progress, StepContext, evaluate, failure};
use crate::thread::data::effect::{Evaluation, Outcome};
use crate::thread::data::stages::NodeRun;

pub(super) fn enter(cx: &mut StepContext<'_>, no_routes: bool, default: Option<NodeIx>) -> Progress {
    // Saves an evaluation that could only choose the default.
    if no_routes {
        return go_to(cx, default);
    }
    let id = evaluate(cx, Evaluation::Routes);
    Progress::Wait(NodeRun::Route { id })
}

pub(super) fn answer(cx: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    // Cloned, because the routes are read while the thread is changed.
    let graph = Arc::clone(cx.thread.graph());
    let NodeKind::Route { routes, default } = &graph.node(cx.thread.at).kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    match outcome {
        // An index from the host or the journal: an invalid one fails the node.
        Outcome::Choice(Some(index)) => go_to(cx, routes.get(index as usize).map(|(_, target)| *target)),
        Outcome::Choice(None) => go_to(cx, *default),
        other => Progress::Failed(failure(other)),
    }
}

/// Continues at `target`. A route has no output: the next node sees the output of the node before the route.
fn go_to(cx: &mut StepContext<'_>, target: Option<NodeIx>) -> Progress {
    match target {
        Some(target) => Progress::DoneAt(cx.thread.last.clone(), target),
        None => Progress::Failed(RunError::new(
            RunErrorCode::NoRouteMatched,
            "no route matched and there is no default target",
        )),
    }
}
