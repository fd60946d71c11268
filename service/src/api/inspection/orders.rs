//! Orders in which the branches of a loaded workflow can end: all of them as a tree, and one of them as the run that it would be.
//!
//! An exploration starts no run of the engine and stores nothing. It takes CPU time on a blocking thread, within limits on its orders,
//! its time and the size of its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::response::Response;
use pirn::explore::{Choices, ExploreError, Explorer, InvalidChoices, ReplayedOrder, explore_engine};
use pirn::{Event, Message};
use pirn_drawing::Drawing;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::drawings::drawings;
use crate::api::query::{Path, Scoped};
use crate::api::runs::json_response;
use crate::body::JsonBody;
use crate::http::problem::{Problem, ProblemCode, draining};
use crate::memory::MemoryReservation;
use crate::runs::events::json_text::json;
use crate::runs::events::threads;
use crate::state::Service;

/// Milliseconds between two choices in the times of a replayed order. An order has no durations, so its times count the choices.
const CHOICE_MS: u64 = 1_000;

/// Request for the orders of a workflow. Requests for one of them have equal fields.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExploreOrders {
    /// The run's input.
    #[serde(default)]
    input: Value,
    /// Messages that the main thread's conversation starts with.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    conversation: Vec<Message>,
    /// Possible answers to the questions of nodes, by node id; by default those that the question implies.
    #[serde(default)]
    #[schema(value_type = Object)]
    answers: BTreeMap<String, Vec<Value>>,
    /// Lets time limits expire while another event is still possible.
    #[serde(default)]
    timeouts: bool,
    /// Lets WAITs end only in the order of their lengths.
    #[serde(default)]
    keep_time: bool,
    /// Runs every order to its end, even if it reaches a known state.
    #[serde(default)]
    all_orders: bool,
    /// Maximum number of orders, at most 2,000 unless the service sets another limit.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_orders: Option<u64>,
}

/// Runs a workflow in every order in which its branches can end, as `pirn explore` does, and returns the orders as a tree.
///
/// No run is started or stored. Tools that need the outside world are not called; their results state this. Models must be offline.
#[utoipa::path(
    post, operation_id = "exploreOrders", path = "/v1/workflows/{id}/orders", tag = "workflows",
    params(("id" = String, Path, description = "The workflow")), request_body = ExploreOrders,
    responses(
        (status = 200, description = "`{nodes: [{parent?, thread?, node?, kind?, answer?, options?, end?: {replay, outcome?, sameAs?}}], outcomes: [{order, replay, status, output, error?}], schedules, complete, stopped?}`; `parent` and `sameAs`: indexes of `nodes`; `outcome`: index of `outcomes`; `stopped`: SCHEDULES, STOPPED (the time limit) or BYTES", body = Object),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "A run calls a model or function that is not offline, or its orders cannot be explored", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A field or the input is invalid", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many explorations are in progress, or the service is shutting down", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn explore(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    body: JsonBody<ExploreOrders>,
) -> Result<Response, Problem> {
    let max_bytes = service.limits().exploration_bytes;
    let tree = explored(&service, id, body, move |explorer, _| {
        let tree = explorer.tree(max_bytes).map_err(|error| explore_problem(&error))?;
        Ok(json(&tree))
    });
    json_response(&service, &tree.await?)
}

/// Returns the run that one order of a workflow would be, without starting one: its events, report, threads and drawings.
///
/// The order is the `replay` of a leaf, and the body that of the exploration. Times count the choices: one second for each.
#[utoipa::path(
    post, operation_id = "showOrder", path = "/v1/workflows/{id}/orders/{order}", tag = "workflows",
    params(("id" = String, Path, description = "The workflow"), ("order" = String, Path, description = "The order, as `STEP:OPTION,...`")),
    request_body = ExploreOrders,
    responses(
        (status = 200, description = "`{outcome, report, events, steps: [{step, threadId, nodeId?, kind, at, sequence}], threads, definition, drawings}`, each as in the answer for a run; `sequence`: the last event of the step", body = Object),
        (status = 404, description = "There is no such workflow, or no such order", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run calls a model or function that is not offline, or exceeds a limit", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A field or the input is invalid", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many explorations are in progress, or the service is shutting down", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(
    Scoped(service): Scoped,
    Path((id, order)): Path<(String, String)>,
    body: JsonBody<ExploreOrders>,
) -> Result<Response, Problem> {
    let choices: Choices = order.parse().map_err(|error: InvalidChoices| {
        let detail = format!("the order `{order}`: {error}");
        Problem::new(ProblemCode::InvalidRequest, detail)
    })?;
    let max_bytes = service.limits().exploration_bytes;
    let run = explored(&service, id, body, move |explorer, service| {
        let replayed = explorer.replay_with_events(&choices, max_bytes as u64);
        let replayed = replayed.map_err(|error| explore_problem(&error))?;
        let run = json(&run_of(service, &replayed));
        // The report and the definitions are not part of the limit on the events.
        let most = max_bytes.saturating_mul(4);
        if run.len() > most {
            let detail = format!(
                "the run of the order has {} KiB of JSON, more than the limit of {} KiB",
                run.len() >> 10,
                most >> 10
            );
            return Err(Problem::new(ProblemCode::NotExplored, detail));
        }
        Ok(run)
    });
    json_response(&service, &run.await?)
}

/// Calls `work` with an exploration on a blocking thread.
async fn explored(
    service: &Service,
    workflow: String,
    body: JsonBody<ExploreOrders>,
    work: impl FnOnce(Explorer, &Service) -> Result<Bytes, Problem> + Send + 'static,
) -> Result<Bytes, Problem> {
    if service.is_draining() {
        return Err(draining());
    }
    let JsonBody {
        value: request, memory, ..
    } = body;
    service.catalogue().find(&workflow)?.check(&request.input)?;
    if request.max_orders == Some(0) {
        return Err(Problem::new(ProblemCode::InvalidValue, "maxOrders must be at least 1").at("/maxOrders"));
    }
    // Cancelled when the future is dropped: the client is gone, and a blocking thread cannot be aborted.
    let gone = CancellationToken::new();
    let _dropped = gone.clone().drop_guard();
    let of_thread = service.clone();
    let done = service.explorations().run_blocking(move || {
        let explorer = explorer_of(&of_thread, workflow, request, (memory, gone));
        work(explorer, &of_thread)
    });
    done.await?
}

fn explorer_of(
    service: &Service,
    workflow: String,
    request: ExploreOrders,
    (memory, gone): (MemoryReservation, CancellationToken),
) -> Explorer {
    let limits = service.limits();
    let most = limits.exploration_orders.max(1);
    // Counted from here and not from the request, which may have waited for another exploration.
    let until = Instant::now() + limits.exploration_time;
    let stopping = service.clone();
    let answers = request.answers.into_iter();
    let answers = answers.flat_map(|(node, all)| all.into_iter().map(move |answer| (node.clone(), answer)));
    answers
        .fold(explore_engine(service.engine()), |explorer, (node, answer)| {
            explorer.answer(node, answer)
        })
        .workflow(workflow)
        .input(request.input)
        .conversation(request.conversation)
        .timeouts(request.timeouts)
        .keep_time(request.keep_time)
        .reduce(!request.all_orders)
        .max_schedules(request.max_orders.map_or(most, |orders| orders.min(most)))
        .offline_only(true)
        .interrupt_when(move || {
            // Owned by this function, which lives as long as the exploration.
            let _held = &memory;
            gone.is_cancelled() || stopping.is_draining() || Instant::now() >= until
        })
}

fn explore_problem(error: &ExploreError) -> Problem {
    match error {
        ExploreError::Refused(error) => crate::http::problem::start_problem(error),
        ExploreError::NotOffline { .. } => Problem::new(ProblemCode::NotOffline, error.to_string()),
        ExploreError::NoSuchOrder { .. } => Problem::new(ProblemCode::NoSuchOrder, error.to_string()),
        ExploreError::Build(_) => Problem::new(ProblemCode::Internal, error.to_string()),
        ExploreError::Stopped => {
            let detail = "the order did not end within the time limit of an exploration";
            Problem::new(ProblemCode::NotExplored, detail)
        }
        _other => Problem::new(ProblemCode::NotExplored, error.to_string()),
    }
}

/// Returns what the service would answer for the order as a run in memory, with the choices as steps.
fn run_of(service: &Service, replayed: &ReplayedOrder) -> Value {
    let events = timed(replayed);
    let threads = threads::of_events(&events);
    let ids: BTreeSet<Arc<str>> = threads.iter().map(|thread| Arc::clone(&thread.workflow_id)).collect();
    let definitions: Vec<String> = ids.iter().filter_map(|id| service.workflow_definition(id)).collect();
    let mut drawn: BTreeMap<String, Drawing> = definitions.iter().cloned().flat_map(drawings).collect();
    let written = events.iter().filter_map(threads::written_by);
    // The id of a written workflow has the hash of its text, which its definition does not contain.
    drawn.extend(written.filter_map(|(id, text)| Some((id, drawings(text).pop()?.1))));
    let workflows: Vec<Value> = definitions
        .iter()
        .filter_map(|text| serde_json::from_str(text).ok())
        .collect();
    let first = events.first();
    let report = replayed.report.as_ref().map_or_else(
        || {
            json!({
                "runId": first.map(|event| &event.run_id), "threadId": first.map(|event| &event.thread_id),
                "workflowId": first.map(|event| &event.workflow_id), "status": replayed.outcome.status, "nodes": [], "threads": [],
            })
        },
        |report| json!(report),
    );
    json!({
        "outcome": replayed.outcome,
        "report": report,
        "steps": steps_of(replayed, &events),
        "events": events,
        "threads": threads,
        "definition": {"workflows": workflows},
        "drawings": {"drawings": drawn},
    })
}

/// Returns the events with the number of choices before each one as its time.
fn timed(replayed: &ReplayedOrder) -> Vec<Event> {
    let mut choices = 0;
    let events = replayed.events.iter().enumerate();
    let timed = events.map(|(index, event)| {
        while replayed.steps.get(choices).is_some_and(|step| step.raised <= index) {
            choices += 1;
        }
        Event {
            timestamp: choices as u64 * CHOICE_MS,
            ..Event::clone(event)
        }
    });
    timed.collect()
}

/// Returns the start of the run and each choice in the format of a run's steps, with the last event that it raised.
fn steps_of(replayed: &ReplayedOrder, events: &[Event]) -> Vec<Value> {
    let step = |step: usize, node: &str, kind: &str, raised: usize| {
        let last = replayed.steps.get(step).map_or(events.len(), |next| next.raised);
        // A choice without an event, such as the end of a cancelled call, belongs to the main thread.
        let event = events.get(raised).filter(|_| raised < last).or(events.first());
        json!({
            "step": step, "nodeId": (!node.is_empty()).then_some(node), "kind": kind, "at": step as u64 * CHOICE_MS,
            "threadId": event.map(|event| &event.thread_id), "sequence": last.checked_sub(1).map(|last| events[last].sequence),
        })
    };
    let choices = replayed.steps.iter().zip(1..);
    let choices = choices.map(|(choice, number)| step(number, &choice.event.node, choice.event.kind, choice.raised));
    std::iter::once(step(0, "", "start", 0)).chain(choices).collect()
}
