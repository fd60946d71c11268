//! Chats: workflows for pages that use the AI SDK's `useChat`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::messages::{FrontEndMessage, steer, steering};
use super::query::{Path, last_event_id};
use crate::body::JsonBody;
use crate::feed::Feed;
use crate::http::problem::{Problem, ProblemCode};
use crate::runs::Run;
use crate::runs::position::Position;
use crate::sse::{self, After, EventEncoder};
use crate::start::Start;
use crate::state::Service;
use crate::wire::ui_messages::UiMessages;
use pirn::{Message, Role};

/// The fields of `DefaultChatTransport`'s body that the service reads.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Chat {
    /// Id of the chat.
    #[serde(default)]
    id: Option<String>,
    /// UI messages of the chat, the new one last.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    /// True or `beforeNextRequest`, or `whenIdle`: if a turn of the chat is in progress, the messages after the last reply are sent to
    /// its run, and the stream is empty. Otherwise they start a turn.
    #[serde(default)]
    steering: Value,
}

/// Runs a workflow for one turn of a chat.
///
/// The run's input is `{message, chatId}`, where `message` is the text of the last user message; the messages before it are
/// the conversation.
#[utoipa::path(
    post, operation_id = "runForChat", path = "/v1/chat/{workflow}", tag = "front ends", params(("workflow" = String, Path, description = "The workflow")),
    request_body = Chat,
    responses(
        (status = 200, description = "A UI message stream", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A field or the input is invalid", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn run(
    State(service): State<Service>,
    Path(workflow): Path<String>,
    body: JsonBody<Chat>,
) -> Result<Response, Problem> {
    if let (Some(when), Some(chat)) = (steering(&body.value.steering, "/steering")?, &body.value.id) {
        let is_of_chat = |run: &Run| is_turn_of(run, &workflow, chat);
        if steer(&service, is_of_chat, unread(&body.value.messages), when).await? {
            let mut out = sse::Frames::default();
            // Without an id of a message, so that the page adds none.
            sse::data(&mut out, &json!({"type": "start"}));
            sse::data(&mut out, &json!({"type": "finish"}));
            sse::frame(&mut out, None, None, b"[DONE]");
            return Ok(versioned(sse::buffered_response(out)));
        }
    }
    let Turn { message, before } = turn(&body.value.messages)?;
    let start = Start {
        workflow,
        input: json!({"message": message, "chatId": body.value.id}),
        conversation: before,
        session: body.value.id.filter(|id| !id.is_empty()),
        memory: Some(body.memory),
        ..Start::default()
    };
    let run = service.start_local(start).await?;
    let feed = Feed::open(&service, &run, Position::START)?.rewritten();
    Ok(stream(feed, UiMessages::default()))
}

fn stream(feed: Feed, wire: impl EventEncoder) -> Response {
    versioned(sse::response(feed, wire, ()))
}

fn is_turn_of(run: &Run, workflow: &str, chat: &str) -> bool {
    run.info.workflow_id == workflow && run.info.session.as_deref() == Some(chat)
}

fn versioned(mut response: Response) -> Response {
    let version = HeaderValue::from_static("v1");
    response.headers_mut().insert("x-vercel-ai-ui-message-stream", version);
    response
}

/// Streams a chat's last turn again, for a page that lost its connection.
///
/// Without `Last-Event-ID`, the stream of an unfinished turn starts at its first event, as `useChat({resume: true})` expects; with
/// the last `id` that was read, it contains the rest of the last turn.
#[utoipa::path(
    get, operation_id = "resumeChat", path = "/v1/chat/{workflow}/{chat}/stream", tag = "front ends",
    params(("workflow" = String, Path, description = "The workflow"), ("chat" = String, Path, description = "The chat")),
    responses(
        (status = 200, description = "A UI message stream", body = String, content_type = "text/event-stream"),
        (status = 204, description = "No turn is in progress, or all its events were read"),
    )
)]
pub(crate) async fn resume(
    State(service): State<Service>,
    Path((workflow, chat)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let read_to = last_event_id(&headers)?;
    match service.runs().youngest(|run| is_turn_of(run, &workflow, &chat)) {
        Some(run) => again(&service, &run, read_to, |_| UiMessages::default(), stream),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Streams a run from its start, without the part that the client has read. Answers 204 if nothing remains to be sent, or if the
/// run has ended and the client has read nothing.
pub(super) fn again<W: EventEncoder>(
    service: &Service,
    run: &Arc<Run>,
    read_to: Option<Position>,
    wire: impl FnOnce(&Run) -> W,
    stream: impl FnOnce(Feed, After<W>) -> Response,
) -> Result<Response, Problem> {
    let is_read = match read_to {
        Some(read_to) => Feed::open(service, run, read_to)?.is_over(),
        None => run.has_ended(),
    };
    if is_read {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let feed = Feed::open(service, run, Position::START)?.rewritten();
    let (wire, read_to) = (wire(run), read_to.unwrap_or_default());
    Ok(stream(feed, After { wire, read_to }))
}

/// A turn of a conversation: the user's new message, and the messages before it.
pub(super) struct Turn {
    pub(super) message: String,
    pub(super) before: Vec<Message>,
}

/// Extracts the last turn from the messages of a front end. Only texts are read; messages with roles outside a conversation
/// (developer, activity, reasoning) and results of a front end's own tools are skipped.
pub(super) fn turn(messages: &[Value]) -> Result<Turn, Problem> {
    let mut before = Vec::with_capacity(messages.len());
    for (place, message) in messages.iter().enumerate() {
        let Some(role) = message["role"].as_str() else {
            let detail = "a message needs a role";
            return Err(Problem::new(ProblemCode::MissingField, detail).at(format!("/messages/{place}/role")));
        };
        let text = text_of(message);
        let role = match role {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" if !text.is_empty() => Role::Assistant,
            _passed_over => continue,
        };
        before.push(Message::new(role, text));
    }
    match before.pop() {
        Some(last) if last.role == Role::User => Ok(Turn {
            message: text_of(&json!({"content": last.content})),
            before,
        }),
        _other => {
            let detail = "the last message with text must be the user's";
            Err(Problem::new(ProblemCode::InvalidValue, detail).at("/messages"))
        }
    }
}

/// Returns the user messages after the last message of another role: those that no run has read yet.
pub(super) fn unread(messages: &[Value]) -> Vec<FrontEndMessage> {
    let is_users = |message: &&Value| message["role"] == "user";
    let count = messages.iter().rev().take_while(is_users).count();
    let last = messages[messages.len() - count..].iter();
    last.map(|message| (message["id"].as_str().map(str::to_owned), text_of(message)))
        .collect()
}

/// Returns the texts of a message's `content` or `parts`, concatenated.
fn text_of(message: &Value) -> String {
    let parts = message["parts"].as_array().or_else(|| message["content"].as_array());
    let Some(parts) = parts else {
        return message["content"].as_str().unwrap_or_default().to_owned();
    };
    let texts = parts.iter().filter(|part| part["type"] == "text");
    texts
        .filter_map(|part| part["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}
