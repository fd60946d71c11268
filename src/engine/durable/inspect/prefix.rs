//! Comparison of two consecutive model requests: the part that a provider's prompt cache can serve, and the reason of its end.

use std::ops::Range;
use std::sync::Arc;

use pirn_conversation::conversation::MessageKind;
use pirn_definition::message::Message;
use serde::Serialize;
use serde_json::Value;

/// Common leading part of two requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefixComparison {
    /// Number of equal leading messages.
    pub same_messages: usize,
    /// First difference of the messages; `None` if the request starts with all messages of the earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<FirstDifference>,
    /// Reason of the difference; `None` if the request is the whole previous one, followed by more of the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<PrefixReason>,
}

/// Location of the first difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstDifference {
    /// Index of the message.
    pub message: usize,
    /// Offset of the first different byte in the JSON of both messages, without white space; 0 if one request has no such message.
    pub byte: usize,
}

/// Reason why a request differs from the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PrefixReason {
    /// Another profile or model receives the request.
    Profile,
    /// The tools or their order changed.
    Tools,
    /// The response format changed.
    ResponseFormat,
    /// A system message differs.
    System,
    /// The pinned context was moved or changed.
    Pinned,
    /// One of the two requests has a generated repair message.
    Repair,
    /// The history was compressed.
    Compression,
    /// The history was changed by another operation than an append.
    History,
}

/// The parts of a request that are compared.
pub(in crate::engine::durable) struct ComparedRequest<'a> {
    pub(in crate::engine::durable) messages: &'a [Arc<Message>],
    /// Indices of the pinned messages.
    pub(in crate::engine::durable) pinned: Range<usize>,
    pub(in crate::engine::durable) profile: &'a str,
    pub(in crate::engine::durable) model: Option<&'a str>,
    pub(in crate::engine::durable) tools: &'a [Value],
    pub(in crate::engine::durable) format: Option<&'a Value>,
}

impl ComparedRequest<'_> {
    fn kind(&self, at: usize) -> Option<MessageKind> {
        if self.pinned.contains(&at) {
            return Some(MessageKind::Pinned);
        }
        self.messages.get(at).map(|message| MessageKind::of(message))
    }
}

/// Compares a request with the previous one. `is_compressed`: the history was compressed between both.
pub(in crate::engine::durable) fn compare(
    before: &ComparedRequest<'_>,
    now: &ComparedRequest<'_>,
    is_compressed: bool,
) -> PrefixComparison {
    let pairs = before.messages.iter().zip(now.messages);
    // Most messages of both requests are the same allocation.
    let is_same = |(one, other): &(&Arc<Message>, &Arc<Message>)| Arc::ptr_eq(one, other) || one == other;
    let same_messages = pairs.take_while(is_same).count();
    let first_difference = (same_messages < before.messages.len()).then(|| FirstDifference {
        message: same_messages,
        byte: match (before.messages.get(same_messages), now.messages.get(same_messages)) {
            (Some(one), Some(other)) => different_byte(one, other),
            _ => 0,
        },
    });
    PrefixComparison {
        same_messages,
        first_difference,
        reason: reason(before, now, first_difference.map(|at| at.message), is_compressed),
    }
}

fn reason(
    before: &ComparedRequest<'_>,
    now: &ComparedRequest<'_>,
    difference: Option<usize>,
    is_compressed: bool,
) -> Option<PrefixReason> {
    // Providers cache the model's tools and format before the messages, so these come first.
    if (before.profile, before.model) != (now.profile, now.model) {
        return Some(PrefixReason::Profile);
    }
    if before.tools != now.tools {
        return Some(PrefixReason::Tools);
    }
    if before.format != now.format {
        return Some(PrefixReason::ResponseFormat);
    }
    let at = difference?;
    // The generated kinds come first: an inserted or removed message moves the history behind it, which did not change.
    let kinds = [before.kind(at), now.kind(at)];
    let differs = |kind| kinds.contains(&Some(kind));
    Some(if differs(MessageKind::System) {
        PrefixReason::System
    } else if differs(MessageKind::Pinned) {
        PrefixReason::Pinned
    } else if is_compressed {
        PrefixReason::Compression
    } else if differs(MessageKind::Repair) {
        PrefixReason::Repair
    } else {
        PrefixReason::History
    })
}

fn different_byte(one: &Message, other: &Message) -> usize {
    let text = |message: &Message| serde_json::to_string(message).unwrap_or_default();
    let (one, other) = (text(one), text(other));
    let pairs = one.bytes().zip(other.bytes());
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use pirn_definition::message::Role;
    use serde_json::json;

    use super::*;

    fn messages(texts: &[(Role, &str)]) -> Vec<Arc<Message>> {
        texts
            .iter()
            .map(|(role, text)| Arc::new(Message::new(*role, *text)))
            .collect()
    }

    fn request(messages: &[Arc<Message>]) -> ComparedRequest<'_> {
        ComparedRequest {
            messages,
            pinned: 0..0,
            profile: "main",
            model: Some("m"),
            tools: &[],
            format: None,
        }
    }

    #[test]
    fn the_reason_is_the_first_part_of_the_cached_prefix_that_differs() {
        let before = messages(&[(Role::System, "s"), (Role::User, "one"), (Role::Assistant, "a")]);
        let longer = messages(&[
            (Role::System, "s"),
            (Role::User, "one"),
            (Role::Assistant, "a"),
            (Role::User, "b"),
        ]);
        let grew = compare(&request(&before), &request(&longer), true);
        assert_eq!((grew.same_messages, grew.first_difference), (3, None));
        assert_eq!(grew.reason, None);

        let changed = messages(&[(Role::System, "s"), (Role::User, "onE"), (Role::Assistant, "a")]);
        let reason = |now: &ComparedRequest<'_>, is_compressed| compare(&request(&before), now, is_compressed).reason;
        let difference = compare(&request(&before), &request(&changed), false);
        let expected = FirstDifference {
            message: 1,
            byte: r#"{"role":"user","content":"on"#.len(),
        };
        assert_eq!(difference.first_difference, Some(expected));
        assert_eq!(difference.reason, Some(PrefixReason::History));
        assert_eq!(reason(&request(&changed), true), Some(PrefixReason::Compression));
        let pinned = ComparedRequest {
            pinned: 1..2,
            ..request(&changed)
        };
        assert_eq!(reason(&pinned, true), Some(PrefixReason::Pinned));
        let tools = [json!({"name": "look"})];
        let tools = ComparedRequest {
            tools: &tools,
            ..request(&changed)
        };
        assert_eq!(reason(&tools, false), Some(PrefixReason::Tools));
        let model = ComparedRequest {
            model: Some("other"),
            ..request(&longer)
        };
        assert_eq!(reason(&model, false), Some(PrefixReason::Profile));
        let system = messages(&[(Role::System, "other"), (Role::User, "one")]);
        assert_eq!(reason(&request(&system), true), Some(PrefixReason::System));
        let shorter = compare(&request(&before), &request(&before[..1]), false);
        assert_eq!(shorter.first_difference, Some(FirstDifference { message: 1, byte: 0 }));
    }
}
