//! Notation of the cases: `u`, `user:Hi`, `s`, `a`; `a[1,2]` makes calls 1 and 2, `t:1` is the result of call 1; a trailing `~`
//! sets `subAgentInternal`.

use std::sync::atomic::{AtomicU64, Ordering};

use pirn_definition::message::{Message, Role, ToolCall};
use serde_json::json;

use super::super::{Conversation, CountedMessage, Estimator, Tokenizer};

pub(super) fn message(text: &str) -> Message {
    let (text, internal) = match text.strip_suffix('~') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let mut made = if let Some((head, calls)) = text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        let tool_calls = calls.split(',').filter(|id| !id.is_empty()).map(|id| ToolCall {
            id: id.trim_start_matches("tool ").to_owned(),
            name: "look".to_owned(),
            arguments: json!({}),
        });
        Message {
            tool_calls: tool_calls.collect(),
            ..Message::new(role_of(head), "")
        }
    } else if let Some(id) = text.strip_prefix("t:").or_else(|| text.strip_prefix("tool:")) {
        Message::tool_result(id, "found")
    } else {
        let (role, content) = text.split_once(':').unwrap_or((text, text));
        Message::new(role_of(role), content)
    };
    made.sub_agent_internal = internal;
    made
}

fn role_of(word: &str) -> Role {
    match word.as_bytes().first() {
        Some(b's') => Role::System,
        Some(b'a') => Role::Assistant,
        Some(b't') => Role::Tool,
        _ => Role::User,
    }
}

pub(super) fn messages(texts: &[&str]) -> Vec<Message> {
    texts.iter().map(|text| message(text)).collect()
}

pub(super) fn counted(texts: &[&str]) -> Vec<CountedMessage> {
    messages(texts)
        .into_iter()
        .map(|message| CountedMessage::new(message, &Estimator))
        .collect()
}

pub(super) fn conversation(texts: &[&str]) -> Conversation {
    Conversation::from_messages(counted(texts))
}

/// Converts messages to the notation, with the content if it differs from the role's letter.
pub(super) fn written<M: AsRef<Message>>(messages: impl IntoIterator<Item = M>) -> Vec<String> {
    messages
        .into_iter()
        .map(|message| {
            let message = message.as_ref();
            if message.asks_for_tools() {
                let ids: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
                return format!("a[{}]", ids.join(","));
            }
            match (&message.role, &message.tool_call_id) {
                (Role::Tool, Some(id)) => format!("t:{id}"),
                _ => message.content.clone(),
            }
        })
        .collect()
}

pub(super) fn shown(conversation: &Conversation) -> Vec<String> {
    written(conversation.visible().messages())
}

/// Tokenizer with one token a byte, which counts its calls.
#[derive(Default)]
pub(super) struct Counter(pub(super) AtomicU64);

impl Tokenizer for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn count(&self, text: &str) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed);
        text.len() as u64
    }
}
