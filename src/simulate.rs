//! Runs one workflow under many seeds to find one under which it fails.
//!
//! A seed determines the order of concurrent events, the injected faults, and the random values of scripts
//! ([`EngineBuilder::simulated`]). [`simulate`] runs a workflow under one seed after the other until a run fails, and reports the
//! seed, which reproduces the run. See `docs/simulation.md`.
//!
//! ```
//! use pirn::{Engine, simulate};
//! let ask = r#"{"id": "ask", "nodes": [{"id": "s", "type": "START"},
//!     {"id": "llm", "type": "LLM", "config": {"prompt": "hello"}}, {"id": "e", "type": "END"}],
//!   "edges": [{"from": "s", "to": "llm"}, {"from": "llm", "to": "e"}]}"#;
//! let simulated = simulate(move || Engine::builder().workflows(ask)).seeds(0..20).run()?;
//! assert!(simulated.failure.is_none(), "{simulated}");
//! # Ok::<(), pirn::simulate::SimulateError>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pirn_core::status::ThreadStatus;
use pirn_definition::error::RunError;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::engine::{BuildError, EngineBuilder, RunHandle, RunReport};
use crate::run_setup::{RunSetup, run_setup_methods};

/// Default number of seeds.
pub const DEFAULT_SEEDS: u64 = 100;

/// Check of a run that has ended; the error describes the fault.
type Check = Box<dyn FnMut(&RunReport) -> Result<(), String>>;

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulation {
    /// The first seed; the others are consecutive.
    pub first_seed: u64,
    /// Number of requested seeds.
    pub seeds: u64,
    /// Number of seeds that were run.
    pub played: u64,
    /// Number of runs by final status.
    pub statuses: BTreeMap<ThreadStatus, u64>,
    /// Number of failed runs.
    pub failed: u64,
    /// True if [`Simulator::stop_when`] ended the simulation.
    pub interrupted: bool,
    /// The first failed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The seed that reproduces the run.
    pub seed: u64,
    /// Description of the failure.
    pub message: String,
    /// The run.
    pub report: Arc<RunReport>,
}

/// The progress of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of seeds run so far.
    pub played: u64,
    /// Number of failed runs so far.
    pub failed: u64,
}

/// Errors that prevent a simulation.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum SimulateError {
    /// The workflows or profiles have faults.
    Build(BuildError),
    /// A run was refused: there is no such workflow, or its input is not JSON.
    Refused(RunError),
}

/// Creates a simulation of the engine that `build` describes; configure it and [run](Simulator::run) it. An engine is built for
/// every seed; the builder's clock and seed are not used.
pub fn simulate(build: impl FnMut() -> EngineBuilder + 'static) -> Simulator {
    Simulator {
        build: Box::new(build),
        setup: RunSetup::default(),
        metadata: Map::new(),
        seeds: 0..DEFAULT_SEEDS,
        keeps_going: false,
        check: Box::new(completed),
        on_start: Box::new(|_| ()),
        on_progress: Box::new(|_| ()),
        stop_when: Box::new(|| false),
    }
}

/// Builder of a simulation.
pub struct Simulator {
    build: Box<dyn FnMut() -> EngineBuilder>,
    setup: RunSetup,
    metadata: Map<String, Value>,
    seeds: Range<u64>,
    keeps_going: bool,
    check: Check,
    on_start: Box<dyn FnMut(&RunHandle)>,
    on_progress: Box<dyn FnMut(Progress)>,
    stop_when: Box<dyn FnMut() -> bool>,
}

impl Simulator {
    run_setup_methods!();

    /// Sets metadata of the runs, as [`RunBuilder::metadata`](crate::RunBuilder::metadata) does.
    #[must_use]
    pub fn metadata<K: Into<String>, V: Into<Value>>(mut self, entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let entries = entries.into_iter();
        self.metadata = entries.map(|(name, value)| (name.into(), value.into())).collect();
        self
    }

    /// Sets the range of seeds (default 0 to [`DEFAULT_SEEDS`]).
    #[must_use]
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Continues after a failed run, to count all failures (default: stops after the first).
    #[must_use]
    pub fn keep_going(mut self, keeps_going: bool) -> Self {
        self.keeps_going = keeps_going;
        self
    }

    /// Sets the check of each run: it fails if the check returns an error (default: if it did not complete).
    #[must_use]
    pub fn check(mut self, check: impl FnMut(&RunReport) -> Result<(), String> + 'static) -> Self {
        self.check = Box::new(check);
        self
    }

    /// Sets a function that is called with every started run.
    #[must_use]
    pub fn on_start(mut self, call: impl FnMut(&RunHandle) + 'static) -> Self {
        self.on_start = Box::new(call);
        self
    }

    /// Sets a function that is called after every run.
    #[must_use]
    pub fn on_progress(mut self, call: impl FnMut(Progress) + 'static) -> Self {
        self.on_progress = Box::new(call);
        self
    }

    /// Sets a function that is called after every run and ends the simulation if it returns true; that run is not counted.
    #[must_use]
    pub fn stop_when(mut self, is_enough: impl FnMut() -> bool + 'static) -> Self {
        self.stop_when = Box::new(is_enough);
        self
    }

    /// Runs seed after seed, each in a separate engine. A deadlocked run is cancelled, and the reason in its report states the
    /// deadlock.
    ///
    /// # Errors
    /// [`SimulateError`]. A failed run is a result, not an error.
    pub fn run(mut self) -> Result<Simulation, SimulateError> {
        let mut told = Simulation {
            first_seed: self.seeds.start,
            // An empty range may have its end before its start.
            seeds: self.seeds.end.saturating_sub(self.seeds.start),
            played: 0,
            statuses: BTreeMap::new(),
            failed: 0,
            interrupted: false,
            failure: None,
        };
        let workflow = self.setup.workflow_of(&mut *self.build).map_err(SimulateError::Build)?;
        for seed in self.seeds.clone() {
            let report = self.play(&workflow, seed)?;
            // Before the run is counted: an interrupted run may have been cancelled, which would be counted as a failure.
            if (self.stop_when)() {
                told.interrupted = true;
                break;
            }
            told.played += 1;
            *told.statuses.entry(report.status).or_default() += 1;
            let checked = (self.check)(&report);
            // Counted before the progress is reported, which contains the number.
            told.failed += u64::from(checked.is_err());
            (self.on_progress)(Progress {
                played: told.played,
                failed: told.failed,
            });
            if let Err(message) = checked {
                // The first failure only, because its seed is enough to reproduce it and reports can be large.
                told.failure.get_or_insert(Failure { seed, message, report });
                if !self.keeps_going {
                    break;
                }
            }
        }
        Ok(told)
    }

    fn play(&mut self, workflow: &str, seed: u64) -> Result<Arc<RunReport>, SimulateError> {
        // A new engine for each seed: ids, counters and triggers of an engine continue from run to run.
        let engine = (self.build)().simulated(seed).build().map_err(SimulateError::Build)?;
        let run = self.setup.prepare(&engine, workflow);
        let run = run.and_then(|run| run.metadata(self.metadata.clone()).start());
        let run = run.map_err(SimulateError::Refused)?;
        (self.on_start)(&run);
        // Without this, the wait for the outcome of a deadlocked run would last for ever.
        engine.cancel_if_deadlocked(&run);
        Ok(run.outcome_blocking())
    }
}

fn completed(report: &RunReport) -> Result<(), String> {
    match (report.status, &report.error) {
        (ThreadStatus::Completed, _) => Ok(()),
        (status, Some(error)) => Err(format!("the run ended {}: {error}", status.as_str())),
        (status, None) => Err(format!("the run ended {}", status.as_str())),
    }
}

impl fmt::Display for Simulation {
    /// Formats the runs by status, and the first failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses: Vec<String> = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{count} {}", status.as_str()))
            .collect();
        let how = if statuses.is_empty() {
            "none ended".to_owned()
        } else {
            statuses.join(", ")
        };
        let interrupted = if self.interrupted { "; interrupted" } else { "" };
        writeln!(f, "{} of {} seeds played: {how}{interrupted}", self.played, self.seeds)?;
        match &self.failure {
            Some(failure) => writeln!(f, "seed {}: {}", failure.seed, failure.message),
            None => Ok(()),
        }
    }
}
