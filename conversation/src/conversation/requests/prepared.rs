//! Model requests that are built only when they are sent.
//!
//! A run needs only the token count, the repairs and the length of a request. An [`Outline`] maintains these per conversation and
//! updates them from the messages appended since the previous request. A replay, in which the model has answered already, never
//! builds the messages.
//!
//! # Invariants
//! - The lists of an outline only grow. A request stores lengths of lists instead of messages, and later appends do not change the
//!   first entries of a list. So a prepared request stays valid while the conversation grows, and
//!   [`PrefixWatch`](crate::conversation::PrefixWatch) may treat equal indices of one list as equal messages.
//! - A change other than an append (batch, rollback, replacement) discards the lists and starts new ones with a new generation. A
//!   [`ListId`] contains the generation, so that it never refers to other messages than before.
//! - A message is in a list only if no later append can remove it or insert a message before it. Stated results of open calls are
//!   therefore not listed until the block ends: the real result may still be appended.
//!
//! # Costs
//! Preparing costs the messages appended since the last call, the generated messages and the list of repairs. The first call, and
//! the first one after a change other than an append, read the whole visible history. Building reads it too.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

use pirn_definition::message::{Message, Part, Role};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::order::{Repairs, USER_FIRST, USER_LAST, is_sent};
use super::position::pin_position;
use super::request::Sources;
use super::tool_pairs::UNANSWERED;
use crate::conversation::{
    AgentKind, Basis, Conversation, CountedMessage, ModelRequest, RequestParts, Tokenizer, message_cost,
};

/// A request for a model, with the figures that a run uses. [`Self::built`] returns the request with its messages.
pub struct PreparedRequest {
    tokens: u64,
    repairs: Repairs,
    // `None` for a request that was deserialized or built at once.
    foreseen: Option<Box<RequestPlan>>,
    built: OnceLock<Arc<ModelRequest>>,
}

/// Everything from which a request can be built later: a snapshot of the conversation, the other parts, and lengths of lists.
struct RequestPlan {
    /// Snapshot of the conversation. Shares its messages.
    conversation: Conversation,
    sources: Sources,
    /// Last message of the user.
    said: Option<Arc<Message>>,
    /// Generation of the lists of the [`Outline`] that prepared the request: see [`ListId`].
    generation: u64,
    /// True if the system message is generated for this request.
    has_system: bool,
    /// Length of the list of system messages when the request was prepared.
    system: usize,
    /// Length of the list of other messages when the request was prepared. Includes stated results of earlier blocks.
    rest: usize,
    /// Stated results for the open calls at the end. Not listed: the real results may be appended before the next request.
    stated: Vec<Arc<Message>>,
    /// Index of the first pinned message.
    inserted_at: Option<usize>,
}

/// Id of an append-only list of an [`Outline`]. Unique within the outline: each generation belongs to one [`Side`], and is never
/// reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListId {
    generation: u64,
    is_system: bool,
}

/// A range of a request's messages.
#[derive(Clone, Debug)]
pub(super) enum Piece<'a> {
    /// A message generated for this request.
    Made(&'a Arc<Message>),
    /// A message of the pinned context.
    Pinned(&'a Arc<Message>),
    /// A range of a list.
    Listed(ListId, Range<usize>),
}

impl Piece<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Made(_) | Self::Pinned(_) => 1,
            Self::Listed(_, range) => range.len(),
        }
    }
}

impl PreparedRequest {
    /// Returns the tokens of the request: messages, pinned context and tool definitions.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the repairs made.
    pub fn repairs(&self) -> &Repairs {
        &self.repairs
    }

    /// Returns the number of messages.
    #[allow(clippy::len_without_is_empty)] // of messages, not of the request
    pub fn len(&self) -> usize {
        match &self.foreseen {
            Some(foreseen) => foreseen.len(&self.repairs),
            // Building is free here: the request was constructed with its messages.
            None => self.built().messages.len(),
        }
    }

    /// Returns the index of the first pinned message; `None` if nothing is pinned.
    pub fn inserted_at(&self) -> Option<usize> {
        match &self.foreseen {
            Some(foreseen) => foreseen.inserted_at,
            None => self.built().inserted_at,
        }
    }

    /// Returns the request with its messages. Built at the first call.
    pub fn built(&self) -> &Arc<ModelRequest> {
        self.built.get_or_init(|| match self.foreseen.as_deref() {
            Some(foreseen) => Arc::new(ModelRequest {
                // Already counted by the outline. Counting again would cost the whole history.
                tokens: self.tokens,
                ..foreseen.sources.build(&foreseen.conversation, &Uncounted)
            }),
            // Not reached: without `foreseen` the cell is set by the constructor.
            None => Arc::default(),
        })
    }

    /// Returns a request with the user's last message only: see [`ModelRequest::last_said`].
    #[must_use]
    pub fn last_said(&self) -> ModelRequest {
        match &self.foreseen {
            Some(foreseen) => ModelRequest {
                messages: foreseen.said.iter().cloned().collect(),
                ..ModelRequest::default()
            },
            None => self.built().last_said(),
        }
    }

    /// Passes the messages to `take` in order. Consecutive messages of a list are one piece.
    pub(super) fn pieces<'a>(&'a self, mut take: impl FnMut(Piece<'a>)) {
        if let Some(foreseen) = &self.foreseen {
            return foreseen.pieces(&self.repairs, take);
        }
        let request = self.built();
        let pinned = request
            .inserted_at
            .map_or(0..0, |first| first..first + request.inserted);
        for (at, message) in request.messages.iter().enumerate() {
            take(if pinned.contains(&at) {
                Piece::Pinned(message)
            } else {
                Piece::Made(message)
            });
        }
    }

    /// Returns the conversation to which its lists refer.
    pub(super) fn conversation(&self) -> Option<&Conversation> {
        self.foreseen.as_deref().map(|foreseen| &foreseen.conversation)
    }
}

impl RequestPlan {
    fn len(&self, repairs: &Repairs) -> usize {
        let put = usize::from(repairs.user_first) + usize::from(repairs.user_last);
        let made = usize::from(self.has_system) + self.sources.pinned.len() + self.stated.len();
        self.system + self.rest + made + put
    }

    fn pieces<'a>(&'a self, repairs: &Repairs, mut take: impl FnMut(Piece<'a>)) {
        // An empty list makes no piece, so that no piece has the length 0.
        let listed = |is_system, length| {
            let generation = self.generation;
            (length > 0).then_some(Piece::Listed(ListId { generation, is_system }, 0..length))
        };
        let made = self.sources.system.iter().filter(|_| self.has_system).map(Piece::Made);
        let put_first = repairs.user_first.then(|| Piece::Made(user_first()));
        let put_last = repairs.user_last.then(|| Piece::Made(user_last()));
        let all = (made.chain(listed(true, self.system)).chain(put_first))
            .chain(listed(false, self.rest))
            .chain(self.stated.iter().map(Piece::Made))
            .chain(put_last);
        // The pinned context may be in the middle of a list, which then becomes two ranges.
        let (mut at, mut pinned_at) = (0, self.inserted_at);
        let insert = |take: &mut dyn FnMut(Piece<'a>)| self.sources.pinned.iter().map(Piece::Pinned).for_each(take);
        for piece in all {
            let length = piece.len();
            match (pinned_at.and_then(|pinned_at| pinned_at.checked_sub(at)), piece) {
                (Some(before), Piece::Listed(list, range)) if before < length => {
                    let middle = range.start + before;
                    // The context may precede the first message of the list.
                    if before > 0 {
                        take(Piece::Listed(list, range.start..middle));
                    }
                    insert(&mut take);
                    take(Piece::Listed(list, middle..range.end));
                    pinned_at = None;
                }
                (Some(0), piece) => {
                    insert(&mut take);
                    take(piece);
                    pinned_at = None;
                }
                (_, piece) => take(piece),
            }
            at += length;
        }
        // The context is behind the last message.
        if pinned_at.is_some() {
            insert(&mut take);
        }
    }
}

fn user_first() -> &'static Arc<Message> {
    static MESSAGE: LazyLock<Arc<Message>> = LazyLock::new(|| Arc::new(Message::new(Role::User, USER_FIRST)));
    &MESSAGE
}

fn user_last() -> &'static Arc<Message> {
    static MESSAGE: LazyLock<Arc<Message>> = LazyLock::new(|| Arc::new(Message::new(Role::User, USER_LAST)));
    &MESSAGE
}

impl From<Arc<ModelRequest>> for PreparedRequest {
    fn from(request: Arc<ModelRequest>) -> Self {
        Self {
            // Copied, because the figures are read without the messages.
            tokens: request.tokens,
            repairs: request.repairs.clone(),
            foreseen: None,
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

/// Tokenizer that counts nothing, for a request with a known token count.
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

/// Incrementally maintained outline of a conversation's requests. Each request updates it with the messages appended since the
/// last.
#[derive(Debug, Default)]
pub struct Outline {
    /// By kind of agent, and whether blank messages are omitted. Usually one entry.
    sides: Vec<((AgentKind, bool), Side)>,
    generation: u64,
}

/// Outline of one kind of request.
#[derive(Debug, Default)]
struct Side {
    basis: Basis,
    generation: u64,
    system: Half,
    rest: Half,
    /// Index in the complete history of the user's last message in the request.
    said: Option<usize>,
    tokens: u64,
    /// Calls of the last block without a result. Stated in each request, listed as stated only when the block ends.
    open: Vec<String>,
    /// Results that were stated for calls of other blocks.
    stated: Vec<CountedMessage>,
    repairs: Repairs,
}

/// The system messages, or all others.
#[derive(Debug, Default)]
struct Half {
    /// Visible messages: index in the complete history, and number of earlier messages in the request.
    visible: Vec<(usize, usize)>,
    /// Messages in the request. Append-only: an entry never changes, so that a request and
    /// [`crate::conversation::PrefixWatch`] refer to it by index.
    kept: Vec<Kept>,
}

#[derive(Clone, Copy, Debug)]
enum Kept {
    /// A message, by its index in the complete history.
    Said(usize),
    /// A stated result, by its index in [`Side::stated`].
    Stated(usize),
}

impl Half {
    fn add(&mut self, index: usize, is_kept: bool) {
        self.visible.push((index, self.kept.len()));
        if is_kept {
            self.kept.push(Kept::Said(index));
        }
    }

    /// Returns the number of messages in the request before the visible one at `at`.
    fn kept_before(&self, at: usize) -> usize {
        self.visible.get(at).map_or(self.kept.len(), |(_, before)| *before)
    }

    fn get<'c>(&self, at: usize, conversation: &'c Conversation) -> Option<&'c Message> {
        let (index, _) = self.visible.get(at)?;
        conversation.counted_at(*index).map(|counted| &*counted.message)
    }
}

impl Outline {
    /// Returns the request that [`crate::conversation::build_request`] would build. The cost is proportional to the
    /// messages appended since the last call, unless the conversation was changed in another way.
    pub fn prepare(
        &mut self,
        conversation: &Conversation,
        parts: &RequestParts<'_>,
        tokenizer: &dyn Tokenizer,
    ) -> PreparedRequest {
        let sources = Sources::of(parts);
        // A message outside of the conversation is in no list, so that the request is built at once. Runs pass none.
        if parts.pending.is_some() {
            return Arc::new(sources.build(conversation, tokenizer)).into();
        }
        // The two properties that decide which messages are listed. All others are applied per request.
        let key = (parts.agent, parts.rules.no_blank);
        let at = self
            .sides
            .iter()
            .position(|(known, _)| *known == key)
            .unwrap_or_else(|| {
                self.sides.push((key, Side::default()));
                self.sides.len() - 1
            });
        let side = &mut self.sides[at].1;
        side.keep_up(conversation, key, &mut self.generation, tokenizer);
        side.foresee(conversation, sources, tokenizer)
    }

    /// Returns the messages `from..to` of a list. `conversation` is the one of the last update.
    pub(super) fn listed<'a>(
        &'a self,
        list: ListId,
        range: Range<usize>,
        conversation: &'a Conversation,
    ) -> impl Iterator<Item = &'a CountedMessage> {
        let side = self
            .sides
            .iter()
            .map(|(_, side)| side)
            .find(|side| side.generation == list.generation);
        // A list of an older generation is gone: the iterator is empty then.
        let half = side.map(|side| (side, if list.is_system { &side.system } else { &side.rest }));
        let kept = half.and_then(|(side, half)| Some((side, half.kept.get(range)?)));
        kept.into_iter()
            .flat_map(move |(side, kept)| kept.iter().filter_map(move |kept| side.counted(*kept, conversation)))
    }
}

impl Side {
    fn keep_up(
        &mut self,
        conversation: &Conversation,
        key: (AgentKind, bool),
        last_generation: &mut u64,
        tokenizer: &dyn Tokenizer,
    ) {
        let visible = conversation.visible();
        // A change other than an append may hide or replace messages, and lists must not change: start new ones with new ids.
        let from = if self.generation > 0 && conversation.only_appended_since(self.basis) {
            self.basis.length
        } else {
            *last_generation += 1;
            *self = Self {
                generation: *last_generation,
                ..Self::default()
            };
            0
        };
        // Appends grow the lists as usual. Only a new outline knows its length in advance.
        if from == 0 {
            let length = visible.len();
            self.rest.visible.reserve(length);
            self.rest.kept.reserve(length);
        }
        for (index, counted) in visible.indexed_from(from) {
            self.add(index, counted, key, tokenizer);
        }
        // After the messages: the next call starts behind them.
        self.basis = conversation.basis();
    }

    fn add(
        &mut self,
        index: usize,
        counted: &CountedMessage,
        (agent, no_blank): (AgentKind, bool),
        tokenizer: &dyn Tokenizer,
    ) {
        let message = &*counted.message;
        // Not in `visible` either: hidden messages do not count for the position of the pinned context.
        if agent == AgentKind::Main && message.sub_agent_internal {
            return;
        }
        // A blank message stays in `visible`, because positions are determined before the repairs.
        let mut is_kept = true;
        if no_blank && !is_sent(message) {
            is_kept = false;
            self.repairs.dropped_blank += 1;
        }
        match message.role {
            // System messages are sent first, so that one between a call and its result does not end the block.
            Role::System => {}
            Role::Tool => {
                let id = message.tool_call_id.as_ref();
                let answered = id.and_then(|id| self.open.iter().position(|call| call == id));
                if let Some(answered) = answered {
                    // `remove` and not `swap_remove`: the rest is stated in the order of the calls.
                    self.open.remove(answered);
                } else {
                    is_kept = false;
                    self.repairs.dropped_results.push(id.cloned().unwrap_or_default());
                }
            }
            Role::User | Role::Assistant => {
                // The block ends here: a later result of its calls would be removed as an orphan.
                self.close(tokenizer);
                if message.asks_for_tools() {
                    self.open.extend(message.tool_calls.iter().map(|call| call.id.clone()));
                }
                // A blank message is not sent, so that it is not the last word of the user.
                if is_kept && message.role == Role::User {
                    self.said = Some(index);
                }
            }
        }
        if is_kept {
            self.tokens = self.tokens.saturating_add(counted.tokens);
        }
        let half = if message.role == Role::System {
            &mut self.system
        } else {
            &mut self.rest
        };
        half.add(index, is_kept);
    }

    /// States a result for each call of the last block without one.
    fn close(&mut self, tokenizer: &dyn Tokenizer) {
        // Listed now: no later append can answer these calls.
        for call in self.open.drain(..) {
            let stated = CountedMessage::new(stated(&call), tokenizer);
            self.tokens = self.tokens.saturating_add(stated.tokens);
            self.rest.kept.push(Kept::Stated(self.stated.len()));
            self.stated.push(stated);
            self.repairs.closed_calls.push(call);
        }
    }

    /// Returns a request without its messages.
    fn foresee(&self, conversation: &Conversation, sources: Sources, tokenizer: &dyn Tokenizer) -> PreparedRequest {
        let rules = sources.rules;
        // Cloned: repairs of open calls and of the ends belong to this request only.
        let mut repairs = self.repairs.clone();
        let system = sources.system.as_ref().filter(|_| self.system.visible.is_empty());
        let first = self.system.visible.len() + usize::from(system.is_some());
        // The same rule as in `take_trailing_user` of `request.rs`.
        let is_prompt = sources.agent == AgentKind::Sub && first == 0 && self.rest.visible.len() == 1;
        let last = self.rest.visible.len().checked_sub(1);
        let last = last.and_then(|last| self.rest.get(last, conversation));
        let is_pending = last.is_some_and(|last| last.role == Role::User) && !is_prompt;
        let length = first + self.rest.visible.len() - usize::from(is_pending);
        // In positions of visible messages, before the repairs, as `Sources::build` does.
        let pinned_at = (!sources.pinned.is_empty()).then(|| {
            pin_position(sources.strategy, length, |index| match index.checked_sub(first) {
                Some(index) => self.rest.get(index, conversation),
                None => (system.map(|system| &**system)).or_else(|| self.system.get(index, conversation)),
            })
        });
        // The generated system message is subject to the rule like all others.
        let is_left_out = rules.no_blank && system.is_some_and(|system| !is_sent(system));
        repairs.dropped_blank += usize::from(is_left_out);
        let has_system = system.is_some() && !is_left_out;
        let kept_system = self.system.kept.len() + usize::from(has_system);
        // Converted to a position among the messages that remain after the repairs.
        let inserted_at = pinned_at.map(|at| match at.checked_sub(first) {
            Some(at) => kept_system + self.rest.kept_before(at),
            None => self.system.kept_before(at).min(at),
        });
        let stated: Vec<_> = self.open.iter().map(|call| Arc::new(stated(call))).collect();
        repairs.closed_calls.extend(self.open.iter().cloned());

        let role = |kept: Option<&Kept>| {
            kept.and_then(|kept| self.counted(*kept, conversation))
                .map(|one| one.message.role)
        };
        // Pinned messages are the user's, so that they satisfy both rules.
        let is_pinned_first = inserted_at.is_some_and(|at| at <= kept_system);
        let user_is_first = is_pinned_first || role(self.rest.kept.first()) == Some(Role::User);
        repairs.user_first = rules.user_first && !user_is_first;
        let is_pinned_last = inserted_at == Some(kept_system + self.rest.kept.len());
        let assistant_is_last =
            // Stated results are tool messages at the end.
            stated.is_empty() && !is_pinned_last && role(self.rest.kept.last()) == Some(Role::Assistant);
        repairs.user_last = rules.user_last && assistant_is_last;
        // The inserted first message precedes the context.
        let inserted_at = inserted_at.map(|at| at + usize::from(repairs.user_first));

        let put_first = repairs.user_first.then(user_first);
        let put_last = repairs.user_last.then(user_last);
        let said = self.said.and_then(|index| conversation.counted_at(index));
        let said = put_last.or(said.map(|counted| &counted.message)).or(put_first).cloned();
        let tokens = (sources.pinned.iter().chain(system.filter(|_| has_system)))
            .chain(&stated)
            .chain(put_first)
            .chain(put_last)
            .map(|message| message_cost(message, tokenizer))
            .fold(sources.tool_tokens.saturating_add(self.tokens), u64::saturating_add);
        PreparedRequest {
            tokens,
            repairs,
            foreseen: Some(Box::new(RequestPlan {
                // Not a plain clone: the request may be held for long, and must not change how memory is attributed.
                conversation: conversation.apart(),
                sources,
                said,
                generation: self.generation,
                has_system,
                system: self.system.kept.len(),
                rest: self.rest.kept.len(),
                stated,
                inserted_at,
            })),
            built: OnceLock::new(),
        }
    }

    fn counted<'a>(&'a self, kept: Kept, conversation: &'a Conversation) -> Option<&'a CountedMessage> {
        match kept {
            Kept::Said(index) => conversation.counted_at(index),
            Kept::Stated(index) => self.stated.get(index),
        }
    }
}

fn stated(call: &str) -> Message {
    Message::tool_result(call, UNANSWERED)
}
