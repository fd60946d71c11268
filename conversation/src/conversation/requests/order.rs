//! Rules of providers for the order of messages in a request, and repairs of requests that violate them. The history itself is
//! never changed.
//!
//! | rule | repair |
//! |---|---|
//! | no blank text | blank messages are removed; a blank text next to tool calls is not sent |
//! | the first message is the user's | [`USER_FIRST`] is inserted before it |
//! | the last message is not the assistant's | [`USER_LAST`] is appended |

use pirn_definition::message::{Message, Role};
use serde::{Deserialize, Serialize};

/// User message inserted before a request that would start with the assistant.
pub const USER_FIRST: &str = "[Earlier messages are omitted. The conversation continues:]";

/// User message appended to a request that would end with the assistant.
pub const USER_LAST: &str = "Continue.";

/// Rules of a provider for the order of messages. System messages are excluded: they come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageRules {
    /// The first message must exist and be the user's.
    pub user_first: bool,
    /// The last message must not be the assistant's.
    pub user_last: bool,
    /// True if messages that are empty or white space are refused.
    pub no_blank: bool,
}

impl MessageRules {
    /// The strictest rules: all of them apply.
    pub const STRICT: Self = Self {
        user_first: true,
        user_last: true,
        no_blank: true,
    };

    /// Combines the rules of two providers, for a request that either may receive.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            user_first: self.user_first || other.user_first,
            user_last: self.user_last || other.user_last,
            no_blank: self.no_blank || other.no_blank,
        }
    }
}

/// Changes to a request that made it valid for the provider. Part of REQUEST_REPAIRED.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repairs {
    /// Ids of calls for which a result was stated.
    pub closed_calls: Vec<String>,
    /// Call ids of removed results without a preceding call; empty for a result without an id.
    pub dropped_results: Vec<String>,
    /// Number of removed blank messages.
    #[serde(default)]
    pub dropped_blank: usize,
    /// True if a user message was inserted before the first one.
    #[serde(default)]
    pub user_first: bool,
    /// True if a user message was appended.
    #[serde(default)]
    pub user_last: bool,
}

impl Repairs {
    /// Returns true if nothing was repaired.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the repairs of a later part.
    pub fn absorb(&mut self, later: Repairs) {
        self.closed_calls.extend(later.closed_calls);
        self.dropped_results.extend(later.dropped_results);
        self.dropped_blank += later.dropped_blank;
        self.user_first |= later.user_first;
        self.user_last |= later.user_last;
    }
}

/// Returns messages that are no conversation, such as those of a tool's request, in an order that the provider accepts. System
/// messages must come first.
pub fn repair_order(rules: MessageRules, mut messages: Vec<Message>) -> (Vec<Message>, Repairs) {
    let mut repairs = drop_blank(rules, &mut messages);
    repairs.absorb(repair_ends(rules, &mut messages, |message| message).0);
    (messages, repairs)
}

/// Removes blank messages. Tool messages stay: an empty result is a result.
pub(super) fn drop_blank<M: AsRef<Message>>(rules: MessageRules, messages: &mut Vec<M>) -> Repairs {
    let before = messages.len();
    // Without the rule the history is sent as it is: a repair is never made without need.
    if rules.no_blank {
        messages.retain(|message| is_sent(message.as_ref()));
    }
    Repairs {
        // `retain` only removes, so that the subtraction cannot overflow.
        dropped_blank: before - messages.len(),
        ..Repairs::default()
    }
}

/// Returns true if a provider that rejects blank messages is sent this one.
pub(super) fn is_sent(message: &Message) -> bool {
    match message.role {
        // Removing an empty result would leave its call unanswered.
        Role::Tool => true,
        // The calls are the content. The blank text next to them is not sent.
        Role::Assistant => message.asks_for_tools() || !message.is_blank(),
        Role::System | Role::User => !message.is_blank(),
    }
}

/// Ensures that the first message is the user's and the last is not the assistant's. Returns the index of an inserted first message.
pub(super) fn repair_ends<M: AsRef<Message>>(
    rules: MessageRules,
    messages: &mut Vec<M>,
    counted: impl Fn(Message) -> M,
) -> (Repairs, Option<usize>) {
    let mut repairs = Repairs::default();
    let mut put_at = None;
    let is_system = |counted: &M| counted.as_ref().role == Role::System;
    // System messages are not part of the order that providers check.
    let first = messages.iter().position(|counted| !is_system(counted));
    // A request without other messages gets one: the rule requires that the first one exists.
    let first = first.unwrap_or(messages.len());
    let speaker = messages.get(first).map(|counted| counted.as_ref().role);
    if rules.user_first && speaker != Some(Role::User) {
        messages.insert(first, counted(Message::new(Role::User, USER_FIRST)));
        repairs.user_first = true;
        put_at = Some(first);
    }
    // Read after the insertion, which may have added the only message.
    let speaker = messages.last().map(|counted| counted.as_ref().role);
    if rules.user_last && speaker == Some(Role::Assistant) {
        messages.push(counted(Message::new(Role::User, USER_LAST)));
        repairs.user_last = true;
    }
    (repairs, put_at)
}
