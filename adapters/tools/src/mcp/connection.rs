//! A connection to one MCP server.

use std::sync::Arc;
use std::time::Duration;

use pirn_actors::current_call::idempotency_key;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, JsonObject,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService, ServiceError, ServiceExt};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{DynamicTransportError, StreamableHttpClientTransport};
use tokio::runtime::Handle;

use super::child::Child;
use super::flow::BoundedTransport;
use super::http_errors::redirects;
use super::oauth_client::{OAuthHttpClient, Refused};
use super::pages::every_page;
use super::server_requests::{Handler, ServerRequestRouter};
use super::tasks::{TaskFlagReader, TaskOnlyTools};
use super::text::{self, TextFilter, ToolContent};
use super::token::Tokens;
use super::within;
use crate::config::{McpServerConfig, Transport};
use pirn_models::headers::{self, Secrets};

/// Returns the reason that a message was not sent, without the names of rmcp's types.
fn send_failure(error: &DynamicTransportError, http: Option<&OAuthHttpClient>) -> String {
    match (http, error.error.downcast_ref::<Refused>()) {
        (Some(http), Some(error)) => http.reason(error),
        _other => error.error.to_string(),
    }
}

/// Returns the reason that a server did not start.
fn start_failure(error: &ClientInitializeError, http: Option<&OAuthHttpClient>) -> String {
    let closed = || http.and_then(OAuthHttpClient::last_failure);
    match error {
        ClientInitializeError::TransportError { error, .. } => send_failure(error, http),
        ClientInitializeError::ConnectionClosed(_) => closed().unwrap_or_else(|| error.to_string()),
        other => other.to_string(),
    }
}

/// An initialised connection.
pub(super) struct Connection {
    service: RunningService<RoleClient, Handler>,
    child: Option<Child>,
    task_only_tools: TaskOnlyTools,
    /// Client of a server over HTTP.
    http: Option<OAuthHttpClient>,
}

/// Request to a server.
pub(super) enum Request {
    /// Calls a tool.
    Tool(String, JsonObject),
    /// Reads a resource.
    Resource(String),
    /// Gets a prompt.
    Prompt(String, JsonObject),
}

/// Reason that a call has no result.
pub(super) enum CallError {
    /// The server answered with an error, or in a form that is not supported.
    Refused(String),
    /// The request failed, but the connection can be used for others.
    Failed(String),
    /// The connection has ended. The message contains the server's exit status if it is known.
    Ended(String),
}

impl Connection {
    /// Connects to a server. Starts it first if it is a program.
    ///
    /// # Errors
    /// Returns a message if the server does not start, refuses the connection, or does not answer within `startTimeoutMs`.
    pub(super) async fn open(
        config: &McpServerConfig,
        router: Arc<ServerRequestRouter>,
        runtime: &Handle,
    ) -> Result<Self, String> {
        let limit = Duration::from_millis(config.start_timeout);
        let late = || format!("it did not answer within {} ms", config.start_timeout);
        let roots = config.roots.iter().filter_map(|root| {
            let url = reqwest::Url::from_directory_path(root).ok()?;
            Some(String::from(url).trim_end_matches('/').to_owned())
        });
        let about = Handler::new(router, roots.collect(), config.sampling.clone());
        let task_only_tools = TaskOnlyTools::default();
        match &config.transport {
            Transport::Stdio(stdio) => {
                let (child, out, into) = Child::start(stdio, runtime)?;
                let transport = AsyncRwTransport::new(TaskFlagReader::new(out, task_only_tools.clone()), into);
                match within(limit, Box::pin(about.serve(BoundedTransport::new(transport)))).await {
                    Some(Ok(service)) => Ok(Self {
                        service,
                        child: Some(child),
                        task_only_tools,
                        http: None,
                    }),
                    Some(Err(error)) => Err(child.why(|| start_failure(&error, None)).await),
                    // On a timeout the exit status is not reported: the server exits because its stdin was closed.
                    None => Err(child.after(late())),
                }
            }
            Transport::Http {
                url,
                headers,
                headers_env,
                oauth,
            } => {
                let all = headers::build_headers(headers, headers_env, |name| std::env::var(name).ok());
                let all = all.map_err(|error| error.to_string())?;
                let secrets = all.iter().skip(headers.len()).map(|(_, value)| value.clone()).collect();
                let all = all.into_iter().collect();
                let mut to = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(all);
                // A new session with a restarted server has the time limit of the first session.
                to.session_recovery_timeout = limit;
                let client = reqwest::Client::builder()
                    .redirect(redirects())
                    .build()
                    .map_err(|error| format!("cannot create an HTTP client: {error}"))?;
                let tokens = oauth.clone().map(|oauth| Arc::new(Tokens::new(oauth, client.clone())));
                if let Some(tokens) = &tokens {
                    // Fetched before the first request to the server, so that a faulty `oauth` config is reported as such.
                    tokens.token().await?;
                }
                let client = OAuthHttpClient::new(client, tokens, url, secrets);
                let transport = StreamableHttpClientTransport::with_client(client.clone(), to);
                match within(limit, Box::pin(about.serve(BoundedTransport::new(transport)))).await {
                    Some(Ok(service)) => Ok(Self {
                        service,
                        child: None,
                        task_only_tools,
                        http: Some(client),
                    }),
                    Some(Err(error)) => Err(client.secrets().redact(start_failure(&error, Some(&client)))),
                    None => Err(late()),
                }
            }
        }
    }

    /// Lists the tools, except those that can only run as tasks.
    pub(super) async fn tools(&self) -> Result<Vec<rmcp::model::Tool>, String> {
        let peer = self.service.peer();
        let page = |params| async {
            let page = peer.list_tools(params).await.map_err(|error| self.in_words(&error))?;
            Ok((page.tools, page.next_cursor))
        };
        let mut tools = every_page("tools", page).await?;
        tools.retain(|tool| !self.task_only_tools.contains(&tool.name));
        Ok(tools)
    }

    /// Returns the capabilities that the server declares.
    pub(super) fn able(&self) -> ServerCapabilities {
        let info = self.service.peer().peer_info();
        info.map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    /// Lists the resources.
    pub(super) async fn resources(&self) -> Result<Vec<rmcp::model::Resource>, String> {
        let peer = self.service.peer();
        let page = |params| async {
            let page = peer
                .list_resources(params)
                .await
                .map_err(|error| self.in_words(&error))?;
            Ok((page.resources, page.next_cursor))
        };
        every_page("resources", page).await
    }

    /// Lists the prompts.
    pub(super) async fn prompts(&self) -> Result<Vec<rmcp::model::Prompt>, String> {
        let peer = self.service.peer();
        let page = |params| async {
            let page = peer.list_prompts(params).await.map_err(|error| self.in_words(&error))?;
            Ok((page.prompts, page.next_cursor))
        };
        every_page("prompts", page).await
    }

    /// Sends a request and returns the result, with at most `limit` bytes of text.
    ///
    /// # Cancel safety
    /// Dropping the future sends a cancellation to the server.
    pub(super) async fn ask(&self, request: Request, limit: usize) -> Result<ToolContent, CallError> {
        let peer = self.service.peer();
        // Created for each text, because the access token may be replaced during the call.
        let shown = || TextFilter {
            limit,
            secrets: self.secrets(),
        };
        let is_task = "the tool runs as a task, which is not supported".to_owned();
        let wants_more = "the server requests a continuation that is not supported".to_owned();
        let answered = match request {
            Request::Tool(tool, arguments) => {
                let mut params = CallToolRequestParams::new(tool).with_arguments(arguments);
                if let Some(key) = idempotency_key() {
                    let meta = JsonObject::from_iter([("idempotencyKey".to_owned(), key.into())]);
                    params.meta = Some(meta.into());
                }
                match peer.call_tool_once(params).await {
                    Ok(CallToolResponse::Complete(result)) => Ok(text::of(result, &shown())),
                    Ok(CallToolResponse::Task(_)) => return Err(CallError::Refused(is_task)),
                    Ok(_more) => return Err(CallError::Refused(wants_more)),
                    Err(error) => Err(error),
                }
            }
            Request::Resource(uri) => match peer.read_resource_once(ReadResourceRequestParams::new(uri)).await {
                Ok(ReadResourceResponse::Complete(result)) => Ok(Ok(text::of_resource(result, &shown()))),
                Ok(_more) => return Err(CallError::Refused(wants_more)),
                Err(error) => Err(error),
            },
            Request::Prompt(name, arguments) => {
                let params = GetPromptRequestParams::new(name).with_arguments(arguments);
                match peer.get_prompt_once(params).await {
                    Ok(GetPromptResponse::Complete(result)) => Ok(Ok(text::of_prompt(result, &shown()))),
                    Ok(_more) => return Err(CallError::Refused(wants_more)),
                    Err(error) => Err(error),
                }
            }
        };
        match answered {
            Ok(said) => said.map_err(CallError::Refused),
            Err(ServiceError::McpError(error)) => Err(CallError::Refused(shown().text(error.message.into_owned()))),
            Err(ServiceError::UnexpectedResponse) => Err(CallError::Refused(
                "the server's answer does not follow the protocol".to_owned(),
            )),
            Err(error) => {
                let why = self.in_words(&error);
                Err(match &self.child {
                    Some(child) => CallError::Ended(child.why(|| why).await),
                    None if self.is_closed() => CallError::Ended(shown().text(why)),
                    None => CallError::Failed(shown().text(why)),
                })
            }
        }
    }

    fn in_words(&self, error: &ServiceError) -> String {
        let http = self.http.as_ref();
        let words = match error {
            ServiceError::TransportSend(error) => send_failure(error, http),
            ServiceError::TransportClosed => http
                .and_then(OAuthHttpClient::last_failure)
                .unwrap_or_else(|| "the connection was closed before the answer was complete".to_owned()),
            other => other.to_string(),
        };
        self.secrets().redact(words)
    }

    /// Returns the secrets that the server has received.
    fn secrets(&self) -> Secrets {
        self.http.as_ref().map(OAuthHttpClient::secrets).unwrap_or_default()
    }

    /// Returns true if the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Closes the connection. Ends the server if it is a program.
    pub(super) async fn close(&self) {
        self.service.cancellation_token().cancel();
        if let Some(child) = &self.child {
            child.end().await;
        }
    }

    /// Kills the server if it is a program.
    pub(super) fn kill(&self) {
        if let Some(child) = &self.child {
            child.kill();
        }
    }
}
