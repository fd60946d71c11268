//! `filter`: retains messages that satisfy all given conditions.

use pirn_definition::definition::FilterContext;

use super::super::{Conversation, CountedMessage, tool_blocks, widen};

/// Returns the retained messages. A tool block is retained as a whole if one of its messages satisfies `roles` and
/// `contentContains`. It is removed as a whole if one contains a text of `contentExcludes`: excluded text never remains.
pub(super) fn filtered(conversation: &Conversation, filter: &FilterContext) -> Vec<CountedMessage> {
    let visible: Vec<CountedMessage> = conversation.visible().iter().cloned().collect();
    let mut kept: Vec<bool> = visible.iter().map(|counted| wanted(counted, filter)).collect();
    // Before the exclusions: a block that is selected for one message is removed again if another message is excluded.
    widen(&visible, &mut kept);
    for (flag, counted) in kept.iter_mut().zip(&visible) {
        *flag &= !excluded(counted, filter);
    }
    // A result without its call, or a call without its result, would be repaired in every later request.
    for block in tool_blocks(&visible) {
        if visible[block.clone()].iter().any(|counted| excluded(counted, filter)) {
            kept[block].fill(false);
        }
    }
    super::keep(visible, &kept)
}

fn wanted(counted: &CountedMessage, filter: &FilterContext) -> bool {
    let message = &counted.message;
    filter.roles.as_ref().is_none_or(|roles| roles.contains(&message.role))
        && filter
            .content_contains
            .as_ref()
            .is_none_or(|texts| texts.iter().any(|text| message.content.contains(text)))
}

fn excluded(counted: &CountedMessage, filter: &FilterContext) -> bool {
    filter
        .content_excludes
        .as_ref()
        .is_some_and(|texts| texts.iter().any(|text| counted.message.content.contains(text)))
}
