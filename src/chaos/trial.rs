//! Seeds, and the comparison of their runs with runs without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pirn_core::run::RunReport;
use pirn_core::status::ThreadStatus;
use pirn_definition::error::{RunError, RunErrorCode};
use serde::Serialize;
use serde_json::Value;

use super::plan::{FaultKind, FaultPlan, InjectedFault};
use super::process::{Seeds, Started, run_to_its_end};
use crate::cases::differences::of_values;
use crate::engine::EngineBuilder;
use crate::explore::Answers;
use crate::run_setup::{RunSetup, run_setup_methods};
use crate::simulate::SimulateError;

/// Default number of seeds.
pub const DEFAULT_SEEDS: u64 = 50;

/// Maximum number of runs with another outcome that are described, and of runs with a race.
const MAX_DESCRIBED: usize = 20;

/// Number of orders of concurrent steps in which the outcome of a killed run is searched.
// An outcome of one order in 15 is missed in about 1 % of the searches.
const SEARCHED_ORDERS: u64 = 64;

/// The result of all seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chaos {
    /// The first seed; the others are consecutive.
    pub first_seed: u64,
    /// Number of requested seeds.
    pub seeds: u64,
    /// Number of seeds that were run.
    pub played: u64,
    /// Number of injected faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Number of runs with an outcome that differs from that without faults, except races.
    pub different: u64,
    /// Number of killed runs with an outcome that also occurs without a kill, in another order of concurrent steps.
    pub races: u64,
    /// The first 20 runs that differ, and the first 20 races.
    pub runs: Vec<DifferentRun>,
    /// True if [`ChaosTrial::stop_when`] ended the trial.
    pub interrupted: bool,
}

/// A run with an outcome that differs from that without faults.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DifferentRun {
    /// The seed, which repeats the run.
    pub seed: u64,
    /// Kinds of faults without which the outcome does not differ.
    pub causes: Vec<FaultKind>,
    /// True if a kill is the only cause, and the outcome also occurs without a kill in another order of concurrent steps: a process
    /// that resumes a run draws a new order.
    pub race: bool,
    /// The faults of these kinds, in order; at most 20.
    pub faults: Vec<InjectedFault>,
    /// Outcome without faults.
    pub expected: ChaosOutcome,
    /// Outcome with the faults.
    pub got: ChaosOutcome,
    /// Differences between both outcomes.
    pub differences: Vec<String>,
}

/// The compared part of a run's report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChaosOutcome {
    /// Status of the run.
    pub status: ThreadStatus,
    /// Output of the run.
    pub output: Value,
    /// The error, if the run did not complete. Only its code is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// The progress of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of seeds run so far.
    pub played: u64,
    /// Number of runs with another outcome so far.
    pub different: u64,
}

/// Creates a trial of the engine that `build` describes; configure it and [run](ChaosTrial::run) it. Engines are built for every seed;
/// the builder's clock, seed and store are not used. Models and tools that need the outside world are not called: `echo` replaces the
/// models, and the tools return a result that explains this.
pub fn chaos(build: impl FnMut() -> EngineBuilder + 'static) -> ChaosTrial {
    ChaosTrial {
        build: Box::new(build),
        setup: RunSetup::default(),
        answers: Answers::default(),
        seeds: 0..DEFAULT_SEEDS,
        kinds: FaultKind::ALL.into(),
        on_progress: Box::new(|_| ()),
        stop_when: Box::new(|| false),
    }
}

/// Builder of a trial.
pub struct ChaosTrial {
    build: Box<dyn FnMut() -> EngineBuilder>,
    setup: RunSetup,
    answers: Answers,
    seeds: Range<u64>,
    kinds: BTreeSet<FaultKind>,
    on_progress: Box<dyn FnMut(Progress)>,
    stop_when: Box<dyn FnMut() -> bool>,
}

impl ChaosTrial {
    run_setup_methods!();

    /// Sets the answer to the questions of a node (default: the first possible one, as in an [exploration](crate::explore())).
    #[must_use]
    pub fn answer(mut self, node_id: impl Into<String>, answer: impl Into<Value>) -> Self {
        self.answers.add(node_id.into(), answer.into());
        self
    }

    /// Sets the range of seeds (default 0 to [`DEFAULT_SEEDS`]).
    #[must_use]
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Injects faults of these kinds only (default: all).
    #[must_use]
    pub fn only(mut self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// Sets a function that is called after every seed.
    #[must_use]
    pub fn on_progress(mut self, call: impl FnMut(Progress) + 'static) -> Self {
        self.on_progress = Box::new(call);
        self
    }

    /// Sets a function that is called after every seed and ends the trial if it returns true; that seed is not counted.
    #[must_use]
    pub fn stop_when(mut self, is_enough: impl FnMut() -> bool + 'static) -> Self {
        self.stop_when = Box::new(is_enough);
        self
    }

    /// Runs seed after seed, each without and with faults.
    ///
    /// # Errors
    /// [`SimulateError`]; `Refused` with the code `INVALID_INPUT` and the node if its questions refuse an answer of [`Self::answer`].
    /// A run with another outcome is a result, not an error.
    pub fn run(mut self) -> Result<Chaos, SimulateError> {
        let started = Started {
            workflow: self.setup.workflow_of(&mut *self.build).map_err(SimulateError::Build)?,
            setup: self.setup,
            answers: Arc::new(self.answers),
        };
        let mut result = Chaos {
            first_seed: self.seeds.start,
            // An empty range may have its end before its start.
            seeds: self.seeds.end.saturating_sub(self.seeds.start),
            played: 0,
            faults: BTreeMap::new(),
            different: 0,
            races: 0,
            runs: Vec::new(),
            interrupted: false,
        };
        for seed in self.seeds {
            let tried = try_seed(&mut *self.build, &started, seed, &self.kinds)?;
            if (self.stop_when)() {
                result.interrupted = true;
                break;
            }
            result.played += 1;
            for (kind, count) in tried.counts {
                *result.faults.entry(kind).or_default() += count;
            }
            if let Some(different) = tried.different {
                result.add(different);
            }
            (self.on_progress)(Progress {
                played: result.played,
                different: result.different,
            });
        }
        Ok(result)
    }
}

impl Chaos {
    fn add(&mut self, different: DifferentRun) {
        let count = if different.race {
            &mut self.races
        } else {
            &mut self.different
        };
        *count += 1;
        if *count <= MAX_DESCRIBED as u64 {
            self.runs.push(different);
        }
    }
}

/// The result of one seed.
struct Tried {
    counts: BTreeMap<FaultKind, u64>,
    different: Option<DifferentRun>,
}

fn try_seed(
    build: &mut dyn FnMut() -> EngineBuilder,
    started: &Started,
    seed: u64,
    allowed: &BTreeSet<FaultKind>,
) -> Result<Tried, SimulateError> {
    // The seed orders concurrent steps too, so the run without faults uses it too.
    let seeds = Seeds {
        values: seed,
        order: seed,
    };
    let (expected, commits) = run_to_its_end(build, started, seeds, &Arc::new(FaultPlan::none()))?;
    if let Some((node_id, reason)) = started.answers.refused() {
        let mut error = RunError::new(RunErrorCode::InvalidInput, reason);
        error.node_id = Some(node_id.into());
        return Err(SimulateError::Refused(error));
    }
    let expected = ChaosOutcome::of(&expected);
    let mut with = |kinds: BTreeSet<FaultKind>| {
        let plan = Arc::new(FaultPlan::new(seed, kinds, commits));
        let (report, _) = run_to_its_end(build, started, seeds, &plan)?;
        Ok::<_, SimulateError>((ChaosOutcome::of(&report), plan))
    };
    let (got, plan) = with(FaultPlan::kinds_of(seed, allowed))?;
    let (_, counts) = plan.injected();
    if got.equals(&expected) {
        let different = None;
        return Ok(Tried { counts, different });
    }
    // Greedy: a kind is left out if the outcome differs without it too. Kinds do not affect each other's draws.
    let mut needed = (got, plan);
    for kind in FaultKind::ALL {
        let mut fewer = needed.1.kinds().clone();
        if fewer.remove(&kind) && !fewer.is_empty() {
            let (got, plan) = with(fewer)?;
            if !got.equals(&expected) {
                needed = (got, plan);
            }
        }
    }
    let (got, plan) = needed;
    let differences = expected.differences(&got);
    let causes: Vec<FaultKind> = plan.kinds().iter().copied().collect();
    // Other faults change a result or its time, so their difference is no matter of the order.
    let race = causes == [FaultKind::Kill] && occurs_without_kill(build, started, seed, &got)?;
    Ok(Tried {
        counts,
        different: Some(DifferentRun {
            seed,
            causes,
            race,
            faults: plan.injected().0,
            expected,
            got,
            differences,
        }),
    })
}

/// Returns whether a run without a kill has this outcome in one of the searched orders.
fn occurs_without_kill(
    build: &mut dyn FnMut() -> EngineBuilder,
    started: &Started,
    seed: u64,
    outcome: &ChaosOutcome,
) -> Result<bool, SimulateError> {
    for searched in 1..=SEARCHED_ORDERS {
        let order = seed.wrapping_add(searched);
        // A kill delays the calls in flight, so replies are late in half of the orders.
        let kinds = (searched % 2 == 0).then_some(FaultKind::LateReply);
        let plan = Arc::new(FaultPlan::new(order, kinds.into_iter().collect(), 0));
        let seeds = Seeds { values: seed, order };
        let (report, _) = run_to_its_end(build, started, seeds, &plan)?;
        if ChaosOutcome::of(&report).equals(outcome) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl ChaosOutcome {
    fn of(report: &RunReport) -> Self {
        Self {
            status: report.status,
            output: report.output.clone(),
            error: report.error.clone(),
        }
    }

    fn code(&self) -> Option<&'static str> {
        self.error.as_ref().map(|error| error.code.as_str())
    }

    fn equals(&self, other: &Self) -> bool {
        (self.status, &self.output, self.code()) == (other.status, &other.output, other.code())
    }

    /// Formats status and error.
    fn shown(&self) -> String {
        let error = self.error.as_ref().map(|error| format!(" ({error})"));
        format!("{}{}", self.status.as_str(), error.unwrap_or_default())
    }

    fn differences(&self, got: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if (self.status, self.code()) != (got.status, got.code()) {
            found.push(format!("outcome: expected {}, got {}", self.shown(), got.shown()));
        }
        // A run that has not completed has no output, which is no further difference.
        if self.status == got.status {
            found.extend(of_values("output", &self.output, &got.output));
        }
        found
    }
}

impl fmt::Display for Chaos {
    /// Formats the number of faults, and each described run with its faults and differences.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(kind, count)| format!("{count} {}", kind.as_str()))
            .collect();
        let faults = if faults.is_empty() {
            "none".to_owned()
        } else {
            faults.join(", ")
        };
        let interrupted = if self.interrupted { "; interrupted" } else { "" };
        writeln!(
            f,
            "{} of {} seeds played{interrupted}; faults: {faults}",
            self.played, self.seeds
        )?;
        for run in &self.runs {
            let causes: Vec<&str> = run.causes.iter().map(|kind| kind.as_str()).collect();
            if run.race {
                let other = "the outcome also occurs without a kill, in another order of concurrent steps";
                writeln!(f, "seed {}: race: {other}", run.seed)?;
            } else {
                writeln!(f, "seed {}: differs by {}", run.seed, causes.join(" and "))?;
            }
            for fault in &run.faults {
                writeln!(f, "  fault: {}", fault.text)?;
            }
            for difference in &run.differences {
                writeln!(f, "  {difference}")?;
            }
        }
        writeln!(
            f,
            "{} of {} runs differ from the run without faults",
            self.different, self.played
        )?;
        if self.races > 0 {
            writeln!(
                f,
                "{} of {} runs are races; `pirn explore` shows the orders",
                self.races, self.played
            )?;
        }
        Ok(())
    }
}
