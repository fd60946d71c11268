//! Definitions of tools that a run receives from outside of its workflows.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::BuiltInTool;

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
    /// Returns a sentence that names the tool, the fault and the remedy.
    pub fn check_client_tools(tools: &[Self]) -> Result<(), String> {
        if tools.len() > MAX_CLIENT_TOOLS {
            return Err(format!(
                "a run accepts at most {MAX_CLIENT_TOOLS} client tools, and these are {}: send fewer",
                tools.len()
            ));
        }
        // Before the sizes, which serialize each schema: too many levels would overflow the stack.
        let mut names = BTreeSet::new();
        for tool in tools {
            tool.check(&mut names)?;
        }
        let bytes: usize = tools.iter().map(|tool| tool.counted_text().len()).sum();
        if bytes > MAX_CLIENT_TOOL_BYTES {
            return Err(format!(
                "the definitions of the client tools have {bytes} bytes, and a run accepts {MAX_CLIENT_TOOL_BYTES}: \
                 shorten descriptions and schemas, or send fewer tools"
            ));
        }
        Ok(())
    }

    fn check<'a>(&'a self, names: &mut BTreeSet<&'a str>) -> Result<(), String> {
        let name = &*self.name;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !name.bytes().all(is_plain) || !(1..=MAX_NAME).contains(&name.len()) {
            let shown: String = name.chars().take(MAX_NAME).collect();
            return Err(format!(
                "the client tool `{shown}`: a name has 1 to {MAX_NAME} letters, digits, `_` and `-`"
            ));
        }
        if BuiltInTool::of_name(name).is_some() {
            return Err(format!(
                "the client tool `{name}` has the name of a built-in tool: choose another name"
            ));
        }
        if !names.insert(name) {
            return Err(format!("two client tools are named `{name}`: rename one"));
        }
        if crate::value::is_too_deep(&self.parameters) {
            return Err(format!(
                "the client tool `{name}`: its schema: {}",
                crate::value::TOO_DEEP
            ));
        }
        let is_object = match self.parameters.get("type") {
            Some(kind) => kind == "object",
            None => self.parameters.is_object(),
        };
        if is_object {
            Ok(())
        } else {
            Err(format!(
                "the client tool `{name}`: `parameters` must be a JSON Schema of an object, such as {{\"type\": \"object\"}}"
            ))
        }
    }
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
            let refused = ToolDefinition::check_client_tools(&tools).unwrap_err();
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
