//! Tools of MCP servers.
//!
//! 1. A server is started, and its tools listed, before a run begins. Connections live on a runtime of their own, so they
//!    outlast whoever started them and need nothing of the embedding program.
//! 2. A server that ends by itself answers the calls under way with an error; at the next call it is started again, as
//!    often as its config says.
//! 3. A server that is a program ends with us: asked first (its stdin is closed, then SIGTERM), killed with its whole
//!    process group after a while; killed at once where nobody waits for it ([`McpServers`] is dropped).

mod authorized;
mod child;
mod connection;
mod door;
mod flow;
mod pages;
mod sampling;
mod server;
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
use super::{ToolOptions, ToolRegistry};
use server::{Listed, Server};
use tool::McpTool;

/// MCP servers under way. A cheap handle: the servers end with [`McpServers::shutdown`], with the engine that has their
/// tools, or without grace when the last handle is dropped.
#[derive(Clone)]
pub struct McpServers {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Option<Runtime>,
    has: Started,
}

/// A resource of a server, as it lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// The server's id.
    pub server: String,
    /// Its address.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its description, where the server gives one.
    pub description: Option<String>,
    /// Its media type, where the server says so.
    pub media_type: Option<String>,
}

/// A prompt of a server, as it lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptInfo {
    /// The server's id.
    pub server: String,
    /// Its name.
    pub name: String,
    /// Its purpose, where the server says so.
    pub description: Option<String>,
    /// Its arguments, and whether each must be there.
    pub arguments: Vec<(String, bool)>,
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
            let stopping = runtime.handle().spawn(stop_all(self.inner.has.servers.clone()));
            if let Err(error) = stopping.await {
                tracing::error!(%error, "the end of the MCP servers panicked");
            }
        }
    }

    /// As [`McpServers::shutdown`], for callers outside async code.
    pub fn shutdown_blocking(&self) {
        let (told, heard) = std::sync::mpsc::channel();
        if let Some(runtime) = &self.inner.runtime {
            let servers = self.inner.has.servers.clone();
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

    /// Their resources.
    pub fn resources(&self) -> &[ResourceInfo] {
        &self.inner.has.resources
    }

    /// Their prompts.
    pub fn prompts(&self) -> &[PromptInfo] {
        &self.inner.has.prompts
    }

    /// Adds their tools to a registry; the servers end with it.
    pub(super) fn add_to(self, registry: &mut ToolRegistry) {
        for (tool, options) in self.inner.has.tools.values() {
            registry.register_in(Some(tool.lane()), Arc::clone(tool) as Arc<dyn Tool>, options.clone());
        }
        registry.own(self);
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.inner.has.servers.iter().map(|server| server.id());
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
            has: Started::default(),
        })
    }

    fn with(mut self, started: Started) -> McpServers {
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
            // Waiting for its thread would panic on a tokio worker.
            runtime.shutdown_background();
        }
    }
}

/// Servers that have said what they have, and that; tools by name.
#[derive(Default)]
struct Started {
    servers: Vec<Arc<Server>>,
    tools: BTreeMap<String, (Arc<McpTool>, ToolOptions)>,
    resources: Vec<ResourceInfo>,
    prompts: Vec<PromptInfo>,
}

impl Started {
    /// Keeps what people are told of a server's resources and prompts.
    fn tell(&mut self, server: &Server, listed: &Listed) {
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
) -> Result<Started, Vec<ConfigFault>> {
    let starting = configs.into_iter().map(|config| {
        let server = Server::new(config, runtime.clone());
        async move {
            let listed = server.start().await;
            (server, listed)
        }
    });
    let mut faults = Vec::new();
    let mut started = Started::default();
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
            Err(message) => faults.push(ConfigFault::new(server.id(), "", message)),
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

/// The output of `work`, unless it takes longer. A server's life is real time, under a virtual clock too.
#[allow(clippy::disallowed_methods)]
async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
