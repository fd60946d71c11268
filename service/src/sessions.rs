//! The sessions of a caller.

use pirn::SessionState;
use pirn::store::Session;
use pirn_actors::engine::check_name;

use crate::http::problem::{Problem, ProblemCode};
use crate::state::Service;

impl Service {
    /// Returns up to `limit` sessions in the order of their ids, after the id `after`, under the caller's names.
    pub(super) async fn sessions(&self, after: Option<String>, limit: usize) -> Result<Vec<Session>, Problem> {
        let Some(store) = self.engine().store() else {
            return Ok(Vec::new());
        };
        // The ids of a tenant have one prefix, so they follow each other.
        let after = self.scope().session(after.as_deref().unwrap_or_default()).into_owned();
        let after = Some(after).filter(|after| !after.is_empty());
        let found = store
            .sessions(after, limit)
            .await
            .map_err(|error| store_failed(&error))?;
        let own = found.into_iter().map_while(|mut session| {
            session.id = self.scope().own_session(&session.id)?.to_owned();
            Some(session)
        });
        Ok(own.collect())
    }

    /// Returns the state of a session; `None` if no run of the caller has written it.
    pub(super) async fn session(&self, id: &str) -> Result<Option<SessionState>, Problem> {
        let id = self.scope().session(id);
        if check_name("session", &id).is_err() {
            return Ok(None);
        }
        let state = self.engine().session(&id).await.map_err(|error| store_failed(&error))?;
        Ok(Some(state).filter(|state| state.version > 0))
    }
}

fn store_failed(error: &impl std::fmt::Display) -> Problem {
    Problem::new(ProblemCode::StoreFailed, error.to_string())
}
