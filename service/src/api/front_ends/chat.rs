//! Chats: workflows for pages that use the AI SDK's `useChat`.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::client_tools::{
    AnsweredCalls, answer_calls, check_none_open, not_open, open_calls, received, received_with, tools_of,
};
use crate::api::forward::{Forwardable, ForwardableJson};
use crate::api::query::{Path, Scoped, last_event_id};
use crate::api::steering::messages::{FrontEndMessage, steer, steering};
use crate::events::feed::Feed;
use crate::events::sse::{self, After, EventEncoder, Frames};
use crate::http::problem::{Problem, ProblemCode, resume_problem};
use crate::lifecycle::start::Start;
use crate::runs::Run;
use crate::runs::events::event_log::RecordedEvent;
use crate::runs::events::position::Position;
use crate::state::Service;
use crate::wire::client_tools::chat_results;
use crate::wire::ui_messages::UiMessages;
use pirn::store::{Run as StoredRun, RunFilter};
use pirn::{Message, ResumeError, Role};

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
/// A request without the result is refused while a run of the chat waits for it.
#[utoipa::path(
    post, operation_id = "runForChat", path = "/v1/chat/{workflow}", tag = "front ends", params(("workflow" = String, Path, description = "The workflow")),
    request_body = Chat,
    responses(
        (status = 200, description = "A UI message stream", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "A run of the chat waits for results of the page's tools, or no call waits for the results", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The results belong to a run whose events were dropped", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A field or the input is invalid", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many runs or streams are active, or the service is shutting down", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn run(
    Scoped(service): Scoped,
    Path(workflow): Path<String>,
    ForwardableJson(request, body): ForwardableJson<Chat>,
) -> Result<Response, Problem> {
    let chat = body.value.id.as_deref().filter(|id| !id.is_empty());
    let session = chat.map(|id| service.scope().session(id).into_owned());
    let of_chat = (workflow.as_str(), session.as_deref());
    if let Some(answer) = forwarded(&service, &request, of_chat, &body.value).await? {
        return Ok(answer);
    }
    let steering = steering(&body.value.steering, "/steering")?.zip(session.as_deref());
    // Before the steering: the request may contain results for the run in progress.
    if let Some(stream) = with_results(&service, of_chat, &body.value, steering.is_some()).await? {
        return Ok(stream);
    }
    if let Some((when, session)) = steering {
        let is_of_chat = |run: &Run| is_turn_of(run, &workflow, session);
        if steer(&service, is_of_chat, unread(&body.value.messages), when).await? {
            let mut out = Frames::default();
            // Without an id of a message, so that the page adds none.
            sse::data(&mut out, &json!({"type": "start"}));
            sse::data(&mut out, &json!({"type": "finish"}));
            sse::frame(&mut out, None, None, b"[DONE]");
            return Ok(versioned(sse::buffered_response(out)));
        }
    }
    // The runs of a session execute one after the other: the new run would wait until the call ends.
    let is_unfinished = |run: &Run| session.is_some() && run.info.session == session && !run.has_ended();
    if let Some(run) = service.runs().oldest(is_unfinished) {
        check_none_open(&run).await?;
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
    run.started_with(message_ids(&body.value.messages));
    let feed = Feed::open(&service, &run, Position::START)?.rewritten();
    Ok(stream(feed, UiMessages::default()))
}

/// Forwards a request to the owner of the run that it continues or steers. Returns `None` if this service must answer it.
async fn forwarded(
    service: &Service,
    request: &Forwardable,
    (workflow, session): (&str, Option<&str>),
    chat: &Chat,
) -> Result<Option<Response>, Problem> {
    let reply = run_of_reply(chat);
    if !reply.is_empty()
        && !chat_results(&chat.messages).is_empty()
        && let Some(answer) = request.to_owner(service, reply).await?
    {
        return Ok(Some(answer));
    }
    let Some(session) = session.filter(|_| !chat.steering.is_null()) else {
        return Ok(None);
    };
    let is_turn_here = |run: &Run| is_turn_of(run, workflow, session) && !run.has_ended();
    if service.runs().oldest(is_turn_here).is_some() {
        return Ok(None);
    }
    let filter = RunFilter {
        workflow: Some(workflow.to_owned()),
        session: Some(session.to_owned()),
        ..RunFilter::default()
    };
    request.to_owner_of_youngest(service, filter, |_| true).await
}

/// Returns the run of the last reply: the id of a reply is that of its run.
fn run_of_reply(chat: &Chat) -> &str {
    let mut replies = chat.messages.iter().rev();
    let reply = replies.find(|message| message["role"] == "assistant");
    reply.and_then(|reply| reply["id"].as_str()).unwrap_or_default()
}

/// Continues the run that waits for the results of the page's tools in the last reply. Returns `None` if the request starts a run.
async fn with_results(
    service: &Service,
    (workflow, session): (&str, Option<&str>),
    chat: &Chat,
    is_steering: bool,
) -> Result<Option<Response>, Problem> {
    let messages = unread(&chat.messages);
    let results = chat_results(&chat.messages);
    let is_of_chat = |of: &str, in_session: Option<&str>| of == workflow && in_session == session;
    let reply = run_of_reply(chat);
    let run = service.runs().find(reply);
    let run = match run.filter(|run| is_of_chat(&run.info.workflow_id, run.info.session.as_deref())) {
        Some(run) => run,
        None if results.is_empty() || !messages.is_empty() => return Ok(None),
        // The stream of the page's first request broke off, and the run has ended since.
        None => {
            let found = service.in_store(reply).await?;
            let found = found.filter(|run| is_of_chat(&run.workflow, run.session.as_deref()));
            stored(service, found.ok_or_else(not_open)?).await?
        }
    };
    let after = match open_calls(&run, &results).await {
        Some(AnsweredCalls { after, calls }) => {
            answer_calls(service, &run, calls, messages).await?;
            after
        }
        None if results.is_empty() || !messages.is_empty() => {
            let repeated = received_with(&run, &results, &messages).filter(|_| !results.is_empty());
            let Some(after) = repeated else {
                // A run in progress receives a steering message also while a call is open.
                if !is_steering {
                    check_none_open(&run).await?;
                }
                return Ok(None);
            };
            after
        }
        // The page repeats a request whose stream broke off.
        None => received(&run, &results).ok_or_else(not_open)?,
    };
    let mut wire = UiMessages::resumed();
    let log = run.log.after(Position::START, usize::MAX, usize::MAX).events;
    let sent = log.iter().take_while(|recorded| recorded.position() <= after);
    for read in sent.filter_map(RecordedEvent::read) {
        wire.was_sent(&read.event);
    }
    // Another process may execute the run: the stream continues with its log.
    let followed = if run.has_left() {
        service.follow(run.id()).await?
    } else {
        None
    };
    let feed = Feed::open(service, &followed.unwrap_or(run), after)?.rewritten();
    Ok(Some(stream(feed, wire)))
}

fn stream(feed: Feed, wire: impl EventEncoder) -> Response {
    versioned(sse::until_left(feed, wire))
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
        (status = 410, description = "The events of the turn were dropped", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many streams are open, or too many stored runs are being read", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    Scoped(service): Scoped,
    Path((workflow, chat)): Path<(String, String)>,
    request: Forwardable,
) -> Result<Response, Problem> {
    let read_to = last_event_id(&request.headers)?;
    let session = service.scope().session(&chat);
    let filter = RunFilter {
        workflow: Some(workflow.clone()),
        session: Some(session.to_string()),
        ..RunFilter::default()
    };
    let answer = request.to_owner_of_youngest(&service, filter.clone(), |_| true);
    if let Some(answer) = answer.await? {
        return Ok(answer);
    }
    let run = last_run(&service, filter, |_| true, read_to.is_some()).await?;
    match run {
        Some(run) => again(&service, &run, read_to, |_| UiMessages::default(), stream),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Returns the last run of a chat or thread: the youngest with an id that `is_asked` accepts and that fits the filter. For a client that has
/// received a part of it (`is_back`), that may be a run which only the store has.
pub(super) async fn last_run(
    service: &Service,
    filter: RunFilter,
    is_asked: impl Fn(&str) -> bool,
    is_back: bool,
) -> Result<Option<Arc<Run>>, Problem> {
    // First: the last run in this process may precede one that another process executes.
    if let Some(run) = service.youngest_shared(filter.clone(), &is_asked).await? {
        return Ok(Some(run));
    }
    let fits = |run: &Run| {
        filter.workflow.as_ref() == Some(&run.info.workflow_id)
            && (filter.session.is_none() || filter.session == run.info.session)
            && is_asked(run.id())
    };
    let here = service.runs().youngest(fits);
    if !is_back {
        return Ok(here);
    }
    let found = service.youngest_stored(filter, &is_asked).await?;
    // An earlier run may be in memory while the last one is not: it is parked, or ended in another process.
    let is_later = |found: &StoredRun| {
        let place = (found.started_at, found.id.as_str());
        here.as_ref().is_none_or(|run| (run.started_at(), run.id()) < place)
    };
    let Some(found) = found.filter(is_later) else {
        return Ok(here);
    };
    // The run may be in memory nevertheless, with the time of its request until it begins.
    if let Some(run) = service.runs().find(&found.id) {
        return Ok(Some(run));
    }
    stored(service, found).await.map(Some)
}

/// Reads a run of the store that no process executes, with its events and its outcome.
pub(super) async fn stored(service: &Service, found: StoredRun) -> Result<Arc<Run>, Problem> {
    let run = Arc::new(service.run_without_events(&found));
    let mut follower = service.engine().follow(found.id, 0);
    let (service, replays) = (service.clone(), service.replays());
    let read = replays.run(move || async move {
        for event in follower.read().await? {
            run.log.push(&event);
            service.runs().make_room(&run);
        }
        match follower.report().cloned() {
            Some(report) => run.release(report).await,
            None => run.leave(found.status.as_str()),
        }
        run.decided();
        run.log.close();
        Ok(run)
    });
    let read: Result<_, ResumeError> = read.await?;
    read.map_err(|error| resume_problem(&error))
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
        // A run that has left this process may continue.
        Some(read_to) => Feed::open(service, run, read_to)?.is_over() && !run.has_left(),
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

/// Returns the ids of the user messages that no run has read yet.
pub(super) fn message_ids(messages: &[Value]) -> Vec<String> {
    unread(messages).into_iter().filter_map(|(id, _)| id).collect()
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
