//! Sessions in memory, for the lifetime of their engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use pirn_conversation::conversation::Tokenizer;
use pirn_core::run::{SessionLeft, SessionState};
use pirn_core::session::SessionPlace;
use pirn_definition::error::RunError;

use super::{SessionKeeper, empty_session, recounted};

/// Maximum number of sessions.
const MOST: usize = 10_000;

/// Sessions in memory. Beyond 10,000, the least recently used session is removed.
#[derive(Default)]
pub struct MemorySessions(Mutex<SessionTable>);

#[derive(Default)]
struct SessionTable {
    by_id: BTreeMap<Arc<str>, (u64, SessionState)>,
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
}

impl SessionTable {
    fn put(&mut self, id: Arc<str>, state: SessionState) {
        self.uses += 1;
        self.by_use.insert(self.uses, Arc::clone(&id));
        // Removes the earlier use, so that both maps have one entry for each session.
        if let Some((used, _)) = self.by_id.insert(id, (self.uses, state)) {
            self.by_use.remove(&used);
        }
        // At most one session is too many, because each call adds one.
        if self.by_id.len() > MOST
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_id.remove(&oldest);
        }
    }
}

impl MemorySessions {
    fn find(&self, id: &str) -> Option<SessionState> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A cheap clone: the messages of a conversation are shared.
        kept.by_id.get(id).map(|(_, state)| state.clone())
    }
}

impl SessionKeeper for MemorySessions {
    fn unfinished(&self) -> BoxFuture<'static, Result<Vec<SessionPlace>, RunError>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn state(
        &self,
        session: &Arc<str>,
        tokenizer: Option<Arc<dyn Tokenizer>>,
    ) -> BoxFuture<'static, Result<SessionState, RunError>> {
        let state = match (self.find(session), &tokenizer) {
            (Some(state), Some(tokenizer)) => recounted(state, tokenizer),
            (Some(state), None) => state,
            (None, tokenizer) => empty_session(tokenizer.as_ref().map_or("", |tokenizer| tokenizer.name())),
        };
        ready(Ok(state)).boxed()
    }

    fn left(&self, left: SessionLeft) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.put(left.id, left.state);
    }

    fn keeps_places(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use pirn_conversation::conversation::MarkMap;

    use super::*;

    #[test]
    fn the_least_recently_used_session_is_evicted_first() {
        let sessions = MemorySessions::default();
        let leave = |number: usize| {
            let id = format!("s{number}").into();
            let state = empty_session("estimate");
            sessions.left(SessionLeft {
                id,
                state,
                follows: None,
                marks: MarkMap::default(),
            });
        };
        (0..MOST).for_each(leave);
        leave(0);
        leave(MOST);
        assert!(sessions.find("s0").is_some(), "it was used again");
        assert!(sessions.find("s1").is_none());
        assert!(sessions.find("s2").is_some());
        assert!(sessions.find(&format!("s{MOST}")).is_some());
    }
}
