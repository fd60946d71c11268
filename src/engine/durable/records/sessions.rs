//! Session results of durable runs, which are committed with the end of the run.
//!
//! A conversation is a chain of contents ([`parts`](super::parts)): a run writes what it has added and refers to the part with
//! which it started. Each message is written once, and neither the session nor a record of a run grows with the conversation.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::sessions::{SessionKeeper, empty_session, recounted};
use pirn_conversation::conversation::{Conversation, Tokenizer};
use pirn_core::run::{JournaledInput, Message, RunStartRecord, SessionLeft, SessionSeed, SessionState, ToSupervisor};
use pirn_core::session::SessionPlace;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_store::{Content, ContentHash, Run, RunFilter, SessionWrite, Store, StoreError};

use super::parts::{Conversations, parts_of};
use crate::engine::durable::resume_error::run_error;

/// Number of runs read per page.
const PAGE: usize = 1_000;

/// Returns the write that stores a run's result in its session, and the parts that the run has added to the conversation.
pub(in crate::engine::durable) fn write(
    left: &SessionLeft,
    at: u64,
    conversations: &Conversations,
) -> Result<(SessionWrite, Vec<Content>), String> {
    let written = parts_of(left).map_err(|error| error.to_string())?;
    let last = written.last.ok_or("a conversation has no part")?;
    let whole = SessionState {
        // The body names the last part instead of the messages, so its size does not depend on their number.
        conversation: Conversation::new(),
        stored: Some(last.clone()),
        ..left.state.clone()
    };
    let write = SessionWrite {
        id: left.id.to_string(),
        // The store refuses the write if another run has written the session since.
        follows: left.state.version.saturating_sub(1),
        contents: ContentHash::parse(&last.part).into_iter().collect(),
        body: serde_json::to_string(&whole).map_err(|error| error.to_string())?,
        at,
    };
    let bytes = written.parts.iter().map(|part| part.text().len()).sum();
    // Cached before the commit. If it fails, no session names this part, and the entry is only replaced.
    conversations.put(&left.id, last, &left.state.conversation, bytes);
    Ok((write, written.parts))
}

/// Splits a step in which a run gets its turn in its session: returns the step without the messages that the store already has, and
/// the part that replaces them. Returns `None` for any other step.
pub(in crate::engine::durable) fn without_conversation(
    input: &JournaledInput,
) -> Option<(JournaledInput, ContentHash)> {
    let stored = handed(&input.message)?.stored.as_ref()?;
    let part = ContentHash::parse(&stored.part)?;
    // The clone shares the messages, so it costs little until the conversation is removed.
    let mut bare = input.clone();
    if let Message::Supervisor(ToSupervisor::Session(turn)) = &mut bare.message
        && let Ok(state) = &mut **turn
    {
        state.conversation = Conversation::new();
    }
    Some((bare, part))
}

fn handed(message: &Message) -> Option<&SessionState> {
    match message {
        Message::Supervisor(ToSupervisor::Session(turn)) => (**turn).as_ref().ok(),
        Message::Supervisor(_) | Message::Thread(..) | Message::Conversation(..) => None,
    }
}

/// Restores the conversation in a step in which a run gets its turn in its session.
pub(in crate::engine::durable) async fn with_conversation(
    input: &mut JournaledInput,
    session: Option<&Arc<str>>,
    store: &dyn Store,
    conversations: &Conversations,
) -> Result<(), String> {
    if let Message::Supervisor(ToSupervisor::Session(turn)) = &mut input.message
        && let Ok(state) = &mut **turn
        && let Some(stored) = &state.stored
    {
        // The cache is by session, and a record that contradicts the start record is damaged.
        let session = session.ok_or("a run without a session received a session's turn")?;
        let loaded = conversations.load(store, session, stored).await;
        state.conversation = loaded.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The sessions of a store.
pub(crate) struct StoredSessions {
    store: Arc<dyn Store>,
    conversations: Arc<Conversations>,
}

impl StoredSessions {
    pub(crate) fn new(store: Arc<dyn Store>, conversations: Arc<Conversations>) -> Self {
        Self { store, conversations }
    }
}

/// Returns the session of a run with its position; none if the run has no session, or its start record cannot be read.
pub(in crate::engine::durable) async fn session_of(
    store: &dyn Store,
    run: &Run,
) -> Result<Option<SessionSeed>, StoreError> {
    // A fork has the start record of its base run, and no position.
    if run.session.is_none() {
        return Ok(None);
    }
    // Read only the start record: the other contents are tool results and parts of conversations.
    let texts = match store.contents(run.contents.iter().copied().take(1).collect()).await {
        // Damage of one run must not prevent the runs of other sessions.
        Err(StoreError::Damaged { .. }) => return Ok(None),
        texts => texts?,
    };
    let begun = texts
        .first()
        .and_then(|text| serde_json::from_str::<RunStartRecord>(text).ok());
    Ok(begun.and_then(|begun| begun.session().cloned()))
}

async fn unfinished(store: &dyn Store) -> Result<Vec<SessionPlace>, StoreError> {
    let (mut places, mut after) = (Vec::new(), None);
    loop {
        let page = store.runs(RunFilter::live(), after, PAGE).await?;
        after = page.last().map(Run::place);
        for run in page {
            if let Some(session) = session_of(store, &run).await? {
                places.push(SessionPlace {
                    session: session.id,
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

async fn state(
    store: &dyn Store,
    conversations: &Conversations,
    id: &Arc<str>,
) -> Result<Option<SessionState>, RunError> {
    let Some(session) = store.session(id).await.map_err(|error| run_error(&error))? else {
        return Ok(None);
    };
    let unreadable = |why: String| RunError::new(RunErrorCode::StoreError, format!("session {id}: {why}"));
    let state: SessionState = serde_json::from_str(&session.body).map_err(|error| unreadable(error.to_string()))?;
    let conversation = match &state.stored {
        Some(stored) => {
            let loaded = conversations.load(store, id, stored).await;
            loaded.map_err(|error| unreadable(error.to_string()))?
        }
        // A body without a reference contains the messages themselves.
        None => state.conversation,
    };
    Ok(Some(SessionState {
        version: session.version,
        conversation,
        ..state
    }))
}

impl SessionKeeper for StoredSessions {
    fn unfinished(&self) -> BoxFuture<'static, Result<Vec<SessionPlace>, RunError>> {
        if self.store.claims().is_some() {
            // Other processes own the runs, and the store determines the order of a session's runs.
            return std::future::ready(Ok(Vec::new())).boxed();
        }
        let store = Arc::clone(&self.store);
        async move { unfinished(&*store).await.map_err(|error| run_error(&error)) }.boxed()
    }

    fn turn(&self, session: &Arc<str>, run: &Arc<str>) -> Option<BoxFuture<'static, Result<(), RunError>>> {
        // `None` lets the engine decide by its own queue, which is complete because the store is not shared.
        let turn = self.store.claims()?.turn(session, run);
        Some(turn.map(|turn| turn.map_err(|error| run_error(&error))).boxed())
    }

    fn state(
        &self,
        session: &Arc<str>,
        tokenizer: Option<Arc<dyn Tokenizer>>,
    ) -> BoxFuture<'static, Result<SessionState, RunError>> {
        let (store, session) = (Arc::clone(&self.store), Arc::clone(session));
        let conversations = Arc::clone(&self.conversations);
        async move {
            let state = state(&*store, &conversations, &session).await?;
            Ok(match (state, tokenizer) {
                // A workflow with another tokenizer may use the session, and its token limit needs counts by that tokenizer.
                (Some(state), Some(tokenizer)) => recounted(state, &tokenizer),
                (Some(state), None) => state,
                (None, tokenizer) => empty_session(tokenizer.as_ref().map_or("", |tokenizer| tokenizer.name())),
            })
        }
        .boxed()
    }

    fn left(&self, _: SessionLeft) {
        // The commit of the run's end contains the session's state.
    }

    fn keeps_places(&self) -> bool {
        // For a shared store, the store determines the order of a session's runs.
        self.store.claims().is_none()
    }
}
