//! One connection to a server, from its start to its end.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    JsonObject,
};
use rmcp::service::{RoleClient, RunningService, ServiceError, ServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::Handle;

use super::child::Child;
use super::within;
use crate::headers;
use crate::tools::config::{McpServerConfig, Transport};

/// A refusal for want of a key, with what to do about it.
fn in_words(error: &str) -> String {
    let is_refused = error.contains("401") || error.to_ascii_lowercase().contains("auth required");
    if is_refused {
        "it wants a key (401): give it one in `headersEnv`, such as { Authorization = \"Bearer ${TOKEN}\" }".to_owned()
    } else {
        error.to_owned()
    }
}

/// A connection that has shaken hands.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    child: Option<Child>,
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
    pub(super) async fn open(config: &McpServerConfig, runtime: &Handle) -> Result<Self, String> {
        let limit = Duration::from_millis(config.start_timeout);
        let late = || format!("it did not answer within {} ms", config.start_timeout);
        let about = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("pirn", env!("CARGO_PKG_VERSION")),
        );
        match &config.transport {
            Transport::Stdio(stdio) => {
                let (child, out, into) = Child::start(stdio, runtime)?;
                match within(limit, Box::pin(about.serve((out, into)))).await {
                    Some(Ok(service)) => Ok(Self {
                        service,
                        child: Some(child),
                    }),
                    Some(Err(error)) => Err(child.why(|| error.to_string()).await),
                    None => Err(child.why(late).await),
                }
            }
            Transport::Http {
                url,
                headers,
                headers_env,
            } => {
                let all = headers::of_request(headers, headers_env, |name| std::env::var(name).ok())?
                    .into_iter()
                    .collect();
                let to = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(all);
                let client = reqwest::Client::builder()
                    // A server elsewhere must not be handed the keys.
                    .redirect(reqwest::redirect::Policy::none())
                    .build()
                    .map_err(|error| format!("no HTTP client: {error}"))?;
                let transport = StreamableHttpClientTransport::with_client(client, to);
                match within(limit, Box::pin(about.serve(transport))).await {
                    Some(Ok(service)) => Ok(Self { service, child: None }),
                    Some(Err(error)) => Err(in_words(&error.to_string())),
                    None => Err(late()),
                }
            }
        }
    }

    /// All its tools.
    pub(super) async fn tools(&self) -> Result<Vec<rmcp::model::Tool>, String> {
        let listed = self.service.peer().list_all_tools().await;
        listed.map_err(|error| format!("it lists no tools: {error}"))
    }

    /// Calls a tool. Dropping the future tells the server that nobody waits any more.
    pub(super) async fn call(&self, tool: String, arguments: JsonObject) -> Result<CallToolResult, CallError> {
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        match self.service.peer().call_tool_once(params).await {
            Ok(CallToolResponse::Complete(result)) => Ok(result),
            Ok(_more) => Err(CallError::Refused(
                "the server wants to go on in a way that is not known here".to_owned(),
            )),
            Err(ServiceError::McpError(error)) => Err(CallError::Refused(error.message.into_owned())),
            Err(error) => Err(CallError::Broken(match &self.child {
                Some(child) => child.why(|| error.to_string()).await,
                None => error.to_string(),
            })),
        }
    }

    /// Whether it has ended.
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
