//! Tool blocks: an assistant message with tool calls and the longest run of tool messages directly after it. Nothing ever splits one.

use std::ops::Range;

use crate::message::{Message, Role};

/// Every tool block of `messages`, half-open, in order.
pub fn tool_blocks<M: AsRef<Message>>(messages: &[M]) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        let start = at;
        at += 1;
        if messages[start].as_ref().asks_for_tools() {
            while at < messages.len() && messages[at].as_ref().role == Role::Tool {
                at += 1;
            }
            blocks.push(start..at);
        }
    }
    blocks
}

/// The start of the block that `index` is inside: inserting at `index` would split it. None where nothing would be
/// split. `message_at` is asked about the run of tool messages around `index` and the message before it, no others.
pub fn split_block<'a>(index: usize, message_at: impl Fn(usize) -> Option<&'a Message>) -> Option<usize> {
    if message_at(index)?.role != Role::Tool {
        return None;
    }
    start_of_run(index, message_at)
}

/// The start of the block that ends right before `index`. Asks as little as [`split_block`].
pub fn block_before<'a>(index: usize, message_at: impl Fn(usize) -> Option<&'a Message>) -> Option<usize> {
    start_of_run(index, message_at)
}

fn start_of_run<'a>(index: usize, message_at: impl Fn(usize) -> Option<&'a Message>) -> Option<usize> {
    let mut at = index;
    while at > 0 {
        at -= 1;
        let message = message_at(at)?;
        if message.role != Role::Tool {
            return message.asks_for_tools().then_some(at);
        }
    }
    None
}

/// Widens a choice of messages to whole blocks: a block of which one message is kept is kept.
pub fn widen<M: AsRef<Message>>(messages: &[M], kept: &mut [bool]) {
    for block in tool_blocks(messages) {
        if let Some(block) = kept.get_mut(block)
            && block.contains(&true)
        {
            block.fill(true);
        }
    }
}
