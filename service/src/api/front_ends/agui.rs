//! AG-UI: workflows as agents for AG-UI clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::chat::{Turn, again, last_run, message_ids, stored, turn, unread};
use super::client_tools::{AnsweredCalls, answer_calls, not_open, open_calls, received, received_with, tools_of};
use crate::api::forward::{Forwardable, ForwardableJson};
use crate::api::front_ends::agui_thread::{AgUiThread, check_all_answered};
use crate::api::query::{Parameters, Path, Scoped, last_event_id};
use crate::api::steering::interactions::{run_id_of, run_of};
use crate::api::steering::messages::{steer, steering};
use crate::events::feed::Feed;
use crate::events::sse;
use crate::http::caller::Role;
use crate::http::problem::{Problem, ProblemCode, answer_problem};
use crate::lifecycle::start::Start;
use crate::runs::Run;
use crate::runs::events::event_log::RecordedEvent;
use crate::runs::events::position::Position;
use crate::state::Service;
use crate::wire::agui::AgUi;
use crate::wire::client_tools::{CallResult, agui_results};
use crate::wire::interrupts::{InterruptId, Resume};
use pirn::store::RunFilter;
use pirn::{AnswerRefused, EventType};

/// The fields of AG-UI's `RunAgentInput` that the service reads.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunAgentInput {
    thread_id: String,
    run_id: String,
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    /// The client's tools: `{name, description, parameters}`. The models of the main thread's LLM nodes may call them.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    tools: Value,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    forwarded_props: Value,
    /// The answers to the interrupts with which the previous stream ended: that workflow run continues.
    #[serde(default)]
    resume: Vec<Resume>,
}

/// Runs a workflow for an AG-UI client.
///
/// The run's input is `{message, threadId, state, context, forwardedProps}`, where `message` is the text of the last user message;
/// the messages before it are the conversation. A run that waits for people ends its stream with an interrupt for each question;
/// the next input's `resume` must answer all of them, and its stream continues after the last event of the previous one. An input
/// that does not answer them, or whose sender lacks the role `answer`, is refused with a RUN_ERROR.
///
/// A call of one of the input's `tools` ends the stream with RUN_FINISHED; the next input contains the result as a `tool` message, and
/// its stream continues that workflow run. The tools of a run are those of the input that started it.
///
/// With `forwardedProps.steering` (true or `beforeNextRequest`, or `whenIdle`), the user messages after the last reply are sent to
/// the thread's run in progress. The stream then contains RUN_STARTED and RUN_FINISHED only: the stream of the run in progress has
/// the reply. If no run is in progress, the input starts one as usual.
#[utoipa::path(
    post, operation_id = "runForAgUi", path = "/v1/agui/{workflow}", tag = "front ends", params(("workflow" = String, Path, description = "The workflow")),
    request_body = RunAgentInput,
    responses(
        (status = 200, description = "AG-UI events", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A field or the input is invalid", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn run(
    Scoped(service): Scoped,
    Path(workflow): Path<String>,
    ForwardableJson(request, body): ForwardableJson<RunAgentInput>,
) -> Result<Response, Problem> {
    let asked = body.value;
    let thread = AgUiThread::new(&service, &workflow, &asked.thread_id);
    if let Some(answer) = forwarded(&service, &request, (&workflow, &thread), &asked).await? {
        return Ok(answer);
    }
    if !asked.resume.is_empty() {
        return Ok(resume(&service, &thread, asked).await);
    }
    let results = agui_results(&asked.messages);
    if !results.is_empty() {
        match with_results(&service, (&workflow, &thread), &asked, &results).await {
            Ok(Some(continued)) => return Ok(continued_stream(asked, continued)),
            // The results belong to an earlier run: the input starts another one.
            Ok(None) => {}
            Err(problem) => return Ok(refusal(&problem)),
        }
    }
    if let Some(when) = steering(&asked.forwarded_props["steering"], "/forwardedProps/steering")? {
        match steer(&service, |run| thread.has(run), unread(&asked.messages), when).await {
            Ok(true) => return Ok(steered(&asked)),
            // No run of the thread is in progress: the messages start one.
            Ok(false) => {}
            Err(problem) => return Ok(refusal(&problem)),
        }
    }
    if let Err(problem) = thread.check_none_waits(&service).await {
        return Ok(refusal(&problem));
    }
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
        client_tools: tools_of(&asked.tools, "/tools")?,
        run_id: Some(thread.new_run_id(&service)),
        memory: Some(body.memory),
        ..Start::default()
    };
    let run = service.start_local(start).await?;
    run.started_with(message_ids(&asked.messages));
    let feed = Feed::open(&service, &run, Position::START)?.rewritten();
    let wire = AgUi::new((asked.thread_id, asked.run_id), run.main_thread(), false);
    Ok(sse::until_left(feed, wire))
}

/// Forwards an input to the owner of the run that it answers, continues or steers. Returns `None` if this service must answer it.
async fn forwarded(
    service: &Service,
    request: &Forwardable,
    (workflow, thread): (&str, &AgUiThread),
    asked: &RunAgentInput,
) -> Result<Option<Response>, Problem> {
    if let Some(entry) = asked.resume.first() {
        return match InterruptId::read(&entry.interrupt_id) {
            Some(id) => request.to_owner(service, run_id_of(id.interaction)).await,
            None => Ok(None),
        };
    }
    let continues = !agui_results(&asked.messages).is_empty() || !asked.forwarded_props["steering"].is_null();
    if !continues || !service.runs().with_prefix(thread.prefix()).is_empty() {
        return Ok(None);
    }
    let filter = RunFilter {
        workflow: Some(workflow.to_owned()),
        ..RunFilter::default()
    };
    let is_of_thread = |id: &str| id.starts_with(thread.prefix());
    request.to_owner_of_youngest(service, filter, is_of_thread).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgUiParameters {
    /// The client's thread.
    thread_id: String,
    /// The client's id of the run with the interrupted stream.
    run_id: String,
}

/// Streams a thread's last run again, for a client that lost its connection.
///
/// Without `Last-Event-ID`, the stream of an unfinished run starts at its first event; with the last `id` that was read, it
/// contains the rest of the last run.
#[utoipa::path(
    get, operation_id = "resumeForAgUi", path = "/v1/agui/{workflow}", tag = "front ends",
    params(("workflow" = String, Path, description = "The workflow"), AgUiParameters),
    responses(
        (status = 200, description = "AG-UI events", body = String, content_type = "text/event-stream"),
        (status = 204, description = "No run is in progress, or all its events were read"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many streams are open, or too many stored runs are being read", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn again_for(
    Scoped(service): Scoped,
    Path(workflow): Path<String>,
    Parameters(asked): Parameters<AgUiParameters>,
    request: Forwardable,
) -> Result<Response, Problem> {
    let read_to = last_event_id(&request.headers)?;
    let thread = AgUiThread::new(&service, &workflow, &asked.thread_id);
    let filter = RunFilter {
        workflow: Some(workflow),
        ..RunFilter::default()
    };
    let is_of_thread = |id: &str| id.starts_with(thread.prefix());
    let answer = request.to_owner_of_youngest(&service, filter.clone(), is_of_thread);
    if let Some(answer) = answer.await? {
        return Ok(answer);
    }
    let run = last_run(&service, filter, is_of_thread, read_to.is_some()).await?;
    let Some(run) = run else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let wire = |run: &Run| AgUi::new((asked.thread_id, asked.run_id), run.main_thread(), false);
    again(&service, &run, read_to, wire, sse::until_left)
}

/// Streams a run after the client's answers to its questions. AG-UI requires that refused answers are reported in the stream.
async fn resume(service: &Service, thread: &AgUiThread, asked: RunAgentInput) -> Response {
    match resumed(service, thread, &asked).await {
        Ok(continued) => continued_stream(asked, continued),
        Err(problem) => refusal(&problem),
    }
}

/// A stream that continues at a position of a run.
type Continued = (Feed, Position, Arc<Run>);

fn continued_stream(asked: RunAgentInput, (feed, sent, run): Continued) -> Response {
    let mut wire = AgUi::new((asked.thread_id, asked.run_id), run.main_thread(), true);
    let log = run.log.after(Position::START, usize::MAX, usize::MAX).events;
    let sent = log.iter().take_while(|recorded| recorded.position() <= sent);
    for read in sent.filter_map(RecordedEvent::read) {
        wire.was_sent(&read.event);
    }
    sse::until_left(feed, wire)
}

/// Sends the results of the client's tools to the run that waits for them. Returns `None` if they belong to no call of the client: the
/// input then starts a run.
async fn with_results(
    service: &Service,
    (workflow, thread): (&str, &AgUiThread),
    asked: &RunAgentInput,
    results: &[CallResult],
) -> Result<Option<Continued>, Problem> {
    let messages = unread(&asked.messages);
    for run in service.runs().with_prefix(thread.prefix()) {
        let Some(AnsweredCalls { after, calls }) = open_calls(&run, results).await else {
            continue;
        };
        answer_calls(service, &run, calls, messages).await?;
        let feed = Feed::open(service, &run, after)?.rewritten();
        return Ok(Some((feed, after, run)));
    }
    if !messages.is_empty() {
        let run = service.runs().youngest(|run| thread.has(run));
        let repeated = run.and_then(|run| Some((received_with(&run, results, &messages)?, run)));
        let Some((after, run)) = repeated else {
            return Ok(None);
        };
        let feed = Feed::open(service, &run, after)?.rewritten();
        return Ok(Some((feed, after, run)));
    }
    if let Some(continued) = repeated(service, (workflow, thread), results).await? {
        return Ok(Some(continued));
    }
    let tools = tools_of(&asked.tools, "/tools")?;
    let is_of_client = |call: &Value| {
        let of_result = results.iter().any(|(id, _)| call["id"] == **id);
        of_result && tools.iter().any(|tool| call["function"]["name"] == *tool.name)
    };
    let calls = asked
        .messages
        .iter()
        .filter_map(|message| message["toolCalls"].as_array());
    // Results of the run's own tools may end the messages too: the input then repeats the last user message.
    if calls.flatten().any(is_of_client) {
        return Err(not_open());
    }
    Ok(None)
}

/// Returns the stream of an input that the client repeats because its stream broke off. Returns `None` if the thread's last run has
/// not received the results.
async fn repeated(
    service: &Service,
    (workflow, thread): (&str, &AgUiThread),
    results: &[CallResult],
) -> Result<Option<Continued>, Problem> {
    if let Some(run) = service.runs().youngest(|run| thread.has(run))
        && let Some(after) = received(&run, results)
    {
        let feed = Feed::open(service, &run, after)?.rewritten();
        return Ok(Some((feed, after, run)));
    }
    // The run may have ended before a restart, or another process may execute it.
    let filter = RunFilter {
        workflow: Some(workflow.to_owned()),
        ..RunFilter::default()
    };
    let is_of_thread = |id: &str| id.starts_with(thread.prefix());
    let found = service.youngest_stored(filter, is_of_thread).await?;
    let Some(found) = found.filter(|found| service.runs().find(&found.id).is_none()) else {
        return Ok(None);
    };
    let run = stored(service, found).await?;
    let Some(after) = received(&run, results) else {
        return Ok(None);
    };
    let followed = if run.has_left() {
        service.follow(run.id()).await?
    } else {
        None
    };
    let feed = Feed::open(service, followed.as_ref().unwrap_or(&run), after)?.rewritten();
    Ok(Some((feed, after, run)))
}

/// Returns the stream of an input whose messages were sent to the run in progress.
fn steered(asked: &RunAgentInput) -> Response {
    let mut out = sse::Frames::default();
    let (thread_id, run_id) = (&asked.thread_id, &asked.run_id);
    let started = json!({"type": "RUN_STARTED", "threadId": thread_id, "runId": run_id, "protocolVersion": "1.0"});
    sse::data(&mut out, &started);
    let finished = json!({
        "type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id, "result": {"steered": true}, "outcome": {"type": "success"},
    });
    sse::data(&mut out, &finished);
    sse::buffered_response(out)
}

/// Returns a stream with one RUN_ERROR, which contains the reason of a refusal.
fn refusal(problem: &Problem) -> Response {
    let mut out = sse::Frames::default();
    let error = json!({"type": "RUN_ERROR", "code": problem.code(), "message": problem.detail()});
    sse::data(&mut out, &error);
    sse::buffered_response(out)
}

/// Answers the questions of a run; returns a feed that starts at the end of the previous stream.
async fn resumed(service: &Service, thread: &AgUiThread, asked: &RunAgentInput) -> Result<Continued, Problem> {
    // Only questions to people are interrupts: results of the client's tools are messages.
    service.caller().check(Role::Answer)?;
    let resume = &asked.resume;
    let invalid = |detail: String| Problem::new(ProblemCode::InvalidValue, detail);
    let mut found: Option<Arc<Run>> = None;
    let mut entries = Vec::with_capacity(resume.len());
    for entry in resume {
        let unknown = || invalid(format!("there is no interrupt {}", entry.interrupt_id));
        let id = InterruptId::read(&entry.interrupt_id).ok_or_else(unknown)?;
        let run = run_of(service, id.interaction)?;
        if !thread.has(&run) {
            let detail = format!("interrupt {} does not belong to this thread", entry.interrupt_id);
            return Err(invalid(detail));
        }
        if found.as_ref().is_some_and(|other| other.id() != run.id()) {
            return Err(invalid("these are interrupts of several runs".to_owned()));
        }
        entries.push((id, entry));
        found = Some(run);
    }
    let run = found.ok_or_else(|| invalid("there is no interrupt".to_owned()))?;
    let told = |id: &InterruptId<'_>| id.after;
    let first = entries.iter().map(|(id, _)| told(id)).min().unwrap_or_default();
    let last = entries.iter().map(|(id, _)| told(id)).max().unwrap_or_default();
    let answered: BTreeSet<&str> = entries.iter().map(|(id, _)| id.interaction).collect();
    // Check first: if an answer is missing, the others must not take effect.
    check_all_answered(&run, &answered, last).await?;
    for (id, entry) in &entries {
        answer(&run, id, entry).await?;
    }
    // Questions and calls of the client's tools may be open together.
    if let Some(answered) = open_calls(&run, &agui_results(&asked.messages)).await {
        answer_calls(service, &run, answered.calls, Vec::new()).await?;
    }
    let feed = Feed::open(service, &run, first)?.rewritten();
    Ok((feed, first, run))
}

/// Answers a question. Repeating an answer that was accepted has no effect.
async fn answer(run: &Run, id: &InterruptId<'_>, entry: &Resume) -> Result<(), Problem> {
    let open = run.handle.interactions().await;
    let asked = open.iter().find(|asked| asked.id == id.interaction);
    let about_tool = asked.is_some_and(|asked| asked.tool.is_some());
    let given = entry.answer(about_tool);
    let Some(asked) = asked else {
        let again = [given, entry.answer(true)];
        return if was_answered(run, id, &again) {
            Ok(())
        } else {
            Err(answer_problem(&AnswerRefused::NotOpen))
        };
    };
    if let Some(given) = given {
        let taken = run.handle.answer(&asked.id, given).await;
        return taken.map_err(|refused| answer_problem(&refused));
    }
    run.handle.cancel("the person cancelled the question");
    Ok(())
}

/// True if one of these answers was given to the question.
fn was_answered(run: &Run, id: &InterruptId<'_>, answers: &[Option<Value>]) -> bool {
    let later = run.log.after(id.after, usize::MAX, usize::MAX).events;
    let answers_given = later
        .iter()
        .filter(|recorded| recorded.event_type() == EventType::InteractionAnswered);
    answers_given.filter_map(RecordedEvent::read).any(|read| {
        let raised = read.event.raised;
        raised
            .fields
            .get("interactionId")
            .is_some_and(|of| of == id.interaction)
            && answers
                .iter()
                .flatten()
                .any(|answer| raised.fields.get("answer") == Some(answer))
    })
}
