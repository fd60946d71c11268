//! One schedule: a separate engine on a host that controls the order, from the start of the run to its outcome.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pirn_actors::engine::{EngineParts, EngineShared, RunRequest};
use pirn_actors::events::Subscription;
use pirn_actors::host::{Chooser, ChooserOptions, Pending, PossibleAnswers, SimulatedConfig, SimulatedHost};
use pirn_core::run::RunReport;
use pirn_core::thread::Interaction;
use pirn_definition::error::RunError;
use pirn_sync::Completion;

use super::answers::Answers;
use super::outcome::{Outcome, outcome_of, stuck};
use super::search::End;
use super::{Choices, ExploreError, Prefix, Rules};
use crate::engine::{Plan, with_inline_spawner};

/// The common start of all schedules.
pub(super) struct ScheduleRun {
    plan: Plan,
    request: RunRequest,
    rules: Rules,
    answers: PossibleAnswers,
    /// Subscriptions to the run of the first schedule.
    subscriptions: RefCell<Vec<Subscription>>,
}

/// The result of a schedule.
pub(super) enum ScheduleResult {
    /// The run ended.
    Ended {
        /// Equal for equal outcomes.
        key: String,
        /// Its outcome.
        outcome: Box<Outcome>,
        /// Its report; none if it is deadlocked.
        report: Option<Arc<RunReport>>,
    },
    /// Stopped at a state that an earlier schedule has reached.
    Left {
        /// Hash of the state.
        state: u64,
    },
    /// Stopped by the caller.
    Stopped,
}

impl ScheduleRun {
    pub(super) fn new(
        plan: Plan,
        request: RunRequest,
        rules: Rules,
        answers: Rc<Answers>,
        subscriptions: Vec<Subscription>,
    ) -> Self {
        let answers = Rc::new(move |question: &Interaction| answers.to(question));
        Self {
            plan,
            request,
            rules,
            answers,
            subscriptions: RefCell::new(subscriptions),
        }
    }

    /// Runs the schedule that starts with `prefix`.
    pub(super) fn play(&self, prefix: &Prefix) -> Result<ScheduleResult, ExploreError> {
        // Set when the run is admitted, and read by the chooser, which exists before the run.
        let outcome = Rc::new(RefCell::new(None));
        let chooser = UntilOutcome {
            prefix: prefix.clone(),
            outcome: Rc::clone(&outcome),
        };
        // A new host for each schedule: every schedule starts from the same state.
        let simulated = SimulatedHost::with_config(SimulatedConfig {
            seed: Some(self.rules.seed),
            choosing: Some(ChooserOptions {
                chooser: Box::new(chooser),
                timeouts: self.rules.timeouts,
                keeps_time: self.rules.keeps_time,
                answers: Rc::clone(&self.answers),
            }),
            ..SimulatedConfig::default()
        });
        let report = with_inline_spawner(&simulated.host(), |spawner| {
            let engine = EngineShared::start(EngineParts {
                // The ports are shared, so a tool or model with state makes schedules differ (`NotRepeatable`).
                ports: self.plan.ports.clone(),
                // An exploration must not fail because of a limit on concurrent runs.
                max_runs: usize::MAX >> 1,
                spawner,
                run_id_seed: self.rules.seed,
                seed: Some(self.rules.seed),
                // No run has a session.
                max_waiting: 0,
                first_number: 0,
            })?;
            self.run(&engine, &simulated, &outcome)
        })
        .map_err(ExploreError::Refused)?;
        let made = prefix.made();
        let order = made
            .iter()
            .filter(|made| made.is_shown)
            .map(|made| made.event.to_string());
        let order: Vec<String> = order.collect();
        let replay = Choices::of(made.iter().map(|made| made.chosen));
        let (key, mut outcome) = match (&report, prefix.end()) {
            // Checked before the report: an abandoned schedule may have no report, or one of a run that was not finished.
            (_, End::Visited(state)) => return Ok(ScheduleResult::Left { state }),
            (_, End::Stopped) => return Ok(ScheduleResult::Stopped),
            (_, End::Diverged) => return Err(ExploreError::NotRepeatable { order }),
            (Some(report), End::Complete) => outcome_of(report, order, self.rules.is_strict),
            (None, End::Complete) => stuck(order),
        };
        outcome.replay = replay;
        Ok(ScheduleResult::Ended {
            key,
            outcome: Box::new(outcome),
            report,
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
            // Not awaited: this thread executes the matcher, in `run_until_idle` below.
            drop(engine.add_trigger(trigger.clone()));
        }
        // Triggers must be active before the first step of the run, or they would miss its events.
        simulated.run_until_idle();
        let (started, admitted) =
            engine.admit_run(engine.next_run_id(), self.request.clone(), self.subscriptions.take())?;
        // Set before `go`, because the chooser reads it from the first step on.
        outcome.replace(Some(started.outcome.clone()));
        admitted.go()?;
        simulated.run_until_idle();
        Ok(started.outcome.peek().and_then(Result::ok))
    }
}

/// Follows a prefix until the run has its outcome: later work of losing branches does not change it.
struct UntilOutcome {
    prefix: Prefix,
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
            self.prefix.choose(options, state)
        }
    }
}
