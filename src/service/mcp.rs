//! The workflows as tools of an MCP server: over streamable HTTP beside the other routes, or over stdio.
//!
//! A call starts a run and answers with its output. The tool's schema is the workflow's `inputSchema`; an input that is no
//! object stands in the argument `input`. Nodes that end are progress; a call that the client cancels, or one without a session
//! whose connection ends, cancels its run.

use std::sync::Arc;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{Peer, RequestContext, RoleServer, ServiceExt};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};

use super::catalogue::Offer;
use super::feed::{Fed, Feed};
use super::runs::Run;
use super::start::Start;
use super::state::Service;
use super::wire::output_text;
use crate::{EventType, ThreadStatus};

/// Characters that the name of a tool may have.
const MAX_NAME: usize = 128;

/// The argument that holds an input that is no object.
const INPUT: &str = "input";

/// A server of MCP over a service.
#[derive(Clone)]
pub(super) struct McpServer {
    service: Service,
}

/// The server as a route.
pub(super) fn http_service(service: &Service) -> StreamableHttpService<McpServer, LocalSessionManager> {
    let server = McpServer {
        service: service.clone(),
    };
    // Hosts and origins were checked before the request comes here.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_sse_keep_alive(Some(service.limits().keep_alive))
        .with_max_request_body_bytes(service.limits().body_bytes);
    StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config)
}

impl Service {
    /// Serves the workflows as MCP tools over stdin and stdout, until stdin ends.
    ///
    /// # Errors
    /// A sentence where the client does not begin as MCP says, or the connection breaks.
    pub async fn serve_mcp_stdio(&self) -> Result<(), String> {
        let server = McpServer { service: self.clone() };
        let running = server
            .serve(rmcp::transport::stdio())
            .await
            .map_err(|error| error.to_string())?;
        running.waiting().await.map_err(|error| error.to_string())?;
        Ok(())
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("pirn", env!("CARGO_PKG_VERSION")))
            .with_instructions("Each tool runs a workflow and answers with its output.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let catalogue = self.service.catalogue();
        Ok(ListToolsResult::with_all_items(
            catalogue.offers().map(|offer| tool(offer)).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let catalogue = self.service.catalogue();
        let offer = catalogue
            .offers()
            .find(|offer| tool_name(&offer.info.id) == request.name);
        let Some(offer) = offer else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool {}", request.name),
                None,
            ));
        };
        let arguments = request.arguments.unwrap_or_default();
        let start = Start {
            workflow: offer.info.id.clone(),
            input: input(offer, arguments),
            ..Start::default()
        };
        let run = match self.service.start(start).await {
            Ok(run) => run,
            // The model that calls may mend it.
            Err(problem) => return Ok(failed(&format!("{}: {}", problem.code(), problem.detail())).into()),
        };
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| (token, context.peer.clone()));
        tokio::select! {
            () = self.follow(&run, progress) => {}
            () = context.ct.cancelled() => run.handle.cancel("the MCP client cancelled the call"),
        }
        Ok(result(&run).await.into())
    }
}

impl McpServer {
    /// Tells of every node that ends, until the run has ended.
    async fn follow(&self, run: &Arc<Run>, progress: Option<(ProgressToken, Peer<RoleServer>)>) {
        // Without a place for a stream there is no progress, but there is an end.
        let feed = progress.and_then(|told| Some((told, Feed::open(&self.service, run, 0).ok()?)));
        let Some(((token, peer), mut feed)) = feed else {
            run.handle.outcome().await;
            return;
        };
        let main_thread = run.main_thread();
        let mut ended = 0_u32;
        loop {
            for fed in feed.next().await {
                let event = match fed {
                    Fed::Event(recorded) => recorded.event,
                    Fed::End => return,
                    Fed::Missed { .. } | Fed::Idle => continue,
                };
                match event.raised.event_type {
                    EventType::NodeCompleted => {}
                    EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled
                        if *event.thread_id == *main_thread =>
                    {
                        // What is detached from it may go on.
                        return;
                    }
                    _other => continue,
                }
                ended += 1;
                let node = event
                    .raised
                    .data
                    .get("nodeId")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let mut told = ProgressNotificationParam::new(token.clone(), f64::from(ended));
                told.message = Some(format!("{node} has ended"));
                if let Err(error) = peer.notify_progress(told).await {
                    tracing::debug!(%error, "progress is not told");
                }
            }
        }
    }
}

async fn result(run: &Run) -> CallToolResult {
    let report = run.handle.outcome().await;
    if report.status == ThreadStatus::Completed {
        let text = output_text(&report.output).unwrap_or_default();
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        // Older versions of the protocol know objects alone.
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

fn tool(offer: &Offer) -> Tool {
    let info = &offer.info;
    let about = info.description.clone().map(Into::into);
    let mut tool = Tool::new_with_raw(tool_name(&info.id), about, Arc::new(schema(offer)));
    tool.title.clone_from(&info.name);
    tool
}

/// A workflow's id as the name of a tool: what names may not have becomes `_`.
fn tool_name(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    id.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .take(MAX_NAME)
        .collect()
}

/// True if the workflow takes an object, which the arguments are.
fn takes_object(offer: &Offer) -> bool {
    match &offer.info.input_schema {
        None => true,
        Some(schema) => schema.get("type").is_some_and(|kind| kind == "object"),
    }
}

fn schema(offer: &Offer) -> JsonObject {
    let schema = match &offer.info.input_schema {
        None => json!({"type": "object"}),
        Some(schema) if takes_object(offer) => return schema.clone(),
        Some(schema) => json!({"type": "object", "properties": {INPUT: schema}, "required": [INPUT]}),
    };
    let Value::Object(schema) = schema else {
        return JsonObject::new();
    };
    schema
}

fn input(offer: &Offer, mut arguments: JsonObject) -> Value {
    if takes_object(offer) {
        Value::Object(arguments)
    } else {
        arguments.remove(INPUT).unwrap_or_default()
    }
}
