//! One schedule: an engine of its own on a host that chooses, from the start of the run to its outcome.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pirn_actors::answer::Answer;
use pirn_actors::engine::{EngineParts, EngineShared, RunRequest};
use pirn_actors::host::{Chooser, Choosing, Pending, SimulatedConfig, SimulatedHost};
use pirn_actors::run::RunReport;
use pirn_core::error::RunError;
use pirn_sync::Completion;

use super::outcome::{Outcome, outcome_of, stuck};
use super::search::End;
use super::stand_in::{OfflineModels, OfflineTools};
use super::{ExploreError, Rules, Way};
use crate::engine::{Plan, place_here};

/// What every schedule starts from.
pub(super) struct Stage {
    plan: Plan,
    request: RunRequest,
    rules: Rules,
}

/// What came of a schedule.
pub(super) enum Played {
    /// The run ended.
    Ended {
        /// Equal for equal outcomes.
        key: String,
        /// How.
        outcome: Box<Outcome>,
    },
    /// It was left where it came to a state that was met before.
    Left,
}

impl Stage {
    pub(super) fn new(mut plan: Plan, request: RunRequest, rules: Rules) -> Self {
        plan.ports.models = Arc::new(OfflineModels(plan.ports.models));
        plan.ports.tools = Arc::new(OfflineTools(plan.ports.tools));
        Self { plan, request, rules }
    }

    /// Runs the schedule that `way` chooses.
    pub(super) fn play(&self, way: &Way) -> Result<Played, ExploreError> {
        let outcome = Rc::new(RefCell::new(None));
        let chooser = UntilOutcome {
            way: way.clone(),
            outcome: Rc::clone(&outcome),
        };
        let simulated = SimulatedHost::with_config(SimulatedConfig {
            seed: Some(self.rules.seed),
            choosing: Some(Choosing {
                chooser: Box::new(chooser),
                timeouts: self.rules.timeouts,
                keeps_time: self.rules.keeps_time,
            }),
            ..SimulatedConfig::default()
        });
        let report = place_here(&simulated.host(), |place| {
            let engine = EngineShared::start(EngineParts {
                ports: self.plan.ports.clone(),
                max_runs: usize::MAX >> 1,
                is_simulated: true,
                place,
                run_id_seed: self.rules.seed,
                seed: Some(self.rules.seed),
            })?;
            let report = self.run(&engine, &simulated, &outcome);
            engine.forget_evaluator();
            report
        })
        .map_err(ExploreError::Refused)?;
        let made = way.made();
        let order = made.iter().filter(|made| made.is_shown).map(|made| made.what.clone());
        let order: Vec<String> = order.collect();
        let (key, outcome) = match (report, way.end()) {
            (_, End::Met) => return Ok(Played::Left),
            (_, End::Astray) => return Err(ExploreError::NotRepeatable { order }),
            (Some(report), End::Whole) => outcome_of(&report, order, self.rules.is_strict),
            (None, End::Whole) => stuck(order),
        };
        Ok(Played::Ended {
            key,
            outcome: Box::new(outcome),
        })
    }

    fn run(
        &self,
        engine: &Arc<EngineShared>,
        simulated: &SimulatedHost,
        outcome: &RefCell<Option<Completion<Arc<RunReport>>>>,
    ) -> Result<Option<Arc<RunReport>>, RunError> {
        for graph in &self.plan.graphs {
            engine.register(graph);
        }
        for trigger in &self.plan.triggers {
            engine.add_trigger(trigger.clone(), Answer::new(|_| ()));
        }
        simulated.run_until_idle();
        let (started, admitted) = engine.admit_run(engine.next_run_id(), self.request.clone())?;
        outcome.replace(Some(started.outcome.clone()));
        admitted.go()?;
        simulated.run_until_idle();
        Ok(started.outcome.peek().and_then(Result::ok))
    }
}

/// Follows a way until the run has its outcome: what losers still do after it changes nothing.
struct UntilOutcome {
    way: Way,
    outcome: Rc<RefCell<Option<Completion<Arc<RunReport>>>>>,
}

impl Chooser for UntilOutcome {
    fn choose(&mut self, options: &[Pending], state: u64) -> Option<usize> {
        let has_ended = self
            .outcome
            .borrow()
            .as_ref()
            .is_some_and(|outcome| outcome.peek().is_some());
        if has_ended {
            None
        } else {
            self.way.choose(options, state)
        }
    }
}
