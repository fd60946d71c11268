//! The runs that a caller may use: views of the runs in memory and of the archive.
//!
//! Each id that a caller sends is mapped to an id of its tenant, and each list contains only ids of its tenant.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::http::problem::Problem;
use crate::http::tenant::Scope;
use crate::runs::archive::{RunQuery, RunSummary};
use crate::runs::changes::{Change, Changes};
use crate::runs::event_log::RecordedEvent;
use crate::runs::stored::{Archive, AskedQuestion, StoredReport};
use crate::runs::{Run, Runs};

/// The runs of a caller that are in memory.
#[derive(Clone, Copy)]
pub(crate) struct ScopedRuns<'a> {
    runs: &'a Runs,
    scope: &'a Scope,
}

impl<'a> ScopedRuns<'a> {
    pub(crate) fn new(runs: &'a Runs, scope: &'a Scope) -> Self {
        Self { runs, scope }
    }

    pub(crate) fn find(self, id: &str) -> Option<Arc<Run>> {
        self.runs.find(&self.scope.run_id(id))
    }

    /// Returns the unfinished runs with ids that start with `prefix`.
    pub(crate) fn with_prefix(self, prefix: &str) -> Vec<Arc<Run>> {
        self.runs.with_prefix(&self.scope.run_id(prefix))
    }

    /// Returns the youngest run for which `is_asked` is true.
    pub(crate) fn youngest(self, is_asked: impl Fn(&Run) -> bool) -> Option<Arc<Run>> {
        self.runs.youngest(|run| self.scope.has(run.id()) && is_asked(run))
    }

    /// Returns the oldest run for which `is_asked` is true.
    pub(crate) fn oldest(self, is_asked: impl Fn(&Run) -> bool) -> Option<Arc<Run>> {
        self.runs.oldest(|run| self.scope.has(run.id()) && is_asked(run))
    }

    /// Returns up to `limit` runs with open questions, oldest first.
    pub(crate) fn asking(self, limit: usize) -> Vec<Arc<Run>> {
        self.runs.asking(|run| self.scope.has(run.id()), limit)
    }

    /// Lists runs that `are_met` accepts, youngest first, down to the first one that `ends_at` accepts.
    pub(crate) fn list(
        self,
        query: &RunQuery,
        are_met: impl Fn(&RunSummary) -> bool,
        ends_at: impl Fn(&RunSummary) -> bool,
    ) -> Vec<RunSummary> {
        let query = scoped(query, self.scope);
        let mut runs = self.runs.list(&query, are_met, ends_at);
        for run in &mut runs {
            show(run, self.scope);
        }
        runs
    }

    /// Returns the changes after a number, oldest first: at most `limit`, of which those of other tenants are left out. Also returns
    /// the number of the last change that was read.
    pub(crate) fn changes_after(self, number: u64, limit: usize) -> (Vec<Change>, Option<u64>) {
        let mut changes = self.runs.changes().after(number, limit);
        let last = changes.last().map(|change| change.number);
        changes.retain(|change| self.scope.has(&change.run_id));
        (changes, last)
    }

    /// Returns the log of changes. Only [`changes_after`](Self::changes_after) may read its contents.
    pub(crate) fn changes(self) -> &'a Changes {
        self.runs.changes()
    }

    /// Returns the summary of a run as its caller may see it.
    pub(crate) fn shown(self, mut summary: RunSummary) -> RunSummary {
        show(&mut summary, self.scope);
        summary
    }

    /// Starts a run, unless its id is taken.
    pub(crate) fn start(
        self,
        run_id: Option<&str>,
        start: impl FnOnce() -> Result<Run, Problem>,
    ) -> Result<Arc<Run>, Problem> {
        self.runs.start(run_id, start)
    }

    /// Registers a run that is resumed.
    pub(crate) fn register(self, run: Run) -> Arc<Run> {
        self.runs.register(run)
    }

    /// Records a change of a run that is still in memory.
    pub(crate) fn changed(self, run: &Run) {
        self.runs.changed(run);
    }

    /// Removes a run that continues elsewhere; see [`Runs::leave`].
    pub(crate) fn leave(self, run: &Arc<Run>, status: &'static str) {
        self.runs.leave(run, status);
    }

    /// Records that a run has ended; see [`Runs::ended`].
    pub(crate) fn ended(self, run: &Run) {
        self.runs.ended(run);
    }

    /// Makes room for an event of this run; see [`Runs::make_room`].
    pub(crate) fn make_room(self, run: &Run) {
        self.runs.make_room(run);
    }

    /// Returns the counter of the memory of all runs' events.
    pub(crate) fn event_bytes(self) -> &'a Arc<AtomicUsize> {
        self.runs.event_bytes()
    }
}

/// The runs of a caller that are not in memory.
#[derive(Clone, Copy)]
pub(crate) struct ScopedArchive<'a> {
    archive: &'a Archive,
    scope: &'a Scope,
}

impl<'a> ScopedArchive<'a> {
    pub(crate) fn new(archive: &'a Archive, scope: &'a Scope) -> Self {
        Self { archive, scope }
    }

    /// Returns the next events of a run; see [`Archive::page`].
    pub(crate) async fn page(
        self,
        run_id: &str,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<RecordedEvent>, Problem> {
        let run_id = self.scope.run_id(run_id);
        self.archive.page(&run_id, after, limit, bytes).await
    }

    /// Returns runs, youngest first; see [`RunArchive::runs`](crate::RunArchive::runs).
    pub(crate) async fn runs(self, query: &RunQuery) -> Result<Vec<RunSummary>, Problem> {
        let mut runs = self.archive.runs(&scoped(query, self.scope)).await?;
        // An archive of the embedding program may ignore prefixes.
        runs.retain(|run| self.scope.has(&run.run_id));
        for run in &mut runs {
            show(run, self.scope);
        }
        Ok(runs)
    }

    /// Returns the report of a run; `None` if there is no such run.
    pub(crate) async fn report(self, run_id: &str) -> Result<Option<StoredReport>, Problem> {
        self.archive.report(&self.scope.run_id(run_id)).await
    }

    /// Returns stored runs that wait for an answer and that `is_asked` accepts, with their questions.
    pub(crate) async fn waiting(
        self,
        is_asked: impl Fn(&str) -> bool,
        limit: usize,
    ) -> Result<Vec<(pirn::store::Run, Vec<AskedQuestion>)>, Problem> {
        match self.archive {
            Archive::Stored(stored) => stored.waiting(self.scope.prefix(), is_asked, limit).await,
            Archive::Other(_) => Ok(Vec::new()),
        }
    }
}

/// Restricts a query to the runs of a caller.
fn scoped(query: &RunQuery, scope: &Scope) -> RunQuery {
    RunQuery {
        session: query
            .session
            .as_ref()
            .map(|session| scope.session(session).into_owned()),
        id_prefix: scope.prefix().map(str::to_owned),
        ..query.clone()
    }
}

/// Replaces the id of a session by the caller's name of it.
fn show(summary: &mut RunSummary, scope: &Scope) {
    summary.session = summary
        .session
        .take()
        .and_then(|session| scope.own_session(&session).map(str::to_owned));
}
