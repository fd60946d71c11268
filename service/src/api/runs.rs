//! Runs: start, report, events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{ObjectBuilder, Ref, RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::forward::Forwardable;
use super::query::{Parameters, Path, Scoped, event_types, last_event_id, position};
use crate::body::JsonBody;
use crate::events::feed::{Feed, FeedItem, PAGE as PAGE_EVENTS, PAGE_BYTES};
use crate::events::sse::{self, EventEncoder, Frames, OnStreamEnd, frame};
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode, unknown};
use crate::lifecycle::start::{Start, StartResult};
use crate::memory::MemoryReservation;
use crate::runs::Run;
use crate::runs::events::event_log::{RecordedEvent, hold_within};
use crate::runs::events::position::Position;
use crate::runs::idempotency::{Claim, KeyClaim};
use crate::runs::store::stored::summary;
use crate::state::Service;
use pirn::store::RunStatus;
use pirn::{EventType, Message, ToolDefinition};

/// Reason in the report of a run that is cancelled because its client disconnected.
const CLIENT_GONE: &str = "the client that started the run disconnected";

/// Request to start a run.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StartRun {
    /// Id of the workflow.
    workflow: String,
    /// The run's input.
    #[serde(default)]
    input: Value,
    /// Messages that the main thread's conversation starts with.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    conversation: Vec<Message>,
    /// The session to continue: the run starts with its conversation and variables, and saves its own to it.
    #[serde(default)]
    session: Option<String>,
    /// Saves the run's conversation and variables to the session even if the run does not complete.
    #[serde(default)]
    keep_on_failure: bool,
    /// Id of the run: 1 to 128 letters, digits, hyphens, dots and underscores.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9_.-]*$")]
    run_id: Option<String>,
    /// The run's owner (a tenant, a user): profiles may choose their key by it, and models, tools and functions of the embedding
    /// program receive it; no language model sees it.
    #[serde(default)]
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// Tools that the client executes: `{name, description?, parameters?}`. A call is an open interaction with `clientTool`.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    client_tools: Vec<ToolDefinition>,
    /// Cancels the run when the connection of this request ends before the run; with `?wait` or a stream only.
    #[serde(default)]
    cancel_on_disconnect: bool,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartParameters {
    /// Waits up to this many seconds for the run to end, and answers with its report.
    #[param(minimum = 0.0)]
    wait: Option<f64>,
}

/// Schema of the JSON that answers a start: the run, or with `wait` its report.
struct RunOrReport;

impl PartialSchema for RunOrReport {
    fn schema() -> RefOr<Schema> {
        // The schema of a derived enum would be `oneOf`, and a run, which is an object too, would match both branches.
        let run = AnyOfBuilder::new().item(Ref::from_schema_name("RunSummary"));
        run.item(ObjectBuilder::new()).into()
    }
}

impl ToSchema for RunOrReport {}

/// Starts a run.
///
/// With `Accept: text/event-stream` the answer is the run's events. With `Idempotency-Key`, a repeated request with an equal key
/// and body returns the run that the first request started.
#[utoipa::path(
    post, operation_id = "startRun", path = "/v1/runs", tag = "runs", params(StartParameters), request_body = StartRun,
    responses(
        (status = 201, description = "The run; with `wait` its report; with Accept: text/event-stream its events",
            content((inline(RunOrReport) = "application/json"), (String = "text/event-stream"))),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run's id is taken", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A field or the input is invalid", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many runs are in progress, or the service is shutting down", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn start(
    Scoped(service): Scoped,
    headers: HeaderMap,
    Parameters(parameters): Parameters<StartParameters>,
    body: JsonBody<StartRun>,
) -> Result<Response, Problem> {
    let wait = parameters
        .wait
        .map(|seconds| checked_wait(&service, seconds))
        .transpose()?;
    let is_stream = accepts_events(&headers);
    let cancels = body.value.cancel_on_disconnect;
    if cancels && wait.is_none() && !is_stream {
        let detail = "the request does not wait for the run: request its events (Accept: text/event-stream), or use ?wait=SECONDS";
        return Err(Problem::new(ProblemCode::InvalidValue, detail).at("/cancelOnDisconnect"));
    }
    let key = headers
        .get("idempotency-key")
        .map(|key| key.to_str().unwrap_or_default());
    let JsonBody {
        value: asked,
        fingerprint,
        memory,
    } = body;
    let start = Start {
        memory: Some(memory),
        ..asked.into()
    };
    let claim = match key {
        Some(key) => Some(service.keys().claim(service.scope(), key, fingerprint).await?),
        None => None,
    };
    if is_stream && service.enqueue_only() {
        let detail = "the runs of this service are executed by other processes: start the run without a stream, then request its events";
        return Err(Problem::new(ProblemCode::InvalidRequest, detail));
    }
    let starting = {
        let service = service.clone();
        async move {
            let begun = match claim {
                None => service.start_or_enqueue(start).await?,
                Some(Claim::Same(run_id)) => started_before(&service, run_id),
                Some(Claim::First(claimed)) => first(&service, claimed, start).await?,
            };
            // The guard is dropped here if the client disconnected during the start: that cancels the run.
            let guard = match &begun {
                StartResult::Local(run) if cancels => CancelOnDrop(Some(Arc::clone(run))),
                StartResult::Local(_) | StartResult::Remote(_) => CancelOnDrop(None),
            };
            Ok((begun, guard))
        }
    };
    let (begun, mut guard) = service.to_its_end(starting).await?;
    let run = match begun {
        StartResult::Local(run) => run,
        StartResult::Remote(run_id) => return elsewhere(&service, &run_id, is_stream, wait).await,
    };
    let location = [(header::LOCATION, format!("/v1/runs/{}", run.id()))];
    if is_stream {
        let feed = Feed::open(&service, &run, Position::START)?;
        let stream = sse::response(feed, EventWire { types: Vec::new() }, guard);
        return Ok((StatusCode::CREATED, location, stream).into_response());
    }
    let Some(wait) = wait else {
        return Ok((StatusCode::CREATED, location, Json(service.runs().shown(run.summary()))).into_response());
    };
    let ended = async {
        run.handle.outcome().await;
        // A run that was parked, or that a shutdown has cancelled, has its status in the store from here on.
        run.until_decided().await;
    };
    // On a timeout the answer is the report of the unfinished run.
    let _: Result<_, tokio::time::error::Elapsed> = tokio::time::timeout(wait, ended).await;
    guard.ended();
    let report = report_response(&service, run.report().await).await?;
    Ok((StatusCode::CREATED, location, report).into_response())
}

/// Starts the run of a key's first request, or finds the run that another service has started for an equal request.
async fn first(service: &Service, mut claimed: KeyClaim, mut start: Start) -> Result<StartResult, Problem> {
    let run_id = start.run_id.get_or_insert_with(|| service.new_run_id());
    *run_id = claimed.starts(&service.scope().run_id(run_id)).await?;
    let run_id = run_id.clone();
    if claimed.is_known() && service.in_store(&run_id).await?.is_some() {
        claimed.keep(&run_id);
        return Ok(started_before(service, run_id));
    }
    match service.start_or_enqueue(start).await {
        Ok(begun) => {
            claimed.keep(&run_id);
            Ok(begun)
        }
        // The other service is about to start the run.
        Err(problem) if claimed.is_known() && problem.code() == ProblemCode::RunIdTaken.as_str() => {
            claimed.keep(&run_id);
            Ok(started_before(service, run_id))
        }
        Err(problem) => {
            claimed.refused().await;
            Err(problem)
        }
    }
}

/// Returns the run that an equal request has started.
fn started_before(service: &Service, run_id: String) -> StartResult {
    let here = service.runs().find(&run_id);
    here.map_or_else(|| StartResult::Remote(run_id.into()), StartResult::Local)
}

/// Answers a start request for a run that another process owns.
async fn elsewhere(service: &Service, id: &str, is_stream: bool, wait: Option<Duration>) -> Result<Response, Problem> {
    if let Some(wait) = wait {
        service.ended(id, wait).await;
    }
    let stored = service.in_store(id).await?.ok_or_else(|| unknown(id))?;
    let location = [(header::LOCATION, format!("/v1/runs/{id}"))];
    let answer = if is_stream {
        match service.follow(id).await? {
            Some(run) => {
                let feed = Feed::open(service, &run, Position::START)?;
                sse::response(feed, EventWire { types: Vec::new() }, ())
            }
            None => archived(service, id, (Position::START, false), &[]).await?,
        }
    } else if wait.is_some() {
        let report = service.archive().report(id).await?;
        report_response(service, report.ok_or_else(|| unknown(id))?.json).await?
    } else {
        Json(service.runs().shown(summary(stored))).into_response()
    };
    Ok((StatusCode::CREATED, location, answer).into_response())
}

impl From<StartRun> for Start {
    fn from(body: StartRun) -> Self {
        Self {
            workflow: body.workflow,
            input: body.input,
            conversation: body.conversation,
            run_id: body.run_id,
            metadata: body.metadata,
            session: body.session,
            keep_on_failure: body.keep_on_failure,
            client_tools: body.client_tools,
            memory: None,
        }
    }
}

fn checked_wait(service: &Service, seconds: f64) -> Result<Duration, Problem> {
    let longest = service.limits().wait;
    let wait = Duration::try_from_secs_f64(seconds).ok();
    wait.map(|wait| wait.min(longest)).ok_or_else(|| {
        Problem::new(
            ProblemCode::InvalidRequest,
            "wait must be a number of seconds, 0 or more",
        )
    })
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter();
    accepted.any(|value| value.to_str().is_ok_and(|value| value.contains("text/event-stream")))
}

/// Cancels the run on drop, unless [`OnStreamEnd::ended`] was called before.
struct CancelOnDrop(Option<Arc<Run>>);

impl OnStreamEnd for CancelOnDrop {
    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run.handle.cancel(CLIENT_GONE);
        }
    }
}

/// Returns the run of this id if this process still has it in memory.
pub(super) fn find(service: &Service, id: &str) -> Result<Arc<Run>, Problem> {
    service.runs().find(id).ok_or_else(|| unknown(id))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportParameters {
    /// Returns the report as of this step, as `pirn runs show --at` does. Needs a store.
    at: Option<u64>,
}

/// Returns the report of a run; for an unfinished run, the report so far.
#[utoipa::path(
    get, operation_id = "getRun", path = "/v1/runs/{id}", tag = "runs",
    params(("id" = String, Path, description = "The run"), ReportParameters),
    responses(
        (status = 200, description = "The report, as `pirn run --output json` prints it", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`at` needs the steps of the run, which were dropped", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`at` needs a store", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The run has no such step", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn report(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<ReportParameters>,
) -> Result<Response, Problem> {
    if let Some(step) = parameters.at {
        return report_response(&service, service.report_at(&id, step).await?).await;
    }
    if let Some(run) = service.runs().find(&id) {
        return report_response(&service, run.report().await).await;
    }
    let report = service.archive().report(&id).await?;
    report_response(&service, report.ok_or_else(|| unknown(&id))?.json).await
}

/// Answers with a report as its caller may see it.
async fn report_response(service: &Service, report: Bytes) -> Result<Response, Problem> {
    json_response(service, &service.runs().shown_report(report).await)
}

/// Answers with JSON that is serialized already. Its memory is reserved until it is sent.
pub(super) fn json_response(service: &Service, json: &Bytes) -> Result<Response, Problem> {
    let Some(sends) = service.stream_bytes().reserve(json.len()) else {
        let detail = format!(
            "the answers in progress use all of {} MiB",
            service.stream_bytes().limit() >> 20
        );
        return Err(Problem::new(ProblemCode::TooManyBytes, detail).retry_after(1));
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CONTENT_LENGTH, HeaderValue::from(json.len())),
    ];
    Ok((headers, sse::sent_with(json, sends)).into_response())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventParameters {
    /// Only events after the one with this id; the header `Last-Event-ID` takes precedence.
    #[param(pattern = r"^[0-9]+(\.[0-9]+)?$")]
    after: Option<String>,
    /// Only events of these types, separated by commas.
    types: Option<String>,
}

/// Streams a run's events until its end.
///
/// An event's `id` is its sequence; pieces of a reply (LLM_TOKEN) of a durable run have the sequence of the event before them and a
/// number, such as `6.2`. A client that reconnects with the last one as `Last-Event-ID` receives every later event once; an id
/// beyond the last event receives the events after it. `event: missed` reports events that are no longer retained, `event: end` the
/// end of the stream, with the run's status. A client that reconnects after the end of the run gets 204.
#[utoipa::path(
    get, operation_id = "streamRunEvents", path = "/v1/runs/{id}/events", tag = "runs",
    params(("id" = String, Path, description = "The run"), EventParameters),
    responses(
        (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
        (status = 204, description = "The run has ended and all its events were read"),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many streams are open", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn events(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<EventParameters>,
    request: Forwardable,
) -> Result<Response, Problem> {
    let types = event_types(parameters.types.as_deref())?;
    let resumed = last_event_id(&request.headers)?;
    let after = parameters.after.map(|after| position(&after, "after")).transpose()?;
    let after = resumed.or(after).unwrap_or_default();
    let run = match service.runs().find(&id) {
        Some(run) => Some(run),
        None => match request.to_owner(&service, &id).await? {
            Some(answer) => return Ok(answer),
            None => service.follow(&id).await?,
        },
    };
    let Some(run) = run else {
        return archived(&service, &id, (after, resumed.is_some()), &types).await;
    };
    let feed = Feed::open(&service, &run, after)?;
    // A run that has left this process may continue.
    if resumed.is_some() && feed.is_over() && !run.has_left() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let wire = EventWire { types };
    if request.was_forwarded() {
        // The forwarding service reads the rest from the store, or at the next owner: an `end` would stop the client.
        return Ok(sse::until_left(feed, wire));
    }
    Ok(sse::response(feed, wire, ()))
}

/// Streams the events of a run that no process executes, page by page.
async fn archived(
    service: &Service,
    id: &str,
    (after, is_back): (Position, bool),
    types: &[EventType],
) -> Result<Response, Problem> {
    let place = service.streams().enter()?;
    let report = service.archive().report(id).await?.ok_or_else(|| unknown(id))?;
    let first = service
        .archive()
        .page(id, after.sequence, PAGE_EVENTS, PAGE_BYTES)
        .await?;
    let is_final = RunStatus::ALL
        .iter()
        .any(|status| status.is_final() && status.as_str() == report.status);
    // An unfinished run may continue: 204 would stop the client for good.
    if is_back && first.is_empty() && is_final {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mut end = json!({"runId": service.scope().run_id(id), "status": report.status});
    if let Some(error) = report.error {
        end["error"] = error;
    }
    let reader = ArchiveReader {
        service: service.clone(),
        id: id.to_owned(),
        types: types.to_vec(),
        read_to: after.sequence,
        first: Some(first),
        end: Some(end),
        sends: None,
        _place: place,
    };
    Ok(sse::pages(reader))
}

/// Reads the events of a run that no process executes, page by page.
struct ArchiveReader {
    service: Service,
    id: String,
    /// Requested types; empty for all.
    types: Vec<EventType>,
    read_to: u64,
    first: Option<Vec<RecordedEvent>>,
    end: Option<Value>,
    /// Memory reserved for the page that is being sent.
    sends: Option<Arc<MemoryReservation>>,
    _place: OwnedSemaphorePermit,
}

impl sse::Pages for ArchiveReader {
    async fn next(&mut self) -> Result<Option<Frames>, Problem> {
        self.sends = None;
        let mut out = Frames::default();
        while out.is_empty() {
            let events = if let Some(first) = self.first.take() {
                first
            } else {
                let archive = self.service.archive();
                archive.page(&self.id, self.read_to, PAGE_EVENTS, PAGE_BYTES).await?
            };
            let Some(last) = events.last() else {
                let Some(end) = self.end.take() else {
                    return Ok(None);
                };
                frame(&mut out, Some("end"), None, end.to_string().as_bytes());
                return Ok(Some(out));
            };
            let (before, last) = (self.read_to, last.position().sequence);
            self.read_to = last;
            let is_asked = |event: &&RecordedEvent| self.types.is_empty() || self.types.contains(&event.event_type());
            let asked: Vec<RecordedEvent> = events.iter().filter(is_asked).cloned().collect();
            // Wait for memory, so that no event is dropped. The wait is bounded: connections of clients that do not read are closed
            // within `write_time`.
            let (budget, at_most) = (self.service.stream_bytes(), self.service.limits().write_time);
            self.sends = hold_within(&asked, budget, at_most).await;
            if self.sends.is_none() {
                missed(&mut out, Position::of(before), last - before);
                break;
            }
            for recorded in &asked {
                sse::event(&mut out, recorded);
            }
        }
        Ok(Some(out))
    }
}

fn missed(out: &mut Frames, after: Position, count: u64) {
    let mut json = json!({"after": after.sequence, "count": count});
    let mut last = after;
    if after.piece == 0 {
        last = Position::of(after.sequence + count);
    } else {
        json["piece"] = json!(after.piece);
        last.piece += count;
    }
    frame(out, Some("missed"), Some(last), json.to_string().as_bytes());
}

/// Writes events unchanged.
struct EventWire {
    /// Requested types; empty for all.
    types: Vec<EventType>,
}

impl EventEncoder for EventWire {
    fn write(&mut self, feed: &Feed, item: FeedItem, out: &mut Frames) {
        match item {
            FeedItem::Event(recorded) => {
                if self.types.is_empty() || self.types.contains(&recorded.event_type()) {
                    sse::event(out, &recorded);
                }
            }
            FeedItem::Missed { after, count } => missed(out, after, count),
            FeedItem::Idle => {}
            FeedItem::End => {
                let run = feed.run();
                let mut json = json!({"runId": run.id(), "status": run.status()});
                if let Some(error) = run.error() {
                    json["error"] = json!(error);
                }
                frame(out, Some("end"), None, json.to_string().as_bytes());
            }
        }
    }
}
