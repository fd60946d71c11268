//! A connection to one MCP server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pirn_actors::current_call::idempotency_key;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, JsonObject,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
};
use rmcp::service::{RoleClient, RunningService, ServiceError, ServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::Handle;

use super::child::Child;
use super::flow::BoundedTransport;
use super::oauth_client::OAuthHttpClient;
use super::pages::every_page;
use super::server_requests::{Handler, ServerRequestRouter};
use super::tasks::{TaskFlagReader, TaskOnlyTools};
use super::text::{self, TextFilter, ToolContent};
use super::token::Tokens;
use super::within;
use crate::config::{McpServerConfig, Transport};
use pirn_models::headers::{self, Secrets};

/// Adds advice to an error if the server answered 401 (`is_refused`).
fn in_words(error: &str, is_refused: bool, has_oauth: bool) -> String {
    match (is_refused, has_oauth) {
        (false, _) => error.to_owned(),
        (true, true) => "it refuses the token of `oauth` (401): check `scope` and `resource`".to_owned(),
        (true, false) => {
            "it requires a key (401): set one in `headersEnv`, such as { Authorization = \"Bearer ${TOKEN}\" }, or set \
             `oauth`, which fetches tokens"
                .to_owned()
        }
    }
}

/// An initialised connection.
pub(super) struct Connection {
    service: RunningService<RoleClient, Handler>,
    child: Option<Child>,
    task_only_tools: TaskOnlyTools,
    has_oauth: bool,
    /// True while the server answers 401.
    is_refused: Arc<AtomicBool>,
    /// Values from `headersEnv`, redacted in messages.
    secrets: Secrets,
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
    /// The connection failed. The message contains the server's exit status if it is known.
    Broken(String),
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
                        has_oauth: false,
                        is_refused: Arc::default(),
                        secrets: Secrets::default(),
                    }),
                    Some(Err(error)) => Err(child.why(|| error.to_string()).await),
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
                let secrets = Secrets::of(all.iter().skip(headers.len()).map(|(_, value)| value));
                let all = all.into_iter().collect();
                let mut to = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(all);
                // A new session with a restarted server has the time limit of the first session.
                to.session_recovery_timeout = limit;
                let client = reqwest::Client::builder()
                    // The headers contain secrets, which a redirect must not send to another server.
                    .redirect(reqwest::redirect::Policy::none())
                    .build()
                    .map_err(|error| format!("cannot create an HTTP client: {error}"))?;
                let tokens = oauth.clone().map(|oauth| Arc::new(Tokens::new(oauth, client.clone())));
                if let Some(tokens) = &tokens {
                    // Fetched before the first request to the server, so that a faulty `oauth` config is reported as such.
                    tokens.token().await?;
                }
                let has_oauth = tokens.is_some();
                let client = OAuthHttpClient::new(client, tokens);
                let is_refused = client.is_refused();
                let transport = StreamableHttpClientTransport::with_client(client, to);
                match within(limit, Box::pin(about.serve(BoundedTransport::new(transport)))).await {
                    Some(Ok(service)) => Ok(Self {
                        service,
                        child: None,
                        task_only_tools,
                        has_oauth,
                        is_refused,
                        secrets,
                    }),
                    Some(Err(error)) => {
                        let is_refused = is_refused.load(Ordering::Relaxed);
                        Err(secrets.redact(in_words(&error.to_string(), is_refused, has_oauth)))
                    }
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
        let shown = TextFilter {
            limit,
            secrets: &self.secrets,
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
                    Ok(CallToolResponse::Complete(result)) => Ok(text::of(result, &shown)),
                    Ok(CallToolResponse::Task(_)) => return Err(CallError::Refused(is_task)),
                    Ok(_more) => return Err(CallError::Refused(wants_more)),
                    Err(error) => Err(error),
                }
            }
            Request::Resource(uri) => match peer.read_resource_once(ReadResourceRequestParams::new(uri)).await {
                Ok(ReadResourceResponse::Complete(result)) => Ok(Ok(text::of_resource(result, &shown))),
                Ok(_more) => return Err(CallError::Refused(wants_more)),
                Err(error) => Err(error),
            },
            Request::Prompt(name, arguments) => {
                let params = GetPromptRequestParams::new(name).with_arguments(arguments);
                match peer.get_prompt_once(params).await {
                    Ok(GetPromptResponse::Complete(result)) => Ok(Ok(text::of_prompt(result, &shown))),
                    Ok(_more) => return Err(CallError::Refused(wants_more)),
                    Err(error) => Err(error),
                }
            }
        };
        match answered {
            Ok(said) => said.map_err(CallError::Refused),
            Err(ServiceError::McpError(error)) => Err(CallError::Refused(shown.text(error.message.into_owned()))),
            Err(ServiceError::UnexpectedResponse) => Err(CallError::Refused(
                "the server's answer does not follow the protocol".to_owned(),
            )),
            Err(error) => Err(CallError::Broken(match &self.child {
                Some(child) => child.why(|| error.to_string()).await,
                None => shown.text(self.in_words(&error)),
            })),
        }
    }

    fn in_words(&self, error: &ServiceError) -> String {
        let words = in_words(
            &error.to_string(),
            self.is_refused.load(Ordering::Relaxed),
            self.has_oauth,
        );
        self.secrets.redact(words)
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
