//! The runs of an engine's store that the process does not carry.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::archive::{RunArchive, RunQuery, RunSummary};
use crate::store::{Run, RunFilter, RunPlace, Store};
use crate::{Engine, Event};

/// So many runs are asked for at once.
const PAGE: usize = 1_000;

/// See the module.
pub(super) struct StoredRuns {
    engine: Engine,
    /// The events of the run that was asked for last: whoever reads on asks for it again.
    last: Mutex<Option<(String, Events)>>,
}

type Events = Arc<Vec<Arc<Event>>>;

impl StoredRuns {
    pub(super) fn new(engine: Engine) -> Self {
        let last = Mutex::default();
        Self { engine, last }
    }

    async fn page(&self, run_id: &str, after: u64, limit: usize) -> io::Result<Vec<Event>> {
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reaches = |events: &Events| events.last().is_some_and(|last| last.sequence > after);
        let known = known.filter(|(id, events)| *id == run_id && limit != usize::MAX && reaches(events));
        let events = if let Some((_, events)) = known {
            events
        } else {
            let view = self.engine.view(run_id, None).await.map_err(io::Error::other)?;
            let events = Arc::new(view.events);
            let known = (run_id.to_owned(), Arc::clone(&events));
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
            events
        };
        let later = events.iter().filter(|event| event.sequence > after);
        Ok(later.take(limit).map(|event| (**event).clone()).collect())
    }

    fn store(&self) -> io::Result<&Arc<dyn Store>> {
        self.engine
            .store()
            .ok_or_else(|| io::Error::other("the engine has no store"))
    }

    async fn list(&self, query: &RunQuery) -> io::Result<Vec<RunSummary>> {
        let filter = RunFilter {
            status: query.status.clone(),
            session: query.session.clone(),
            youngest_first: true,
            ..RunFilter::default()
        };
        let mut before = query.before.clone().map(|(started_at, id)| RunPlace { started_at, id });
        let mut found = Vec::new();
        while found.len() < query.limit {
            let wanted = (query.limit - found.len()).min(PAGE);
            let page = self.store()?.runs(filter.clone(), before, wanted).await;
            let page = page.map_err(io::Error::other)?;
            let is_last = page.len() < wanted;
            before = page.last().map(Run::place);
            let is_asked = |run: &Run| query.workflow.as_ref().is_none_or(|id| *id == run.workflow);
            found.extend(page.into_iter().filter(is_asked).map(summary));
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    async fn shown(&self, run_id: &str) -> io::Result<Option<Value>> {
        let Some(run) = self.store()?.run(run_id).await.map_err(io::Error::other)? else {
            return Ok(None);
        };
        let view = self.engine.view(run_id, None).await.map_err(io::Error::other)?;
        let mut report = json!(view.report);
        report["steps"] = json!(view.step);
        // Of one that nobody carries the store knows more.
        if !run.status.is_final() {
            report["status"] = json!(run.status.as_str());
        }
        Ok(Some(report))
    }
}

pub(super) fn summary(run: Run) -> RunSummary {
    RunSummary {
        run_id: run.id,
        workflow_id: run.workflow,
        session: run.session,
        status: run.status.as_str().to_owned(),
        started_at: run.started_at,
        updated_at: run.updated_at,
        last_sequence: 0,
    }
}

impl RunArchive for StoredRuns {
    fn events<'a>(&'a self, run_id: &'a str, after: u64, limit: usize) -> BoxFuture<'a, io::Result<Vec<Event>>> {
        self.page(run_id, after, limit).boxed()
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> BoxFuture<'a, io::Result<Vec<RunSummary>>> {
        self.list(query).boxed()
    }

    fn report<'a>(&'a self, run_id: &'a str) -> BoxFuture<'a, io::Result<Option<Value>>> {
        self.shown(run_id).boxed()
    }
}
