//! The tools of a config file: `[[tools]]` and `[[mcpServers]]`.

#[cfg(feature = "mcp")]
use std::collections::BTreeSet;
use std::path::Path;

#[cfg(feature = "mcp")]
use pirn_definition::definition::nearest;
use pirn_definition::definition::{Fault, FaultCode};
use pirn_tools::{ConfigFault, ToolsConfig, tools_of};

use crate::config::{ConfigError, ConfigText, indented};

/// Reasons why tools cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    /// The file cannot be read, or is neither TOML nor JSON.
    #[error(transparent)]
    File(ConfigError),
    /// Entries in the file are invalid.
    #[error("{}:{}", path.display(), indented(faults))]
    Entries {
        /// The file.
        path: std::path::PathBuf,
        /// All faults.
        faults: Vec<ConfigFault>,
    },
}

impl ConfigText {
    /// Returns the file's tools, as [`load_tools`] does.
    ///
    /// # Errors
    /// Like [`load_tools`].
    pub fn tools(&self) -> Result<ToolsConfig, ToolsError> {
        // Relative to the file and not to the process, so that a config works from any directory.
        let folder = self.path().parent().unwrap_or_else(|| Path::new(""));
        tools_of(self.written().clone(), folder).map_err(|mut faults| {
            for fault in &mut faults {
                // The reader of the entries has no line numbers, because it works on the parsed value.
                fault.line = self.line_of(&fault.file_pointer());
            }
            let path = self.path().to_owned();
            ToolsError::Entries { path, faults }
        })
    }

    /// Returns faults for undefined profiles that MCP servers may call.
    #[cfg(feature = "mcp")]
    pub(crate) fn unknown_sampling(&self, known: &BTreeSet<String>) -> Vec<Fault> {
        // Errors of the file itself are reported by the reader of the tools.
        let servers = self.tools().map(|tools| tools.mcp_servers).unwrap_or_default();
        let named = servers.into_iter().enumerate();
        let unknown =
            named.filter_map(|(place, server)| Some((place, server.sampling.filter(|id| !known.contains(id))?)));
        let faults = unknown.map(|(place, id)| {
            let pointer = format!("/mcpServers/{place}/sampling");
            let message = format!("unknown profile `{id}`: no profile has this id");
            let fault = self.fault(FaultCode::UnknownProfile, &pointer, &message);
            match nearest(&id, known.iter().map(String::as_str)) {
                Some(near) => fault.with_help(format!("did you mean `{near}`?")),
                None => fault,
            }
        });
        faults.collect()
    }

    /// Returns warnings about programs of tools and MCP servers that are not found on this machine, each with its location.
    pub(crate) fn missing_programs(&self) -> Vec<Fault> {
        let missing = self.tools().map(|tools| tools.missing_programs()).unwrap_or_default();
        let faults = missing
            .into_iter()
            .map(|fault| self.fault(FaultCode::ProgramNotFound, &fault.file_pointer(), &fault.message));
        faults.collect()
    }
}

/// Reads the tools of a file: `[[tools]]` in TOML, `{"tools": [...]}` in JSON. A file that contains only a list has profiles and no
/// tools. Relative `cwd` and `program` paths are resolved from the file's folder.
///
/// # Errors
/// [`ToolsError`].
pub fn load_tools(path: impl AsRef<Path>) -> Result<ToolsConfig, ToolsError> {
    ConfigText::read(path).map_err(ToolsError::File)?.tools()
}
