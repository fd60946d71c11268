//! Tools from a config file: `[[tools]]` and `[[mcpServers]]` of `pirn.toml` (docs/tools.md has every field).
//!
//! Reading is strict: unknown fields are faults that suggest the most similar known field, and so are templates that refer to
//! unknown arguments. All faults are reported at once.
//!
//! Not here: the file itself and its lines (crate `pirn`), and the calls of the tools (`command.rs`, `http.rs`, `mcp/`).

mod fields;
mod limits;
#[cfg(feature = "mcp")]
mod server;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::environment;
use fields::Fields;

pub use limits::CallLimits;
#[cfg(feature = "mcp")]
pub use server::McpServerConfig;
#[cfg(feature = "mcp")]
pub(super) use server::{OauthConfig, StdioConfig, Transport};
pub use tool::ToolConfig;
#[cfg(feature = "mcp")]
pub(super) use tool::is_name;
pub(super) use tool::{Argument, Body, CommandConfig, HttpConfig, Kind, Shape};

/// A fault of an entry in a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The entry's name, or its position (`tools #2`) if it has no name.
    pub entry: String,
    /// JSON pointer to the entry in its file, such as `/tools/2`; empty for faults outside of entries.
    pub place: String,
    /// JSON pointer into the entry, such as `/command/args/2`.
    pub pointer: String,
    /// Line of the file, from 1; `None` if it was not read from a file.
    pub line: Option<u32>,
    /// Description in one sentence, for display.
    pub message: String,
}

impl ConfigFault {
    /// Returns the JSON pointer of the fault in its file.
    pub fn file_pointer(&self) -> String {
        format!("{}{}", self.place, self.pointer)
    }

    pub(super) fn new(entry: impl Into<String>, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            entry: entry.into(),
            place: String::new(),
            pointer: pointer.into(),
            line: None,
            message: message.into(),
        }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "`{}`", self.entry)?;
        if !self.pointer.is_empty() {
            write!(f, ", {}", self.pointer)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigFault {}

/// The tools of a config file.
#[derive(Clone, Debug, Default)]
pub struct ToolsConfig {
    /// `[[tools]]`, in the file's order.
    pub tools: Vec<ToolConfig>,
    /// `[[mcpServers]]`, in the file's order.
    #[cfg(feature = "mcp")]
    pub mcp_servers: Vec<McpServerConfig>,
}

impl ToolsConfig {
    /// Returns the tool names for LLM nodes, as far as the file determines them: a name that ends with `*` matches all tools of an
    /// MCP server with that prefix.
    pub fn names(&self) -> BTreeSet<String> {
        let own = self.tools.iter().map(|tool| tool.name.clone());
        #[cfg(feature = "mcp")]
        let own = own.chain(self.mcp_servers.iter().flat_map(McpServerConfig::names));
        own.collect()
    }

    /// Returns the entries with a program that is not found on this machine, by the lookup that a call uses.
    pub fn missing_programs(&self) -> Vec<ConfigFault> {
        let is_missing = |program: &Path, env: &BTreeMap<String, String>, cwd: Option<&Path>| {
            (!environment::has_program(program, env, cwd)).then(|| {
                let program = program.display();
                format!("the program `{program}` is not here: it is neither a file that can be run nor found in PATH")
            })
        };
        let mut missing = Vec::new();
        for (place, tool) in self.tools.iter().enumerate() {
            let Kind::Command(command) = &tool.kind else { continue };
            let message = is_missing(&command.program, &command.env, command.cwd.as_deref());
            missing.extend(message.map(|message| ConfigFault {
                place: place_of("tools", place),
                ..ConfigFault::new(&tool.name, "/command/program", message)
            }));
        }
        #[cfg(feature = "mcp")]
        for (place, server) in self.mcp_servers.iter().enumerate() {
            let Transport::Stdio(stdio) = &server.transport else {
                continue;
            };
            let message = is_missing(&stdio.program, &stdio.env, stdio.cwd.as_deref());
            missing.extend(message.map(|message| ConfigFault {
                place: place_of("mcpServers", place),
                ..ConfigFault::new(&server.id, "/command", message)
            }));
        }
        missing
    }
}

/// Reads the tools of `{"tools": [...]}`, with `folder` as the base of relative paths. Fields that do not concern tools are
/// ignored.
///
/// # Errors
/// All faults.
pub fn tools_of(written: Value, folder: &Path) -> Result<ToolsConfig, Vec<ConfigFault>> {
    let Value::Object(mut file) = written else {
        return Ok(ToolsConfig::default());
    };
    let mut faults = Vec::new();
    let mut config = ToolsConfig::default();
    let list = entries(file.remove("tools"), "tools", &mut faults);
    let mut names = BTreeSet::new();
    for (place, entry) in list.into_iter().enumerate() {
        let read = read_entry("tools", place, entry, &mut faults, |fields| tool::read(fields, folder));
        let twice = read.as_ref().filter(|tool| !names.insert(tool.name.clone()));
        faults.extend(twice.map(|tool| ConfigFault {
            place: place_of("tools", place),
            ..ConfigFault::new(&tool.name, "/name", "another tool has this name")
        }));
        config.tools.extend(read);
    }
    let servers = entries(file.remove("mcpServers"), "mcpServers", &mut faults);
    #[cfg(feature = "mcp")]
    read_servers(servers, folder, &mut config, &mut faults);
    #[cfg(not(feature = "mcp"))]
    if !servers.is_empty() {
        let message = "this build has no MCP: it needs the feature `mcp`";
        faults.push(ConfigFault::new("mcpServers", "", message));
    }
    if faults.is_empty() { Ok(config) } else { Err(faults) }
}

#[cfg(feature = "mcp")]
fn read_servers(servers: Vec<Value>, folder: &Path, config: &mut ToolsConfig, faults: &mut Vec<ConfigFault>) {
    let mut ids = BTreeSet::new();
    for (place, entry) in servers.into_iter().enumerate() {
        let read = read_entry("mcpServers", place, entry, faults, |fields| {
            server::read(fields, folder)
        });
        let twice = read.as_ref().filter(|server| !ids.insert(server.id.clone()));
        faults.extend(twice.map(|server| ConfigFault {
            place: place_of("mcpServers", place),
            ..ConfigFault::new(&server.id, "/id", "another server has this id")
        }));
        config.mcp_servers.extend(read);
    }
}

fn entries(list: Option<Value>, name: &str, faults: &mut Vec<ConfigFault>) -> Vec<Value> {
    match list {
        None => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(_) => {
            let message = format!("`{name}` must be a list of tables: in TOML, each one begins with [[{name}]]");
            faults.push(ConfigFault {
                place: format!("/{name}"),
                ..ConfigFault::new(name, "", message)
            });
            Vec::new()
        }
    }
}

fn read_entry<T>(
    list: &str,
    place: usize,
    entry: Value,
    faults: &mut Vec<ConfigFault>,
    read: impl FnOnce(&mut Fields<'_>) -> T,
) -> Option<T> {
    let name = ["name", "id"].iter().find_map(|field| entry.get(field)?.as_str());
    let name = name.map_or_else(|| format!("{list} #{place}"), str::to_owned);
    let before = faults.len();
    let value = if let Value::Object(table) = entry {
        let mut fields = Fields::new(&name, "", table, faults);
        let value = read(&mut fields);
        fields.finish();
        Some(value)
    } else {
        faults.push(ConfigFault::new(name, "", "must be a table"));
        None
    };
    for fault in &mut faults[before..] {
        fault.place = place_of(list, place);
    }
    value
}

fn place_of(list: &str, place: usize) -> String {
    format!("/{list}/{place}")
}

#[cfg(test)]
mod tests;
