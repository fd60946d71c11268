//! Readiness: whether the store and the engine answer.

use std::time::{Duration, Instant};

use crate::http::problem::{Problem, ProblemCode};
use crate::state::Service;

/// Time limit for the store and the engine. A probe often has 1 s, and is repeated.
const ANSWERS_WITHIN: Duration = Duration::from_millis(900);

/// Time for which a result is repeated. Probes need no token, so their number must not determine the load of the store.
const VALID_FOR: Duration = Duration::from_millis(500);

/// The name of no entry: reading it tests the store.
const PROBE: &str = "readiness probe";

impl Service {
    /// Checks that the store and the engine answer.
    pub(super) async fn check_ready(&self) -> Result<(), Problem> {
        let mut last = self.readiness().lock().await;
        if let Some((at, result)) = &*last
            && at.elapsed() < VALID_FOR
        {
            return result.clone();
        }
        let result = self.probe().await;
        *last = Some((Instant::now(), result.clone()));
        result
    }

    async fn probe(&self) -> Result<(), Problem> {
        let not_ready = |code, detail: &str| Problem::new(code, detail).retry_after(1);
        let store = async {
            let Some(store) = self.engine().store() else {
                return Ok(());
            };
            let read = tokio::time::timeout(ANSWERS_WITHIN, store.meta(PROBE)).await;
            // The location of the store and the text of its error may be confidential, so they are logged only.
            match read {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => {
                    tracing::warn!(%error, store = &**store.location(), "the store is not reachable");
                    let detail = "the store cannot be read; the log has the reason";
                    Err(not_ready(ProblemCode::StoreUnreachable, detail))
                }
                Err(_elapsed) => {
                    tracing::warn!(store = &**store.location(), "the store does not answer");
                    let detail = "the store does not answer within 0.9 s";
                    Err(not_ready(ProblemCode::StoreUnreachable, detail))
                }
            }
        };
        let engine = async {
            let answer = tokio::time::timeout(ANSWERS_WITHIN, self.engine().mailbox_depths()).await;
            let detail = "the engine does not answer within 0.9 s";
            answer.map(drop).map_err(|_| not_ready(ProblemCode::NotReady, detail))
        };
        let (store, engine) = tokio::join!(store, engine);
        store.and(engine)
    }
}
