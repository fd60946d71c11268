//! `pirn tools list` and `pirn tools call NAME`: what a config file gives, and one call of it by hand.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

use clap::Subcommand;
use pirn::profiles;
use pirn::tools::{Approval, McpServers, ToolInfo, ToolRegistry, ToolsConfig, load_tools};
use pirn_actors::host::{Host, HostConfig, HostRuntime};
use pirn_actors::ports::Tools;
use pirn_core::message::ToolCall;
use serde_json::{Value, json};

use crate::config::no_config;
use crate::interrupt;
use crate::terminal::{FAILED, Output, USAGE, answer, complain};

/// How long what a call has left may take to end, milliseconds.
const GRACE: u64 = 500;

/// Arguments of `pirn tools`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every tool that the config gives, with its source and schema; starts its MCP servers to ask them
    List {
        /// How to print them
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
        #[command(flatten)]
        config: Config,
    },
    /// Call one tool, without asking for consent
    Call {
        /// Its name
        name: String,
        /// Its arguments, JSON
        #[arg(value_name = "JSON", default_value = "{}")]
        arguments: String,
        #[command(flatten)]
        config: Config,
    },
}

#[derive(clap::Args)]
struct Config {
    /// The config file, TOML or JSON (default: pirn.toml in this folder)
    #[arg(long, visible_alias = "profiles", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Lists or calls.
pub(crate) fn run(args: Args) -> ExitCode {
    let config = match &args.command {
        Command::List { config, .. } | Command::Call { config, .. } => config,
    };
    let path = config.config.as_deref().unwrap_or(Path::new(profiles::FILE_NAME));
    if config.config.is_none() && !path.is_file() {
        return complain(&no_config(), USAGE);
    }
    let config = match load_tools(path) {
        Ok(config) => config,
        Err(error) => return complain(&error.to_string(), USAGE),
    };
    // From here on, an interrupt ends the servers too.
    interrupt::listen();
    let tools = match registry(config) {
        Ok(tools) => tools,
        Err(message) => return complain(&message, FAILED),
    };
    let code = match args.command {
        Command::List { output, .. } => list(&tools, output),
        Command::Call { name, arguments, .. } => call(&tools, &name, &arguments),
    };
    tools.close();
    code
}

/// The tools of a config, its servers started.
///
/// # Errors
/// A line a server that does not start.
pub(crate) fn registry(config: ToolsConfig) -> Result<ToolRegistry, String> {
    let mut tools = ToolRegistry::new();
    let servers = config.mcp_servers.clone();
    tools.configure(config);
    if !servers.is_empty() {
        let servers = McpServers::start_blocking(servers).map_err(|faults| {
            let lines: Vec<String> = faults.iter().map(|fault| format!("MCP server {fault}")).collect();
            lines.join("\n")
        })?;
        tools.add_servers(servers);
    }
    Ok(tools)
}

fn list(tools: &ToolRegistry, output: Output) -> ExitCode {
    let text = match output {
        Output::Json => {
            let tools: Vec<Value> = tools.list().map(|tool| as_json(&tool)).collect();
            format!("{:#}\n", json!({ "tools": tools }))
        }
        Output::Text => {
            let texts: Vec<String> = tools.list().map(|tool| as_text(&tool)).collect();
            if texts.is_empty() {
                "no tools\n".to_owned()
            } else {
                texts.join("\n")
            }
        }
    };
    answer(&text, 0)
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
    })
}

/// A name, where it comes from, what it does, its arguments.
fn as_text(tool: &ToolInfo) -> String {
    let asks = match tool.options.approval {
        Approval::Never => "",
        Approval::Ask => ", asks for consent",
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

fn call(tools: &ToolRegistry, name: &str, arguments: &str) -> ExitCode {
    let arguments = match serde_json::from_str(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return complain(&format!("the arguments are no JSON: {error}"), USAGE),
    };
    if !tools.has(name) {
        return complain(&format!("there is no tool {name}; there are: {}", names(tools)), USAGE);
    }
    let mut tools = tools.clone();
    // Who calls by hand has consented.
    tools.approve(|_| pirn::tools::Verdict::Allow);
    let call = ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments,
    };
    let offered = [Arc::from(name)];
    let host = match HostRuntime::start(HostConfig {
        arbiters: 1,
        ..HostConfig::default()
    }) {
        Ok(host) => host,
        Err(error) => return complain(&format!("no threads: {error}"), FAILED),
    };
    let (told, heard) = channel();
    let start = move |host: &Host| {
        let work = tools.call(&offered, call.into(), host.work_clock());
        // Whoever waits is there until it hears.
        let work = Box::pin(async move { told.send(work.await).unwrap_or(()) });
        host.external(work).detach();
    };
    let result = host.run_on(0, start).ok().and_then(|()| heard.recv().ok());
    host.stop(GRACE);
    match result {
        Some(result) if result.failed => complain(&result.content, FAILED),
        Some(result) => answer(&format!("{}\n", result.content.trim_end_matches('\n')), 0),
        None => complain("the call ended without an answer", FAILED),
    }
}

fn names(tools: &ToolRegistry) -> String {
    tools.names().collect::<Vec<_>>().join(", ")
}
