//! Execution of a run with kills: the process starts again until the run has ended.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use pirn_core::run::RunReport;
use pirn_core::thread::Interaction;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_store::Store;
use serde_json::Value;

use super::killed_store::KilledStore;
use super::plan::FaultPlan;
use crate::engine::durable::{DoubtAnswer, ResumeError};
use crate::engine::{Engine, EngineBuilder, RunHandle};
use crate::explore::{Answers, OfflineModels, OfflineTools};
use crate::faults::inject;
use crate::run_setup::RunSetup;
use crate::simulate::SimulateError;

/// Id of every run, so that ids in outputs are equal.
const RUN: &str = "chaos";

/// Time limit for the shutdown of an engine after its run.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of processes of a run. A plan has at most two kills.
const MAX_PROCESSES: u64 = 8;

/// The run that is started for each seed.
pub(super) struct Started {
    pub(super) workflow: String,
    pub(super) setup: RunSetup,
    pub(super) answers: Arc<Answers>,
}

/// Seeds of a run.
#[derive(Clone, Copy)]
pub(super) struct Seeds {
    /// Seed of `Math.random`.
    pub(super) values: u64,
    /// Seed of the order of concurrent steps.
    pub(super) order: u64,
}

/// Runs it under the faults of a plan until it ends. Returns its report and the number of commits.
pub(super) fn run_to_its_end(
    build: &mut dyn FnMut() -> EngineBuilder,
    started: &Started,
    seeds: Seeds,
    plan: &Arc<FaultPlan>,
) -> Result<(Arc<RunReport>, u64), SimulateError> {
    let mut store = KilledStore::new(Arc::clone(plan));
    let mut origin = 0;
    for process in 0..MAX_PROCESSES {
        let source = Arc::clone(plan);
        let engine = build()
            .virtual_time(Some(seeds.order))
            .seed(seeds.values)
            .wall_clock(origin)
            .schedules(false)
            .park_after(Duration::MAX)
            .store(store.clone())
            .ask_in_doubt(|_| std::future::ready(DoubtAnswer::Repeat).boxed())
            .over_ports(move |ports| {
                ports.models = Arc::new(OfflineModels(Arc::clone(&ports.models)));
                ports.tools = Arc::new(OfflineTools(Arc::clone(&ports.tools)));
                inject(ports, source);
            })
            .build()
            .map_err(SimulateError::Build)?;
        let report = play(&engine, &store, started)?;
        engine.shutdown_blocking(GRACE);
        if !store.is_dead() {
            return Ok((report, store.commits()));
        }
        // The next process starts at the time of the last commit. A store without the run was killed at its first commit.
        let last = block_on(store.run(RUN)).ok().flatten();
        origin = last.map_or(origin, |run| run.updated_at.max(origin)) + plan.downtime(process);
        store = store.next_process();
    }
    // Not reached with the kills of a plan.
    let error = RunError::new(
        RunErrorCode::StoreError,
        format!("the run was killed {MAX_PROCESSES} times"),
    );
    Err(SimulateError::Refused(error))
}

/// Starts or resumes the run, and executes it until it ends or its process is killed.
fn play(engine: &Engine, store: &KilledStore, started: &Started) -> Result<Arc<RunReport>, SimulateError> {
    let run = match block_on(store.run(RUN)) {
        Ok(Some(stored)) if stored.status.is_final() => {
            // Killed after its last commit: the outcome is in the store.
            let view = block_on(engine.view(RUN, None)).map_err(refused)?;
            return Ok(Arc::new(view.report));
        }
        Ok(Some(_)) => {
            let resumed = engine.resume(RUN).answers(answering(&started.answers), |_, _| ());
            block_on(resumed.start()).map_err(refused)?
        }
        // Killed before its first commit, or not started.
        Ok(None) | Err(_) => start(engine, started)?,
    };
    engine.cancel_if_deadlocked(&run);
    let report = run.outcome_blocking();
    run.wait_all_ended_blocking();
    Ok(report)
}

fn start(engine: &Engine, started: &Started) -> Result<RunHandle, SimulateError> {
    let run = started.setup.prepare(engine, &started.workflow);
    let run = run.and_then(|run| run.run_id(RUN).answers(answering(&started.answers), |_, _| ()).start());
    run.map_err(SimulateError::Refused)
}

/// Answers every question with the first possible answer.
fn answering(answers: &Arc<Answers>) -> impl Fn(&Interaction) -> Option<Value> + Send + Sync + 'static {
    let answers = Arc::clone(answers);
    move |question| answers.to(question).into_iter().next()
}

fn refused(error: ResumeError) -> SimulateError {
    match error {
        ResumeError::Refused(error) => SimulateError::Refused(error),
        other => SimulateError::Refused(RunError::new(RunErrorCode::StoreError, other.to_string())),
    }
}
