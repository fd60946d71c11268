//! The prefix that a request has in common with the thread's request before it, and the first thing that differs: a provider's
//! cache can serve the one, and must read anew from the other on.
//!
//! A request that was sent is remembered as stretches of lists that only grow ([`Outline`]), and as hashes of messages that are in none:
//! the system text and the pinned context, which are made for each request. Stretches of one list are not looked at where they begin
//! alike; so the work is that of what changed.

use std::ops::Range;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

use super::order::{USER_FIRST, USER_LAST};
use super::prepared::{ListId, Piece};
use super::tool_pairs::UNANSWERED;
use super::{Outline, PreparedRequest, Tokenizer, message_cost};
use crate::message::{Message, Role};

/// The things that a provider reads before the first message, hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The profile.
    pub profile: u64,
    /// The tools that the model is offered, in order.
    pub tools: u64,
    /// The form of a structured reply.
    pub format: u64,
}

/// The first thing that differs from the request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BrokenBy {
    /// Another profile: another model reads it.
    Profile,
    /// Other tools, or others first.
    Tools,
    /// Another form of a structured reply.
    ResponseFormat,
    /// The system text.
    System,
    /// The pinned context, which stands elsewhere or says something else.
    Pinned,
    /// A message that stood in for what a provider wants, or stands there now.
    Repair,
    /// The conversation: it was compressed, or changed by more than an append.
    History,
}

/// A request as it is compared with the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Tokens of the longest common beginning, tool definitions included.
    pub tokens: u64,
    /// The index of the first message that differs, and why; none where all of the request before is there still.
    pub broken: Option<(usize, BrokenBy)>,
}

/// The thread's last requests: the one that was sent, and the one that was put together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct PrefixWatch {
    sent: Option<SentRequest>,
    prepared: Option<SentRequest>,
    /// The lists that the two have stretches of.
    lists: Vec<HashedList>,
}

#[derive(Clone, Debug)]
struct SentRequest {
    opening: Opening,
    pieces: Vec<SentPiece>,
    length: usize,
}

#[derive(Clone, Debug)]
enum SentPiece {
    Listed(ListId, Range<usize>),
    Made(Vec<MadeMessage>),
}

#[derive(Clone, Debug)]
struct MadeMessage {
    sent: SentMessage,
    /// Keeps the allocation, so that no other message has its address; not what was written in it.
    message: Weak<Message>,
}

/// Messages of a list.
#[derive(Clone, Debug)]
struct HashedList {
    id: ListId,
    messages: Vec<SentMessage>,
    /// The cost of all up to and including each.
    running_totals: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SentMessage {
    hash: u64,
    kind: MessageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum MessageKind {
    System,
    Pinned,
    Repair,
    History,
}

impl PrefixWatch {
    /// Compares a request with the thread's previous one, and keeps it for the next. `outline`: what it was prepared with. `again`:
    /// the one that was put together last is not sent, this one is in its place.
    pub fn prepared(
        &mut self,
        request: &PreparedRequest,
        outline: &Outline,
        opening: Opening,
        again: bool,
        tokenizer: &dyn Tokenizer,
    ) -> Prefix {
        if !again {
            self.sent = self.prepared.take();
        }
        let now = self.remembered(request, outline, opening);
        let before = self.sent.as_ref();
        let (common, broken) = before.map_or((None, None), |before| self.compare(before, &now));
        let tokens = common.map_or(0, |common| {
            let rest = self.cost_from(common, request, tokenizer);
            request.tokens().saturating_sub(rest)
        });
        self.prepared = Some(now);
        let kept = [&self.sent, &self.prepared];
        self.lists
            .retain(|list| kept.into_iter().flatten().any(|request| request.has(list.id)));
        Prefix { tokens, broken }
    }

    fn remembered(&mut self, request: &PreparedRequest, outline: &Outline, opening: Opening) -> SentRequest {
        let mut now = SentRequest {
            opening,
            pieces: Vec::new(),
            length: 0,
        };
        let (lists, before) = (&mut self.lists, self.sent.as_ref());
        request.pieces(|piece| {
            let at = now.length;
            now.length += piece.len();
            let (message, is_pinned) = match piece {
                Piece::Made(message) => (message, false),
                Piece::Pinned(message) => (message, true),
                Piece::Listed(id, range) => {
                    hash_list(lists, id, range.end, request, outline);
                    return now.pieces.push(SentPiece::Listed(id, range));
                }
            };
            let known = before.and_then(|before| before.made(at));
            let known = known.filter(|known| std::ptr::eq(known.message.as_ptr(), Arc::as_ptr(message)));
            let made = MadeMessage {
                sent: SentMessage {
                    hash: known.map_or_else(|| hash_of(message), |known| known.sent.hash),
                    kind: if is_pinned {
                        MessageKind::Pinned
                    } else {
                        kind_of(message)
                    },
                },
                message: Arc::downgrade(message),
            };
            match now.pieces.last_mut() {
                Some(SentPiece::Made(all)) => all.push(made),
                Some(SentPiece::Listed(..)) | None => now.pieces.push(SentPiece::Made(vec![made])),
            }
        });
        now
    }

    /// The number of messages that both begin with, none where not even what comes before them is the same; and the first thing
    /// that differs.
    fn compare(&self, before: &SentRequest, now: &SentRequest) -> (Option<usize>, Option<(usize, BrokenBy)>) {
        let (was, is) = (before.opening, now.opening);
        let opening = [
            (was.profile == is.profile, BrokenBy::Profile),
            (was.tools == is.tools, BrokenBy::Tools),
            (was.format == is.format, BrokenBy::ResponseFormat),
        ];
        if let Some((_, why)) = opening.into_iter().find(|(is_same, _)| !is_same) {
            return (None, Some((0, why)));
        }
        let common = self.common(before, now);
        if common == before.length {
            return (Some(common), None);
        }
        let kinds = [before, now].map(|request| self.message(request, common).map(|message| message.kind));
        let differs = |kind| kinds.contains(&Some(kind));
        let why = if differs(MessageKind::System) {
            BrokenBy::System
        } else if differs(MessageKind::Pinned) {
            BrokenBy::Pinned
        } else if differs(MessageKind::Repair) {
            BrokenBy::Repair
        } else {
            BrokenBy::History
        };
        (Some(common), Some((common, why)))
    }

    /// The number of messages that both begin with.
    fn common(&self, before: &SentRequest, now: &SentRequest) -> usize {
        let (mut was, mut is) = (before.pieces.iter(), now.pieces.iter());
        let (mut left, mut right) = (was.next().map(SentPiece::whole), is.next().map(SentPiece::whole));
        let mut common = 0;
        while let (Some((one, from)), Some((other, since))) = (left, right) {
            let length = (one.len() - from).min(other.len() - since);
            let same = if one.is_at(from) == other.is_at(since) && one.is_at(from).is_some() {
                length
            } else {
                let differs = |at: &usize| {
                    self.at(one, from + at).map(|sent| sent.hash) != self.at(other, since + at).map(|sent| sent.hash)
                };
                (0..length).find(differs).unwrap_or(length)
            };
            common += same;
            if same < length {
                break;
            }
            left = (from + length < one.len())
                .then_some((one, from + length))
                .or_else(|| was.next().map(SentPiece::whole));
            right = (since + length < other.len())
                .then_some((other, since + length))
                .or_else(|| is.next().map(SentPiece::whole));
        }
        common
    }

    fn message(&self, request: &SentRequest, mut at: usize) -> Option<SentMessage> {
        for piece in &request.pieces {
            if at < piece.len() {
                return self.at(piece, at);
            }
            at -= piece.len();
        }
        None
    }

    fn at(&self, piece: &SentPiece, at: usize) -> Option<SentMessage> {
        match piece {
            SentPiece::Listed(id, range) => self.list(*id)?.messages.get(range.start + at).copied(),
            SentPiece::Made(messages) => messages.get(at).map(|made| made.sent),
        }
    }

    fn list(&self, id: ListId) -> Option<&HashedList> {
        self.lists.iter().find(|list| list.id == id)
    }

    /// The cost of a request's messages from one on.
    fn cost_from(&self, mut from: usize, request: &PreparedRequest, tokenizer: &dyn Tokenizer) -> u64 {
        let mut cost = 0_u64;
        request.pieces(|piece| {
            let skipped = from.min(piece.len());
            from -= skipped;
            if skipped == piece.len() {
                return;
            }
            cost = cost.saturating_add(match piece {
                Piece::Made(message) | Piece::Pinned(message) => message_cost(message, tokenizer),
                Piece::Listed(id, range) => {
                    let list = self.list(id);
                    list.map_or(0, |list| list.cost(range.start + skipped..range.end))
                }
            });
        });
        cost
    }

    fn flat(&self, request: &SentRequest) -> StoredRequest {
        let all = request
            .pieces
            .iter()
            .flat_map(|piece| (0..piece.len()).filter_map(|at| self.at(piece, at)));
        StoredRequest {
            opening: request.opening,
            messages: all.collect(),
        }
    }
}

/// Hashes the messages of a list up to one, where they are not yet.
fn hash_list(lists: &mut Vec<HashedList>, id: ListId, end: usize, request: &PreparedRequest, outline: &Outline) {
    let at = lists.iter().position(|list| list.id == id).unwrap_or_else(|| {
        lists.push(HashedList {
            id,
            messages: Vec::new(),
            running_totals: Vec::new(),
        });
        lists.len() - 1
    });
    let list = &mut lists[at];
    let Some(conversation) = request.conversation().filter(|_| list.messages.len() < end) else {
        return;
    };
    let mut total = list.running_totals.last().copied().unwrap_or_default();
    for counted in outline.listed(id, list.messages.len()..end, conversation) {
        total = total.saturating_add(counted.tokens);
        list.running_totals.push(total);
        list.messages.push(SentMessage {
            hash: hash_of(&counted.message),
            kind: kind_of(&counted.message),
        });
    }
}

impl HashedList {
    fn cost(&self, range: Range<usize>) -> u64 {
        let until = |length: usize| length.checked_sub(1).and_then(|last| self.running_totals.get(last));
        let [start, end] = [range.start, range.end].map(|length| until(length).copied().unwrap_or_default());
        end.saturating_sub(start)
    }
}

impl SentRequest {
    fn has(&self, list: ListId) -> bool {
        let is = |piece: &SentPiece| matches!(piece, SentPiece::Listed(id, _) if *id == list);
        self.pieces.iter().any(is)
    }

    /// The message at this place, if it was made for the request.
    fn made(&self, mut at: usize) -> Option<&MadeMessage> {
        for piece in &self.pieces {
            match piece {
                SentPiece::Made(messages) if at < messages.len() => return messages.get(at),
                piece => at = at.checked_sub(piece.len())?,
            }
        }
        None
    }
}

impl SentPiece {
    fn len(&self) -> usize {
        match self {
            Self::Listed(_, range) => range.len(),
            Self::Made(messages) => messages.len(),
        }
    }

    fn whole(&self) -> (&Self, usize) {
        (self, 0)
    }

    /// The place in its list of the message at `at`.
    fn is_at(&self, at: usize) -> Option<(ListId, usize)> {
        match self {
            Self::Listed(id, range) => Some((*id, range.start + at)),
            Self::Made(_) => None,
        }
    }
}

/// The stored form: lists are known in one process alone.
#[derive(Serialize, Deserialize)]
struct Stored {
    sent: Option<StoredRequest>,
    prepared: Option<StoredRequest>,
}

#[derive(Serialize, Deserialize)]
struct StoredRequest {
    opening: Opening,
    messages: Vec<SentMessage>,
}

impl From<PrefixWatch> for Stored {
    fn from(watch: PrefixWatch) -> Self {
        let [sent, prepared] =
            [&watch.sent, &watch.prepared].map(|request| request.as_ref().map(|request| watch.flat(request)));
        Self { sent, prepared }
    }
}

impl From<Stored> for PrefixWatch {
    fn from(stored: Stored) -> Self {
        Self {
            sent: stored.sent.map(SentRequest::from),
            prepared: stored.prepared.map(SentRequest::from),
            lists: Vec::new(),
        }
    }
}

impl From<StoredRequest> for SentRequest {
    fn from(stored: StoredRequest) -> Self {
        let length = stored.messages.len();
        let message = Weak::new();
        let made = stored.messages.into_iter().map(|sent| MadeMessage {
            sent,
            message: message.clone(),
        });
        Self {
            opening: stored.opening,
            pieces: vec![SentPiece::Made(made.collect())],
            length,
        }
    }
}

fn kind_of(message: &Message) -> MessageKind {
    match message.role {
        Role::System => MessageKind::System,
        Role::Tool if message.content == UNANSWERED => MessageKind::Repair,
        Role::User if [USER_FIRST, USER_LAST].contains(&message.content.as_str()) => MessageKind::Repair,
        Role::User | Role::Assistant | Role::Tool => MessageKind::History,
    }
}

/// The hash of everything that a provider may be sent of a message.
fn hash_of(message: &Message) -> u64 {
    hash_text(serde_json::to_string(message))
}

/// FNV-1a, 64 bits, over texts and where each of them ends: the same in every process and version.
pub fn hash_text<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    texts.into_iter().fold(OFFSET, |hash, text| {
        // No byte of a text is 0xff.
        add(text.as_ref().bytes().fold(hash, add), 0xff)
    })
}
