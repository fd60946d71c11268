//! Ends of runs that triggers of other runs started, and that are not executed together with their starter.

use std::sync::Arc;

use futures::FutureExt;
use pirn_actors::engine::{OnEnd, StartedRunLeft};
use pirn_core::run::Message;
use pirn_core::thread::{FiringId, started_run_id};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_store::{Run, StoreError, is_started, starter_of};

use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::records::stored::StoredRecords;
use crate::engine::durable::resume_error::ResumeError;

/// Notifies a run of this engine when a run that it started, and that is executed elsewhere, has ended.
pub(super) fn send_end(engine: &Engine, starter: &str, firing: FiringId) -> Result<(), ResumeError> {
    let (of, child) = (engine.clone(), started_run_id(starter, firing));
    notify_later(engine, starter, async move {
        let durable = of.durable()?;
        match (durable.store.claims(), durable.peers.find(&child)) {
            (Some(claims), _) => claims.ended(&child).await?,
            // If the run is released, the engine that resumes it notifies the starter.
            (None, Some(run)) => drop(run.outcome.wait().await),
            (None, None) => {}
        }
        end_of(&of, &durable, firing, &child).await
    })
}

/// As [`send_end`], for a run that has left this engine. It has failed if it was never stored.
pub(crate) fn follow_started(engine: &Engine, left: StartedRunLeft) -> Result<(), ResumeError> {
    let StartedRunLeft { starter, firing, error } = left;
    let (of, child) = (engine.clone(), started_run_id(&starter, firing));
    notify_later(engine, &starter, async move {
        let durable = of.durable()?;
        if stored_child(&durable, &child).await?.is_none() {
            return Ok(Some(Message::started_run_ended(firing, Err(error))));
        }
        // Without claims, only this process can resume the run, and then notifies the starter.
        if let Some(claims) = durable.store.claims() {
            claims.ended(&child).await?;
        }
        end_of(&of, &durable, firing, &child).await
    })
}

/// Returns the run of this id from the store, if a trigger started it.
pub(super) async fn stored_child(durable: &Durable, id: &str) -> Result<Option<Run>, StoreError> {
    match durable.store.run(id).await? {
        Some(run) if is_started(&*durable.store, &run).await? => Ok(Some(run)),
        Some(_) | None => Ok(None),
    }
}

/// Logs the error of a notification that a callback requests. Without an engine, no run waits for it.
pub(crate) fn log_unsent(sent: Option<Result<(), ResumeError>>) {
    if let Some(Err(error)) = sent {
        tracing::error!(%error, "a run is not notified of the end of a run that it started");
    }
}

/// Sends a run of this engine the message that the future returns.
fn notify_later(
    engine: &Engine,
    starter: &str,
    find: impl Future<Output = Result<Option<Message>, ResumeError>> + Send + 'static,
) -> Result<(), ResumeError> {
    let (shared, durable, starter) = (
        Arc::clone(engine.shared()),
        engine.durable()?,
        Arc::<str>::from(starter),
    );
    let waiting = async move {
        match find.await {
            Ok(Some(ended)) => {
                // A starter that is being resumed is registered when its lock is free.
                let _lock = durable.peers.lock(&starter).await;
                shared.tell(&starter, ended);
            }
            Ok(None) => {}
            Err(error) => log_unsent(Some(Err(error))),
        }
    };
    // The wait is on the work runtime: it may last until the child run has ended, and the caller's future may be dropped earlier.
    let waiting = engine.shared().work(move |_| waiting.boxed());
    waiting.map(drop).map_err(ResumeError::Refused)
}

/// Returns the callback that reports the end of a resumed run to its starter, if an engine of this process executes that one.
pub(super) async fn report_to_starter(durable: &Durable, run: &Run) -> Result<Option<OnEnd>, StoreError> {
    // The starter follows a run in a store with claims: any process may resume it.
    if durable.store.claims().is_some() {
        return Ok(None);
    }
    let Some((starter, firing)) = started_by(&run.id) else {
        return Ok(None);
    };
    if durable.peers.owner_of(starter).is_none() || !is_started(&*durable.store, run).await? {
        return Ok(None);
    }
    let (peers, starter) = (Arc::clone(&durable.peers), starter.to_owned());
    Ok(Some(Box::new(move |end| {
        // The starter may have ended, and then needs no report.
        if let Some(owner) = peers.owner_of(&starter) {
            owner.started_run_ended(&starter, firing, end);
        }
    })))
}

/// Returns the run and the firing that started the run with this id.
fn started_by(id: &str) -> Option<(&str, FiringId)> {
    let starter = starter_of(id)?;
    let firing = id.strip_prefix(starter)?.strip_prefix("-f")?;
    Some((starter, firing.parse().ok()?))
}

/// Returns the message about the end of a run that another has started, or `None` if it has no report yet.
pub(super) async fn end_of(
    engine: &Engine,
    durable: &Durable,
    firing: FiringId,
    child: &str,
) -> Result<Option<Message>, ResumeError> {
    let rebuilt = async {
        let mut stored = StoredRecords::read(durable, child).await?;
        let inputs = std::mem::take(&mut stored.inputs);
        stored.rebuild(engine, durable, inputs)
    };
    match rebuilt.await {
        Ok(rebuilt) => {
            let report = rebuilt.open.report.as_ref();
            Ok(report.map(|report| Message::started_run_reported(firing, report)))
        }
        // Only a person's cancellation ends such a run, and the run that started it continues with that failure.
        Err(error) if error.is_unreadable(child) => Ok(Some(cancelled(firing, &error))),
        Err(error @ ResumeError::Store(StoreError::NoSuchRun { .. })) => Ok(Some(cancelled(firing, &error))),
        Err(error) => Err(error),
    }
}

fn cancelled(firing: FiringId, error: &ResumeError) -> Message {
    let error = RunError::new(
        RunErrorCode::Cancelled,
        format!("cancelled without its report: {error}"),
    );
    Message::started_run_ended(firing, Err(error))
}
