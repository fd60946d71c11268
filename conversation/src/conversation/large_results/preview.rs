//! Preview that replaces a large result in the conversation.

use std::sync::Arc;

use pirn_definition::message::{Message, Role};
use serde_json::json;

use super::super::{CountedMessage, MESSAGE_OVERHEAD, Tokenizer};
use super::excerpt;
use super::stored_results::{DroppedResult, LargeResults};

/// Metadata key that marks a preview: `{id, tokens}` of the result.
const ARTIFACT: &str = "artifact";

/// Beginning and end of a result are shown, each with this fraction of the limit, at most [`MOST_SHOWN`] tokens.
const SHARE_SHOWN: u64 = 8;
const MOST_SHOWN: u64 = 200;

/// Form of a tool's result in the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ShownResult {
    /// Unchanged: not large, or not suitable for storing.
    Whole(CountedMessage),
    /// A preview.
    Preview {
        /// Message with the preview.
        counted: CountedMessage,
        /// Id of the stored result.
        id: Arc<str>,
        /// Tokens of the result, without those of its message.
        tokens: u64,
        /// Results dropped to make room.
        dropped: Vec<DroppedResult>,
    },
}

/// Returns the form of a result in a conversation: whole up to `limit` tokens, else a preview. The run stores at most `max_bytes`
/// of large results.
pub fn shown_result(
    message: Message,
    (limit, max_bytes): (u64, usize),
    results: &mut LargeResults,
    tokenizer: &dyn Tokenizer,
) -> ShownResult {
    let whole = CountedMessage::new(message, tokenizer);
    let tokens = whole.tokens.saturating_sub(MESSAGE_OVERHEAD);
    let message = &*whole.message;
    // Parts may be images or files, of which no excerpt can be made.
    if tokens <= limit || message.role != Role::Tool || !message.parts.is_empty() {
        return ShownResult::Whole(whole);
    }
    // Storing it would drop all other results and then the result itself.
    if message.content.len() > max_bytes {
        return ShownResult::Whole(whole);
    }
    // Before the preview, which names the id.
    let id = results.id_of(&message.content);
    let mut metadata = message.metadata.clone().unwrap_or_default();
    metadata.insert(ARTIFACT.to_owned(), json!({"id": id, "tokens": tokens}));
    let content = preview(&message.content, tokens, &id, limit, tokenizer);
    let counted = CountedMessage::new(
        Message {
            content,
            metadata: Some(metadata),
            ..message.clone()
        },
        tokenizer,
    );
    // Compared with the finished preview, whose note may be longer than the part left out.
    if counted.tokens >= whole.tokens {
        return ShownResult::Whole(whole);
    }
    // Last: a result that is shown whole must not drop others.
    let dropped = results.keep(&id, &message.content, max_bytes);
    ShownResult::Preview {
        counted,
        id,
        tokens,
        dropped,
    }
}

/// Returns the id of the result for which a message is a preview.
pub fn artifact_of(message: &Message) -> Option<&str> {
    message.metadata.as_ref()?.get(ARTIFACT)?.get("id")?.as_str()
}

fn preview(text: &str, tokens: u64, id: &str, limit: u64, tokenizer: &dyn Tokenizer) -> String {
    let share = (limit / SHARE_SHOWN).min(MOST_SHOWN);
    let (head, rest) = text.split_at(excerpt::beginning(text, share, tokenizer));
    // The end is taken from the rest, so that head and tail cannot overlap.
    let (middle, tail) = rest.split_at(excerpt::end(rest, share, tokenizer));
    let shown = tokenizer.count(head).saturating_add(tokenizer.count(tail));
    // Two parts may count more tokens than the whole, because their borders split tokens.
    let left_out = tokens.saturating_sub(shown);
    let characters = middle.chars().count();
    format!(
        "{head}\n[{left_out} of {tokens} tokens ({characters} characters) are left out here. The whole result is artifact \
         {id}: read_artifact gives any part of it.]\n{tail}"
    )
}
