//! Tools of MCP servers.
//!
//! 1. Servers are started and their tools listed before a run starts. Connections use a separate runtime. They are independent
//!    of the task that started them and of the embedding program's runtime.
//! 2. If a server exits or its connection ends, calls in progress end with an error. The next call restarts the server, up to
//!    the number of `restarts` in its config. A failed request over HTTP ends only its call.
//! 3. On shutdown, a server that is a program is first asked to exit: its stdin is closed, then it receives SIGTERM. If it does
//!    not exit in time, its process group is killed. If [`McpServers`] is dropped without a shutdown, the group is killed at
//!    once.
//!
//! Not here: the entries of servers in a config file (`config/server.rs`), and the MCP server that offers workflows as tools
//! (the HTTP service).

mod child;
mod connection;
mod flow;
mod http_errors;
mod oauth_client;
mod pages;
mod sampling;
mod server;
mod server_requests;
mod tasks;
mod text;
mod token;
mod tool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use pirn_actors::ports::Tool;
use tokio::runtime::Runtime;

use super::config::{ConfigFault, McpServerConfig};
use super::lane::Lane;
use super::options::ToolOptions;
use server::{Server, ServerListing};
use tool::McpTool;

/// Running MCP servers. Cheap to clone: clones refer to one set of servers.
///
/// The servers end with [`McpServers::shutdown`] or with the engine that has their tools. When the last handle is dropped, they
/// are killed without a grace period.
#[derive(Clone)]
pub struct McpServers {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Option<Runtime>,
    has: StartedServers,
}

/// Description of a server's resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// Id of the server.
    pub server: String,
    /// URI of the resource.
    pub uri: String,
    /// Name of the resource.
    pub name: String,
    /// Description, if the server gives one.
    pub description: Option<String>,
    /// Media type, if the server gives one.
    pub media_type: Option<String>,
}

/// Description of a server's prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptInfo {
    /// Id of the server.
    pub server: String,
    /// Name of the prompt.
    pub name: String,
    /// Description, if the server gives one.
    pub description: Option<String>,
    /// Names of the arguments; true if an argument is required.
    pub arguments: Vec<(String, bool)>,
}

impl McpServers {
    /// Starts the servers in parallel and lists their tools.
    ///
    /// # Errors
    /// Returns a fault for each server that does not start or has tools that cannot be offered. The other servers are stopped.
    pub async fn start(configs: Vec<McpServerConfig>) -> Result<Self, Vec<ConfigFault>> {
        let (told, heard) = futures::channel::oneshot::channel();
        let inner = Inner::begin(configs, |started| told.send(started).unwrap_or(()))?;
        let started = heard.await.unwrap_or_else(|_| Err(vec![broken()]));
        Ok(inner.with(started?))
    }

    /// Like [`McpServers::start`], for callers outside async code. Blocks.
    ///
    /// # Errors
    /// As [`McpServers::start`].
    pub fn start_blocking(configs: Vec<McpServerConfig>) -> Result<Self, Vec<ConfigFault>> {
        let (told, heard) = std::sync::mpsc::channel();
        let inner = Inner::begin(configs, move |started| told.send(started).unwrap_or(()))?;
        let started = heard.recv().unwrap_or_else(|_| Err(vec![broken()]));
        Ok(inner.with(started?))
    }

    /// Closes all connections and waits until server programs have exited. Programs that do not exit within a few seconds are
    /// killed.
    pub async fn shutdown(&self) {
        if let Some(runtime) = &self.inner.runtime {
            let stopping = runtime.handle().spawn(stop_all(self.inner.has.servers.clone()));
            if let Err(error) = stopping.await {
                tracing::error!(%error, "the end of the MCP servers panicked");
            }
        }
    }

    /// Like [`McpServers::shutdown`], for callers outside async code. Blocks.
    pub fn shutdown_blocking(&self) {
        let (told, heard) = std::sync::mpsc::channel();
        if let Some(runtime) = &self.inner.runtime {
            let servers = self.inner.has.servers.clone();
            runtime.handle().spawn(async move {
                stop_all(servers).await;
                // The caller blocks on the receiver, so the send does not fail.
                told.send(()).unwrap_or(());
            });
            if heard.recv().is_err() {
                tracing::error!("the end of the MCP servers panicked");
            }
        }
    }

    /// Returns the resources of all servers.
    pub fn resources(&self) -> &[ResourceInfo] {
        &self.inner.has.resources
    }

    /// Returns the prompts of all servers.
    pub fn prompts(&self) -> &[PromptInfo] {
        &self.inner.has.prompts
    }

    /// Returns the tools of all servers, each with the lane for its calls.
    pub(super) fn tools(&self) -> impl Iterator<Item = (Arc<dyn Tool>, Lane, ToolOptions)> {
        let tools = self.inner.has.tools.values();
        tools.map(|(tool, options)| (Arc::clone(tool) as Arc<dyn Tool>, tool.lane(), options.clone()))
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.inner.has.servers.iter().map(|server| server.id());
        f.debug_set().entries(ids).finish()
    }
}

impl Inner {
    /// Creates a runtime on which the servers start. Passes the result to `tell` even if the caller has been dropped.
    fn begin(
        configs: Vec<McpServerConfig>,
        tell: impl FnOnce(Result<StartedServers, Vec<ConfigFault>>) + Send + 'static,
    ) -> Result<Self, Vec<ConfigFault>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("pirn-mcp")
            .enable_all()
            .build()
            .map_err(|error| vec![ConfigFault::new("mcpServers", "", format!("no thread: {error}"))])?;
        let handle = runtime.handle().clone();
        runtime.spawn(async move { tell(start_all(configs, handle).await) });
        Ok(Self {
            runtime: Some(runtime),
            has: StartedServers::default(),
        })
    }

    fn with(mut self, started: StartedServers) -> McpServers {
        self.has = started;
        McpServers { inner: Arc::new(self) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for server in &self.has.servers {
            server.kill();
        }
        if let Some(runtime) = self.runtime.take() {
            // A blocking shutdown of the runtime would panic on a tokio worker thread.
            runtime.shutdown_background();
        }
    }
}

/// Started servers and everything that they list; tools by name.
#[derive(Default)]
struct StartedServers {
    servers: Vec<Arc<Server>>,
    tools: BTreeMap<String, (Arc<McpTool>, ToolOptions)>,
    resources: Vec<ResourceInfo>,
    prompts: Vec<PromptInfo>,
}

impl StartedServers {
    /// Adds a server's resources and prompts to the public lists.
    fn tell(&mut self, server: &Server, listed: &ServerListing) {
        let id = || server.id().to_owned();
        let resources = listed.resources.iter().flatten().map(|one| ResourceInfo {
            server: id(),
            uri: one.uri.clone(),
            name: one.name.clone(),
            description: one.description.clone(),
            media_type: one.mime_type.clone(),
        });
        self.resources.extend(resources);
        let prompts = listed.prompts.iter().flatten().map(|one| PromptInfo {
            server: id(),
            name: one.name.clone(),
            description: one.description.clone(),
            arguments: one
                .arguments
                .iter()
                .flatten()
                .map(|argument| (argument.name.clone(), argument.required == Some(true)))
                .collect(),
        });
        self.prompts.extend(prompts);
    }
}

async fn start_all(
    configs: Vec<McpServerConfig>,
    runtime: tokio::runtime::Handle,
) -> Result<StartedServers, Vec<ConfigFault>> {
    let starting = configs.into_iter().map(|config| {
        let server = Server::new(config, runtime.clone());
        async move {
            let listed = server.start().await;
            (server, listed)
        }
    });
    let mut faults = Vec::new();
    let mut started = StartedServers::default();
    for (server, listed) in join_all(starting).await {
        let offered = listed.and_then(|listed| {
            started.tell(&server, &listed);
            tool::offered(&server, &listed)
        });
        match offered {
            Ok(offered) => {
                for tool in offered {
                    let name = tool.name().to_owned();
                    let entry = (Arc::new(tool), server.options());
                    if started.tools.insert(name.clone(), entry).is_some() {
                        let message = format!("two of the servers' tools are called `{name}`; set another `prefix`");
                        faults.push(ConfigFault::new(server.id(), "/prefix", message));
                    }
                }
            }
            Err(message) => faults.push(ConfigFault::new(server.id(), "", server.failed_start(message))),
        }
        started.servers.push(server);
    }
    if faults.is_empty() {
        Ok(started)
    } else {
        stop_all(started.servers).await;
        Err(faults)
    }
}

async fn stop_all(servers: Vec<Arc<Server>>) {
    join_all(servers.iter().map(|server| server.stop())).await;
}

fn broken() -> ConfigFault {
    ConfigFault::new("mcpServers", "", "starting them panicked")
}

/// Returns the output of `work`, or `None` after `limit`. Uses real time even under a virtual clock, because servers do.
#[allow(clippy::disallowed_methods)]
async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
