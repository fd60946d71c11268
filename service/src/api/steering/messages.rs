//! Messages of people to a run that executes: `POST /v1/runs/{id}/messages`, and steering messages of front ends.

use std::collections::BTreeSet;

use pirn_core::run::MAX_MESSAGE_ID;
use pirn_definition::event_type::EventType;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::query::{Path, Scoped};
use crate::body::JsonBody;
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};
use crate::runs::Run;
use crate::runs::events::event_log::RecordedEvent;
use crate::runs::events::position::Position;
use crate::state::Service;
use pirn::{RunCommand, When};

/// A message to the model of a run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Say {
    /// Text of the message.
    #[schema(min_length = 1)]
    message: String,
    /// Time at which the message is added to the conversation: before the next model request, or when an LLM node is about to
    /// finish. In both cases a node that is about to finish calls its model again.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(beforeNextRequest|whenIdle)$")]
    when: When,
    /// Id of the message. A message whose id the run has accepted before has no effect, so that a client may repeat a request.
    #[schema(min_length = 1, max_length = 128)]
    id: Option<String>,
}

/// The run accepted the message.
#[derive(Serialize, ToSchema)]
pub(crate) struct Said {
    ok: bool,
    /// Id of the message in USER_MESSAGE events and in the run's report.
    id: String,
}

/// Sends a message to the model of a run's main conversation, as a user message.
///
/// The message is added between two model calls, never between a tool call and its result. With a store, the message is durable
/// when the answer arrives, and the run may be executed by another process or wait for its resumption.
#[utoipa::path(
    post, operation_id = "sayToRun", path = "/v1/runs/{id}/messages", tag = "control", params(("id" = String, Path, description = "The run")),
    request_body = Say,
    responses(
        (status = 200, description = "The run accepted the message", body = Said),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended, or its main workflow calls no model", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The message or its id is empty or too long", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too many messages wait in the run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn say(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    body: JsonBody<Say>,
) -> Result<Json<Said>, Problem> {
    let Say { message, when, id: of } = body.value;
    let of = of.unwrap_or_else(|| new_id(&service));
    // The run refuses it too, but the pointer of its refusal is that of the text.
    if of.is_empty() || of.len() > MAX_MESSAGE_ID {
        let detail = format!("`id` must have 1 to {MAX_MESSAGE_ID} bytes, and has {}", of.len());
        return Err(Problem::new(ProblemCode::InvalidValue, detail).at("/id"));
    }
    let say = RunCommand::Say {
        id: Some(of.clone()),
        text: message,
        when,
    };
    service.send_command(&id, say).await?;
    Ok(Json(Said { ok: true, id: of }))
}

fn new_id(service: &Service) -> String {
    format!("message-{}", service.engine_run_id())
}

/// A user message of a front end: its id, if it has one, and its text.
pub(in crate::api) type FrontEndMessage = (Option<String>, String);

/// Reads the field by which a front end requests that its new messages go to the run in progress: absent, null or false: they start
/// another run; true or `beforeNextRequest`, `whenIdle`: they are sent to it.
pub(in crate::api) fn steering(value: &Value, pointer: &str) -> Result<Option<When>, Problem> {
    match value {
        Value::Null | Value::Bool(false) => Ok(None),
        Value::Bool(true) => Ok(Some(When::default())),
        other => When::deserialize(other).map(Some).map_err(|_| {
            let detail = "`steering` must be true, `beforeNextRequest` or `whenIdle`";
            Problem::new(ProblemCode::InvalidValue, detail).at(pointer)
        }),
    }
}

/// Returns true if a run has received all these messages while it was in progress. Messages with equal ids are equal.
pub(in crate::api) fn has_received(run: &Run, messages: &[FrontEndMessage]) -> bool {
    let log = run.log.after(Position::START, usize::MAX, usize::MAX).events;
    let is_message = |recorded: &&RecordedEvent| recorded.event_type() == EventType::UserMessage;
    let read = log.iter().filter(is_message).filter_map(RecordedEvent::read);
    let ids: BTreeSet<String> = read
        .filter_map(|read| read.event.raised.fields.text("messageId").map(str::to_owned))
        .collect();
    messages
        .iter()
        .all(|(id, _)| id.as_ref().is_some_and(|id| ids.contains(id)))
}

/// Sends a front end's new messages to the run in progress for which `is_asked` is true. Returns false if there is none, or if it
/// has ended in between, or if there are no messages: the request then starts another run.
pub(in crate::api) async fn steer(
    service: &Service,
    is_asked: impl Fn(&Run) -> bool,
    messages: Vec<FrontEndMessage>,
    when: When,
) -> Result<bool, Problem> {
    let Some(run) = service.runs().oldest(|run| is_asked(run) && !run.has_ended()) else {
        return Ok(false);
    };
    if messages.is_empty() {
        return Ok(false);
    }
    for (id, text) in messages {
        // The front end repeats the request that started the run.
        if id.as_ref().is_some_and(|id| run.was_started_with(id)) {
            continue;
        }
        let id = Some(id.unwrap_or_else(|| new_id(service)));
        match service.send_command(run.id(), RunCommand::Say { id, text, when }).await {
            Ok(()) => {}
            Err(problem) if problem.code() == ProblemCode::RunEnded.as_str() => return Ok(false),
            Err(problem) => return Err(problem),
        }
    }
    Ok(true)
}
