//! Workflows as tools of an MCP server: over streamable HTTP next to the other routes, or over stdio.
//!
//! A call starts a run and answers with its output. The tool's schema is the workflow's `inputSchema`; an input that is not an
//! object is passed in the argument `input`. Each node that ends is reported as progress. A call that the client cancels, or a call
//! without a session whose connection ends, cancels its run. Questions to people become elicitations of the client: separate
//! requests, or, from the protocol's version 2026-07-28 on, part of the call's result, which the client answers with the next call.

mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitResult, ErrorData,
    Implementation, InputRequest, InputRequiredResult, InputResponses, JsonObject, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{Peer, RequestContext, RoleServer, ServiceExt};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};

use crate::catalogue::{Catalogue, PublishedWorkflow};
use crate::events::feed::{Feed, FeedItem};
use crate::http::caller::Role;
use crate::http::problem::Problem;
use crate::lifecycle::start::Start;
use crate::mcp::limits::{InputMemory, Sessions, bounded};
use crate::memory::MemoryReservation;
use crate::runs::Run;
use crate::runs::events::position::Position;
use crate::state::Service;
use crate::wire::elicitation::{ElicitationOutcome, elicited, form};
use crate::wire::interrupts::InterruptId;
use crate::wire::output_text;
use pirn::store::ContentHash;
use pirn::{AnswerRefused, Event, EventType, Interaction, ThreadStatus};

/// Maximum length of a tool's name.
const MAX_NAME: usize = 128;

/// Maximum number of elicitations for one question, while the client's answers are invalid.
const MAX_ASKED: usize = 10;

/// The argument that contains an input that is not an object.
const INPUT: &str = "input";

/// An MCP server over a service.
#[derive(Clone)]
pub(crate) struct McpServer {
    service: Service,
}

/// Returns the server as a route.
pub(crate) fn route(service: &Service) -> Router<Service> {
    let server = McpServer {
        service: service.clone(),
    };
    // Hosts and origins are checked by the middleware before the request arrives here.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_sse_keep_alive(Some(service.limits().keep_alive))
        .with_max_request_body_bytes(service.limits().body_bytes);
    let sessions = Sessions::new(service.clone());
    let answers = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions.manager), config);
    Router::new()
        .route_service("/mcp", answers)
        .layer(from_fn_with_state(sessions, bounded))
}

impl Service {
    /// Serves the workflows as MCP tools over stdin and stdout, until stdin ends.
    ///
    /// # Errors
    /// [`McpStdioError`].
    pub async fn serve_mcp_stdio(&self) -> Result<(), McpStdioError> {
        self.enter_runtime();
        let server = McpServer { service: self.clone() };
        let running = server.serve(rmcp::transport::stdio()).await;
        let running = running.map_err(|error| McpStdioError::Initialization(error.into()))?;
        let ended = running.waiting().await;
        ended.map_err(|error| McpStdioError::Connection(error.into()))?;
        Ok(())
    }
}

/// Reason that the MCP server over stdio ends before stdin.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum McpStdioError {
    /// The client's initialization does not follow MCP.
    Initialization(Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke.
    Connection(Box<dyn std::error::Error + Send + Sync>),
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("pirn", env!("CARGO_PKG_VERSION")))
            .with_instructions("Each tool runs a workflow and returns its output.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let catalogue = self.service.catalogue();
        Ok(ListToolsResult::with_all_items(
            tools(&catalogue)
                .into_iter()
                .map(|(name, published)| tool(name, published))
                .collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let service = &self.of_caller(&context)?;
        let catalogue = service.catalogue();
        let tools = tools(&catalogue);
        let Some(published) = tools.get(&*request.name) else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool {}", request.name),
                None,
            ));
        };
        let (run, after) = if let Some(state) = request.request_state.as_deref() {
            // The client repeats the arguments. Ignore them: the run has its input.
            service
                .caller()
                .check(Role::Answer)
                .map_err(|problem| denied(&problem))?;
            answered(service, published, state, request.input_responses.unwrap_or_default()).await?
        } else {
            let input = match input(published, request.arguments.unwrap_or_default()) {
                Ok(input) => input,
                Err(why) => return Ok(failed(&format!("INVALID_INPUT: {why}")).into()),
            };
            let start = Start {
                workflow: published.info.id.clone(),
                input,
                memory: memory(&context),
                ..Start::default()
            };
            match service.start_local(start).await {
                Ok(run) => (run, Position::START),
                // A tool error, not a protocol error: the calling model can correct its arguments.
                Err(problem) => return Ok(failed(&format!("{}: {}", problem.code(), problem.detail())).into()),
            }
        };
        let asks = match service.caller().check(Role::Answer) {
            Ok(()) => Asks::of(&context),
            // The caller may not answer: the questions wait for another person.
            Err(_) => Asks::Nobody,
        };
        // Over stdio without a store, only the client can answer.
        let is_alone = context.extensions.get::<Parts>().is_none() && service.engine().store().is_none();
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| (token, context.peer.clone()));
        tokio::select! {
            waits = follow(service, &run, after, progress, (&asks, is_alone)) => {
                if let Some((questions, after)) = waits {
                    return Ok(input_required(&run, &questions, after).into());
                }
            }
            () = context.ct.cancelled() => run.handle.cancel("the MCP client cancelled the call"),
        }
        Ok(result(&run).await.into())
    }
}

/// Takes the memory reservation of a call's input, if the call arrived over HTTP.
fn memory(context: &RequestContext<RoleServer>) -> Option<MemoryReservation> {
    let parts = context.extensions.get::<Parts>()?;
    parts.extensions.get::<InputMemory>()?.take()
}

impl McpServer {
    /// Returns the service for the sender of a call. Over stdio, the client is the program that has started this one.
    fn of_caller(&self, context: &RequestContext<RoleServer>) -> Result<Service, ErrorData> {
        let Some(parts) = context.extensions.get::<Parts>() else {
            return Ok(self.service.clone());
        };
        let checked = parts.extensions.get::<Service>().cloned();
        checked.ok_or_else(|| ErrorData::internal_error("the request was not checked", None))
    }
}

fn denied(problem: &Problem) -> ErrorData {
    ErrorData::invalid_request(problem.detail().to_owned(), None)
}

/// Sends progress for every node that ends and forwards the run's questions, until the run has ended. Returns the open
/// questions if the client answers them with another call. If the client is alone, cancels a run
/// that asks a question which the client cannot answer.
async fn follow(
    service: &Service,
    run: &Arc<Run>,
    after: Position,
    progress: Option<(ProgressToken, Peer<RoleServer>)>,
    (asks, is_alone): (&Asks, bool),
) -> Option<(Vec<Interaction>, Position)> {
    // No stream slot is free: send no progress and no questions, and wait for the result only.
    let Ok(mut feed) = Feed::open(service, run, after) else {
        run.handle.outcome().await;
        return None;
    };
    let main_thread = run.main_thread();
    let (mut ended, mut has_asked) = (0_u32, after > Position::START);
    let mut asked = BTreeSet::new();
    let mut elicitations = FuturesUnordered::new();
    loop {
        let next = tokio::select! {
            next = feed.next() => next,
            Some(()) = elicitations.next() => continue,
        };
        for item in next {
            let event = match item {
                FeedItem::Event(recorded) => recorded,
                FeedItem::End => return None,
                // A question may be among the missed events.
                FeedItem::Missed { .. } => {
                    has_asked = true;
                    continue;
                }
                FeedItem::Idle => continue,
            };
            match event.event_type() {
                EventType::NodeCompleted => {}
                EventType::InteractionRequested => {
                    has_asked = true;
                    continue;
                }
                EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                    if event.read().is_some_and(|read| *read.event.thread_id == *main_thread) {
                        // Return at the main thread's end: detached threads may still run, and the result does not depend on
                        // them.
                        return None;
                    }
                    continue;
                }
                _other => continue,
            }
            ended += 1;
            if let Some((token, peer)) = &progress
                && let Some(read) = event.read()
            {
                tell(peer, token, ended, &read.event).await;
            }
        }
        if std::mem::take(&mut has_asked) {
            let open = run.handle.interactions().await;
            match asks {
                Asks::Nobody => {
                    for question in open.iter().filter(|_| is_alone) {
                        unanswerable(run, question, "this client does not support elicitation").await;
                    }
                }
                Asks::ByResult if open.is_empty() => {}
                Asks::ByResult => return Some((open, feed.read_to())),
                Asks::ByRequest(peer) => {
                    let new = open.into_iter().filter(|question| asked.insert(question.id.clone()));
                    elicitations.extend(new.map(|question| elicit(Arc::clone(run), peer.clone(), question, is_alone)));
                }
            }
        }
    }
}

/// Applies a client's answers, and returns their run and the position of the last event that the client received.
async fn answered(
    service: &Service,
    published: &PublishedWorkflow,
    state: &str,
    responses: InputResponses,
) -> Result<(Arc<Run>, Position), ErrorData> {
    let unknown = || ErrorData::invalid_params("the request's state was not issued by this server", None);
    let id = InterruptId::read(state).ok_or_else(unknown)?;
    let run = service.runs().find(id.interaction);
    let run = run
        .filter(|run| run.info.workflow_id == published.info.id)
        .ok_or_else(unknown)?;
    let open = run.handle.interactions().await;
    for (id, sent) in responses {
        let sent: ElicitResult =
            serde_json::from_value(sent).map_err(|error| ErrorData::invalid_params(format!("{id}: {error}"), None))?;
        // A question that is not open was answered through another interface, or earlier.
        let Some(question) = open.iter().find(|question| question.id == id) else {
            continue;
        };
        // On an invalid answer the question stays open: the next result contains it again.
        answer(&run, question, sent)
            .await
            .unwrap_or_else(|why| tracing::debug!(id, why, "not an answer"));
    }
    Ok((run, id.after))
}

/// The way to put a question to the client.
enum Asks {
    /// The client does not support elicitation.
    Nobody,
    /// The server sends a request.
    ByRequest(Peer<RoleServer>),
    /// The result of the call contains the question.
    ByResult,
}

impl Asks {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        let of_peer = || Some(context.peer.peer_info()?.capabilities.clone());
        let able = context.meta.client_capabilities().or_else(of_peer);
        let form = able.and_then(|able| able.elicitation);
        if form.is_none_or(|form| form.form.is_none() && form.url.is_some()) {
            return Self::Nobody;
        }
        match context.protocol_version() {
            Some(version) if version >= ProtocolVersion::V_2026_07_28 => Self::ByResult,
            Some(_) | None => Self::ByRequest(context.peer.clone()),
        }
    }
}

/// Sends a question to the client until an answer is valid, the request fails, or [`MAX_ASKED`] is reached.
async fn elicit(run: Arc<Run>, peer: Peer<RoleServer>, question: Interaction, is_alone: bool) {
    let mut wrong: Option<String> = None;
    for _ in 0..MAX_ASKED {
        match peer.create_elicitation(form(&question, wrong.as_deref())).await {
            Ok(sent) => match answer(&run, &question, sent).await {
                Ok(()) => return,
                Err(why) => wrong = Some(why),
            },
            Err(error) => {
                // The question stays open if other interfaces may still answer it.
                tracing::debug!(id = question.id, %error, "sending a question to the MCP client failed");
                if is_alone {
                    unanswerable(&run, &question, &format!("the client's answer is an error: {error}")).await;
                }
                return;
            }
        }
    }
    if is_alone {
        unanswerable(&run, &question, &format!("the client sent {MAX_ASKED} invalid answers")).await;
    }
}

/// Cancels a run for a question without possible answer, even if only one of the branches waits for it.
async fn unanswerable(run: &Run, question: &Interaction, why: &str) {
    // A time limit ends the question without an answer, and a closed question does not hold up the run.
    let is_open = run
        .handle
        .interactions()
        .await
        .iter()
        .any(|open| open.id == question.id);
    if is_open && question.timeout_ms.is_none() {
        run.handle
            .cancel(format!("node {} asks a person, and {why}", question.node_id));
    }
}

/// Answers a question with the client's reply; returns the reason if the reply is invalid.
async fn answer(run: &Run, question: &Interaction, sent: ElicitResult) -> Result<(), String> {
    match elicited(question, sent) {
        ElicitationOutcome::Answer(answer) => match run.handle.answer(&question.id, answer).await {
            Err(AnswerRefused::Invalid { reason }) => Err(reason),
            // The question was answered through another interface.
            Ok(()) | Err(_) => Ok(()),
        },
        ElicitationOutcome::GivenUp => {
            run.handle.cancel("the person cancelled the question");
            Ok(())
        }
    }
}

fn input_required(run: &Run, questions: &[Interaction], after: Position) -> InputRequiredResult {
    let request = |question: &Interaction| InputRequest::Elicitation(ElicitRequest::new(form(question, None)));
    let requests = questions
        .iter()
        .map(|question| (question.id.clone(), request(question)));
    let state = InterruptId {
        interaction: run.id(),
        after,
    };
    InputRequiredResult::new(Some(requests.collect()), Some(state.to_string()))
}

async fn tell(peer: &Peer<RoleServer>, token: &ProgressToken, ended: u32, event: &Event) {
    let node = event
        .raised
        .fields
        .get("nodeId")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut told = ProgressNotificationParam::new(token.clone(), f64::from(ended));
    told.message = Some(format!("{node} has ended"));
    if let Err(error) = peer.notify_progress(told).await {
        tracing::debug!(%error, "sending a progress notification failed");
    }
}

async fn result(run: &Run) -> CallToolResult {
    let report = run.handle.outcome().await;
    if report.status == ThreadStatus::Completed {
        let text = output_text(&report.output).unwrap_or_default();
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        // Older versions of the protocol accept only objects here.
        result.structured_content = Some(report.output.clone()).filter(Value::is_object);
        return result;
    }
    let why = report
        .error
        .as_ref()
        .map_or_else(|| report.status.as_str().to_owned(), ToString::to_string);
    failed(&why)
}

fn failed(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

fn tool(name: String, published: &PublishedWorkflow) -> Tool {
    let info = &published.info;
    let about = info.description.clone().map(Into::into);
    let mut tool = Tool::new_with_raw(name, about, Arc::new(schema(published)));
    tool.title.clone_from(&info.name);
    tool
}

/// Maps tool names to workflows. An id that is a valid tool name is used unchanged; any other name is derived from the id. If
/// a derived name is not unique, the tool's name ends with a part of the id's hash instead.
fn tools(catalogue: &Catalogue) -> BTreeMap<String, &PublishedWorkflow> {
    let (plain, other): (Vec<&PublishedWorkflow>, Vec<&PublishedWorkflow>) = catalogue
        .offers()
        .map(|published| &**published)
        .partition(|published| tool_name(&published.info.id) == published.info.id);
    let mut tools: BTreeMap<String, &PublishedWorkflow> = plain
        .into_iter()
        .map(|published| (published.info.id.clone(), published))
        .collect();
    let wanted: Vec<String> = other.iter().map(|published| tool_name(&published.info.id)).collect();
    for (published, name) in other.iter().zip(&wanted) {
        let is_alone = wanted.iter().filter(|other| *other == name).count() == 1;
        if is_alone && !tools.contains_key(name) {
            tools.insert(name.clone(), published);
        } else {
            tools.insert(hashed_name(&published.info.id), published);
        }
    }
    tools
}

/// Returns a name with a part of the id's hash, which no other workflow's id gives.
fn hashed_name(id: &str) -> String {
    const DIGITS: usize = 16;
    let hash = ContentHash::of(id).to_string();
    let beginning: String = tool_name(id).chars().take(MAX_NAME - DIGITS - 1).collect();
    format!("{beginning}_{}", &hash[..DIGITS])
}

/// Converts a workflow's id to a tool name: invalid characters become `_`.
fn tool_name(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    id.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .take(MAX_NAME)
        .collect()
}

/// True if the workflow's input is an object: the arguments are the input then. A schema without a type that names properties is meant
/// for an object.
fn takes_object(published: &PublishedWorkflow) -> bool {
    match &published.info.input_schema {
        None => true,
        Some(schema) => match schema.get("type") {
            Some(kind) => kind == "object",
            None => schema.contains_key("properties") || schema.contains_key("required"),
        },
    }
}

fn schema(published: &PublishedWorkflow) -> JsonObject {
    let schema = match &published.info.input_schema {
        None => json!({"type": "object"}),
        Some(schema) if takes_object(published) => {
            let mut schema = schema.clone();
            schema.entry("type").or_insert_with(|| "object".into());
            return schema;
        }
        Some(schema) => json!({"type": "object", "properties": {INPUT: schema}, "required": [INPUT]}),
    };
    let Value::Object(schema) = schema else {
        return JsonObject::new();
    };
    schema
}

fn input(published: &PublishedWorkflow, mut arguments: JsonObject) -> Result<Value, String> {
    if takes_object(published) {
        return Ok(Value::Object(arguments));
    }
    let input = arguments.remove(INPUT);
    let input = input.ok_or_else(|| format!("the argument `{INPUT}` is missing: it is the input of the workflow"))?;
    match arguments.keys().next() {
        Some(unknown) => Err(format!("there is no argument {unknown}; write the input in `{INPUT}`")),
        None => Ok(input),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pirn::Engine;

    #[test]
    fn every_workflow_has_a_unique_tool_name_that_calls_it() {
        let long = "x".repeat(MAX_NAME);
        let ids = [
            "a b",
            "a_b",
            "a/b",
            "c d",
            &format!("{long}1"),
            &format!("{long}2"),
            "ü",
            "ö",
        ];
        let workflow = |id: &&str| {
            json!({"id": id, "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
                "edges": [{"from": "s", "to": "e"}]})
        };
        let bundle = json!({ "workflows": ids.iter().map(workflow).collect::<Vec<_>>() });
        let engine = Engine::builder().workflows(bundle.to_string()).build().expect("valid");
        let catalogue = Catalogue::of(&engine, |_| Some(&[]));
        let tools = tools(&catalogue);
        let called: BTreeSet<&str> = tools.values().map(|published| published.info.id.as_str()).collect();
        assert_eq!(called, ids.into_iter().collect());
        assert_eq!(tools["a_b"].info.id, "a_b");
        assert_eq!(tools["c_d"].info.id, "c d");
        for name in tools.keys() {
            assert!(name.len() <= MAX_NAME && tool_name(name) == *name, "{name}");
        }
    }
}
