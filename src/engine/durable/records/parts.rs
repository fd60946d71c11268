//! Stored conversations of sessions: each is a chain of contents, one part for each run that has added to it.
//!
//! A part contains the number of messages of the preceding conversation that remain, the messages that follow, and the changes of
//! the marks. It refers to the part before it and is stored after it, so a reference to the last part is a reference to all.
//!
//! The most recently used conversations are cached in memory, where runs share their messages: a run reads only the parts that
//! other processes have added since.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_conversation::conversation::{Conversation, CountedMessage, MarkMap};
use pirn_core::run::{SessionLeft, StoredConversation};
use pirn_definition::message;
use pirn_definition::message::Message;
use pirn_store::{Content, ContentHash, Store, StoreError};
use serde::{Deserialize, Serialize};

/// Maximum bytes of messages in a part; a larger message is a separate part.
const PART_BYTES: usize = 512 << 10;

/// Maximum bytes of the parts whose conversations are cached. The most recently used one is always cached.
const CACHED_BYTES: usize = 32 << 20;

/// Number of part names read in the first request, and in any request.
// The first request is small, because the cache usually ends the walk after a few parts.
const FIRST_NAMES: usize = 16;
const MOST_NAMES: usize = 4_096;

/// Number of parts read in one request.
const TEXTS: usize = 64;

/// A stored part.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    /// Hash of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Arc<str>>,
    /// Number of messages of the preceding conversation that remain.
    keeps: usize,
    /// Token counts of the remaining messages, if another tokenizer has counted them since; empty if unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recounted: Vec<u64>,
    messages: Vec<Arc<Message>>,
    tokens: Vec<u64>,
    version: u64,
    reshaped: u64,
    /// `None`: no marks, or the marks are in a later part of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    marks: Option<MarksAfter>,
}

/// Marks, as a difference from those of the preceding part.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarksAfter {
    lengths: Tail<usize>,
    boundaries: Tail<usize>,
    batches: Tail<u64>,
    set_aside: Tail<(usize, usize)>,
    current: u64,
}

/// A list, as a difference from the preceding one.
#[derive(Serialize, Deserialize)]
struct Tail<T> {
    keeps: usize,
    adds: Vec<T>,
}

impl<T: Clone + PartialEq> Tail<T> {
    fn of(before: &[T], now: &[T]) -> Self {
        // The common prefix is not stored again.
        let keeps = before.iter().zip(now).take_while(|(before, now)| before == now).count();
        let adds = now[keeps..].to_vec();
        Self { keeps, adds }
    }

    fn apply(self, list: &mut Vec<T>) {
        list.truncate(self.keeps);
        list.extend(self.adds);
    }
}

impl MarksAfter {
    fn of(before: &MarkMap, now: &MarkMap) -> Option<Self> {
        (before != now).then(|| Self {
            lengths: Tail::of(&before.original_indices, &now.original_indices),
            boundaries: Tail::of(&before.batch_boundaries, &now.batch_boundaries),
            batches: Tail::of(&before.boundary_to_batch, &now.boundary_to_batch),
            set_aside: Tail::of(&before.set_aside, &now.set_aside),
            current: now.current_batch,
        })
    }

    fn apply(self, marks: &mut MarkMap) {
        self.lengths.apply(&mut marks.original_indices);
        self.boundaries.apply(&mut marks.batch_boundaries);
        self.batches.apply(&mut marks.boundary_to_batch);
        self.set_aside.apply(&mut marks.set_aside);
        marks.current_batch = self.current;
    }
}

/// The parts that a run adds to its session's conversation.
pub(in crate::engine::durable) struct AddedParts {
    pub(in crate::engine::durable) parts: Vec<Content>,
    /// The last part of the chain. `None` only if the run started without one and a message cannot be serialized.
    pub(in crate::engine::durable) last: Option<StoredConversation>,
}

/// Serializes what a run has added to the conversation with which it started.
pub(in crate::engine::durable) fn parts_of(left: &SessionLeft) -> serde_json::Result<AddedParts> {
    let conversation = &left.state.conversation;
    // Messages up to `inherited` are those with which the run started: the store has them.
    let (mut last, mut keeps) = (left.follows.clone(), conversation.inherited());
    let mut recounted = last
        .as_mut()
        // Taken, because the first part stores these counts and no later part needs them.
        .map(|last| std::mem::take(&mut last.tokens))
        .unwrap_or_default();
    if last.is_none() {
        // There is no stored part to continue from.
        keeps = 0;
    }
    // Messages that the run removed need no count.
    recounted.truncate(keeps);
    let mut parts = Vec::new();
    let mut added = conversation.since(keeps).peekable();
    loop {
        let mut part = Part {
            after: last.as_ref().map(|last| Arc::clone(&last.part)),
            keeps,
            recounted: std::mem::take(&mut recounted),
            messages: Vec::new(),
            tokens: Vec::new(),
            version: conversation.version(),
            reshaped: conversation.reshaped(),
            marks: None,
        };
        let mut bytes = 0;
        while let Some(CountedMessage { message, tokens }) = added.next_if(|counted| {
            bytes += size_of(&counted.message);
            // Each part has at least one message; otherwise a message above the limit would never be written.
            part.messages.is_empty() || bytes <= PART_BYTES
        }) {
            // A reference: the conversation itself is immutable and shared.
            part.messages.push(Arc::clone(message));
            part.tokens.push(*tokens);
        }
        keeps += part.messages.len();
        // A run that added nothing still writes one part, which records what it removed and its marks.
        let is_last = added.peek().is_none();
        // The marks describe the whole conversation, so an earlier part cannot contain them.
        if is_last {
            let before = left.follows.as_ref().map(|_| &left.marks);
            part.marks = MarksAfter::of(before.unwrap_or(&MarkMap::default()), conversation.mark_map());
        }
        let before = part.after.as_deref().and_then(ContentHash::parse);
        // The link to the part before lets the store return the chain's names without the texts.
        let content = Content::new(serde_json::to_string(&part)?).following(before);
        last = Some(StoredConversation {
            part: content.hash().to_string().into(),
            parts: last.map_or(0, |last| last.parts) + 1,
            memory: conversation.memory_total(),
            tokens: Vec::new(),
        });
        parts.push(content);
        if is_last {
            return Ok(AddedParts { parts, last });
        }
    }
}

/// Returns the approximate size of a message in bytes.
fn size_of(message: &Message) -> usize {
    let calls = message.tool_calls.iter().map(|call| call.arguments.to_string().len());
    let media = message.parts.iter().map(|part| match part {
        message::Part::Text { text } => text.len(),
        message::Part::Image { url, .. } | message::Part::File { url, .. } => url.len(),
    });
    message.content.len() + calls.chain(media).sum::<usize>()
}

/// Reasons why a conversation cannot be read.
#[derive(Debug)]
pub(in crate::engine::durable) enum Unreadable {
    Store(StoreError),
    Part(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Part(why) => write!(f, "a part of its conversation: {why}"),
        }
    }
}

impl From<StoreError> for Unreadable {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Cache of the most recently used conversations of sessions.
#[derive(Default)]
pub(crate) struct Conversations(Mutex<ConversationCache>);

#[derive(Default)]
struct ConversationCache {
    by_session: BTreeMap<Arc<str>, CachedConversation>,
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    bytes: usize,
}

/// A conversation up to a part, and the size of its parts in bytes.
#[derive(Clone)]
struct CachedConversation {
    part: Arc<str>,
    conversation: Conversation,
    bytes: usize,
    used: u64,
}

impl Conversations {
    fn cached(&self) -> MutexGuard<'_, ConversationCache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches the conversation that a run has written to its session. `added_bytes` is the size of the parts that the run has
    /// written.
    pub(in crate::engine::durable) fn put(
        &self,
        session: &Arc<str>,
        last: StoredConversation,
        conversation: &Conversation,
        added_bytes: usize,
    ) {
        let mut cached = self.cached();
        // A session that was evicted in the meantime is counted too small, until a load counts all of its parts again.
        let before = cached.by_session.get(session).map_or(0, |known| known.bytes);
        // Mark as shared, so that runs which start from it need not copy the latest messages.
        let conversation = conversation.clone().stored(last.memory);
        cached.put(session, last.part, conversation, before + added_bytes);
    }

    /// Reads a conversation, except for the parts in the cache.
    pub(in crate::engine::durable) async fn load(
        &self,
        store: &dyn Store,
        session: &Arc<str>,
        stored: &StoredConversation,
    ) -> Result<Conversation, Unreadable> {
        // The lock is released before the first await: reading from the store must not block other sessions.
        let known = self.cached().find(session);
        let mut loading = Loading::default();
        let mut names = Vec::new();
        match known {
            // The usual case: this process wrote the session last, and nothing is read.
            Some(known) if known.part == stored.part => loading.begin(known),
            known => {
                // The chain is read from its end, because only its last part is named by the session.
                let mut next = ContentHash::parse(&stored.part);
                let end = known.as_ref().and_then(|known| ContentHash::parse(&known.part));
                let mut most = FIRST_NAMES;
                'all: while let Some(last) = next.take() {
                    let page = store.chain(last, most).await?;
                    // The last name of a full page is the first of the next page.
                    next = (page.len() == most).then(|| page.last().copied()).flatten();
                    for hash in page.into_iter().filter(|hash| Some(*hash) != next) {
                        if Some(hash) == end {
                            if let Some(known) = known {
                                loading.begin(known);
                            }
                            // The rest of the chain is in the cache.
                            break 'all;
                        }
                        names.push(hash);
                    }
                    // Pages grow, so that a long chain needs few requests and a short one reads few names.
                    most = (most * 4).min(MOST_NAMES);
                }
            }
        }
        // Each part changes the conversation of the part before, so they are applied from the oldest.
        names.reverse();
        // Chunks bound the memory for texts that are not decoded yet.
        for some in names.chunks(TEXTS) {
            for text in store.contents(some.to_vec()).await? {
                loading.take(&text).map_err(Unreadable::Part)?;
            }
        }
        let bytes = loading.bytes;
        let conversation = loading.end().map_err(Unreadable::Part)?;
        // If nothing was read, the cache already has this conversation.
        if !names.is_empty() {
            let part = Arc::clone(&stored.part);
            self.cached().put(session, part, conversation.clone(), bytes);
        }
        // These counts are not part of the chain, so the cache holds the conversation without them.
        let recounted = recounted(conversation, &stored.tokens).map_err(Unreadable::Part)?;
        Ok(recounted.stored(stored.memory))
    }
}

impl ConversationCache {
    fn find(&mut self, session: &Arc<str>) -> Option<CachedConversation> {
        self.uses += 1;
        let uses = self.uses;
        let known = self.by_session.get_mut(session)?;
        // An index by last use makes the choice of the oldest entry logarithmic instead of a scan of all sessions.
        self.by_use.remove(&std::mem::replace(&mut known.used, uses));
        self.by_use.insert(uses, Arc::clone(session));
        // Cheap: a conversation shares its messages with its clones.
        Some(known.clone())
    }

    fn put(&mut self, session: &Arc<str>, part: Arc<str>, conversation: Conversation, bytes: usize) {
        self.uses += 1;
        let used = self.uses;
        let known = CachedConversation {
            part,
            conversation,
            bytes,
            used,
        };
        self.bytes += bytes;
        self.by_use.insert(used, Arc::clone(session));
        if let Some(before) = self.by_session.insert(Arc::clone(session), known) {
            self.by_use.remove(&before.used);
            self.bytes -= before.bytes;
        }
        // The last entry stays even if it exceeds the limit: without it, every turn of a long session would read all parts.
        while self.bytes > CACHED_BYTES && self.by_session.len() > 1 {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            if let Some(gone) = self.by_session.remove(&oldest) {
                self.bytes -= gone.bytes;
            }
        }
    }
}

/// Returns the conversation with these token counts of its messages, if there are any.
fn recounted(conversation: Conversation, tokens: &[u64]) -> Result<Conversation, String> {
    if tokens.is_empty() {
        return Ok(conversation);
    }
    let messages = conversation
        .since(0)
        .zip(tokens)
        .map(|(counted, tokens)| CountedMessage {
            message: Arc::clone(&counted.message),
            tokens: *tokens,
        });
    let versions = (conversation.version(), conversation.reshaped());
    let marks = conversation.mark_map().clone();
    let recounted = Conversation::new().continued(0, messages.collect::<Vec<_>>(), marks, versions);
    recounted.map_err(|error| error.to_string())
}

/// A conversation being assembled from its parts.
#[derive(Default)]
struct Loading {
    /// The cached first messages, and how many of them remain.
    base: Conversation,
    length: usize,
    added: Vec<CountedMessage>,
    marks: MarkMap,
    versions: (u64, u64),
    bytes: usize,
}

impl Loading {
    fn begin(&mut self, known: CachedConversation) {
        self.length = known.conversation.len();
        self.marks = known.conversation.mark_map().clone();
        self.versions = (known.conversation.version(), known.conversation.reshaped());
        self.bytes = known.bytes;
        self.base = known.conversation;
    }

    fn take(&mut self, text: &str) -> Result<(), String> {
        let part: Part = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let length = self.length + self.added.len();
        if part.keeps > length || part.messages.len() != part.tokens.len() {
            return Err(format!("it retains {} of {length} messages", part.keeps));
        }
        // `keeps` counts from the first message, and `added` starts after the cached ones. Zero if even some of those are removed.
        self.added.truncate(part.keeps.saturating_sub(self.length));
        self.length = self.length.min(part.keeps);
        // New counts apply to the cached messages as well, which are immutable: all messages are built again.
        if !part.recounted.is_empty() {
            let messages = self.base.since(0).take(self.length).chain(&self.added);
            let counted = messages.zip(&part.recounted).map(|(counted, tokens)| CountedMessage {
                message: Arc::clone(&counted.message),
                tokens: *tokens,
            });
            self.added = counted.collect();
            self.length = 0;
        }
        let counted = part.messages.into_iter().zip(part.tokens);
        self.added
            .extend(counted.map(|(message, tokens)| CountedMessage { message, tokens }));
        part.marks.into_iter().for_each(|marks| marks.apply(&mut self.marks));
        self.versions = (part.version, part.reshaped);
        self.bytes += text.len();
        Ok(())
    }

    fn end(self) -> Result<Conversation, String> {
        let whole = self.base.continued(self.length, self.added, self.marks, self.versions);
        whole.map_err(|error| error.to_string())
    }
}
