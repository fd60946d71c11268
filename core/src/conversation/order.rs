//! The rules that providers have for the order of a request's messages, and what is done so that a request keeps them. The
//! history itself is never changed.
//!
//! | rule | a request that breaks it |
//! |---|---|
//! | no blank text | loses its blank messages; a blank text beside tool calls is not sent |
//! | the user speaks first | gets [`USER_FIRST`] before its first message |
//! | the assistant does not speak last | gets [`USER_LAST`] at its end |

use serde::{Deserialize, Serialize};

use super::Counted;
use crate::message::{Message, Role};

/// The user message before a request that would begin with the assistant's.
pub const USER_FIRST: &str = "[Earlier messages are left out. The conversation goes on:]";

/// The user message after a request that would end with the assistant's.
pub const USER_LAST: &str = "Go on.";

/// The rules of a provider for the order of messages. System messages stand apart, and first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageRules {
    /// The first message is the user's, and there is one.
    pub user_first: bool,
    /// The last message is not the assistant's.
    pub user_last: bool,
    /// No message is empty or nothing but space.
    pub no_blank: bool,
}

impl MessageRules {
    /// Every rule.
    pub const STRICT: Self = Self {
        user_first: true,
        user_last: true,
        no_blank: true,
    };

    /// The rules of both: of a request that either provider may get.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            user_first: self.user_first || other.user_first,
            user_last: self.user_last || other.user_last,
            no_blank: self.no_blank || other.no_blank,
        }
    }
}

/// Changes made to a request so that a provider takes it. Part of REQUEST_REPAIRED.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repairs {
    /// Ids of calls that were closed with a stated result.
    pub closed_calls: Vec<String>,
    /// Results without a call before them, left out: the call ids they name, empty where they name none.
    pub dropped_results: Vec<String>,
    /// Blank messages that were left out.
    #[serde(default)]
    pub dropped_blank: usize,
    /// A user message was put before the first one.
    #[serde(default)]
    pub user_first: bool,
    /// A user message was put after the last one.
    #[serde(default)]
    pub user_last: bool,
}

impl Repairs {
    /// True if nothing was repaired.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what was done to a later part.
    pub fn absorb(&mut self, later: Repairs) {
        self.closed_calls.extend(later.closed_calls);
        self.dropped_results.extend(later.dropped_results);
        self.dropped_blank += later.dropped_blank;
        self.user_first |= later.user_first;
        self.user_last |= later.user_last;
    }
}

/// Takes blank messages out. The results of tools stay: an empty one is a result.
pub(super) fn drop_blank(rules: MessageRules, messages: &mut Vec<Counted>) -> Repairs {
    let before = messages.len();
    if rules.no_blank {
        messages.retain(|counted| is_sent(&counted.message));
    }
    Repairs {
        dropped_blank: before - messages.len(),
        ..Repairs::default()
    }
}

/// True if a provider that takes no blank messages is sent this one.
pub(super) fn is_sent(message: &Message) -> bool {
    match message.role {
        Role::Tool => true,
        Role::Assistant => message.asks_for_tools() || !message.is_blank(),
        Role::System | Role::User => !message.is_blank(),
    }
}

/// Sees to it that the user speaks first, and the assistant not last. Gives the place of a message that was put before
/// others.
pub(super) fn repair_ends(
    rules: MessageRules,
    messages: &mut Vec<Counted>,
    counted: impl Fn(Message) -> Counted,
) -> (Repairs, Option<usize>) {
    let mut repairs = Repairs::default();
    let mut put_at = None;
    let is_system = |counted: &Counted| counted.message.role == Role::System;
    let first = messages.iter().position(|counted| !is_system(counted));
    let first = first.unwrap_or(messages.len());
    let speaker = messages.get(first).map(|counted| counted.message.role);
    if rules.user_first && speaker != Some(Role::User) {
        messages.insert(first, counted(Message::new(Role::User, USER_FIRST)));
        repairs.user_first = true;
        put_at = Some(first);
    }
    let speaker = messages.last().map(|counted| counted.message.role);
    if rules.user_last && speaker == Some(Role::Assistant) {
        messages.push(counted(Message::new(Role::User, USER_LAST)));
        repairs.user_last = true;
    }
    (repairs, put_at)
}
