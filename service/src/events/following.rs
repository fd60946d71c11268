//! Events of runs that other processes execute: while streams read such a run, its log is filled from the journal in the store.
//!
//! The journal has each event once and in order, whichever process executes the run. So nothing is lost or doubled when the run
//! changes its owner. If this process claims the run, the log is closed and the streams continue with that of the claimed run.

use std::sync::{Arc, Weak};
use std::time::Duration;

use pirn::store::{Run as StoredRun, RunFilter, RunStatus};
use pirn::{ResumeError, RunFollower};
use tokio::sync::Mutex;

use crate::http::problem::{Problem, ProblemCode, resume_problem};
use crate::runs::{Run, RunInfo, forked_from};
use crate::state::Service;

/// Pause between two looks for further steps of a run. It is doubled after each look that finds none, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Number of stored runs among which the last run of a chat or thread is searched.
const MAX_SEARCHED: usize = 1_000;

impl Service {
    /// Returns a run that another process executes, or will claim. Its log is filled as long as the returned value exists. `None` if
    /// the run is unknown or has ended, or if no other process can execute it.
    pub(crate) async fn follow(&self, id: &str) -> Result<Option<Arc<Run>>, Problem> {
        let stored = self.in_shared_store(id).await?;
        let unfinished = stored.filter(|stored| !stored.status.is_final());
        unfinished.map(|stored| self.followed_run(stored)).transpose()
    }

    /// Like [`Self::follow`], for a run that this process executed until another one claimed it. The run may have ended since.
    pub(crate) async fn follow_left(&self, id: &str) -> Result<Option<Arc<Run>>, Problem> {
        let stored = self.in_shared_store(id).await?;
        stored.map(|stored| self.followed_run(stored)).transpose()
    }

    /// Returns the entry of a run that other processes may execute.
    async fn in_shared_store(&self, id: &str) -> Result<Option<StoredRun>, Problem> {
        if !self.is_shared() || self.is_draining() {
            return Ok(None);
        }
        self.in_store(id).await
    }

    /// Returns the youngest unfinished run of the store that fits the filter and that `is_asked` accepts, if other processes share
    /// the store. The run may be in this process.
    pub(crate) async fn youngest_shared(
        &self,
        filter: RunFilter,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Option<Arc<Run>>, Problem> {
        if !self.is_shared() {
            return Ok(None);
        }
        let filter = RunFilter { live: true, ..filter };
        let Some(found) = self.youngest_stored(filter, is_asked).await? else {
            return Ok(None);
        };
        match self.runs().find(&found.id) {
            Some(run) => Ok(Some(run)),
            None => self.followed_run(found).map(Some),
        }
    }

    /// Returns the youngest run of the caller in the store that fits the filter and that `is_asked` accepts; `None` without a store.
    pub(crate) async fn youngest_stored(
        &self,
        filter: RunFilter,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Option<StoredRun>, Problem> {
        let Some(store) = self.engine().store() else {
            return Ok(None);
        };
        let tenant = self.scope().0.as_ref();
        let filter = RunFilter {
            // The number of runs that are read is limited: those of other tenants must not count.
            owner: tenant.map(|tenant| tenant.owner().to_owned()),
            youngest_first: true,
            ..filter
        };
        let runs = store.runs(filter, None, MAX_SEARCHED).await;
        let runs = runs.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))?;
        Ok(runs.into_iter().find(|run| is_asked(&run.id)))
    }

    /// True if other processes may execute runs of the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.engine().store().is_some_and(|store| store.claims().is_some())
    }

    fn followed_run(&self, stored: StoredRun) -> Result<Arc<Run>, Problem> {
        let make = || self.run_without_events(&stored);
        let (run, is_new) = self.followed().open(&stored.id, make)?;
        if is_new {
            // Weak, so that the last stream of the run ends the task.
            self.tasks().spawn(fill(self.clone(), Arc::downgrade(&run), stored.id));
        }
        Ok(run)
    }

    /// Returns a run that this process does not execute, with an empty log.
    pub(crate) fn run_without_events(&self, stored: &StoredRun) -> Run {
        let info = RunInfo {
            workflow_id: stored.workflow.clone(),
            session: stored.session.clone(),
            started_at: stored.started_at.into(),
            forked_from: forked_from(stored),
        };
        let event_bytes = Arc::clone(self.runs().event_bytes());
        Run::followed(&stored.id, info, self.limits(), event_bytes)
    }
}

/// Fills the log of a run until the run ends, moves to this process, or has no stream.
async fn fill(service: Service, run: Weak<Run>, id: String) {
    let follower = Arc::new(Mutex::new(service.engine().follow(id.as_str(), 0)));
    let mut pause = SHORTEST_PAUSE;
    while let Some(open) = run.upgrade() {
        pause = match look(&service, &open, &follower).await {
            Look::News => SHORTEST_PAUSE,
            Look::None => (pause * 2).min(LONGEST_PAUSE),
            Look::Over => break,
        };
        drop(open);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = service.stopped().cancelled() => {
                if let Some(open) = run.upgrade() {
                    leave(&open, &*follower.lock().await);
                }
                break;
            }
        }
    }
    service.followed().close(&id, &run);
}

/// Result of a look for further steps of a run.
enum Look {
    News,
    None,
    /// The log is closed.
    Over,
}

async fn look(service: &Service, run: &Arc<Run>, follower: &Arc<Mutex<RunFollower>>) -> Look {
    if service.runs().find(run.id()).is_some() {
        // This process has claimed the run, and its log has every event.
        run.log.close();
        return Look::Over;
    }
    let found = match has_news(service, run, follower).await {
        Ok(found) => found,
        Err(problem) if is_passing(&problem) => {
            let why = problem.detail();
            tracing::debug!(
                run_id = run.id(),
                why,
                "the steps of a run of another process cannot be read now"
            );
            return Look::None;
        }
        Err(problem) => {
            let why = problem.detail();
            tracing::warn!(
                run_id = run.id(),
                why,
                "the events of a run of another process cannot be read"
            );
            leave(run, &*follower.lock().await);
            return Look::Over;
        }
    };
    let follower = follower.lock().await;
    if !follower.is_over() {
        return if found { Look::News } else { Look::None };
    }
    match follower.report().cloned() {
        Some(report) => {
            drop(follower);
            run.release(report).await;
            // Before the log is closed: a stream that reads to the end reports the outcome.
            run.decided();
            run.log.close();
        }
        None => leave(run, &follower),
    }
    Look::Over
}

/// Ends the streams of a run with the status in the store.
fn leave(run: &Run, follower: &RunFollower) {
    let status = follower.entry().map_or(RunStatus::Unfinished, |entry| entry.status);
    run.leave(status.as_str());
    run.log.close();
}

/// Adds the events of further steps to the log. Returns false if there is no further step.
async fn has_news(service: &Service, run: &Arc<Run>, follower: &Arc<Mutex<RunFollower>>) -> Result<bool, Problem> {
    let has_grown = follower.lock().await.has_grown().await;
    if !has_grown.map_err(|error| resume_problem(&error))? {
        return Ok(false);
    }
    let (run, follower) = (Arc::clone(run), Arc::clone(follower));
    let making_room = service.clone();
    // A replay takes CPU time, and so does the writing of long events.
    let read = service.replays().run(move || async move {
        let mut follower = follower.lock().await;
        let events = follower.read().await?;
        // Before the events: a stream that has sent a question reads the open ones once, to end with them.
        run.handle.set_interactions(follower.interactions());
        for event in events {
            run.questions.observe(&event);
            run.log.push(&event);
            making_room.runs().make_room(&run);
        }
        Ok(())
    });
    let read: Result<(), ResumeError> = read.await?;
    read.map(|()| true).map_err(|error| resume_problem(&error))
}

/// True if a later look may succeed: too many replays, or a server that does not answer.
fn is_passing(problem: &Problem) -> bool {
    [ProblemCode::TooManyReplays, ProblemCode::StoreFailed]
        .map(ProblemCode::as_str)
        .contains(&problem.code())
}
