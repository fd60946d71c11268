//! Tools of front ends: their definitions, and the results of their calls, in the forms of AG-UI and the AI SDK.
//!
//! | | definitions | result |
//! |---|---|---|
//! | AG-UI | `tools`: a list of `{name, description, parameters}` | a message `{role: "tool", toolCallId, content, error?}` |
//! | AI SDK | `tools`: such a list, or an object by name; `inputSchema` is accepted for `parameters` | a part `tool-NAME` or `dynamic-tool` of the last assistant message, in state `output-available` or `output-error` |

use pirn_definition::definition::ToolDefinition;
use serde_json::{Value, json};

/// The result of a call: the model's id of the call, and the answer to its question.
pub(in super::super) type CallResult = (String, Value);

/// Parses the definitions of a front end's tools.
///
/// # Errors
/// Returns a JSON pointer within `tools`, and a sentence.
pub(in super::super) fn definitions(tools: &Value) -> Result<Vec<ToolDefinition>, (String, String)> {
    let listed: Vec<(String, Option<&str>, &Value)> = match tools {
        Value::Null => return Ok(Vec::new()),
        Value::Array(tools) => {
            let places = tools.iter().enumerate();
            places
                .map(|(place, tool)| (format!("/{place}"), tool["name"].as_str(), tool))
                .collect()
        }
        Value::Object(tools) => tools
            .iter()
            .map(|(name, tool)| (super::pointer_to(name), Some(&**name), tool))
            .collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err((
                String::new(),
                "`tools` must be a list of tools, or an object by name".to_owned(),
            ));
        }
    };
    let read = |(pointer, name, tool): (String, Option<&str>, &Value)| {
        let Some(name) = name else {
            return Err((format!("{pointer}/name"), "a tool needs a `name`".to_owned()));
        };
        let schema = ["parameters", "inputSchema"].into_iter().find_map(|key| tool.get(key));
        Ok(ToolDefinition {
            name: name.to_owned(),
            description: tool["description"].as_str().unwrap_or_default().to_owned(),
            parameters: schema.cloned().unwrap_or_else(|| json!({"type": "object"})),
        })
    };
    listed.into_iter().map(read).collect()
}

/// Returns the results that follow the last reply of an AG-UI conversation.
pub(in super::super) fn agui_results(messages: &[Value]) -> Vec<CallResult> {
    let results = before_users(messages)
        .iter()
        .rev()
        .take_while(|message| message["role"] == "tool");
    let read = |message: &Value| {
        let answer = match message["error"].as_str().filter(|error| !error.is_empty()) {
            Some(error) => json!({"error": error}),
            None => json!({"output": message["content"]}),
        };
        Some((message["toolCallId"].as_str()?.to_owned(), answer))
    };
    results.filter_map(read).collect()
}

/// Returns the results in the last reply of an AI SDK chat.
pub(in super::super) fn chat_results(messages: &[Value]) -> Vec<CallResult> {
    let last = before_users(messages)
        .last()
        .filter(|message| message["role"] == "assistant");
    let parts = last.and_then(|message| message["parts"].as_array());
    let is_tool = |part: &&Value| {
        let kind = part["type"].as_str().unwrap_or_default();
        kind.starts_with("tool-") || kind == "dynamic-tool"
    };
    let read = |part: &Value| {
        let answer = match part["state"].as_str()? {
            "output-available" => json!({"output": part["output"]}),
            "output-error" => json!({"error": part["errorText"].as_str().unwrap_or("the tool failed")}),
            _pending => return None,
        };
        Some((part["toolCallId"].as_str()?.to_owned(), answer))
    };
    // A result of the run itself is no result of the page.
    let of_page = |part: &&Value| part["providerExecuted"] != true;
    let tools = parts.into_iter().flatten().filter(is_tool).filter(of_page);
    tools.filter_map(read).collect()
}

/// Returns the messages before the user messages at the end.
fn before_users(messages: &[Value]) -> &[Value] {
    let users = messages
        .iter()
        .rev()
        .take_while(|message| message["role"] == "user")
        .count();
    &messages[..messages.len() - users]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_read_from_a_list_and_from_an_object() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let list = json!([{"name": "weather", "description": "d", "parameters": schema}, {"name": "now"}]);
        let read = definitions(&list).unwrap();
        assert_eq!(
            (&*read[0].name, &*read[0].description, &read[0].parameters),
            ("weather", "d", &schema)
        );
        assert_eq!(read[1].parameters, json!({"type": "object"}));
        let object = json!({"weather": {"description": "d", "inputSchema": schema}});
        assert_eq!(definitions(&object).unwrap(), read[..1]);
        assert_eq!(definitions(&Value::Null), Ok(Vec::new()));
        assert_eq!(definitions(&json!([{}])).unwrap_err().0, "/0/name");
        assert_eq!(definitions(&json!("x")).unwrap_err().0, "");
    }

    #[test]
    fn only_results_after_the_last_reply_are_read() {
        let messages = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "toolCalls": []},
            {"role": "tool", "toolCallId": "old", "content": "x"},
            {"role": "assistant", "toolCalls": []},
            {"role": "tool", "toolCallId": "a", "content": "Oslo"},
            {"role": "tool", "toolCallId": "b", "content": "", "error": "denied"},
            {"role": "user", "content": "and?"},
        ]);
        let mut results = agui_results(messages.as_array().unwrap());
        results.sort_by(|(one, _), (other, _)| one.cmp(other));
        assert_eq!(
            results,
            [
                ("a".to_owned(), json!({"output": "Oslo"})),
                ("b".to_owned(), json!({"error": "denied"})),
            ]
        );
        assert_eq!(agui_results(&messages.as_array().unwrap()[..4]), []);
    }

    #[test]
    fn results_of_a_page_are_the_settled_tool_parts_that_the_run_has_not_executed() {
        let messages = json!([
            {"role": "user", "parts": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "parts": [
                {"type": "tool-a", "toolCallId": "a", "state": "output-available", "output": {"x": 1}},
                {"type": "dynamic-tool", "toolCallId": "b", "state": "output-error", "errorText": "denied"},
                {"type": "tool-c", "toolCallId": "c", "state": "input-available"},
                {"type": "dynamic-tool", "toolCallId": "d", "state": "output-available", "output": 1, "providerExecuted": true},
            ]},
        ]);
        assert_eq!(
            chat_results(messages.as_array().unwrap()),
            [
                ("a".to_owned(), json!({"output": {"x": 1}})),
                ("b".to_owned(), json!({"error": "denied"})),
            ]
        );
        assert_eq!(chat_results(&messages.as_array().unwrap()[..1]), []);
    }
}
