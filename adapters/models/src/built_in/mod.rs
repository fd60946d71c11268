//! The providers that need no network: `echo`, `scripted`, `extractive`. Here: the functions that they share, which find the user
//! message, stream a reply and count its tokens.
//!
//! Not here: the algorithm of the summary, which is in `pirn_conversation::conversation::extractive`.

mod echo;
mod extractive;
mod scripted;

pub use echo::Echo;
pub use extractive::Extractive;
pub use scripted::Scripted;

use pirn_actors::ports::ModelCall;
use pirn_conversation::conversation::extractive::is_unspaced;
use pirn_conversation::conversation::{Estimator, ModelRequest, TokenUsage, Tokenizer, message_cost};
use pirn_conversation::model_call::FinishReason;
use pirn_core::thread::ModelReply;
use pirn_definition::message::{Message, Role, ToolCall};

/// Returns the last user message that is not pinned context.
fn last_user_message(request: &ModelRequest) -> Option<&Message> {
    request.last_user_message().map(AsRef::as_ref)
}

/// Streams the reply word by word and returns it with its usage.
fn finish(call: &ModelCall, content: String, tool_calls: Vec<ToolCall>) -> ModelReply {
    if call.tokens.is_open() {
        pieces(&content).for_each(|piece| call.tokens.put(piece));
    }
    let sum = |costs: &mut dyn Iterator<Item = u64>| costs.fold(0, u64::saturating_add);
    let tools = &mut call.tools.iter().map(|tool| {
        let schema = tool.parameters.to_string();
        sum(&mut [&tool.name, &tool.description, &schema]
            .into_iter()
            .map(|text| Estimator.count(text)))
    });
    let input = sum(&mut call
        .request
        .messages
        .iter()
        .map(|message| message_cost(message, &Estimator)));
    let input = input.saturating_add(sum(tools));
    let mut reply = Message::new(Role::Assistant, content);
    reply.tool_calls = tool_calls;
    let output = message_cost(&reply, &Estimator);
    ModelReply {
        content: reply.content,
        tool_calls: reply.tool_calls,
        finish_reason: FinishReason::default(),
        usage: TokenUsage::new(input, output, input.saturating_add(output)),
        metadata: None,
        cache: None,
    }
}

/// Splits text into words with the following space, or into characters in scripts without spaces. The concatenated pieces equal the
/// text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|c: char| c.is_whitespace() || is_unspaced(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concatenated_pieces_equal_the_text() {
        for (text, count) in [("", 0), ("one", 1), ("one two\nthree ", 3), ("你好a b", 4)] {
            let all: Vec<&str> = pieces(text).collect();
            assert_eq!(all.concat(), text);
            assert_eq!(all.len(), count, "{text:?}: {all:?}");
        }
    }
}
