//! Requests to a model, built from the visible part of a conversation.
//!
//! The order of the messages is:
//! 1. system messages;
//! 2. the visible history, with one result for each tool call, and the pinned context inserted at its position;
//! 3. the pending user message.
//!
//! Repairs then make the request valid for the provider: see [`Repairs`]. A request is a projection. Building it never changes the
//! conversation, so the stored history contains neither pinned context nor repairs.

use std::sync::Arc;

use pirn_definition::definition::Pinned;
use pirn_definition::message::{Message, Role};

use super::order::{MessageRules, Repairs, drop_blank, repair_ends};
use super::pinned::pinned_messages;
use super::position::{PinStrategy, pin_position};
use super::tool_pairs::repair_tool_pairs;
use crate::conversation::{Conversation, CountedMessage, Tokenizer};

/// Kind of agent that sends a request. Determines which messages it may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// Any thread except a sub-agent. `subAgentInternal` messages are omitted.
    #[default]
    Main,
    /// Thread started by SUBGRAPH with `agent`. All messages are included.
    Sub,
}

/// Parts of a request that do not come from the conversation.
#[derive(Clone, Debug, Default)]
pub struct RequestParts<'a> {
    /// Kind of agent.
    pub agent: AgentKind,
    /// Pinned context. Absent and empty sections are skipped.
    pub pinned: Option<&'a Pinned>,
    /// Description of the budgets, sent as the last message of the pinned context.
    pub budget: Option<&'a str>,
    /// Placement of the pinned context.
    pub strategy: PinStrategy,
    /// System message, used if the conversation has no visible one.
    pub system: Option<&'a str>,
    /// User message to send that is not in the conversation yet. If `None`, a user message at the end of the visible history is the
    /// pending one.
    pub pending: Option<Arc<Message>>,
    /// Tokens of the tool definitions.
    pub tool_tokens: u64,
    /// Message rules of the provider.
    pub rules: MessageRules,
}

/// Request to a model.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ModelRequest {
    /// Messages in order. Each tool call has a result, and each result a call.
    pub messages: Vec<Arc<Message>>,
    /// Index of the first pinned message. `None` if nothing is pinned.
    pub inserted_at: Option<usize>,
    /// Number of pinned messages.
    pub inserted: usize,
    /// Number of leading messages shared with the thread's previous request: those before its pinned context, which may have moved
    /// since. If the provider has explicit cache marks, the previous request had one after these messages.
    #[serde(default)]
    pub repeated: usize,
    /// Repairs made.
    pub repairs: Repairs,
    /// Tokens of messages, pinned context and tool definitions.
    pub tokens: u64,
}

impl ModelRequest {
    /// Returns the last user message that is not pinned.
    pub fn last_user_message(&self) -> Option<&Arc<Message>> {
        // Pinned messages have the user's role but are not messages of the user.
        let pinned = self.inserted_at.map_or(0..0, |at| at..at.saturating_add(self.inserted));
        let said = self.messages.iter().enumerate().rev();
        // From the end, so that only the tail is read.
        let mut said = said.filter(|(at, message)| message.role == Role::User && !pinned.contains(at));
        said.next().map(|(_, message)| message)
    }

    /// Returns a request with the last user message only. Nothing else of an answered request is used later, so its other messages
    /// need not be retained.
    #[must_use]
    pub fn last_said(&self) -> Self {
        Self {
            messages: self.last_user_message().cloned().into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Builds a request. The result depends on the arguments only, so that a replay builds an equal one.
///
/// The cost is proportional to the visible history. An [`Outline`](crate::conversation::Outline) prepares requests without their messages,
/// which are built only when a request is sent.
pub fn build_request(conversation: &Conversation, parts: &RequestParts<'_>, tokenizer: &dyn Tokenizer) -> ModelRequest {
    Sources::of(parts).build(conversation, tokenizer)
}

/// Owned form of [`RequestParts`], with its texts converted to messages.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) agent: AgentKind,
    /// Pinned context, followed by the description of the budgets.
    pub(super) pinned: Vec<Arc<Message>>,
    pub(super) strategy: PinStrategy,
    pub(super) system: Option<Arc<Message>>,
    pending: Option<Arc<Message>>,
    pub(super) tool_tokens: u64,
    pub(super) rules: MessageRules,
}

impl Sources {
    pub(super) fn of(parts: &RequestParts<'_>) -> Self {
        let sections = parts.pinned.map(pinned_messages).unwrap_or_default();
        let budget = parts.budget.map(|text| Message::new(Role::User, text));
        Self {
            agent: parts.agent,
            // The budget is last: it differs in most requests, and the sections before it can stay in the cache of the provider.
            pinned: sections.into_iter().chain(budget).map(Arc::new).collect(),
            strategy: parts.strategy,
            system: parts.system.map(|text| Arc::new(Message::new(Role::System, text))),
            pending: parts.pending.clone(),
            tool_tokens: parts.tool_tokens,
            rules: parts.rules,
        }
    }

    pub(super) fn build(&self, conversation: &Conversation, tokenizer: &dyn Tokenizer) -> ModelRequest {
        let counted = |message: Message| CountedMessage::new(message, tokenizer);
        let counted_again = |message: &Arc<Message>| CountedMessage::new(Arc::clone(message), tokenizer);
        let (mut history, mut rest) = system_and_rest(conversation, self.agent);
        // A system message of the history takes precedence over the node's.
        if history.is_empty() {
            history.extend(self.system.as_ref().map(counted_again));
        }
        // Removed from the history before the position is determined: see `pin_position`.
        let pending = match &self.pending {
            Some(pending) => Some(counted_again(pending)),
            None => take_trailing_user(&mut rest, self.agent == AgentKind::Sub && history.is_empty()),
        };
        history.append(&mut rest);
        let pinned: Vec<CountedMessage> = self.pinned.iter().map(counted_again).collect();

        // Before the context is inserted, which would move the positions.
        let repeated = repeated_by(&history, !pinned.is_empty(), self.strategy);
        // The pinned context is never inside a tool block, neither in this request nor in the previous one. So the parts before and
        // after each of the two positions can be repaired separately, and the counts of the parts stay exact.
        let layout = place(history, pinned, self.strategy);
        let mut before = layout.messages;
        let mut pinned = before.split_off(layout.inserted_at.unwrap_or(before.len()));
        let mut after = pinned.split_off(layout.inserted);
        // Behind the pinned context, also where that is at the end.
        after.extend(pending);
        let mut repairs = Repairs::default();
        let mut repaired = |side: Vec<CountedMessage>| {
            let (mut side, pairs) = repair_tool_pairs(side, counted);
            repairs.absorb(pairs);
            repairs.absorb(drop_blank(self.rules, &mut side));
            side
        };
        // The repaired length of the first part is the new index: repairs remove and add messages.
        let since = before.split_off(repeated.min(before.len()));
        let mut messages = repaired(before);
        let mut repeated = messages.len();
        messages.append(&mut repaired(since));
        let mut inserted_at = layout.inserted_at.map(|_| messages.len());
        let inserted = layout.inserted;
        messages.append(&mut pinned);
        messages.append(&mut repaired(after));
        // An inserted first message moves the indices after it by one.
        let (ends, put_at) = repair_ends(self.rules, &mut messages, counted);
        repairs.absorb(ends);
        if let Some(put) = put_at {
            // A context at the index moves too: the message is inserted before it.
            for at in inserted_at.iter_mut().filter(|at| put <= **at) {
                *at += 1;
            }
            repeated += usize::from(put < repeated);
        }
        ModelRequest {
            tokens: messages
                .iter()
                .map(|sent| sent.tokens)
                // Starts with the definitions of the tools, which are part of each request.
                .fold(self.tool_tokens, u64::saturating_add),
            messages: messages.into_iter().map(|sent| sent.message).collect(),
            inserted_at,
            inserted,
            repeated,
            repairs,
        }
    }
}

/// Returns the position of the pinned context in the request that the last reply answered. Without pinned context, returns the
/// number of messages before that reply. Returns 0 if there is no reply.
///
/// The position is computed from the history, so that the previous request need not be stored.
fn repeated_by(history: &[CountedMessage], has_pinned: bool, strategy: PinStrategy) -> usize {
    let is_reply = |counted: &CountedMessage| counted.message.role == Role::Assistant;
    let Some(replied) = history.iter().rposition(is_reply) else {
        // The first request repeats nothing.
        return 0;
    };
    if !has_pinned {
        return replied;
    }
    // A user message before the reply was the pending one, which is not part of the history when the position is determined.
    let is_asked = replied > 1 && history[replied - 1].message.role == Role::User;
    let then = &history[..replied - usize::from(is_asked)];
    pin_position(strategy, then.len(), |index| {
        then.get(index).map(CountedMessage::as_ref)
    })
}

/// Splits the visible messages into system messages, which are sent first, and others. Omits `subAgentInternal` messages for a main
/// agent.
fn system_and_rest(conversation: &Conversation, agent: AgentKind) -> (Vec<CountedMessage>, Vec<CountedMessage>) {
    conversation
        .visible()
        .iter()
        .filter(|counted| agent == AgentKind::Sub || !counted.message.sub_agent_internal)
        .cloned()
        .partition(|counted| counted.message.role == Role::System)
}

/// Removes and returns the pending user message at the end. A sub-agent's first prompt is not pending: it is the first message of
/// the history, before which no pinned context is inserted.
fn take_trailing_user(rest: &mut Vec<CountedMessage>, first_is_prompt: bool) -> Option<CountedMessage> {
    // Only the last message can be pending: a reply after it has answered it.
    let is_user = rest.last().is_some_and(|last| last.message.role == Role::User);
    if !is_user || (first_is_prompt && rest.len() == 1) {
        return None;
    }
    rest.pop()
}

/// History with the pinned context inserted, before repairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout<M> {
    /// Messages of the history and the pinned context.
    pub messages: Vec<M>,
    /// Index of the first pinned message. `None` if nothing is pinned.
    pub inserted_at: Option<usize>,
    /// Number of pinned messages.
    pub inserted: usize,
}

/// Inserts `pinned` at the position that [`pin_position`] returns. The pinned messages stay adjacent, and the order of the history
/// is unchanged.
pub fn place<M: AsRef<Message>>(mut history: Vec<M>, pinned: Vec<M>, strategy: PinStrategy) -> Layout<M> {
    let inserted = pinned.len();
    let mut inserted_at = None;
    if inserted > 0 {
        let at = pin_position(strategy, history.len(), |index| history.get(index).map(M::as_ref));
        // One splice, so that the messages behind the position move once.
        history.splice(at..at, pinned);
        inserted_at = Some(at);
    }
    Layout {
        messages: history,
        inserted_at,
        inserted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answered_request_retains_only_the_last_user_message() {
        let message = |role, text: &str| Arc::new(Message::new(role, text));
        let mut messages: Vec<_> = (0..1_000).map(|_| message(Role::Assistant, "a reply")).collect();
        messages.push(message(Role::User, "a question"));
        messages.push(message(Role::User, "pinned"));
        let request = ModelRequest {
            inserted_at: Some(1_001),
            inserted: 1,
            messages,
            ..ModelRequest::default()
        };
        let kept = request.last_said();
        assert_eq!(kept.messages.len(), 1);
        assert_eq!(kept.last_user_message(), request.last_user_message());
        assert_eq!(kept.messages[0].content, "a question");
    }
}
