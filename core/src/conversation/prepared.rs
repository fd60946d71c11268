//! A request that is put together where it is sent. What a run decides by is known without its messages, from what the
//! conversation gained since the request before: a replay, where the model has answered already, builds none.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::order::{Repairs, USER_FIRST, USER_LAST};
use super::position::pin_position;
use super::request::Sources;
use super::{AgentKind, Basis, Conversation, Counted, ModelRequest, RequestParts, Tokenizer, message_cost};
use crate::message::{Message, Part, Role};

/// A request for a model, and what a run decides by. [`Self::built`] is the request with its messages.
pub struct PreparedRequest {
    tokens: u64,
    repairs: Repairs,
    /// What the user said last, where that is known without the messages.
    said: Option<Arc<Message>>,
    sources: Option<Box<(Conversation, Sources)>>,
    built: OnceLock<Arc<ModelRequest>>,
}

impl PreparedRequest {
    /// Its tokens: messages, pinned context, tool definitions.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The repairs made.
    pub fn repairs(&self) -> &Repairs {
        &self.repairs
    }

    /// The request with its messages, built when it is first asked for.
    pub fn built(&self) -> &Arc<ModelRequest> {
        self.built.get_or_init(|| match self.sources.as_deref() {
            Some((conversation, sources)) => Arc::new(ModelRequest {
                tokens: self.tokens,
                ..sources.build(conversation, &Uncounted)
            }),
            None => Arc::default(),
        })
    }

    /// A request with the message alone that the user said last: see [`ModelRequest::last_said`].
    #[must_use]
    pub fn last_said(&self) -> ModelRequest {
        if self.sources.is_none() {
            return self.built().last_said();
        }
        ModelRequest {
            messages: self.said.iter().cloned().collect(),
            ..ModelRequest::default()
        }
    }
}

impl From<Arc<ModelRequest>> for PreparedRequest {
    fn from(request: Arc<ModelRequest>) -> Self {
        Self {
            tokens: request.tokens,
            repairs: request.repairs.clone(),
            said: None,
            sources: None,
            built: OnceLock::from(request),
        }
    }
}

impl fmt::Debug for PreparedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.built().fmt(f)
    }
}

impl PartialEq for PreparedRequest {
    fn eq(&self, other: &Self) -> bool {
        self.built() == other.built()
    }
}

impl Serialize for PreparedRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.built().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PreparedRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ModelRequest::deserialize(deserializer).map(|request| Arc::new(request).into())
    }
}

/// For a request whose tokens are known.
struct Uncounted;

impl Tokenizer for Uncounted {
    fn name(&self) -> &'static str {
        "uncounted"
    }
    fn count(&self, _: &str) -> u64 {
        0
    }
    fn count_media(&self, _: &Part) -> u64 {
        0
    }
}

/// What requests made of a conversation have of it, kept up with each one by what was appended since.
#[derive(Debug, Default)]
pub struct Outline {
    main: Side,
    sub: Side,
}

/// The same for one kind of agent. Messages are named by their places in the complete history.
#[derive(Debug, Default)]
struct Side {
    basis: Basis,
    system: Vec<usize>,
    rest: Vec<usize>,
    /// The last message of the user.
    said: Option<usize>,
    tokens: u64,
    /// Calls of the last block that have no result.
    open: Vec<String>,
    /// A call has no result, or a result no call, and something follows it.
    has_broken_pair: bool,
    has_blank: bool,
}

impl Outline {
    /// The request: the same as [`super::build_request`] makes. Costs what was appended since the last time, except where
    /// something was changed by more than an append, or single messages have to be repaired.
    pub fn prepare(
        &mut self,
        conversation: &Conversation,
        parts: &RequestParts<'_>,
        tokenizer: &dyn Tokenizer,
    ) -> PreparedRequest {
        let side = match parts.agent {
            AgentKind::Main => &mut self.main,
            AgentKind::Sub => &mut self.sub,
        };
        side.keep_up(conversation, parts.agent);
        let sources = Sources::of(parts);
        match side.foresee(conversation, &sources, tokenizer) {
            Some(foreseen) => PreparedRequest {
                sources: Some(Box::new((conversation.apart(), sources))),
                ..foreseen
            },
            None => Arc::new(sources.build(conversation, tokenizer)).into(),
        }
    }
}

impl Side {
    fn keep_up(&mut self, conversation: &Conversation, agent: AgentKind) {
        let visible = conversation.visible();
        if conversation.only_appended_since(self.basis) {
            for (index, counted) in visible.indexed_from(self.basis.length) {
                self.add(index, counted, agent);
            }
        } else {
            *self = Self::default();
            for (index, counted) in visible.indexed() {
                self.add(index, counted, agent);
            }
        }
        self.basis = conversation.basis();
    }

    fn add(&mut self, index: usize, counted: &Counted, agent: AgentKind) {
        let message = &*counted.message;
        if agent == AgentKind::Main && message.sub_agent_internal {
            return;
        }
        self.tokens = self.tokens.saturating_add(counted.tokens);
        self.has_blank |= message.role != Role::Tool && !message.asks_for_tools() && message.is_blank();
        if message.role == Role::System {
            return self.system.push(index);
        }
        self.rest.push(index);
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_ref();
            match id.and_then(|id| self.open.iter().position(|call| call == id)) {
                Some(answered) => drop(self.open.remove(answered)),
                None => self.has_broken_pair = true,
            }
            return;
        }
        self.has_broken_pair |= !self.open.is_empty();
        self.open.clear();
        self.open.extend(
            message
                .tool_calls
                .iter()
                .filter(|_| message.asks_for_tools())
                .map(|call| call.id.clone()),
        );
        if message.role == Role::User {
            self.said = Some(index);
        }
    }

    /// A request without its messages; none where some of them have to be repaired or left out.
    fn foresee(
        &self,
        conversation: &Conversation,
        sources: &Sources,
        tokenizer: &dyn Tokenizer,
    ) -> Option<PreparedRequest> {
        let rules = sources.rules;
        let system = sources.system.as_ref().filter(|_| self.system.is_empty());
        let is_blank = self.has_blank || system.is_some_and(|system| system.is_blank());
        if self.has_broken_pair || !self.open.is_empty() || (rules.no_blank && is_blank) {
            return None;
        }
        let complete = conversation.complete();
        let message = |index: &usize| complete.get(*index).map(|counted| &counted.message);
        let role = |index: Option<&usize>| index.and_then(message).map(|message| message.role);
        let first = self.system.len() + usize::from(system.is_some());
        let is_prompt = sources.agent == AgentKind::Sub && first == 0 && self.rest.len() == 1;
        let last = role(self.rest.last());
        let is_pending = last == Some(Role::User) && !is_prompt;
        let rest = &self.rest[..self.rest.len() - usize::from(is_pending)];
        let length = first + rest.len();
        let pinned_at = (!sources.pinned.is_empty()).then(|| {
            pin_position(sources.strategy, length, |index| match index.checked_sub(first) {
                Some(index) => rest.get(index).and_then(message).map(|message| &**message),
                None => match system {
                    Some(system) => Some(&**system),
                    None => self.system.get(index).and_then(message).map(|message| &**message),
                },
            })
        });
        let speaks_first = if pinned_at.is_some_and(|at| at <= first) {
            Some(Role::User)
        } else {
            role(self.rest.first())
        };
        let is_last_said = is_pending || pinned_at == Some(length);
        let repairs = Repairs {
            user_first: rules.user_first && speaks_first != Some(Role::User),
            user_last: rules.user_last && !is_last_said && last == Some(Role::Assistant),
            ..Repairs::default()
        };
        let put_first = repairs.user_first.then(|| Message::new(Role::User, USER_FIRST));
        let put_last = repairs.user_last.then(|| Message::new(Role::User, USER_LAST));
        let made = sources.pinned.iter().chain(system).map(|message| &**message);
        let tokens = made
            .chain(&put_first)
            .chain(&put_last)
            .map(|message| message_cost(message, tokenizer))
            .fold(sources.tool_tokens.saturating_add(self.tokens), u64::saturating_add);
        let said = put_last.map(Arc::new);
        let said = said.or_else(|| self.said.as_ref().and_then(message).cloned());
        Some(PreparedRequest {
            tokens,
            repairs,
            said: said.or_else(|| put_first.map(Arc::new)),
            sources: None,
            built: OnceLock::new(),
        })
    }
}
