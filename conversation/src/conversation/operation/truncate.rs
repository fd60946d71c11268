//! `truncate`: retains or removes messages at one end.

use std::ops::Range;

use pirn_definition::definition::TruncateContext;

use super::super::{Conversation, ConversationError, CountedMessage, widen};

/// Returns the retained messages. With `role`, only messages of that role are counted and retained. A count above the number of
/// messages selects all. A tool block with a retained message is retained as a whole.
pub(super) fn truncated(
    conversation: &Conversation,
    truncate: &TruncateContext,
) -> Result<Vec<CountedMessage>, ConversationError> {
    let visible: Vec<CountedMessage> = conversation.visible().iter().cloned().collect();
    // Positions of the counted messages, so that the range below applies with and without a role.
    let counts: Vec<usize> = visible
        .iter()
        .enumerate()
        .filter(|(_, counted)| truncate.role.is_none_or(|role| counted.message.role == role))
        .map(|(position, _)| position)
        .collect();
    let mut kept = vec![false; visible.len()];
    for &position in &counts[stays(truncate, counts.len())?] {
        kept[position] = true;
    }
    // Last, because the range may end inside of a block.
    widen(&visible, &mut kept);
    Ok(super::keep(visible, &kept))
}

/// Returns the range that is retained of `length` messages.
fn stays(truncate: &TruncateContext, length: usize) -> Result<Range<usize>, ConversationError> {
    let bounded = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).min(length);
    let ways = [
        truncate.keep_first.map(|n| 0..bounded(n)),
        // `bounded` returns at most the length, so that the subtraction cannot overflow.
        truncate.keep_last.map(|n| length - bounded(n)..length),
        truncate.remove_first.map(|n| bounded(n)..length),
        truncate.remove_last.map(|n| 0..length - bounded(n)),
        truncate.range.map(|range| bounded(range.start)..bounded(range.end)),
    ];
    let mut ways = ways.into_iter().flatten();
    let invalid = |message: &str| ConversationError::InvalidTruncate {
        message: message.to_owned(),
    };
    let ways_of = "keepFirst, keepLast, removeFirst, removeLast, range";
    let way = ways
        .next()
        .ok_or_else(|| invalid(&format!("truncate needs one of {ways_of}")))?;
    // Several fields are an error, because none of them has precedence.
    if ways.next().is_some() {
        return Err(invalid(&format!("truncate takes only one of {ways_of}")));
    }
    // The range is checked as written too: cut to the length, an invalid one may look empty.
    if way.start > way.end || truncate.range.is_some_and(|range| range.start >= range.end) {
        return Err(invalid("start must be below end"));
    }
    Ok(way)
}
