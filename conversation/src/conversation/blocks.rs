//! Tool blocks: an assistant message with tool calls, and the longest run of tool messages directly after it. A block is never
//! split.

use std::ops::Range;

use pirn_definition::message::{Message, Role};

/// Returns every tool block of `messages` in order, as half-open ranges.
pub fn tool_blocks<M: AsRef<Message>>(messages: &[M]) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        let start = at;
        at += 1;
        if messages[start].as_ref().asks_for_tools() {
            // By position and not by call id: results without a call belong to the block before them.
            while at < messages.len() && messages[at].as_ref().role == Role::Tool {
                at += 1;
            }
            blocks.push(start..at);
        }
    }
    blocks
}

/// Returns the start of the block that an insertion at `index` would split, or `None`. Reads only the tool messages around `index`
/// and the message before them.
pub fn split_block<'a>(index: usize, message_at: impl Fn(usize) -> Option<&'a Message>) -> Option<usize> {
    // Only a tool message has its block before it: an insertion at any other message splits nothing.
    if message_at(index)?.role != Role::Tool {
        return None;
    }
    start_of_run(index, message_at)
}

/// Returns the start of the block that ends directly before `index`. Reads as few messages as [`split_block`].
pub fn block_before<'a>(index: usize, message_at: impl Fn(usize) -> Option<&'a Message>) -> Option<usize> {
    start_of_run(index, message_at)
}

fn start_of_run<'a>(index: usize, message_at: impl Fn(usize) -> Option<&'a Message>) -> Option<usize> {
    let mut at = index;
    while at > 0 {
        at -= 1;
        let message = message_at(at)?;
        if message.role != Role::Tool {
            // Tool messages without calls before them are no block.
            return message.asks_for_tools().then_some(at);
        }
    }
    None
}

/// Extends a selection to whole blocks: if one message of a block is selected, the block is.
pub fn widen<M: AsRef<Message>>(messages: &[M], kept: &mut [bool]) {
    for block in tool_blocks(messages) {
        // `get_mut` instead of an index: a selection that is shorter than the messages must not panic.
        if let Some(block) = kept.get_mut(block)
            && block.contains(&true)
        {
            block.fill(true);
        }
    }
}
