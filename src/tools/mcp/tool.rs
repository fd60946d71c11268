//! A server's tool as one of ours.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Tool, ToolContext, ToolSpec};
use pirn_core::message::Part;
use serde_json::Value;

use super::server::Server;
use super::text;
use crate::tools::config::is_name;

/// A tool of a server, under a name that every provider takes.
pub(super) struct McpTool {
    server: Arc<Server>,
    /// The server's own name for it.
    theirs: String,
    spec: ToolSpec,
}

impl McpTool {
    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }
}

/// The tools of a server that its config offers.
///
/// # Errors
/// A sentence: the config names one that the server does not have, or a name is none that providers take.
pub(super) fn offered(server: &Arc<Server>, listed: Vec<rmcp::model::Tool>) -> Result<Vec<McpTool>, String> {
    let config = server.config();
    if let Some(wanted) = &config.tools {
        let missing = wanted
            .iter()
            .find(|name| !listed.iter().any(|tool| tool.name == name.as_str()));
        if let Some(missing) = missing {
            let names: Vec<&str> = listed.iter().map(|tool| tool.name.as_ref()).collect();
            return Err(format!("it has no tool `{missing}`; it has {}", names.join(", ")));
        }
    }
    let is_wanted = |name: &str| {
        config
            .tools
            .as_ref()
            .is_none_or(|wanted| wanted.iter().any(|other| other == name))
    };
    let wanted = listed.into_iter().filter(|tool| is_wanted(&tool.name));
    wanted
        .map(|tool| {
            let theirs = tool.name.into_owned();
            let name = config.name_of(&theirs);
            if !is_name(&name) {
                return Err(format!(
                    "`{name}` is too long for a tool's name; set a shorter `prefix`, or leave it out"
                ));
            }
            let title = tool.title.unwrap_or_else(|| theirs.clone());
            let spec = ToolSpec {
                name,
                description: tool.description.map_or(title, std::borrow::Cow::into_owned),
                parameters: Value::Object((*tool.input_schema).clone()),
            };
            Ok(McpTool {
                server: Arc::clone(server),
                theirs,
                spec,
            })
        })
        .collect()
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let context = ToolContext {
            clock,
            call_id: String::new(),
            caller: None,
        };
        let called = self.call_in(arguments, context);
        async move { called.await.map(|(text, _)| text) }.boxed()
    }

    fn call_in(&self, arguments: Value, _: ToolContext) -> BoxFuture<'static, Result<(String, Vec<Part>), String>> {
        let (server, theirs) = (Arc::clone(&self.server), self.theirs.clone());
        let limit = server.config().limits.max_output_bytes;
        let Value::Object(arguments) = arguments else {
            return std::future::ready(Err("the arguments must have names".to_owned())).boxed();
        };
        async move { text::of(server.called(theirs, arguments).await?, limit) }.boxed()
    }
}
