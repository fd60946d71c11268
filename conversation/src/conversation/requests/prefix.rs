//! Longest common prefix of two consecutive requests of a thread, and the cause of the first difference. A provider's prompt cache
//! can serve the prefix and must process everything after it.
//!
//! A request is stored as ranges of the append-only lists of an [`Outline`], and as hashes of the messages that are in no list:
//! those generated for one request, such as the system text and the pinned context.
//!
//! # Costs
//! - An entry of a list never changes. Two ranges at one index of one list are therefore equal for their common length, and the
//!   comparison skips them without reading a hash.
//! - A message of a list is hashed once. The hashes are dropped when neither of the last two requests refers to the list.
//! - A comparison therefore costs the messages appended since the previous request and the generated messages. A change of another
//!   kind, such as a compression, starts new lists. All their messages are hashed and compared once.

use std::ops::Range;
use std::sync::{Arc, Weak};

use pirn_definition::message::{Message, Role};
use serde::{Deserialize, Serialize};

use super::order::{USER_FIRST, USER_LAST};
use super::prepared::{ListId, Piece};
use super::tool_pairs::UNANSWERED;
use crate::conversation::{Outline, PreparedRequest, Tokenizer, message_cost};

/// Hashes of the parts of a request that precede its messages in a provider's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestPrefix {
    /// Hash of the profile's id.
    pub profile: u64,
    /// Hash of the tools offered to the model, in order.
    pub tools: u64,
    /// Hash of the response format.
    pub format: u64,
}

/// Cause of the first difference from the previous request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PrefixBreak {
    /// The profile changed. Another model may receive the request.
    Profile,
    /// The tools or their order changed.
    Tools,
    /// The response format changed.
    ResponseFormat,
    /// A system message differs.
    System,
    /// The pinned context was moved or changed.
    Pinned,
    /// One of the two requests has a generated repair message at this index: see [`Repairs`](crate::conversation::Repairs).
    Repair,
    /// The conversation differs: it was compressed, or changed by an operation other than an append.
    History,
}

/// Result of a comparison with the previous request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Tokens of the longest common prefix, including tool definitions. 0 if there is no previous request, or if its [`RequestPrefix`]
    /// differs.
    pub tokens: u64,
    /// Index of the first message that differs, and the cause. `None` if this request starts with the whole previous one, or if
    /// there is no previous one.
    pub broken: Option<(usize, PrefixBreak)>,
}

/// Last two requests of a thread in comparable form.
///
/// The last prepared request may be replaced before it is sent, for example after a compression. The replacement is compared with
/// the last one that was sent, so both are retained.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct PrefixWatch {
    sent: Option<SentRequest>,
    prepared: Option<SentRequest>,
    /// Hashes of the lists to which the two requests refer. Others are dropped, which bounds the memory.
    lists: Vec<HashedList>,
}

#[derive(Clone, Debug)]
struct SentRequest {
    opening: RequestPrefix,
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
    /// Identifies the message by its address. The weak reference retains the allocation, so that no other message gets the address,
    /// but not the content. An `Arc` with weak references is never modified inline, so an equal address means an equal hash.
    message: Weak<Message>,
}

/// Hashes of the first messages of an append-only list. Never invalidated, only extended.
#[derive(Clone, Debug)]
struct HashedList {
    id: ListId,
    messages: Vec<SentMessage>,
    /// Tokens of all messages up to and including each, so that the tokens of a range cost one subtraction.
    running_totals: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SentMessage {
    hash: u64,
    kind: MessageKind,
}

/// Kind of a request's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageKind {
    /// A system message.
    System,
    /// A message of the pinned context.
    Pinned,
    /// A message that repairs the request: see [`Repairs`](crate::conversation::Repairs).
    Repair,
    /// Any other message of the conversation.
    History,
}

impl PrefixWatch {
    /// Compares a request with the last one that was sent, and stores it for the next comparison.
    ///
    /// `outline` is the one that prepared the request. `again` means that this request replaces the last prepared one, which was
    /// not sent.
    pub fn prepared(
        &mut self,
        request: &PreparedRequest,
        outline: &Outline,
        opening: RequestPrefix,
        again: bool,
        tokenizer: &dyn Tokenizer,
    ) -> Prefix {
        // A replacement is compared with the request before the replaced one, which no provider has seen.
        if !again {
            self.sent = self.prepared.take();
        }
        // Before the comparison, which reads the hashes of the lists that this call extends.
        let now = self.remembered(request, outline, opening);
        let before = self.sent.as_ref();
        let (common, broken) = before.map_or((None, None), |before| self.compare(before, &now));
        // Different openings share nothing: providers cache tools and format before the messages.
        let tokens = common.map_or(0, |common| {
            // The remainder is subtracted because it is usually short: its generated messages are counted with the tokenizer.
            let rest = self.cost_from(common, request, tokenizer);
            request.tokens().saturating_sub(rest)
        });
        // Only now: `remembered` compares addresses with the request that was sent.
        self.prepared = Some(now);
        let kept = [&self.sent, &self.prepared];
        self.lists
            .retain(|list| kept.into_iter().flatten().any(|request| request.has(list.id)));
        Prefix { tokens, broken }
    }

    fn remembered(&mut self, request: &PreparedRequest, outline: &Outline, opening: RequestPrefix) -> SentRequest {
        let mut now = SentRequest {
            opening,
            pieces: Vec::new(),
            length: 0,
        };
        let (lists, before) = (&mut self.lists, self.sent.as_ref());
        request.pieces(|piece| {
            // The index of the piece in the request, before its length is added.
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
            // An equal address at this index means an unchanged message, which need not be serialized and hashed again.
            let known = before.and_then(|before| before.made(at));
            let known = known.filter(|known| std::ptr::eq(known.message.as_ptr(), Arc::as_ptr(message)));
            let made = MadeMessage {
                sent: SentMessage {
                    hash: known.map_or_else(|| hash_of(message), |known| known.sent.hash),
                    kind: if is_pinned {
                        MessageKind::Pinned
                    } else {
                        MessageKind::of(message)
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

    /// Returns the number of common leading messages, and the first difference. The number is `None` if the openings differ: then
    /// nothing is shared.
    fn compare(&self, before: &SentRequest, now: &SentRequest) -> (Option<usize>, Option<(usize, PrefixBreak)>) {
        let (was, is) = (before.opening, now.opening);
        let opening = [
            (was.profile == is.profile, PrefixBreak::Profile),
            (was.tools == is.tools, PrefixBreak::Tools),
            (was.format == is.format, PrefixBreak::ResponseFormat),
        ];
        // The first difference is the cause: what follows it in the cache is lost anyway.
        if let Some((_, why)) = opening.into_iter().find(|(is_same, _)| !is_same) {
            return (None, Some((0, why)));
        }
        let common = self.common(before, now);
        // The request continues the previous one: nothing in the cache is lost.
        if common == before.length {
            return (Some(common), None);
        }
        // The message at the index may be pinned in one request and not in the other. The generated kinds are checked first: an
        // inserted or removed message moves the history behind it, which did not change.
        // `None` behind the end of the shorter request.
        let kinds = [before, now].map(|request| self.message(request, common).map(|message| message.kind));
        let differs = |kind| kinds.contains(&Some(kind));
        let why = if differs(MessageKind::System) {
            PrefixBreak::System
        } else if differs(MessageKind::Pinned) {
            PrefixBreak::Pinned
        } else if differs(MessageKind::Repair) {
            PrefixBreak::Repair
        } else {
            PrefixBreak::History
        };
        (Some(common), Some((common, why)))
    }

    /// Returns the number of common leading messages.
    fn common(&self, before: &SentRequest, now: &SentRequest) -> usize {
        let (mut was, mut is) = (before.pieces.iter(), now.pieces.iter());
        let (mut left, mut right) = (was.next().map(SentPiece::whole), is.next().map(SentPiece::whole));
        let mut common = 0;
        while let (Some((one, from)), Some((other, since))) = (left, right) {
            // Pieces of the two requests have different borders: the common part of both is compared.
            let length = (one.len() - from).min(other.len() - since);
            // Lists are append-only: ranges at one index of one list contain equal messages, which need no comparison.
            let same = if one.is_at(from) == other.is_at(since) && one.is_at(from).is_some() {
                length
            } else {
                let differs = |at: &usize| {
                    self.at(one, from + at).map(|sent| sent.hash) != self.at(other, since + at).map(|sent| sent.hash)
                };
                (0..length).find(differs).unwrap_or(length)
            };
            common += same;
            // Only the first difference is of interest: a cache serves prefixes.
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
        // Two requests refer to few lists, so that a linear search is enough.
        self.lists.iter().find(|list| list.id == id)
    }

    /// Returns the tokens of a request's messages from index `from` on. Only generated messages are counted with the tokenizer.
    fn cost_from(&self, mut from: usize, request: &PreparedRequest, tokenizer: &dyn Tokenizer) -> u64 {
        let mut cost = 0_u64;
        request.pieces(|piece| {
            // `from` counts messages, and pieces before it are skipped as a whole.
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

/// Extends the hashes of a list to its first `end` messages. Messages that were hashed before are not read.
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
    // A request without a snapshot has no lists. A list that is long enough is not read.
    let Some(conversation) = request.conversation().filter(|_| list.messages.len() < end) else {
        return;
    };
    // Continues the totals of an earlier call.
    let mut total = list.running_totals.last().copied().unwrap_or_default();
    for counted in outline.listed(id, list.messages.len()..end, conversation) {
        total = total.saturating_add(counted.tokens);
        list.running_totals.push(total);
        list.messages.push(SentMessage {
            hash: hash_of(&counted.message),
            kind: MessageKind::of(&counted.message),
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

    /// Returns the message at an index, if it is in no list.
    fn made(&self, mut at: usize) -> Option<&MadeMessage> {
        for piece in &self.pieces {
            match piece {
                SentPiece::Made(messages) if at < messages.len() => return messages.get(at),
                // `None` if the index is in the middle of a list.
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

    /// Returns the list of the message at `at`, and its index there. `None` for a message in no list.
    fn is_at(&self, at: usize) -> Option<(ListId, usize)> {
        match self {
            Self::Listed(id, range) => Some((*id, range.start + at)),
            // A generated message has no list that would prove its equality.
            Self::Made(_) => None,
        }
    }
}

/// Serialized form. List ids are valid in one process only, so each message is stored as its
/// hash. The cost of serializing is proportional to the length of the requests.
#[derive(Serialize, Deserialize)]
struct Stored {
    sent: Option<StoredRequest>,
    prepared: Option<StoredRequest>,
}

#[derive(Serialize, Deserialize)]
struct StoredRequest {
    opening: RequestPrefix,
    messages: Vec<SentMessage>,
}

impl From<PrefixWatch> for Stored {
    fn from(watch: PrefixWatch) -> Self {
        let [sent, prepared] =
            // Hashes only: a comparison needs no more.
            [&watch.sent, &watch.prepared].map(|request| request.as_ref().map(|request| watch.flat(request)));
        Self { sent, prepared }
    }
}

impl From<Stored> for PrefixWatch {
    fn from(stored: Stored) -> Self {
        Self {
            sent: stored.sent.map(SentRequest::from),
            prepared: stored.prepared.map(SentRequest::from),
            // The ids of the lists are not valid in this process: the next request hashes its messages once.
            lists: Vec::new(),
        }
    }
}

impl From<StoredRequest> for SentRequest {
    fn from(stored: StoredRequest) -> Self {
        let length = stored.messages.len();
        // A dangling reference equals no message's address, so that a restored request is compared by its hashes.
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

impl MessageKind {
    /// Returns the kind of a message that is not pinned. Repair messages are recognized by their constant content.
    pub fn of(message: &Message) -> Self {
        match message.role {
            Role::System => Self::System,
            Role::Tool if message.content == UNANSWERED => Self::Repair,
            Role::User if [USER_FIRST, USER_LAST].contains(&message.content.as_str()) => Self::Repair,
            Role::User | Role::Assistant | Role::Tool => Self::History,
        }
    }
}

/// Returns the hash of all fields of a message that a provider may receive.
fn hash_of(message: &Message) -> u64 {
    hash_text(serde_json::to_string(message))
}

/// Returns the 64-bit FNV-1a hash of strings, each followed by a separator.
///
/// The result is equal in every process and version, which the hashers of the standard library do not guarantee. The hashes of a
/// [`PrefixWatch`] are stored, so this is required.
pub fn hash_text<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    texts.into_iter().fold(OFFSET, |hash, text| {
        // 0xff occurs in no UTF-8 string, so that `["ab", "c"]` and `["a", "bc"]` differ.
        add(text.as_ref().bytes().fold(hash, add), 0xff)
    })
}
