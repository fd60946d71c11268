//! Tools of MCP servers.
//!
//! 1. A server is started, and its tools listed, before a run begins. Connections live on a runtime of their own, so they
//!    outlast whoever started them and need nothing of the embedding program.
//! 2. A server that ends by itself answers the calls under way with an error; at the next call it is started again, as
//!    often as its config says.
//! 3. A server that is a program ends with us: asked first (its stdin is closed, then SIGTERM), killed with its whole
//!    process group after a while; killed at once where nobody waits for it ([`McpServers`] is dropped).

mod child;
mod connection;
mod server;
mod text;
mod tool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use pirn_actors::ports::Tool;
use tokio::runtime::Runtime;

use super::config::{ConfigFault, McpServerConfig};
use super::{ToolOptions, ToolRegistry};
use server::Server;
use tool::McpTool;

/// MCP servers under way. A cheap handle: the servers end with [`McpServers::shutdown`], with the engine that has their
/// tools, or without grace when the last handle is dropped.
#[derive(Clone)]
pub struct McpServers {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Option<Runtime>,
    servers: Vec<Arc<Server>>,
    tools: BTreeMap<String, (Arc<McpTool>, ToolOptions)>,
}

impl McpServers {
    /// Starts the servers, all at once, and lists their tools.
    ///
    /// # Errors
    /// Every server that does not start, or whose tools can not be offered; the others are stopped again.
    pub async fn start(configs: Vec<McpServerConfig>) -> Result<Self, Vec<ConfigFault>> {
        let (told, heard) = futures::channel::oneshot::channel();
        let inner = Inner::begin(configs, |started| told.send(started).unwrap_or(()))?;
        let started = heard.await.unwrap_or_else(|_| Err(vec![broken()]));
        Ok(inner.with(started?))
    }

    /// As [`McpServers::start`], for callers outside async code.
    ///
    /// # Errors
    /// As there.
    pub fn start_blocking(configs: Vec<McpServerConfig>) -> Result<Self, Vec<ConfigFault>> {
        let (told, heard) = std::sync::mpsc::channel();
        let inner = Inner::begin(configs, move |started| told.send(started).unwrap_or(()))?;
        let started = heard.recv().unwrap_or_else(|_| Err(vec![broken()]));
        Ok(inner.with(started?))
    }

    /// Asks every server to end, kills those that do not within some seconds, and waits until they are gone.
    pub async fn shutdown(&self) {
        if let Some(runtime) = &self.inner.runtime {
            let stopping = runtime.handle().spawn(stop_all(self.inner.servers.clone()));
            if let Err(error) = stopping.await {
                tracing::error!(%error, "the end of the MCP servers panicked");
            }
        }
    }

    /// As [`McpServers::shutdown`], for callers outside async code.
    pub fn shutdown_blocking(&self) {
        let (told, heard) = std::sync::mpsc::channel();
        if let Some(runtime) = &self.inner.runtime {
            let servers = self.inner.servers.clone();
            runtime.handle().spawn(async move {
                stop_all(servers).await;
                // The waiter is there until it hears, or until this is dropped.
                told.send(()).unwrap_or(());
            });
            if heard.recv().is_err() {
                tracing::error!("the end of the MCP servers panicked");
            }
        }
    }

    /// Adds their tools to a registry; the servers end with it.
    pub(super) fn add_to(self, registry: &mut ToolRegistry) {
        for (tool, options) in self.inner.tools.values() {
            registry.register_with(Arc::clone(tool) as Arc<dyn Tool>, options.clone());
        }
        registry.own(self);
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.inner.servers.iter().map(|server| server.id());
        f.debug_set().entries(ids).finish()
    }
}

impl Inner {
    /// A runtime that starts the servers, and tells when it has. Whoever listens may be gone by then.
    fn begin(
        configs: Vec<McpServerConfig>,
        tell: impl FnOnce(Result<Started, Vec<ConfigFault>>) + Send + 'static,
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
            servers: Vec::new(),
            tools: BTreeMap::new(),
        })
    }

    fn with(mut self, started: Started) -> McpServers {
        self.servers = started.servers;
        self.tools = started.tools;
        McpServers { inner: Arc::new(self) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for server in &self.servers {
            server.kill();
        }
        if let Some(runtime) = self.runtime.take() {
            // Waiting for its thread would panic on a tokio worker.
            runtime.shutdown_background();
        }
    }
}

/// Servers that have listed their tools, and the tools by name.
struct Started {
    servers: Vec<Arc<Server>>,
    tools: BTreeMap<String, (Arc<McpTool>, ToolOptions)>,
}

async fn start_all(
    configs: Vec<McpServerConfig>,
    runtime: tokio::runtime::Handle,
) -> Result<Started, Vec<ConfigFault>> {
    let starting = configs.into_iter().map(|config| {
        let server = Server::new(config, runtime.clone());
        async move {
            let listed = server.start().await;
            (server, listed)
        }
    });
    let mut faults = Vec::new();
    let mut tools: BTreeMap<String, (Arc<McpTool>, ToolOptions)> = BTreeMap::new();
    let mut servers = Vec::new();
    for (server, listed) in join_all(starting).await {
        match listed.and_then(|listed| tool::offered(&server, listed)) {
            Ok(offered) => {
                for tool in offered {
                    let name = tool.name().to_owned();
                    let entry = (Arc::new(tool), server.options());
                    if tools.insert(name.clone(), entry).is_some() {
                        let message = format!("two of the servers' tools are called `{name}`; set another `prefix`");
                        faults.push(ConfigFault::new(server.id(), "/prefix", message));
                    }
                }
            }
            Err(message) => faults.push(ConfigFault::new(server.id(), "", message)),
        }
        servers.push(server);
    }
    if faults.is_empty() {
        Ok(Started { servers, tools })
    } else {
        stop_all(servers).await;
        Err(faults)
    }
}

async fn stop_all(servers: Vec<Arc<Server>>) {
    join_all(servers.iter().map(|server| server.stop())).await;
}

fn broken() -> ConfigFault {
    ConfigFault::new("mcpServers", "", "starting them panicked")
}

/// What `work` gives, unless it takes longer. A server's life is real time, under a virtual clock too.
#[allow(clippy::disallowed_methods)]
async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
