//! A server's tool as a Pirn tool.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Tool, ToolContext, ToolSpec};
use pirn_definition::message::Part;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::connection::Request;
use super::server::{Server, ServerListing};
use super::server_requests::CallHandlers;
use crate::config::is_name;
use crate::lane::Lane;

/// Tool of a server, under a name that all providers accept.
pub(super) struct McpTool {
    server: Arc<Server>,
    operation: McpOperation,
    spec: ToolSpec,
    /// True if the server declares the tool read-only. Always true for resources and prompts.
    is_read_only: bool,
}

/// Kind of request that a call sends to the server.
enum McpOperation {
    /// Calls the tool with this name on the server.
    Call(String),
    ReadResource,
    GetPrompt,
}

/// Names of the tools that read resources and get prompts, without a prefix, as in the `tools` list of the config.
const READ_RESOURCE: &str = "read_resource";
const GET_PROMPT: &str = "get_prompt";

/// Maximum number of resources or prompts that the description of such a tool names.
const MOST_NAMED: usize = 50;

/// Maximum total length of those names in bytes. The description is part of every request to a model.
const MOST_NAMED_BYTES: usize = 8 * 1024;

impl McpTool {
    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the lane of the server's calls.
    pub(super) fn lane(&self) -> Lane {
        self.server.lane()
    }
}

/// Returns the tools of a server that its config selects, with one tool for its resources and one for its prompts.
///
/// # Errors
/// Returns a message if the config selects a tool that the server does not have, or if a name is not valid for all providers.
pub(super) fn offered(server: &Arc<Server>, listed: &ServerListing) -> Result<Vec<McpTool>, String> {
    let config = server.config();
    let mut all: Vec<(String, McpOperation, ToolSpec)> = Vec::new();
    for tool in &listed.tools {
        let theirs = tool.name.to_string();
        let title = tool.title.clone().unwrap_or_else(|| theirs.clone());
        let description = tool.description.as_ref().map_or(title, ToString::to_string);
        let parameters = Value::Object((*tool.input_schema).clone());
        let spec = spec(config.name_of(&theirs), description, parameters);
        all.push((theirs.clone(), McpOperation::Call(theirs), spec));
    }
    let hinted =
        |tool: &&rmcp::model::Tool| tool.annotations.as_ref().and_then(|hints| hints.read_only_hint) == Some(true);
    let read_only: BTreeSet<String> = listed
        .tools
        .iter()
        .filter(hinted)
        .map(|tool| tool.name.to_string())
        .collect();
    let has = |name: &str| listed.tools.iter().any(|tool| tool.name == name);
    if let Some(resources) = listed.resources.as_ref().filter(|_| !has(READ_RESOURCE)) {
        let spec = read_resource(config.name_of(READ_RESOURCE), server.id(), resources);
        all.push((READ_RESOURCE.to_owned(), McpOperation::ReadResource, spec));
    }
    if let Some(prompts) = listed.prompts.as_ref().filter(|_| !has(GET_PROMPT)) {
        let spec = get_prompt(config.name_of(GET_PROMPT), server.id(), prompts);
        all.push((GET_PROMPT.to_owned(), McpOperation::GetPrompt, spec));
    }
    if let Some(wanted) = &config.tools {
        if let Some(missing) = wanted
            .iter()
            .find(|name| !all.iter().any(|(theirs, ..)| theirs == *name))
        {
            let names: Vec<&str> = all.iter().map(|(theirs, ..)| theirs.as_str()).collect();
            return Err(format!("it has no tool `{missing}`; it has {}", names.join(", ")));
        }
        all.retain(|(theirs, ..)| wanted.contains(theirs));
    }
    let tools = all.into_iter().map(|(_, operation, spec)| {
        if spec.name.is_empty() {
            return Err("one of its tools has no name; set a `prefix`, or list the tools to use in `tools`".to_owned());
        }
        if !is_name(&spec.name) {
            let name = &spec.name;
            return Err(format!(
                "`{name}` is too long for a tool's name; set a shorter `prefix`, or leave it out"
            ));
        }
        let server = Arc::clone(server);
        let is_read_only = match &operation {
            McpOperation::Call(theirs) => read_only.contains(theirs),
            McpOperation::ReadResource | McpOperation::GetPrompt => true,
        };
        Ok(McpTool {
            server,
            operation,
            spec,
            is_read_only,
        })
    });
    tools.collect()
}

fn spec(name: String, description: String, parameters: Value) -> ToolSpec {
    ToolSpec {
        name,
        description,
        parameters,
    }
}

fn read_resource(name: String, server: &str, resources: &[rmcp::model::Resource]) -> ToolSpec {
    let known = resources.iter().map(|one| format!("{} ({})", one.uri, one.name));
    let description = format!("Reads a resource of `{server}` by its URI. {}", there_are(known));
    let uri = json!({"type": "string", "description": "The resource's URI"});
    let parameters = json!({"type": "object", "properties": {"uri": uri}, "required": ["uri"]});
    spec(name, description, parameters)
}

fn get_prompt(name: String, server: &str, prompts: &[rmcp::model::Prompt]) -> ToolSpec {
    let known = prompts.iter().map(|one| {
        let arguments = one.arguments.iter().flatten().map(|argument| {
            let sign = if argument.required == Some(true) { "" } else { "?" };
            format!("{}{sign}", argument.name)
        });
        format!("{}({})", one.name, arguments.collect::<Vec<_>>().join(", "))
    });
    let description = format!("Returns a prompt of `{server}`. {}", there_are(known));
    let arguments = json!({"type": "object", "description": "The prompt's arguments, strings by name"});
    let properties = json!({"name": {"type": "string"}, "arguments": arguments});
    let parameters = json!({"type": "object", "properties": properties, "required": ["name"]});
    spec(name, description, parameters)
}

fn there_are(known: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = known.take(MOST_NAMED + 1).collect();
    let (all, mut bytes) = (names.len(), 0);
    let fits = |name: &&String| {
        bytes += name.len();
        bytes <= MOST_NAMED_BYTES
    };
    let fitting = names.iter().take(MOST_NAMED).take_while(fits).count();
    names.truncate(fitting);
    let is_more = fitting < all;
    match (names.is_empty(), is_more) {
        (true, false) => "None are listed.".to_owned(),
        (true, true) => "Their names are too long to list.".to_owned(),
        (false, false) => format!("Available: {}.", names.join(", ")),
        (false, true) => format!("Available: {}, and more.", names.join(", ")),
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn call(&self, arguments: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let context = ToolContext {
            clock,
            call_id: String::new(),
            ask: None,
            caller: None,
            sampler: None,
        };
        let called = self.call_in(arguments, context);
        async move { called.await.map(|(text, _)| text) }.boxed()
    }

    fn call_in(
        &self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'static, Result<(String, Vec<Part>), String>> {
        let Value::Object(mut arguments) = arguments else {
            return std::future::ready(Err("the arguments must have names".to_owned())).boxed();
        };
        // The arguments have been checked against the schema, so the required ones exist.
        let mut text = |name: &str| match arguments.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let request = match &self.operation {
            McpOperation::Call(theirs) => Request::Tool(theirs.clone(), arguments),
            McpOperation::ReadResource => Request::Resource(text("uri")),
            McpOperation::GetPrompt => {
                let name = text("name");
                let given = match arguments.remove("arguments") {
                    Some(Value::Object(given)) => given,
                    _ => JsonObject::new(),
                };
                Request::Prompt(name, given)
            }
        };
        let server = Arc::clone(&self.server);
        let handlers = CallHandlers {
            run: context.caller.map(|caller| caller.run_id),
            ask: context.ask,
            sampler: context.sampler,
        };
        async move { server.asked(request, handlers).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_a_description_are_bounded_in_number_and_bytes() {
        let there = |name: &str, count: usize| there_are(vec![name.to_owned(); count].into_iter());
        assert_eq!(there("a", 0), "None are listed.");
        assert_eq!(there("a", 2), "Available: a, a.");
        assert!(there("a", MOST_NAMED + 1).ends_with(", and more."));
        let long = "x".repeat(MOST_NAMED_BYTES / 2);
        assert_eq!(there(&long, 3), format!("Available: {long}, {long}, and more."));
        assert!(there(&long.repeat(3), 1).len() < 100);
    }
}
