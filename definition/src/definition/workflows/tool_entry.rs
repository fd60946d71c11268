//! Entries of an LLM node's `tools`; `workflow:ID` names a workflow.

use serde::{Deserialize, Serialize};

use super::built_in_tools::BuiltInTool;
use crate::definition::node_options::dynamic::DynamicConsent;

/// Prefix of a deferred tool in the compiled list of a node's tools. No tool has such a name.
const DEFERRED: &str = "deferred:";

/// Prefix, in the compiled list, of a workflow that needs consent to each call.
const ASKS: &str = "ask:";

/// Beginning of an entry in `tools` that names a workflow.
const PREFIX: &str = "workflow:";

/// Maximum length of a tool's name that every provider accepts.
const MAX_NAME: usize = 64;

/// An entry of an LLM node's `tools`: a name, or the beginning of names followed by `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "WrittenEntry")]
pub struct ToolEntry {
    /// Name of the tool, or the beginning of names followed by `*`.
    pub name: String,
    /// True if the model receives only the name, until it has found the tool with `tool_search`.
    pub deferred: bool,
    /// Policy before a workflow starts; `None` for other tools: their policy is part of their registration.
    pub consent: Option<DynamicConsent>,
}

impl ToolEntry {
    /// Returns true if a person must approve each call of the workflow.
    pub fn asks(&self) -> bool {
        self.consent == Some(DynamicConsent::Ask)
    }

    /// Splits an entry of the compiled list into the name, and whether a person must approve each call of the workflow.
    pub fn split_consent(compiled: &str) -> (&str, bool) {
        match compiled.strip_prefix(ASKS) {
            Some(name) => (name, true),
            None => (compiled, false),
        }
    }

    /// Returns the entry of the compiled list.
    pub(crate) fn compiled(&self) -> String {
        if self.deferred {
            format!("{DEFERRED}{}", self.name)
        } else if self.asks() {
            format!("{ASKS}{}", self.name)
        } else {
            self.name.clone()
        }
    }

    /// Returns the name in an entry of the compiled list if the tool is deferred.
    pub fn deferred_name(compiled: &str) -> Option<&str> {
        compiled.strip_prefix(DEFERRED)
    }

    /// Returns the name in an entry of the compiled list, deferred or not.
    pub fn name_in(compiled: &str) -> &str {
        Self::deferred_name(compiled).unwrap_or(compiled)
    }

    /// Returns true if a name in `tools`, or the beginning of names followed by `*`, includes this tool. Only their full names include
    /// workflows and built-in tools.
    pub fn includes(listed: &str, name: &str) -> bool {
        match listed.strip_suffix('*') {
            // Both may need consent or start further workflows, so that a pattern for registered tools must not include them.
            Some(beginning) => {
                let is_registered = workflow_of_tool(name).is_none() && BuiltInTool::of_name(name).is_none();
                is_registered && name.starts_with(beginning)
            }
            None => listed == name,
        }
    }
}

impl From<String> for ToolEntry {
    fn from(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }
}

impl std::ops::Deref for ToolEntry {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

/// The forms of an entry in a file.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum WrittenEntry {
    /// Name of the tool, or the beginning of names followed by `*`.
    Name(String),
    /// A tool with settings.
    Settings(ToolSettings),
}

/// A tool with settings.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::definition) struct ToolSettings {
    /// Name of the tool, or the beginning of names followed by `*`.
    name: String,
    /// True to send the model only the name, until it has found the tool with `tool_search`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deferred: bool,
    /// Policy before a workflow starts that the model calls as a tool (default `auto`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consent: Option<DynamicConsent>,
}

impl From<ToolSettings> for ToolEntry {
    fn from(settings: ToolSettings) -> Self {
        let ToolSettings {
            name,
            deferred,
            consent,
        } = settings;
        Self {
            name,
            deferred,
            consent,
        }
    }
}

impl From<ToolEntry> for WrittenEntry {
    fn from(entry: ToolEntry) -> Self {
        let ToolEntry {
            name,
            deferred,
            consent,
        } = entry;
        if deferred || consent.is_some() {
            Self::Settings(ToolSettings {
                name,
                deferred,
                consent,
            })
        } else {
            Self::Name(name)
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ToolEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolEntry".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        WrittenEntry::json_schema(generator)
    }
}

/// Returns the id of the workflow that an entry of a node's `tools` names; `None` for any other tool.
pub fn workflow_of_tool(entry: &str) -> Option<&str> {
    ToolEntry::split_consent(entry).0.strip_prefix(PREFIX)
}

/// Returns the name under which models call a workflow: its id, with `_` for each character that providers do not accept.
///
/// ```
/// assert_eq!(pirn_definition::definition::workflow_tool_name("web.research"), "web_research");
/// ```
pub fn workflow_tool_name(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    id.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .take(MAX_NAME)
        .collect()
}
