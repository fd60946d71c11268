//! Chats: workflows for pages that use the AI SDK's `useChat`.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::client_tools::{AnsweredCalls, answer_calls, check_none_open, not_open, open_calls, received, tools_of};
use super::messages::{FrontEndMessage, steer, steering};
use super::query::{Path, Scoped, last_event_id};
use crate::body::JsonBody;
use crate::feed::Feed;
use crate::http::problem::{Problem, ProblemCode};
use crate::runs::Run;
use crate::runs::event_log::RecordedEvent;
use crate::runs::position::Position;
use crate::sse::{self, After, EventEncoder};
use crate::start::Start;
use crate::state::Service;
use crate::wire::client_tools::chat_results;
use crate::wire::ui_messages::UiMessages;
use pirn::store::RunFilter;
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
    /// Tools that the page executes: a list of `{name, description?, parameters?}`, or an object by name. The models of the main
    /// thread's LLM nodes may call them.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    tools: Value,
    /// True or `beforeNextRequest`, or `whenIdle`: if a turn of the chat is in progress, the messages after the last reply are sent to
    /// its run, and the stream is empty. Otherwise they start a turn.
    #[serde(default)]
    steering: Value,
}

/// Runs a workflow for one turn of a chat.
///
/// The run's input is `{message, chatId}`, where `message` is the text of the last user message; the messages before it are
/// the conversation.
///
/// A call of one of the page's `tools` ends the stream with the call (`tool-input-available`). The next request contains the result in
/// the assistant's message, and its stream continues the run. The tools of a run are those of the request that started it.
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
    Scoped(service): Scoped,
    Path(workflow): Path<String>,
    body: JsonBody<Chat>,
) -> Result<Response, Problem> {
    if let (Some(when), Some(chat)) = (steering(&body.value.steering, "/steering")?, &body.value.id) {
        let session = service.scope().session(chat);
        let is_of_chat = |run: &Run| is_turn_of(run, &workflow, &session);
        if steer(&service, is_of_chat, unread(&body.value.messages), when).await? {
            let mut out = sse::Frames::default();
            // Without an id of a message, so that the page adds none.
            sse::data(&mut out, &json!({"type": "start"}));
            sse::data(&mut out, &json!({"type": "finish"}));
            sse::frame(&mut out, None, None, b"[DONE]");
            return Ok(versioned(sse::buffered_response(out)));
        }
    }
    if let Some(stream) = with_results(&service, &workflow, &body.value).await? {
        return Ok(stream);
    }
    let Turn { message, before } = turn(&body.value.messages)?;
    let start = Start {
        workflow,
        input: json!({"message": message, "chatId": body.value.id}),
        conversation: before,
        client_tools: tools_of(&body.value.tools, "/tools")?,
        session: body.value.id.filter(|id| !id.is_empty()),
        memory: Some(body.memory),
        ..Start::default()
    };
    let run = service.start_local(start).await?;
    let feed = Feed::open(&service, &run, Position::START)?.rewritten();
    Ok(stream(feed, UiMessages::default()))
}

/// Continues the run that waits for the results of the page's tools in the last reply. Returns `None` if the request starts a run.
async fn with_results(service: &Service, workflow: &str, chat: &Chat) -> Result<Option<Response>, Problem> {
    let id = chat.id.as_deref().filter(|id| !id.is_empty());
    let messages = unread(&chat.messages);
    // The id of a reply is that of its run.
    let reply = chat
        .messages
        .iter()
        .rev()
        .find(|message| message["role"] == "assistant");
    let run = reply.and_then(|reply| service.runs().find(reply["id"].as_str()?));
    let session = id.map(|id| service.scope().session(id));
    let is_of_chat =
        |run: &Arc<Run>| run.info.workflow_id == workflow && run.info.session.as_deref() == session.as_deref();
    let Some(run) = run.filter(is_of_chat) else {
        return Ok(None);
    };
    let results = chat_results(&chat.messages);
    let after = match open_calls(&run, &results).await {
        Some(AnsweredCalls { after, calls }) => {
            answer_calls(service, &run, calls, messages).await?;
            after
        }
        None if !messages.is_empty() => {
            check_none_open(&run).await?;
            return Ok(None);
        }
        None if results.is_empty() => return Ok(None),
        // The page repeats a request whose stream broke off.
        None => received(&run, &results).ok_or_else(not_open)?,
    };
    let mut wire = UiMessages::resumed();
    let log = run.log.after(Position::START, usize::MAX, usize::MAX).events;
    let sent = log.iter().take_while(|recorded| recorded.position() <= after);
    for read in sent.filter_map(RecordedEvent::read) {
        wire.was_sent(&read.event);
    }
    let feed = Feed::open(service, &run, after)?.rewritten();
    Ok(Some(stream(feed, wire)))
}

fn stream(feed: Feed, wire: impl EventEncoder) -> Response {
    versioned(sse::response(feed, wire, ()))
}

/// True if a run is a turn of the chat with this session of the engine.
fn is_turn_of(run: &Run, workflow: &str, session: &str) -> bool {
    run.info.workflow_id == workflow && run.info.session.as_deref() == Some(session)
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
    Scoped(service): Scoped,
    Path((workflow, chat)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let read_to = last_event_id(&headers)?;
    let session = service.scope().session(&chat);
    let filter = RunFilter {
        workflow: Some(workflow.clone()),
        session: Some(session.to_string()),
        ..RunFilter::default()
    };
    // First: the last turn in this process may precede one that another process executes.
    let run = match service.youngest_shared(filter, |_| true).await? {
        Some(run) => Some(run),
        None => service.runs().youngest(|run| is_turn_of(run, &workflow, &session)),
    };
    match run {
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
