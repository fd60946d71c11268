//! History of a run: its state at a step, its steps, threads, model requests and definitions, and the difference from
//! another run.
//!
//! These follow from the run's journal, so a call needs a store. Threads of a run in memory are also in its events.

use std::sync::Arc;

use axum::body::Bytes;
use pirn_actors::engine::check_name;

use crate::http::problem::{Problem, ProblemCode, resume_problem, unknown};
use crate::runs::events::first_tokens;
use crate::runs::events::json_text::json;
use crate::runs::store::histories::RunHistory;
use crate::state::Service;
use pirn::{RequestSummary, ResumeError};

impl Service {
    /// Returns the history of a stored run; `what` names the requested part in the error without a store.
    pub(crate) async fn history(&self, id: &str, what: &str) -> Result<Arc<RunHistory>, Problem> {
        let id = self.stored_id(id, what)?;
        self.histories().of(&id).await
    }

    /// Returns the JSON of a stored run's report as of a step, with the time at which the run started: that of a fork is later than the
    /// steps that it shares with its base.
    pub(crate) async fn report_at(&self, id: &str, step: u64) -> Result<Bytes, Problem> {
        let (engine, id) = (self.engine().clone(), self.stored_id(id, "The state at a step")?);
        let read = move || async move {
            let view = engine.view(&id, Some(step)).await;
            view.map(|view| {
                let mut report = view.to_json();
                report["startedAt"] = view.run.started_at.into();
                Bytes::from(report.to_string())
            })
        };
        let report = self.replays().run(read).await?;
        report.map_err(|error| resume_problem(&error))
    }

    /// Returns the JSON of a model request with its reply.
    pub(crate) async fn model_request(&self, id: &str, effect_id: &str) -> Result<Bytes, Problem> {
        let (id, effect_id) = (self.stored_id(id, "A model request")?, effect_id.to_owned());
        let (engine, run) = (self.engine().clone(), self.runs().find(&id));
        let read = move || async move {
            let mut request = engine.model_request(&id, &effect_id).await?;
            if let Some(run) = run {
                first_tokens::set(&run.log, std::slice::from_mut(&mut request.summary));
            }
            Ok(json(&request))
        };
        let request = self.replays().run(read).await?;
        request.map_err(|error: ResumeError| resume_problem(&error))
    }

    /// Returns a page of model calls, with the times of the first pieces that this process has received.
    pub(crate) async fn with_first_tokens(&self, id: &str, page: &[RequestSummary]) -> Vec<RequestSummary> {
        let Some(run) = self.runs().find(id) else {
            return page.to_vec();
        };
        let mut with_times = page.to_vec();
        // Parsing the events of a long run takes milliseconds.
        let set = tokio::task::spawn_blocking(move || {
            first_tokens::set(&run.log, &mut with_times);
            with_times
        });
        set.await.unwrap_or_else(|_| page.to_vec())
    }

    /// Returns the JSON of the difference between two stored runs.
    pub(crate) async fn difference(&self, a: &str, b: &str) -> Result<Bytes, Problem> {
        let id = |id| self.stored_id(id, "The difference between two runs");
        let (engine, a, b) = (self.engine().clone(), id(a)?, id(b)?);
        let read = move || async move {
            let difference = engine.diff(&a, &b).await;
            difference.map(|difference| json(&difference))
        };
        let difference = self.replays().run(read).await?;
        difference.map_err(|error| resume_problem(&error))
    }

    /// Returns the id of a run of the caller, which may be in the store.
    fn stored_id(&self, id: &str, what: &str) -> Result<String, Problem> {
        let id = self.scope().run_id(id);
        if self.engine().store().is_none() {
            if self.runs().find(&id).is_none() {
                return Err(unknown(&id));
            }
            let detail = format!(
                "{what} is read from a store, and this service has none: start it with `pirn serve --store FILE`"
            );
            return Err(Problem::new(ProblemCode::NoStore, detail));
        }
        // Some stores return an error for an id that no run can have.
        check_name("run", &id).map_err(|_| unknown(&id))?;
        Ok(id.into_owned())
    }
}
