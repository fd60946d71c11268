//! `pirn tools list` and `pirn tools call NAME`: lists the tools of a config file, and calls one of them manually.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

use clap::Subcommand;
use pirn::tools::{Approval, McpServers, PromptInfo, ResourceInfo, ToolInfo, ToolRegistry, ToolsConfig, load_tools};
use pirn_actors::host::{Host, HostConfig, HostRuntime};
use pirn_actors::ports::Tools;
use pirn_definition::definition::nearest;
use pirn_definition::message::ToolCall;
use serde_json::{Value, json};

use crate::config::{ConfigFile, invalid_config};
use crate::output::failure::Failure;
use crate::output::sanitize::sanitize;
use crate::output::terminal::{Output, answer, json_text};
use crate::process::interrupt;

/// Time limit for the end of a call's remaining processes, milliseconds.
const GRACE: u64 = 500;

/// Arguments of `pirn tools`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn tools list
  pirn tools call get_order '{\"order\": \"HB-20977\"}' --config support-desk/pirn.toml

Exit codes: 0, 1 the call failed, 2 wrong usage, no such tool or an unreadable file.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the tools of the config with source and schema; starts the MCP servers to list their tools
    List {
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        output: Output,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Call a tool; no consent is requested
    Call {
        /// Name of the tool
        name: String,
        /// Arguments, JSON
        #[arg(value_name = "JSON", default_value = "{}")]
        arguments: String,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        output: Output,
        #[command(flatten)]
        config: ConfigFile,
    },
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        match self.command {
            Command::List { output, .. } | Command::Call { output, .. } => output,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let config = match &args.command {
        Command::List { config, .. } | Command::Call { config, .. } => config,
    };
    let config = load_tools(config.required()?).map_err(|error| invalid_config(&error))?;
    // Install the handler before servers start, so that an interrupt kills them.
    interrupt::listen();
    let tools = registry(config)?;
    let code = match args.command {
        Command::List { output, .. } => Ok(list(&tools, output)),
        Command::Call {
            name,
            arguments,
            output,
            ..
        } => call(&tools, &name, &arguments, output),
    };
    tools.close();
    code
}

/// Returns the tools of a config, and starts its servers.
///
/// # Errors
/// Fails with one line for each server that does not start.
pub(crate) fn registry(config: ToolsConfig) -> Result<ToolRegistry, Failure> {
    let mut tools = ToolRegistry::new();
    let servers = config.mcp_servers.clone();
    tools.configure(config);
    if !servers.is_empty() {
        let servers = McpServers::start_blocking(servers).map_err(|faults| {
            let lines: Vec<String> = faults.iter().map(|fault| format!("MCP server {fault}")).collect();
            Failure::failed("MCP_SERVER_FAILED", lines.join("\n"))
        })?;
        tools.add_servers(servers);
    }
    Ok(tools)
}

fn list(registry: &ToolRegistry, output: Output) -> ExitCode {
    let text = match output {
        Output::Json => {
            let tools: Vec<Value> = registry.list().map(|tool| as_json(&tool)).collect();
            let resources: Vec<Value> = registry.resources().map(resource_json).collect();
            let prompts: Vec<Value> = registry.prompts().map(prompt_json).collect();
            let all = json!({ "tools": tools, "resources": resources, "prompts": prompts });
            json_text(all)
        }
        Output::Text => {
            let mut texts: Vec<String> = registry.list().map(|tool| as_text(&tool)).collect();
            texts.extend(registry.resources().map(|one| {
                let about = one.description.as_deref().unwrap_or(&one.name);
                format!("{} (resource of {})\n  {about}\n", one.uri, one.server)
            }));
            texts.extend(registry.prompts().map(|one| {
                let sign =
                    |(name, is_required): &(String, bool)| format!("{name}{}", if *is_required { "" } else { "?" });
                let arguments = one.arguments.iter().map(sign).collect::<Vec<_>>().join(", ");
                let about = one.description.as_deref().unwrap_or_default();
                format!("{}({arguments}) (prompt of {})\n  {about}\n", one.name, one.server)
            }));
            if texts.is_empty() {
                "no tools\n".to_owned()
            } else {
                sanitize(&texts.join("\n")).into_owned()
            }
        }
    };
    answer(&text, 0)
}

fn resource_json(one: &ResourceInfo) -> Value {
    json!({
        "server": one.server, "uri": one.uri, "name": one.name, "description": one.description, "mediaType": one.media_type,
    })
}

fn prompt_json(one: &PromptInfo) -> Value {
    let arguments = one.arguments.iter();
    let arguments: Vec<Value> = arguments
        .map(|(name, required)| json!({"name": name, "required": required}))
        .collect();
    json!({"server": one.server, "name": one.name, "description": one.description, "arguments": arguments})
}

fn as_json(tool: &ToolInfo) -> Value {
    json!({
        "name": tool.spec.name,
        "description": tool.spec.description,
        "source": tool.options.source,
        "inputSchema": tool.spec.parameters,
        "timeoutMs": tool.options.timeout,
        "maxParallel": tool.options.max_parallel,
        "approval": match tool.options.approval {
            Approval::Never => "never",
            Approval::Ask => "ask",
        },
        "approvalTimeoutMs": tool.options.approval_timeout,
    })
}

/// Formats a tool: its name, source, description and arguments.
fn as_text(tool: &ToolInfo) -> String {
    let asks = match tool.options.approval {
        Approval::Never => "",
        Approval::Ask => ", needs consent",
    };
    let schema = &tool.spec.parameters;
    let required = |name: &str| {
        let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).any(|other| other == name)
    };
    let mut text = format!(
        "{} ({}{asks})\n  {}\n",
        tool.spec.name, tool.options.source, tool.spec.description
    );
    for (name, argument) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let kind = argument
            .get("type")
            .map_or_else(|| "any".to_owned(), |kind| kind.to_string().replace('"', ""));
        let sign = if required(name) { "" } else { "?" };
        let about = argument.get("description").and_then(Value::as_str).unwrap_or_default();
        text.push_str(format!("    {name}{sign}: {kind}  {about}").trim_end());
        text.push('\n');
    }
    text
}

fn call(tools: &ToolRegistry, name: &str, arguments: &str, output: Output) -> Result<ExitCode, Failure> {
    let arguments = pirn_definition::definition::json_from_str(arguments).map_err(|error| {
        Failure::usage("INVALID_ARGUMENTS", format!("the arguments are not JSON: {error}"))
            .with_help("put them into single quotes: '{\"name\": \"value\"}'")
    })?;
    if !tools.has(name) {
        return Err(no_tool(tools, name));
    }
    let mut tools = tools.clone();
    // A manual call is consent.
    tools.approve(|_| pirn::tools::Verdict::Allow);
    let call = ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments,
    };
    let offered = [Arc::from(name)];
    let host = HostRuntime::start(HostConfig {
        arbiters: 1,
        ..HostConfig::default()
    })
    .map_err(|error| Failure::failed("NO_THREADS", format!("cannot start threads: {error}")))?;
    let (sender, receiver) = channel();
    let start = move |host: &Host| {
        let work = tools.call(&offered, call.into(), host.work_clock());
        // The send cannot fail: the receiver waits below.
        let work = Box::pin(async move { sender.send(work.await.unasked()).unwrap_or(()) });
        host.external(None, work).detach();
    };
    let result = host.run_on(0, start).ok().and_then(|()| receiver.recv().ok());
    host.stop(GRACE);
    match result {
        Some(result) if result.failed => Err(Failure::failed("TOOL_ERROR", result.content)),
        Some(result) => Ok(match output {
            Output::Text => answer(&format!("{}\n", result.content.trim_end_matches('\n')), 0),
            Output::Json => answer(&json_text(json!({"result": result.content})), 0),
        }),
        None => Err(Failure::failed("TOOL_ERROR", "the call ended without an answer")),
    }
}

fn no_tool(tools: &ToolRegistry, name: &str) -> Failure {
    let list = tools.names().collect::<Vec<_>>().join(", ");
    if list.is_empty() {
        let message = format!("there is no tool {name}: the config defines none");
        let help = "define tools in pirn.toml under [[tools]] and [[mcpServers]], or in the file named by --config";
        return Failure::usage("UNKNOWN_TOOL", message).with_help(help);
    }
    let failure = Failure::usage("UNKNOWN_TOOL", format!("there is no tool {name}; there are: {list}"));
    match nearest(name, tools.names()) {
        Some(near) => failure.with_help(format!("did you mean {near}?")),
        None => failure,
    }
}
