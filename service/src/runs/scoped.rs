//! The runs that a caller may use: views of the runs in memory and of the archive.
//!
//! Each id that a caller sends is mapped to an id of its tenant, and each list contains only ids of its tenant.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::http::problem::Problem;
use crate::http::tenant::Scope;
use crate::runs::changes::{Change, Changes};
use crate::runs::events::event_log::RecordedEvent;
use crate::runs::events::json_text::{SHORT, json};
use crate::runs::store::archive::{RunQuery, RunSummary};
use crate::runs::store::stored::{Archive, AskedQuestion, StoredReport};
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

    /// Returns up to `limit` runs with open questions, in the order of their first open questions.
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

    /// Returns the log of changes. A caller may see only those of [`changes_after`](Self::changes_after).
    pub(crate) fn changes(self) -> &'a Changes {
        self.runs.changes()
    }

    /// Returns the summary of a run as its caller may see it.
    pub(crate) fn shown(self, mut summary: RunSummary) -> RunSummary {
        show(&mut summary, self.scope);
        summary
    }

    /// Returns the JSON of a report as its caller may see it.
    pub(crate) async fn shown_report(self, json: Bytes) -> Bytes {
        if self.scope.prefix().is_none() {
            return json;
        }
        if json.len() <= SHORT {
            return show_report(&json, self.scope).unwrap_or(json);
        }
        let scope = self.scope.clone();
        // Parsing a long report takes time, so it happens on a blocking thread.
        let shown = tokio::task::spawn_blocking(move || show_report(&json, &scope).unwrap_or(json));
        shown.await.unwrap_or_default()
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

    /// Removes a run that has ended from the memory.
    pub(crate) fn forget_ended(self, run: &Run) {
        self.runs.forget_ended(run.id());
    }

    /// Sets the time when a new run began; see [`Runs::began`].
    pub(crate) fn began(self, run: &Arc<Run>) {
        self.runs.began(run);
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
    ) -> Result<Vec<(pirn::store::Run, Vec<AskedQuestion>)>, Problem> {
        match self.archive {
            Archive::Stored(stored) => stored.waiting(self.scope.prefix(), is_asked).await,
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

/// The part of a report that depends on the caller.
#[derive(Deserialize)]
struct ReportSession<'a> {
    #[serde(borrow, default)]
    session: Option<&'a str>,
}

/// Returns the JSON of a report with the caller's name of its session; `None` if the report names no session of the caller.
fn show_report(report: &[u8], scope: &Scope) -> Option<Bytes> {
    let Ok(ReportSession { session }) = serde_json::from_slice(report) else {
        // A name with escapes is no part of the text.
        let mut parsed: Value = serde_json::from_slice(report).ok()?;
        let own = scope.own_session(parsed["session"].as_str()?)?.to_owned();
        parsed["session"] = own.into();
        return Some(json(&parsed));
    };
    let session = session?;
    let own = scope.own_session(session)?;
    // `session` is a part of `report`: only its prefix is left out, so that a long report is not written again.
    let start = session.as_ptr().addr() - report.as_ptr().addr();
    let end = start + session.len() - own.len();
    Some([report.get(..start)?, report.get(end..)?].concat().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::tenant::Tenant;

    #[test]
    fn a_report_has_the_name_of_its_session_in_the_tenant_and_is_otherwise_unchanged() {
        let scope = Scope(Some(Tenant::new("acme").expect("a tenant")));
        let report =
            |session: &str| json!({"output": {"session": "acme~x"}, "session": session, "status": "COMPLETED"});
        for name in ["desk", "acme~desk", "", "a \"b\" \\ \n", "\u{e9}\u{4e16}"] {
            let stored = report(&scope.session(name)).to_string();
            let shown = show_report(stored.as_bytes(), &scope).expect("a session of the tenant");
            let shown: Value = serde_json::from_slice(&shown).expect("JSON");
            assert_eq!(shown, report(name), "{name:?}");
        }
        for other in [report("zeta~desk"), json!({"output": {"session": "acme~x"}})] {
            assert_eq!(show_report(other.to_string().as_bytes(), &scope), None);
        }
    }
}
