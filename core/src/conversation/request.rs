//! A request for a model: system first, the visible history with every tool call answered, the pinned context in its
//! place, the pending user message last, in the order that the provider wants. A projection: nothing of it is stored.

use std::sync::Arc;

use super::order::{MessageRules, Repairs, drop_blank, repair_ends};
use super::pinned::pinned_messages;
use super::position::{PinStrategy, pin_position};
use super::tool_pairs::repair_tool_pairs;
use super::{Conversation, Counted, Tokenizer};
use crate::definition::Pinned;
use crate::message::{Message, Role};

/// The kind of agent a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// Any thread but a sub-agent; `subAgentInternal` messages are left out.
    #[default]
    Main,
    /// A thread started by SUBGRAPH with `agent`.
    Sub,
}

/// The parts of a request beside the conversation.
#[derive(Clone, Debug, Default)]
pub struct RequestParts<'a> {
    /// The agent that the request is for.
    pub agent: AgentKind,
    /// The pinned context, absent sections skipped.
    pub pinned: Option<&'a Pinned>,
    /// The text about budgets, the last message of the pinned context.
    pub budget: Option<&'a str>,
    /// Its placement.
    pub strategy: PinStrategy,
    /// The system message where the conversation has none.
    pub system: Option<&'a str>,
    /// A user message that is sent but not yet in the conversation. Absent: a visible user message at the very end is
    /// the one being sent.
    pub pending: Option<Arc<Message>>,
    /// Tokens of the tool definitions.
    pub tool_tokens: u64,
    /// The rules of the provider that will get it.
    pub rules: MessageRules,
}

/// A request for a model.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ModelRequest {
    /// The messages in order: no call without result, no result without call.
    pub messages: Vec<Arc<Message>>,
    /// The index of the first pinned message; none where nothing is pinned.
    pub inserted_at: Option<usize>,
    /// The number of pinned messages.
    pub inserted: usize,
    /// So many of them the thread's previous request began with too: up to where its pinned context stood.
    #[serde(default)]
    pub repeated: usize,
    /// The repairs made.
    pub repairs: Repairs,
    /// Its tokens: messages, pinned context, tool definitions.
    pub tokens: u64,
}

impl ModelRequest {
    /// The message that the user said last, pinned ones aside.
    pub fn last_user_message(&self) -> Option<&Arc<Message>> {
        let pinned = self.inserted_at.map_or(0..0, |at| at..at.saturating_add(self.inserted));
        let said = self.messages.iter().enumerate().rev();
        let mut said = said.filter(|(at, message)| message.role == Role::User && !pinned.contains(at));
        said.next().map(|(_, message)| message)
    }

    /// A request with that message alone: all of an answered one that what comes after it depends on.
    #[must_use]
    pub fn last_said(&self) -> Self {
        Self {
            messages: self.last_user_message().cloned().into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Builds the request. The same conversation and parts give the same request.
pub fn build_request(conversation: &Conversation, parts: &RequestParts<'_>, tokenizer: &dyn Tokenizer) -> ModelRequest {
    Sources::of(parts).build(conversation, tokenizer)
}

/// The same parts as messages, whose owner they are.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) agent: AgentKind,
    /// The pinned context, and the text about budgets.
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
            pinned: sections.into_iter().chain(budget).map(Arc::new).collect(),
            strategy: parts.strategy,
            system: parts.system.map(|text| Arc::new(Message::new(Role::System, text))),
            pending: parts.pending.clone(),
            tool_tokens: parts.tool_tokens,
            rules: parts.rules,
        }
    }

    pub(super) fn build(&self, conversation: &Conversation, tokenizer: &dyn Tokenizer) -> ModelRequest {
        let counted = |message: Message| Counted::new(message, tokenizer);
        let counted_again = |message: &Arc<Message>| Counted::new(Arc::clone(message), tokenizer);
        let (mut history, mut rest) = system_and_rest(conversation, self.agent);
        if history.is_empty() {
            history.extend(self.system.as_ref().map(counted_again));
        }
        let pending = match &self.pending {
            Some(pending) => Some(counted_again(pending)),
            None => take_trailing_user(&mut rest, self.agent == AgentKind::Sub && history.is_empty()),
        };
        history.append(&mut rest);
        let pinned: Vec<Counted> = self.pinned.iter().map(counted_again).collect();

        let repeated = repeated_by(&history, !pinned.is_empty(), self.strategy);
        // The pinned block never stands inside a tool block, now or in the request before, so each side can be repaired alone.
        let layout = place(history, pinned, self.strategy);
        let mut before = layout.messages;
        let mut pinned = before.split_off(layout.inserted_at.unwrap_or(before.len()));
        let mut after = pinned.split_off(layout.inserted);
        after.extend(pending);
        let mut repairs = Repairs::default();
        let mut repaired = |side: Vec<Counted>| {
            let (mut side, pairs) = repair_tool_pairs(side, counted);
            repairs.absorb(pairs);
            repairs.absorb(drop_blank(self.rules, &mut side));
            side
        };
        let since = before.split_off(repeated.min(before.len()));
        let mut messages = repaired(before);
        let mut repeated = messages.len();
        messages.append(&mut repaired(since));
        let mut inserted_at = layout.inserted_at.map(|_| messages.len());
        let inserted = layout.inserted;
        messages.append(&mut pinned);
        messages.append(&mut repaired(after));
        let (ends, put_at) = repair_ends(self.rules, &mut messages, counted);
        repairs.absorb(ends);
        if let Some(put) = put_at {
            for at in inserted_at.iter_mut().filter(|at| put <= **at) {
                *at += 1;
            }
            repeated += usize::from(put < repeated);
        }
        ModelRequest {
            tokens: messages
                .iter()
                .map(|sent| sent.tokens)
                .fold(self.tool_tokens, u64::saturating_add),
            messages: messages.into_iter().map(|sent| sent.message).collect(),
            inserted_at,
            inserted,
            repeated,
            repairs,
        }
    }
}

/// The length of the history before what was pinned in the request that the last reply answered; 0 where there is no reply.
fn repeated_by(history: &[Counted], has_pinned: bool, strategy: PinStrategy) -> usize {
    let is_reply = |counted: &Counted| counted.message.role == Role::Assistant;
    let Some(replied) = history.iter().rposition(is_reply) else {
        return 0;
    };
    if !has_pinned {
        return replied;
    }
    let is_asked = replied > 1 && history[replied - 1].message.role == Role::User;
    let then = &history[..replied - usize::from(is_asked)];
    pin_position(strategy, then.len(), |index| then.get(index).map(Counted::as_ref))
}

/// System messages (they are sent first), and the others; a main agent's without `subAgentInternal`.
fn system_and_rest(conversation: &Conversation, agent: AgentKind) -> (Vec<Counted>, Vec<Counted>) {
    conversation
        .visible()
        .iter()
        .filter(|counted| agent == AgentKind::Sub || !counted.message.sub_agent_internal)
        .cloned()
        .partition(|counted| counted.message.role == Role::System)
}

/// The user message that is being sent, off the end. A sub-agent's first prompt stays: it is its history's first.
fn take_trailing_user(rest: &mut Vec<Counted>, first_is_prompt: bool) -> Option<Counted> {
    let is_user = rest.last().is_some_and(|last| last.message.role == Role::User);
    if !is_user || (first_is_prompt && rest.len() == 1) {
        return None;
    }
    rest.pop()
}

/// A history with the pinned context in its place; nothing is repaired.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout<M> {
    /// History, and the pinned messages among it.
    pub messages: Vec<M>,
    /// The index of the first pinned message; none where nothing is pinned.
    pub inserted_at: Option<usize>,
    /// The number inserted.
    pub inserted: usize,
}

/// Puts `pinned` in its place; the block stays together, nothing else moves.
pub fn place<M: AsRef<Message>>(mut history: Vec<M>, pinned: Vec<M>, strategy: PinStrategy) -> Layout<M> {
    let inserted = pinned.len();
    let mut inserted_at = None;
    if inserted > 0 {
        let at = pin_position(strategy, history.len(), |index| history.get(index).map(M::as_ref));
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
    fn an_answered_request_is_kept_by_what_the_user_said_last() {
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
