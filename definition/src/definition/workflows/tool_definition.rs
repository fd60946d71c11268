//! Definitions of tools that a run receives from outside of its workflows.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::BuiltInTool;
use crate::value::{TooDeep, is_too_deep};

/// Maximum number of client tools of a run.
pub const MAX_CLIENT_TOOLS: usize = 128;

/// Maximum number of bytes of the definitions of a run's client tools: names, descriptions and schemas.
pub const MAX_CLIENT_TOOL_BYTES: usize = 256 << 10;

/// Maximum number of bytes of a client tool's name. Providers accept no longer ones.
const MAX_NAME: usize = 64;

/// Name, description and schema of a tool, as a model receives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// Description for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default = "any_object")]
    pub parameters: Value,
}

fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

impl ToolDefinition {
    /// Returns the text by which the tokens of the definition are estimated.
    pub fn counted_text(&self) -> String {
        format!("{} {} {}", self.name, self.description, self.parameters)
    }

    /// Checks the tools that a client offers: their number and size, their names, and that each schema describes an object.
    ///
    /// # Errors
    /// [`ClientToolsError`] of the first tool with a fault.
    pub fn check_client_tools(tools: &[Self]) -> Result<(), ClientToolsError> {
        if tools.len() > MAX_CLIENT_TOOLS {
            return Err(ClientToolsError::TooMany { count: tools.len() });
        }
        // Before the sizes, which serialize each schema: too many levels would overflow the stack.
        let mut names = BTreeSet::new();
        for tool in tools {
            tool.check(&mut names)?;
        }
        let bytes: usize = tools.iter().map(|tool| tool.counted_text().len()).sum();
        if bytes > MAX_CLIENT_TOOL_BYTES {
            return Err(ClientToolsError::TooLarge { bytes });
        }
        Ok(())
    }

    fn check<'a>(&'a self, names: &mut BTreeSet<&'a str>) -> Result<(), ClientToolsError> {
        let name = &*self.name;
        let tool = || name.to_owned();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !name.bytes().all(is_plain) || !(1..=MAX_NAME).contains(&name.len()) {
            let shown: String = name.chars().take(MAX_NAME).collect();
            return Err(ClientToolsError::Name { tool: shown });
        }
        if BuiltInTool::of_name(name).is_some() {
            return Err(ClientToolsError::BuiltIn { tool: tool() });
        }
        if !names.insert(name) {
            return Err(ClientToolsError::Repeated { tool: tool() });
        }
        if is_too_deep(&self.parameters) {
            let source = TooDeep;
            return Err(ClientToolsError::TooDeep { tool: tool(), source });
        }
        let is_object = match self.parameters.get("type") {
            Some(kind) => kind == "object",
            None => self.parameters.is_object(),
        };
        if is_object {
            Ok(())
        } else {
            Err(ClientToolsError::NoObject { tool: tool() })
        }
    }
}

/// Reason that the tools of a client are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientToolsError {
    /// There are more than [`MAX_CLIENT_TOOLS`].
    #[error("a run accepts at most {MAX_CLIENT_TOOLS} client tools, and these are {count}: send fewer")]
    TooMany {
        /// Number of tools.
        count: usize,
    },
    /// The definitions have more than [`MAX_CLIENT_TOOL_BYTES`].
    #[error(
        "the definitions of the client tools have {bytes} bytes, and a run accepts {MAX_CLIENT_TOOL_BYTES}: shorten descriptions \
         and schemas, or send fewer tools"
    )]
    TooLarge {
        /// Number of bytes.
        bytes: usize,
    },
    /// The name is empty, too long, or has characters that providers do not accept.
    #[error("the client tool `{tool}`: a name has 1 to {MAX_NAME} letters, digits, `_` and `-`")]
    Name {
        /// The beginning of the name.
        tool: String,
    },
    /// A built-in tool has this name.
    #[error("the client tool `{tool}` has the name of a built-in tool: choose another name")]
    BuiltIn {
        /// Name of the tool.
        tool: String,
    },
    /// Two of the tools have this name.
    #[error("two client tools are named `{tool}`: rename one")]
    Repeated {
        /// Name of the tools.
        tool: String,
    },
    /// The schema is nested too deeply.
    #[error("the client tool `{tool}`: its schema: {source}")]
    TooDeep {
        /// Name of the tool.
        tool: String,
        /// The limit.
        source: TooDeep,
    },
    /// The schema does not describe an object.
    #[error(
        "the client tool `{tool}`: `parameters` must be a JSON Schema of an object, such as {{\"type\": \"object\"}}"
    )]
    NoObject {
        /// Name of the tool.
        tool: String,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, parameters: Value) -> ToolDefinition {
        let description = String::new();
        ToolDefinition {
            name: name.to_owned(),
            description,
            parameters,
        }
    }

    #[test]
    fn client_tools_with_a_wrong_name_schema_number_or_size_are_refused() {
        let object = || json!({"type": "object"});
        let long = "n".repeat(65);
        for (tools, part) in [
            (vec![tool("", object())], "a name has"),
            (vec![tool("two words", object())], "a name has"),
            (vec![tool(&long, object())], "a name has"),
            (vec![tool("recall", object())], "built-in"),
            (vec![tool("a", object()), tool("a", object())], "two client tools"),
            (vec![tool("a", json!({"type": "string"}))], "of an object"),
            (vec![tool("a", json!([]))], "of an object"),
            (
                vec![tool(
                    "a",
                    json!({"type": "object", "x": "y".repeat(MAX_CLIENT_TOOL_BYTES)}),
                )],
                "bytes",
            ),
            (
                (0..=MAX_CLIENT_TOOLS)
                    .map(|number| tool(&format!("t{number}"), object()))
                    .collect(),
                "at most",
            ),
        ] {
            let refused = ToolDefinition::check_client_tools(&tools).unwrap_err().to_string();
            assert!(refused.contains(part), "{refused}");
        }
        let good = [
            tool("a", object()),
            tool("b-2_C", json!({"properties": {}})),
            tool(&long[1..], object()),
        ];
        assert_eq!(ToolDefinition::check_client_tools(&good), Ok(()));
    }
}
