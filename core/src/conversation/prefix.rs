//! The prefix that a request has in common with the thread's request before it, and the first thing that differs: a provider's
//! cache can serve the one, and must read anew from the other on.
//!
//! A request that was sent is remembered as hashes. A message that is still the same allocation is not looked at; so the work is that of
//! what changed, and of the few messages that are made for each request: the system text and the pinned context.

use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

use super::order::{USER_FIRST, USER_LAST};
use super::tool_pairs::UNANSWERED;
use super::{ModelRequest, Tokenizer, message_cost};
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
pub struct PrefixWatch {
    sent: Option<SentRequest>,
    prepared: Option<SentRequest>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SentRequest {
    opening: Opening,
    messages: Vec<SentMessage>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SentMessage {
    hash: u64,
    kind: MessageKind,
    /// Keeps the allocation, so that no other message has its address; not what was written in it.
    #[serde(skip)]
    message: Weak<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum MessageKind {
    System,
    Pinned,
    Repair,
    History,
}

impl PrefixWatch {
    /// Compares a request with the thread's previous one, and keeps it for the next. `again`: the one that was put together
    /// last is not sent, this one is in its place.
    pub fn prepared(
        &mut self,
        request: &ModelRequest,
        opening: Opening,
        again: bool,
        tokenizer: &dyn Tokenizer,
    ) -> Prefix {
        if !again {
            self.sent = self.prepared.take();
        }
        let before = self.sent.as_ref();
        let messages = request.messages.iter().enumerate().map(|(at, message)| {
            let known = before.and_then(|before| before.messages.get(at));
            let known = known.filter(|known| std::ptr::eq(known.message.as_ptr(), Arc::as_ptr(message)));
            SentMessage {
                hash: known.map_or_else(|| hash_of(message), |known| known.hash),
                kind: kind_of(request, at, message),
                message: Arc::downgrade(message),
            }
        });
        let now = SentRequest {
            opening,
            messages: messages.collect(),
        };
        let (common, broken) = before.map_or((None, None), |before| before.compare(&now));
        self.prepared = Some(now);
        let tokens = common.map_or(0, |common| {
            let rest = request.messages.iter().skip(common);
            rest.map(|message| message_cost(message, tokenizer))
                .fold(request.tokens, u64::saturating_sub)
        });
        Prefix { tokens, broken }
    }
}

impl SentRequest {
    /// The number of messages that both begin with, none where not even what comes before them is the same; and the first thing
    /// that differs.
    fn compare(&self, now: &Self) -> (Option<usize>, Option<(usize, BrokenBy)>) {
        let (was, is) = (self.opening, now.opening);
        let opening = [
            (was.profile == is.profile, BrokenBy::Profile),
            (was.tools == is.tools, BrokenBy::Tools),
            (was.format == is.format, BrokenBy::ResponseFormat),
        ];
        if let Some((_, why)) = opening.into_iter().find(|(is_same, _)| !is_same) {
            return (None, Some((0, why)));
        }
        let both = self.messages.iter().zip(&now.messages);
        let common = both.take_while(|(was, is)| was.hash == is.hash).count();
        if common == self.messages.len() {
            return (Some(common), None);
        }
        let kinds = [self, now].map(|request| request.messages.get(common).map(|message| message.kind));
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
}

fn kind_of(request: &ModelRequest, at: usize, message: &Message) -> MessageKind {
    let is_pinned = (request.inserted_at).is_some_and(|first| (first..first + request.inserted).contains(&at));
    match message.role {
        _ if is_pinned => MessageKind::Pinned,
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
