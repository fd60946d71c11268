//! AG-UI: a workflow as an agent that an AG-UI client talks to.

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::body::JsonBody;
use super::super::feed::Feed;
use super::super::problem::Problem;
use super::super::sse;
use super::super::start::Start;
use super::super::state::Service;
use super::super::wire::agui::AgUi;
use super::chat::{Turn, turn};

/// AG-UI's `RunAgentInput`, as far as it is read.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunAgentInput {
    thread_id: String,
    run_id: String,
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    forwarded_props: Value,
}

/// Runs a workflow for an AG-UI client.
///
/// The run's input is `{message, threadId, state, context, forwardedProps}`, where `message` is the text of the last user
/// message; the messages before it are the conversation.
#[utoipa::path(
    post, path = "/v1/agui/{workflow}", tag = "front ends", params(("workflow" = String, Path, description = "The workflow")),
    request_body = RunAgentInput,
    responses(
        (status = 200, description = "AG-UI events", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A field or the input is invalid", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn run(
    State(service): State<Service>,
    Path(workflow): Path<String>,
    body: JsonBody<RunAgentInput>,
) -> Result<Response, Problem> {
    let asked = body.value;
    let Turn { message, before } = turn(&asked.messages)?;
    let input = json!({
        "message": message,
        "threadId": asked.thread_id,
        "state": asked.state,
        "context": asked.context,
        "forwardedProps": asked.forwarded_props,
    });
    let start = Start {
        workflow,
        input,
        conversation: before,
        ..Start::default()
    };
    let run = service.start(start).await?;
    let feed = Feed::open(&service, &run, 0)?;
    Ok(sse::response(feed, AgUi::new(asked.thread_id, asked.run_id), ()))
}
