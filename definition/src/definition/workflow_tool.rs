//! Workflows as tools of models: `workflow:ID` in a node's `tools`.

use super::ToolEntry;

/// Beginning of an entry in `tools` that names a workflow.
const PREFIX: &str = "workflow:";

/// Maximum length of a tool's name that every provider accepts.
const MAX_NAME: usize = 64;

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
