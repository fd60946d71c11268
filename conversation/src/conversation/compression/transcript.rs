//! Transcript of messages, for a model that summarizes them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use pirn_definition::message::{Message, Role};

/// Number of leading characters shown of a long tool result.
const RESULT_HEAD: usize = 1200;
/// Number of trailing characters shown of a long tool result.
const RESULT_TAIL: usize = 400;

/// Formats messages as text, one paragraph each, with the role and the content. Calls are listed with their arguments, one a line,
/// and results with the tool's name. A result of more than 1,600 characters is shortened in the middle.
pub fn transcript(messages: &[Arc<Message>]) -> String {
    let mut text = String::new();
    // Names by call id: a result has only the id of its call.
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    for message in messages {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(message.role.as_str());
        if let Some(tool) = message.tool_call_id.as_deref().and_then(|id| tools.get(id)) {
            text.push(' ');
            text.push_str(tool);
        }
        let said = message.content.trim();
        // An assistant message with calls only has no text to introduce.
        if !said.is_empty() || message.tool_calls.is_empty() {
            text.push_str(": ");
            match message.role {
                // Only results are shortened: the summary must cover the messages of people and of the model.
                Role::Tool => shortened(&mut text, said),
                Role::System | Role::User | Role::Assistant => text.push_str(said),
            }
        }
        for call in &message.tool_calls {
            tools.insert(&call.id, &call.name);
            // Cannot fail: writing to a `String` is infallible.
            let _ = write!(text, "\n calls {} {}", call.name, call.arguments);
        }
    }
    text
}

fn shortened(text: &mut String, result: &str) {
    // In characters, so that no character is split.
    let length = result.chars().count();
    if length <= RESULT_HEAD + RESULT_TAIL {
        return text.push_str(result);
    }
    text.extend(result.chars().take(RESULT_HEAD));
    let left_out = length - RESULT_HEAD - RESULT_TAIL;
    // Cannot fail: writing to a `String` is infallible.
    let _ = write!(text, " [{left_out} characters left out] ");
    text.extend(result.chars().skip(RESULT_HEAD + left_out));
}

#[cfg(test)]
mod tests {
    use pirn_definition::message::ToolCall;

    use super::*;
    use serde_json::json;

    fn call(id: &str, name: &str) -> ToolCall {
        ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: json!({ "order": 7 }),
        }
    }

    fn read(messages: Vec<Message>) -> String {
        transcript(&messages.into_iter().map(Arc::new).collect::<Vec<_>>())
    }

    #[test]
    fn a_long_message_is_in_the_transcript_completely() {
        let long = format!("{} the amount is 42.39 EUR", "word ".repeat(2000));
        assert_eq!(
            read(vec![Message::new(Role::User, long.as_str())]),
            format!("user: {long}")
        );
    }

    #[test]
    fn calls_and_results_name_their_tool() {
        let asks = Message {
            tool_calls: vec![call("a", "find"), call("b", "track")],
            ..Message::new(Role::Assistant, "One moment.")
        };
        let text = read(vec![
            asks,
            Message::tool_result("b", "on its way"),
            Message::tool_result("a", "found"),
            Message::tool_result("z", "whose?"),
        ]);
        assert_eq!(
            text,
            "assistant: One moment.\n calls find {\"order\":7}\n calls track {\"order\":7}\n\n\
             tool track: on its way\n\ntool find: found\n\ntool: whose?"
        );
    }

    #[test]
    fn the_middle_of_a_long_result_is_replaced_by_its_number_of_characters() {
        let whole = "界".repeat(RESULT_HEAD + RESULT_TAIL);
        assert_eq!(
            read(vec![Message::tool_result("a", whole.as_str())]),
            format!("tool: {whole}")
        );
        let text = read(vec![Message::tool_result("a", format!("{whole}end"))]);
        assert!(text.contains("[3 characters left out]"), "{text}");
        assert!(text.ends_with("界end"), "{text}");
    }
}
