//! Outcomes of runs in their sessions, in a store: with the run's end, in one commit.
//!
//! A conversation lies in texts of up to 64 messages, whose borders do not move as it grows: a message is written at most
//! seven times, however long its session becomes, and no record of a run holds one.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::sessions::{SessionKeeper, empty_session, recounted};
use pirn_core::conversation::Tokenizer;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::run::{BegunRecord, Message, SessionLeft, SessionState, ToSupervisor, Told};
use pirn_core::session::SessionPlace;
use pirn_store::{Content, ContentHash, Run, RunFilter, SessionWrite, Store, StoreError};
use serde_json::Value;

use super::journal::not_kept;

/// The messages of one text.
const MOST: usize = 64;

/// So many runs are asked for at once.
const PAGE: usize = 1_000;

/// The fields of a conversation that have an item for each message.
const BY_MESSAGE: [&str; 2] = ["messages", "tokens"];

/// The field of a conversation without its messages: the number of texts that hold them. What else a run names is behind those.
const TEXTS: &str = "texts";

/// The place in a step of the conversation that a session handed to its run.
const HANDED: &str = "/message/Supervisor/Session/Ok/conversation";

/// A session's state without its messages, and the texts that hold those.
pub(super) struct Written {
    pub(super) body: String,
    pub(super) chunks: Vec<Content>,
}

impl Written {
    /// The hashes of the texts, in order.
    pub(super) fn names(&self) -> Vec<ContentHash> {
        self.chunks.iter().map(Content::hash).collect()
    }
}

/// The write that leaves a run's outcome in its session.
pub(super) fn write(left: &SessionLeft, at: u64) -> serde_json::Result<(SessionWrite, Vec<Content>)> {
    let written = split(serde_json::to_value(&left.state)?, "/conversation")?;
    let write = SessionWrite {
        id: left.id.to_string(),
        follows: left.state.version.saturating_sub(1),
        contents: written.names(),
        body: written.body,
        at,
    };
    Ok((write, written.chunks))
}

/// A step, where it is the run's turn in its session; none: any other.
pub(super) fn write_turn(told: &Told) -> Option<serde_json::Result<Written>> {
    let Message::Supervisor(ToSupervisor::Session(turn)) = &told.message else {
        return None;
    };
    turn.is_ok()
        .then(|| serde_json::to_value(told).and_then(|told| split(told, HANDED)))
}

/// Reads a step, whose conversation, where its session handed it one, is in these texts; none of a run without a session.
pub(super) fn read_told(body: &str, chunks: Option<&[Arc<str>]>) -> Result<Told, String> {
    let read = |error: serde_json::Error| error.to_string();
    let Some(chunks) = chunks.filter(|_| body.contains("\"Session\"")) else {
        return serde_json::from_str(body).map_err(read);
    };
    let mut told: Value = serde_json::from_str(body).map_err(read)?;
    if let Some(conversation) = told.pointer_mut(HANDED) {
        join(conversation, chunks)?;
    }
    serde_json::from_value(told).map_err(read)
}

/// Takes the messages out of the conversation that stands at `pointer`.
fn split(mut whole: Value, pointer: &str) -> serde_json::Result<Written> {
    let mut chunks = Vec::new();
    if let Some(conversation) = whole.pointer_mut(pointer) {
        let mut lists = BY_MESSAGE.map(|field| match conversation[field].take() {
            Value::Array(items) => items.into_iter(),
            _ => Vec::new().into_iter(),
        });
        for length in lengths(lists[0].len()) {
            let mut take = |at: usize| lists[at].by_ref().take(length).collect::<Vec<_>>();
            let chunk: BTreeMap<_, _> = (0..).zip(BY_MESSAGE).map(|(at, field)| (field, take(at))).collect();
            chunks.push(Content::new(serde_json::to_string(&chunk)?));
        }
        conversation[TEXTS] = Value::from(chunks.len());
    }
    let body = serde_json::to_string(&whole)?;
    Ok(Written { body, chunks })
}

/// Puts them back.
fn join(conversation: &mut Value, chunks: &[Arc<str>]) -> Result<(), String> {
    let mut lists = BY_MESSAGE.map(|_| Vec::new());
    let texts = conversation.as_object_mut().and_then(|fields| fields.remove(TEXTS));
    // Earlier versions wrote no number: a run named nothing else.
    let texts = texts.and_then(|texts| texts.as_u64()).unwrap_or(u64::MAX);
    for chunk in chunks.iter().take(usize::try_from(texts).unwrap_or(usize::MAX)) {
        let mut chunk: BTreeMap<String, Vec<Value>> = serde_json::from_str(chunk).map_err(|error| error.to_string())?;
        for (list, field) in lists.iter_mut().zip(BY_MESSAGE) {
            list.append(chunk.get_mut(field).ok_or("a text of a conversation has no messages")?);
        }
    }
    for (list, field) in lists.into_iter().zip(BY_MESSAGE) {
        conversation[field] = Value::Array(list);
    }
    Ok(())
}

/// As many messages as lie in each text: whole ones, and then by the powers of two that are left. One that is full never
/// changes, and so does none but the last few when a message is added.
fn lengths(messages: usize) -> impl Iterator<Item = usize> {
    let whole = std::iter::repeat_n(MOST, messages / MOST);
    let left = messages % MOST;
    let powers = std::iter::successors(Some(MOST / 2), |length| (*length > 1).then(|| length / 2));
    whole.chain(powers.filter(move |length| left & length != 0))
}

/// The sessions of a store.
pub(crate) struct StoredSessions(pub(crate) Arc<dyn Store>);

async fn unfinished(store: &dyn Store) -> Result<Vec<SessionPlace>, StoreError> {
    let (mut places, mut after) = (Vec::new(), None);
    loop {
        let page = store.runs(RunFilter::live(), after, PAGE).await?;
        after = page.last().map(Run::place);
        for run in page.into_iter().filter(|run| run.session.is_some()) {
            let texts = store.contents(run.contents.iter().copied().take(1).collect()).await?;
            // One that can not be read can not go on either.
            let begun = texts
                .first()
                .and_then(|text| serde_json::from_str::<BegunRecord>(text).ok());
            if let Some(session) = begun.as_ref().and_then(BegunRecord::session) {
                places.push(SessionPlace {
                    session: Arc::clone(&session.id),
                    number: session.number,
                    run: run.id.into(),
                });
            }
        }
        if after.is_none() {
            return Ok(places);
        }
    }
}

async fn state(store: &dyn Store, id: &str) -> Result<Option<SessionState>, RunError> {
    let kept = |error: StoreError| not_kept(&error);
    let Some(session) = store.session(id).await.map_err(kept)? else {
        return Ok(None);
    };
    let chunks = store.contents(session.contents).await.map_err(kept)?;
    let unreadable = |why: String| RunError::new(RunErrorCode::StoreError, format!("session {id}: {why}"));
    let mut whole: Value = serde_json::from_str(&session.body).map_err(|error| unreadable(error.to_string()))?;
    join(&mut whole["conversation"], &chunks).map_err(unreadable)?;
    let state: SessionState = serde_json::from_value(whole).map_err(|error| unreadable(error.to_string()))?;
    let version = session.version;
    Ok(Some(SessionState { version, ..state }))
}

impl SessionKeeper for StoredSessions {
    fn unfinished(&self) -> BoxFuture<'static, Result<Vec<SessionPlace>, RunError>> {
        if self.0.claims().is_some() {
            // Other processes carry them, and the store says whose turn it is.
            return std::future::ready(Ok(Vec::new())).boxed();
        }
        let store = Arc::clone(&self.0);
        async move { unfinished(&*store).await.map_err(|error| not_kept(&error)) }.boxed()
    }

    fn turn(&self, session: &Arc<str>, run: &Arc<str>) -> Option<BoxFuture<'static, Result<(), RunError>>> {
        let turn = self.0.claims()?.turn(session, run);
        Some(turn.map(|turn| turn.map_err(|error| not_kept(&error))).boxed())
    }

    fn state(
        &self,
        session: &Arc<str>,
        tokenizer: Option<Arc<dyn Tokenizer>>,
    ) -> BoxFuture<'static, Result<SessionState, RunError>> {
        let (store, session) = (Arc::clone(&self.0), Arc::clone(session));
        async move {
            let state = state(&*store, &session).await?;
            Ok(match (state, tokenizer) {
                (Some(state), Some(tokenizer)) => recounted(state, &tokenizer),
                (Some(state), None) => state,
                (None, tokenizer) => empty_session(tokenizer.as_ref().map_or("", |tokenizer| tokenizer.name())),
            })
        }
        .boxed()
    }

    fn left(&self, _: SessionLeft) {
        // It is in the commit of the run's end.
    }

    fn keeps_places(&self) -> bool {
        // Of a store that several share, the store says whose turn it is.
        self.0.claims().is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn conversation(messages: usize) -> Value {
        let each = |number: usize| json!({"role": "user", "content": format!("message {number}")});
        json!({"conversation": {"messages": (0..messages).map(each).collect::<Vec<_>>(), "tokens": (0..messages).collect::<Vec<_>>(), "version": messages}})
    }

    #[test]
    fn a_conversation_is_the_same_after_it_was_taken_apart() {
        for messages in (0..200).chain([1_000]) {
            let whole = conversation(messages);
            let written = split(whole.clone(), "/conversation").expect("is JSON");
            assert!(written.chunks.len() <= messages / MOST + 6, "{messages}");
            let mut read: Value = serde_json::from_str(&written.body).expect("is JSON");
            let chunks: Vec<Arc<str>> = written.chunks.iter().map(|chunk| Arc::clone(chunk.text())).collect();
            join(&mut read["conversation"], &chunks).expect("fits");
            assert_eq!(read, whole);
        }
    }

    #[test]
    fn a_message_is_written_at_most_seven_times_however_often_its_session_grows() {
        for step in 1..=5 {
            let (mut kept, mut written) = (BTreeSet::new(), vec![0; 1_000]);
            for messages in (0..1_000).step_by(step) {
                let mut first = 0;
                let split = split(conversation(messages), "/conversation").expect("is JSON");
                for (chunk, length) in split.chunks.iter().zip(lengths(messages)) {
                    if kept.insert(chunk.hash()) {
                        written[first..first + length].iter_mut().for_each(|times| *times += 1);
                    }
                    first += length;
                }
            }
            assert!(written.iter().all(|times| *times <= 7), "by {step}");
        }
    }
}
