//! Tools of language models by name: Rust functions, programs and HTTP requests from a config file (feature `tools`), and the tools
//! of MCP servers (feature `mcp`).
//!
//! A tool call that is refused, invalid, fails, panics or exceeds its time limit returns an explanatory text to the model, and so
//! does the call of an unknown tool. None of these ends a run.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! registry
//!   ↓
//! mcp
//!   ↓
//! command  http
//!   ↓
//! config  output  process
//!   ↓
//! descendants  environment  lane  options  template
//!   ↓
//! approval
//!   ↓
//! arguments  tool_search
//!   ↓
//! schema_size
//! ```
//!
//! Reading order:
//! 1. `registry`: the steps of every call: argument check, approval, limits, time limit.
//! 2. `config`: the entries of a config file; `template` is a text with `{{argument}}`.
//! 3. `command`, then `process`: a program, which ends with its descendants. `output` limits what a call returns and removes secrets.
//! 4. `http`: a request.
//! 5. `mcp`: MCP servers; `mcp/connection.rs` is a server and its calls. `lane` admits the calls of one run at a time.

mod approval;
mod arguments;
#[cfg(feature = "tools")]
mod command;
#[cfg(feature = "tools")]
mod config;
#[cfg(feature = "tools")]
mod descendants;
#[cfg(feature = "tools")]
mod environment;
#[cfg(feature = "tools")]
mod http;
mod lane;
#[cfg(feature = "mcp")]
mod mcp;
mod options;
#[cfg(feature = "tools")]
mod output;
#[cfg(feature = "tools")]
mod process;
mod registry;
#[cfg(feature = "tools")]
mod schema_size;
#[cfg(feature = "tools")]
mod template;
#[cfg(test)]
mod tests;
mod tool_search;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Tool, ToolSpec};
use serde_json::Value;

pub use pirn_actors::ports::{AskPerson, CallContext, Question, Sampler, ToolContext};

pub use approval::{Approval, ApprovalRequest, Elicitation, Verdict};
#[cfg(feature = "mcp")]
pub use config::McpServerConfig;
#[cfg(feature = "tools")]
pub use config::{CallLimits, ConfigFault, ToolConfig, ToolsConfig, tools_of};
#[cfg(feature = "tools")]
pub use descendants::adopt_orphans;
#[cfg(feature = "mcp")]
pub use mcp::{McpServers, PromptInfo, ResourceInfo};
pub use options::{DEFAULT_TIMEOUT, ToolOptions};
#[cfg(feature = "tools")]
pub use process::kill_all;
pub use registry::{DEFAULT_MAX_CALLS, ToolInfo, ToolRegistry};

#[cfg(feature = "tools")]
impl ToolRegistry {
    /// Adds the programs and requests of a config file; its MCP servers are started by
    #[cfg_attr(feature = "mcp", doc = "[`McpServers`] and added by [`ToolRegistry::add_servers`].")]
    #[cfg_attr(not(feature = "mcp"), doc = "the feature `mcp`.")]
    pub fn configure(&mut self, config: ToolsConfig) {
        let shared = http::SharedClient::default();
        for tool in config.tools {
            let options = ToolOptions {
                timeout: tool.limits.timeout,
                max_parallel: Some(tool.limits.max_parallel),
                approval: tool.limits.approval,
                approval_timeout: tool.limits.approval_timeout,
                in_doubt: tool.limits.in_doubt.clone(),
                source: tool.source(),
            };
            let spec = ToolSpec {
                name: tool.name,
                description: tool.description,
                parameters: tool.input_schema,
            };
            let limit = tool.limits.max_output_bytes;
            let tool: Arc<dyn Tool> = match tool.kind {
                config::Kind::Command(command) => Arc::new(command::CommandTool::new(spec, command, limit)),
                config::Kind::Http(http) => Arc::new(http::HttpTool::new(spec, http, limit, shared.clone())),
            };
            self.register_with(tool, options);
        }
    }
}

/// Creates a tool from an async function. `schema` is the JSON Schema of its arguments. The function must not wait for anything
/// outside the program: the tool is not [external](Tool::is_external).
///
/// ```
/// use serde_json::json;
/// let schema = json!({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]});
/// let double = pirn_tools::tool_fn("double", "Doubles a number", schema, |arguments| async move {
///     let a = arguments["a"].as_f64().ok_or("`a` is no number")?;
///     Ok((2.0 * a).to_string())
/// });
/// assert_eq!(double.spec().name, "double");
/// ```
pub fn tool_fn<F, R>(name: impl Into<String>, description: impl Into<String>, schema: Value, call: F) -> Arc<dyn Tool>
where
    F: Fn(Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, String>> + Send + 'static,
{
    Arc::new(FunctionTool {
        spec: ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: schema,
        },
        call,
    })
}

struct FunctionTool<F> {
    spec: ToolSpec,
    call: F,
}

impl<F, R> Tool for FunctionTool<F>
where
    F: Fn(Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, String>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        (self.call)(arguments).boxed()
    }

    fn is_external(&self) -> bool {
        false
    }
}
