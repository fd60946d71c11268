//! One connection to a server, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pirn_actors::cause::idempotency_key;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, JsonObject,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
};
use rmcp::service::{RoleClient, RunningService, ServiceError, ServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::Handle;

use super::authorized::Authorized;
use super::child::Child;
use super::door::{Door, Handler};
use super::flow::Bounded;
use super::pages::every_page;
use super::tasks::{NeedTasks, Overheard};
use super::text::{self, Said, Shown};
use super::token::Tokens;
use super::within;
use crate::headers::{self, Secrets};
use crate::tools::config::{McpServerConfig, Transport};

/// A refusal for want of a key, with what to do about it; `is_refused`: the server has answered 401.
fn in_words(error: &str, is_refused: bool, has_oauth: bool) -> String {
    match (is_refused, has_oauth) {
        (false, _) => error.to_owned(),
        (true, true) => {
            "it refuses the token that `oauth` gives (401): are `scope` and `resource` what it wants?".to_owned()
        }
        (true, false) => {
            "it wants a key (401): give it one in `headersEnv`, such as { Authorization = \"Bearer ${TOKEN}\" }, or \
             `oauth`, which fetches tokens"
                .to_owned()
        }
    }
}

/// A connection that has shaken hands.
pub(super) struct Connection {
    service: RunningService<RoleClient, Handler>,
    child: Option<Child>,
    need_tasks: NeedTasks,
    has_oauth: bool,
    /// True while the server answers 401.
    is_refused: Arc<AtomicBool>,
    /// Sent with each request, in headers.
    secrets: Secrets,
}

/// Something that a server is asked.
pub(super) enum Request {
    /// To call a tool.
    Tool(String, JsonObject),
    /// To read a resource.
    Resource(String),
    /// To give a prompt.
    Prompt(String, JsonObject),
}

/// Why a call has no result.
pub(super) enum CallError {
    /// The server says so.
    Refused(String),
    /// The connection broke: how the server ended, as far as is known.
    Broken(String),
}

impl Connection {
    /// Connects, starting the server where it is a program.
    ///
    /// # Errors
    /// A sentence.
    pub(super) async fn open(config: &McpServerConfig, door: Arc<Door>, runtime: &Handle) -> Result<Self, String> {
        let limit = Duration::from_millis(config.start_timeout);
        let late = || format!("it did not answer within {} ms", config.start_timeout);
        let roots = config.roots.iter().filter_map(|root| {
            let url = reqwest::Url::from_directory_path(root).ok()?;
            Some(String::from(url).trim_end_matches('/').to_owned())
        });
        let about = Handler::new(door, roots.collect(), config.sampling.clone());
        let need_tasks = NeedTasks::default();
        match &config.transport {
            Transport::Stdio(stdio) => {
                let (child, out, into) = Child::start(stdio, runtime)?;
                let transport = AsyncRwTransport::new(Overheard::new(out, need_tasks.clone()), into);
                match within(limit, Box::pin(about.serve(Bounded::new(transport)))).await {
                    Some(Ok(service)) => Ok(Self {
                        service,
                        child: Some(child),
                        need_tasks,
                        has_oauth: false,
                        is_refused: Arc::default(),
                        secrets: Secrets::default(),
                    }),
                    Some(Err(error)) => Err(child.why(|| error.to_string()).await),
                    // Its end would be told as the reason, and is what follows from a stdin that was closed.
                    None => Err(child.after(late())),
                }
            }
            Transport::Http {
                url,
                headers,
                headers_env,
                oauth,
            } => {
                let all = headers::of_request(headers, headers_env, |name| std::env::var(name).ok())?;
                let secrets = Secrets::of(all.iter().skip(headers.len()).map(|(_, value)| value));
                let all = all.into_iter().collect();
                let mut to = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(all);
                // A server that was started again is given as long for a new session as for the first one.
                to.session_recovery_timeout = limit;
                let client = reqwest::Client::builder()
                    // A server elsewhere must not be handed the keys.
                    .redirect(reqwest::redirect::Policy::none())
                    .build()
                    .map_err(|error| format!("no HTTP client: {error}"))?;
                let tokens = oauth.clone().map(|oauth| Arc::new(Tokens::new(oauth, client.clone())));
                if let Some(tokens) = &tokens {
                    // Before the server is asked anything: what is wrong here is told by itself.
                    tokens.token().await?;
                }
                let has_oauth = tokens.is_some();
                let client = Authorized::new(client, tokens);
                let is_refused = client.is_refused();
                let transport = StreamableHttpClientTransport::with_client(client, to);
                match within(limit, Box::pin(about.serve(Bounded::new(transport)))).await {
                    Some(Ok(service)) => Ok(Self {
                        service,
                        child: None,
                        need_tasks,
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

    /// All its tools that can just be called.
    pub(super) async fn tools(&self) -> Result<Vec<rmcp::model::Tool>, String> {
        let peer = self.service.peer();
        let page = |params| async {
            let page = peer.list_tools(params).await.map_err(|error| self.in_words(&error))?;
            Ok((page.tools, page.next_cursor))
        };
        let mut tools = every_page("tools", page).await?;
        tools.retain(|tool| !self.need_tasks.contains(&tool.name));
        Ok(tools)
    }

    /// The capabilities of the server, as it says.
    pub(super) fn able(&self) -> ServerCapabilities {
        let info = self.service.peer().peer_info();
        info.map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    /// All its resources.
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

    /// All its prompts.
    pub(super) async fn prompts(&self) -> Result<Vec<rmcp::model::Prompt>, String> {
        let peer = self.service.peer();
        let page = |params| async {
            let page = peer.list_prompts(params).await.map_err(|error| self.in_words(&error))?;
            Ok((page.prompts, page.next_cursor))
        };
        every_page("prompts", page).await
    }

    /// Asks the server something; what it says is at most `limit` bytes of text. Dropping the future tells the server that
    /// nobody waits any more.
    pub(super) async fn ask(&self, request: Request, limit: usize) -> Result<Said, CallError> {
        let peer = self.service.peer();
        let shown = Shown {
            limit,
            secrets: &self.secrets,
        };
        let is_task = "the tool runs as a task, which is not known here".to_owned();
        let wants_more = "the server wants to go on in a way that is not known here".to_owned();
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
                "the server's answer is not what the protocol says".to_owned(),
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

    /// True once it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Closes it, and ends the server where it is a program.
    pub(super) async fn close(&self) {
        self.service.cancellation_token().cancel();
        if let Some(child) = &self.child {
            child.end().await;
        }
    }

    /// Kills the server where it is a program.
    pub(super) fn kill(&self) {
        if let Some(child) = &self.child {
            child.kill();
        }
    }
}
