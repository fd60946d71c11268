//! An MCP server of the config: starts it, sends requests to it, and restarts it after a failure.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Url;
use tokio::runtime::Handle;

use super::connection::{CallError, Connection, Request};
use super::http_errors::shown_url;
use super::server_requests::{CallHandlers, ServerRequestRouter};
use super::text::ToolContent;
use crate::config::{McpServerConfig, Transport};
use crate::lane::Lane;
use crate::options::ToolOptions;

/// An MCP server of the config.
pub(super) struct Server {
    config: McpServerConfig,
    runtime: Handle,
    router: Arc<ServerRequestRouter>,
    lane: Lane,
    /// Serialises restarts.
    starting: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    connection: Option<Arc<Connection>>,
    restarts_left: u64,
    is_stopped: bool,
}

/// Tools, resources and prompts that a server lists when it starts.
#[derive(Default)]
pub(super) struct ServerListing {
    pub(super) tools: Vec<rmcp::model::Tool>,
    /// `None` if the server does not support resources.
    pub(super) resources: Option<Vec<rmcp::model::Resource>>,
    /// `None` if the server does not support prompts.
    pub(super) prompts: Option<Vec<rmcp::model::Prompt>>,
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    /// Creates a server without starting it.
    pub(super) fn new(config: McpServerConfig, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            lane: Lane::new(config.sampling.is_some()),
            state: Mutex::new(State {
                connection: None,
                restarts_left: config.restarts,
                is_stopped: false,
            }),
            config,
            runtime,
            router: Arc::default(),
            starting: tokio::sync::Mutex::new(()),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.config.id
    }

    /// Returns the message of a failed start with the URL of the server. Only for the operator: a path may be secret, so that errors of
    /// calls, which a model reads, do not contain it.
    pub(super) fn failed_start(&self, message: String) -> String {
        match &self.config.transport {
            Transport::Http { url, .. } => match Url::parse(url) {
                Ok(url) => format!("{}: {message}", shown_url(&url)),
                Err(_) => message,
            },
            Transport::Stdio(_) => message,
        }
    }

    pub(super) fn config(&self) -> &McpServerConfig {
        &self.config
    }

    /// Returns the limits for the calls of its tools. The limit of parallel calls applies to each tool separately.
    pub(super) fn options(&self) -> ToolOptions {
        ToolOptions {
            timeout: self.config.limits.timeout,
            max_parallel: Some(self.config.limits.max_parallel),
            approval: self.config.limits.approval,
            approval_timeout: self.config.limits.approval_timeout,
            in_doubt: self.config.limits.in_doubt.clone(),
            source: self.config.source(),
        }
    }

    /// Returns the lane of the server's calls.
    pub(super) fn lane(&self) -> Lane {
        self.lane.clone()
    }

    /// Starts the server for the first time, and lists its tools, resources and prompts.
    ///
    /// # Errors
    /// Returns a message if the server does not start or does not list its tools in time.
    pub(super) async fn start(&self) -> Result<ServerListing, String> {
        let connection = self.opened().await?;
        let limit = std::time::Duration::from_millis(self.config.start_timeout);
        let listed = super::within(limit, listed(&connection)).await;
        listed.unwrap_or_else(|| {
            Err(format!(
                "it did not list its tools within {} ms",
                self.config.start_timeout
            ))
        })
    }

    /// Sends a request. Restarts the server first if its connection has ended. `handlers` answer the server's own requests during
    /// the call.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    ///
    /// # Errors
    /// Returns a message for the model.
    pub(super) async fn asked(
        self: Arc<Self>,
        request: Request,
        handlers: CallHandlers,
    ) -> Result<ToolContent, String> {
        // Runs on the runtime of the servers: the caller's runtime may have no timer and no I/O driver.
        let runtime = self.runtime.clone();
        let mut asking = AbortOnDrop(runtime.spawn(self.ask(request, handlers)));
        (&mut asking.0).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn ask(self: Arc<Self>, request: Request, handlers: CallHandlers) -> Result<ToolContent, String> {
        let connection = self.connection().await?;
        let _under_way = self.router.enter(handlers);
        let said = connection.ask(request, self.config.limits.max_output_bytes).await;
        said.map_err(|error| match error {
            CallError::Refused(message) => message,
            CallError::Failed(why) => {
                tracing::warn!(server = self.id(), why, "a request to an MCP server failed");
                format!("the request to the MCP server `{}` failed: {why}", self.id())
            }
            CallError::Ended(how) => {
                tracing::warn!(server = self.id(), how, "an MCP server ended during a call");
                let next = if self.state().restarts_left > 0 {
                    "it is restarted at the next call"
                } else {
                    "it is not restarted"
                };
                format!("the MCP server `{}` ended during the call: {how}; {next}", self.id())
            }
        })
    }

    /// Returns the open connection, or opens a new one.
    async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        if let Some(connection) = self.open_one() {
            return Ok(connection);
        }
        // A separate task completes the restart if the caller is dropped meanwhile.
        let server = Arc::clone(self);
        let restarting = self.runtime.spawn(async move { server.restarted().await });
        let restarted = restarting.await.unwrap_or_else(|error| Err(error.to_string()));
        restarted.map_err(|why| format!("the MCP server `{}` is not available: {why}", self.id()))
    }

    async fn restarted(&self) -> Result<Arc<Connection>, String> {
        let _one_at_a_time = self.starting.lock().await;
        if let Some(connection) = self.open_one() {
            return Ok(connection);
        }
        {
            let mut state = self.state();
            if state.restarts_left == 0 {
                return Err("it has ended and is not restarted".to_owned());
            }
            state.restarts_left -= 1;
        }
        tracing::warn!(server = self.id(), "an MCP server is restarted");
        self.opened().await
    }

    async fn opened(&self) -> Result<Arc<Connection>, String> {
        if self.state().is_stopped {
            return Err("it was stopped".to_owned());
        }
        let connection =
            Arc::new(Box::pin(Connection::open(&self.config, Arc::clone(&self.router), &self.runtime)).await?);
        let mut state = self.state();
        if state.is_stopped {
            // Dropping the connection kills the server.
            return Err("it was stopped".to_owned());
        }
        state.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn open_one(&self) -> Option<Arc<Connection>> {
        let state = self.state();
        state
            .connection
            .as_ref()
            .filter(|connection| !connection.is_closed())
            .cloned()
    }

    /// Ends the server in order. Prevents restarts.
    pub(super) async fn stop(&self) {
        let connection = {
            let mut state = self.state();
            state.is_stopped = true;
            state.connection.take()
        };
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    /// Kills the server if it is a program. Prevents restarts.
    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        if let Some(connection) = state.connection.take() {
            connection.kill();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: the state is consistent whenever the lock can be released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the tools, resources and prompts of a server, as far as it declares them.
async fn listed(connection: &Connection) -> Result<ServerListing, String> {
    let able = connection.able();
    let mut listed = ServerListing::default();
    if able.tools.is_some() || (able.resources.is_none() && able.prompts.is_none()) {
        listed.tools = connection.tools().await?;
    }
    if able.resources.is_some() {
        listed.resources = Some(connection.resources().await?);
    }
    if able.prompts.is_some() {
        listed.prompts = Some(connection.prompts().await?);
    }
    Ok(listed)
}
