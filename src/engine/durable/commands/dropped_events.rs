//! Runs whose events were dropped: the store has their report only.
//!
//! Such a run has ended and names no contents. Its journal has one record, the report as JSON. Events and steps are the result of a
//! replay, so that they cannot be dropped alone.

use pirn_definition::definition::json_from_str;
use pirn_store::{Commit, Content, NewRun, Record, Run, Store, StoreError, has_live_starter};
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::inspect::view::view;
use crate::engine::durable::records::stored::has_dropped_events;
use crate::engine::durable::resume_error::ResumeError;

/// Replaces the data of a run by its report. Returns false if the run has not ended, has no events any longer, is the base of forks,
/// which need its journal, or was started by a trigger of an unfinished run, which rebuilds it when it is resumed.
pub(crate) async fn drop_events(engine: &Engine, durable: &Durable, run: &Run) -> Result<bool, ResumeError> {
    if !run.status.is_final() || has_dropped_events(run) {
        return Ok(false);
    }
    if has_live_starter(&*durable.store, run).await? {
        return Ok(false);
    }
    let view = view(engine, durable, &run.id, None).await?;
    let mut report = json!(view.report);
    report["steps"] = json!(view.step);
    drop(view);
    let definition = durable.store.contents(vec![run.definition]).await?;
    let new = NewRun {
        semantics: run.semantics,
        session: run.session.clone(),
        ..NewRun::new(&*run.workflow, run.definition, run.started_at)
    };
    let commit = Commit::start(&*run.id, new)
        .record(Record::new(run.updated_at, report.to_string()))
        .status(run.status);
    // Nothing else may name the definition, so that the removal of the former run would delete it.
    let commit = definition.into_iter().map(Content::new).fold(commit, Commit::content);
    match durable.store.replace(commit).await {
        Ok(_) => Ok(true),
        Err(StoreError::RunExists { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the report of a run whose events were dropped; `None` for every other run.
pub(crate) async fn report_of(store: &dyn Store, run: &Run) -> Result<Option<Value>, ResumeError> {
    if !has_dropped_events(run) {
        return Ok(None);
    }
    let unreadable = |why: String| ResumeError::Unreadable {
        run_id: run.id.clone(),
        step: 1,
        why,
    };
    let journal = store.journal(&run.id, 0, 1).await?;
    let record = journal
        .first()
        .ok_or_else(|| unreadable("its report is missing".to_owned()))?;
    let mut report: Value = json_from_str(&record.body).map_err(|error| unreadable(error.to_string()))?;
    report["eventsDropped"] = json!(true);
    Ok(Some(report))
}
