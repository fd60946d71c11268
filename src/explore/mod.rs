//! Explores every order in which the branches of a workflow can end, and compares the outcomes.
//!
//! A workflow whose branches race can end differently from run to run. [`explore`] runs it once for each distinct order, with the
//! production supervisor, threads and joins on a host that controls scheduling. It reports the number of outcomes and an order that
//! leads to each. `docs/explore.md` explains which events count as choices.
//!
//! ```
//! use pirn::{Engine, explore};
//! let race = r#"{"id": "race", "nodes": [
//!     {"id": "start", "type": "START"},
//!     {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["wa", "wb"], "forkStrategy": "parallel"}},
//!     {"id": "wa", "type": "WAIT", "config": {"seconds": 1}}, {"id": "wb", "type": "WAIT", "config": {"seconds": 2}},
//!     {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ANY_COMPLETED"}},
//!     {"id": "end", "type": "END"}],
//!   "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "wa"}, {"from": "fork", "to": "wb"},
//!     {"from": "wa", "to": "join"}, {"from": "wb", "to": "join"}, {"from": "join", "to": "end"}]}"#;
//! let explored = explore(Engine::builder().workflows(race)).run()?;
//! assert!(explored.complete);
//! assert_eq!(explored.outcomes.len(), 2, "either may be first:\n{explored}");
//! # Ok::<(), pirn::explore::ExploreError>(())
//! ```

mod answers;
mod choices;
mod collected;
mod offline;
mod outcome;
mod replayed;
mod schedule;
mod search;
mod tree;

use std::collections::BTreeMap;
use std::rc::Rc;

use pirn_actors::events::Subscription;
use pirn_definition::definition::TriggerDefinition;
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use serde::Serialize;
use serde_json::Value;

use crate::engine::{BlockingEvents, BuildError, Engine, EngineBuilder, Plan, blocking};
use crate::run_setup::{RunSetup, run_setup_methods};
pub(crate) use answers::Answers;
pub use choices::{Choices, InvalidChoices};
use collected::Collected;
use offline::Refused;
pub(crate) use offline::{OfflineModels, OfflineTools};
pub use outcome::{Outcome, OutcomeError};
pub use replayed::{OrderStep, ReplayedOrder};
use schedule::{ScheduleResult, ScheduleRun};
use search::{Prefix, Search};
use tree::{LeafEnd, TreeBuilder};
pub use tree::{OrderEnd, OrderEvent, OrderNode, OrderTree, TreeLimit};

/// Default maximum number of schedules.
// Each schedule runs the workflow from its start, so the number bounds the time of an exploration.
pub const DEFAULT_SCHEDULES: u64 = 4_000;

/// Default number of random schedules beyond the maximum.
pub const DEFAULT_SAMPLES: u64 = 1_000;

/// The result of an exploration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exploration {
    /// All distinct outcomes, the one with the shortest order first.
    pub outcomes: Vec<Outcome>,
    /// Number of schedules that were run.
    pub schedules: u64,
    /// True if every order, or an equivalent one, was run; otherwise the remainder was sampled.
    pub complete: bool,
}

/// The progress of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Schedules run so far.
    pub schedules: u64,
    /// Number of distinct outcomes so far.
    pub outcomes: usize,
    /// True after the maximum was reached: further schedules are random.
    pub is_sampling: bool,
}

/// Errors that prevent an exploration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExploreError {
    /// The workflows or profiles have faults.
    #[error(transparent)]
    Build(BuildError),
    /// The run was refused: there is no such workflow, or its input is not JSON.
    #[error(transparent)]
    Refused(RunError),
    /// Equal choices led to different states: a function, a tool or a model is not deterministic.
    #[error(
        "one order had two different results, after: {}; a function, tool or model returns different results for equal calls, so \
         the orders cannot be explored",
        order.join(", ")
    )]
    NotRepeatable {
        /// The choices up to that point.
        order: Vec<String>,
    },
    /// [`Explorer::replay`] received choices that this workflow, input and rules do not have.
    #[error(
        "the choices do not exist after {}; they belong to another workflow, input, answer, seed or time option",
        if order.is_empty() { "the start of the run".to_owned() } else { order.join(", ") }
    )]
    NoSuchOrder {
        /// The choices up to the first one that does not exist.
        order: Vec<String>,
    },
    /// With [`Explorer::offline_only`], a run called something outside of it that is not offline.
    #[error(
        "the run calls {called}, which is not offline: use a profile of the provider `scripted`, `echo` or `extractive`"
    )]
    NotOffline {
        /// The model or function with its name.
        called: String,
    },
    /// Questions refused an answer of [`Explorer::answer`], and none accepted it.
    #[error("the answer to node {node_id} is invalid: {reason}")]
    AnswerRefused {
        /// The node.
        node_id: String,
        /// Explanation, one sentence.
        reason: String,
    },
    /// [`Explorer::interrupt_when`] ended a replay.
    #[error("the replay was stopped before the end of the run")]
    Stopped,
    /// The events of a replay exceed the memory limit.
    #[error("the events of the order need more than {} KiB of memory", max_bytes >> 10)]
    TooManyEvents {
        /// The limit in bytes.
        max_bytes: u64,
    },
}

/// Creates an exploration of the engine that `builder` describes; configure it and [run](Explorer::run) it. The builder's clock and
/// threads are not used. Models and tools that need the outside world are not called: `echo` replaces the models, and the tools
/// return a result that explains this.
pub fn explore(builder: EngineBuilder) -> Explorer {
    Explorer::of(Source::Builder(Box::new(builder)))
}

/// Creates an exploration of the workflows that an engine has loaded, like [`explore`] for its builder. The engine's runs, store,
/// sessions, model limits and usage are not involved. Triggers that were added with [`Engine::add_trigger`] are not part of it.
///
/// ```
/// # use pirn::{Engine, explore};
/// let engine = Engine::builder().workflows(include_str!("../../examples/tutorial/2-route.json")).build()?;
/// let explored = explore::explore_engine(&engine).input("Where is it?").run()?;
/// assert_eq!(explored.outcomes.len(), 1, "{explored}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn explore_engine(engine: &Engine) -> Explorer {
    Explorer::of(Source::Plan(engine.trial_plan().map(Box::new)))
}

/// Workflows, models and tools of an exploration.
enum Source {
    Builder(Box<EngineBuilder>),
    Plan(Result<Box<Plan>, BuildError>),
}

impl Explorer {
    fn of(source: Source) -> Self {
        Self {
            source,
            setup: RunSetup::default(),
            answers: Answers::default(),
            max_schedules: DEFAULT_SCHEDULES,
            samples: DEFAULT_SAMPLES,
            // A fixed seed, so that two explorations of one workflow report the same orders.
            rules: Rules {
                seed: 0,
                timeouts: false,
                keeps_time: false,
                is_strict: false,
                is_reduced: true,
            },
            is_offline_only: false,
            subscriptions: Vec::new(),
            on_progress: None,
            stop_when: Box::new(|| false),
            interrupt_when: Box::new(|| false),
        }
    }
}

/// Builder of an exploration.
pub struct Explorer {
    source: Source,
    setup: RunSetup,
    answers: Answers,
    max_schedules: u64,
    samples: u64,
    rules: Rules,
    is_offline_only: bool,
    subscriptions: Vec<Subscription>,
    on_progress: Option<Box<dyn FnMut(Progress)>>,
    stop_when: Box<dyn FnMut() -> bool>,
    interrupt_when: Box<dyn FnMut() -> bool>,
}

/// Rules that determine choices and distinct outcomes.
#[derive(Clone, Copy)]
struct Rules {
    seed: u64,
    timeouts: bool,
    keeps_time: bool,
    is_strict: bool,
    is_reduced: bool,
}

impl Explorer {
    run_setup_methods!();

    /// Adds a possible answer to the questions of a node; several calls add alternatives. Without any, the alternatives are the
    /// question's choices, or the values that its schema enumerates (`enum`, `const`, boolean), or `"answer"` for free text. A tool
    /// call that needs approval gets `"allow"` or `"refuse"`. A question gets the answers that it accepts; an answer that questions refuse
    /// and none accepts fails the exploration with [`ExploreError::AnswerRefused`].
    ///
    /// ```
    /// # use pirn::{Engine, explore};
    /// let sure = r#"{"id": "sure", "nodes": [{"id": "s", "type": "START"},
    ///     {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "How much?"}}, {"id": "e", "type": "END", "config": {"output": "output.answer > 5"}}],
    ///   "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}"#;
    /// let explored = explore(Engine::builder().workflows(sure)).answer("ask", 1).answer("ask", 9).run()?;
    /// assert_eq!(explored.outcomes.len(), 2, "{explored}");
    /// # Ok::<(), pirn::explore::ExploreError>(())
    /// ```
    #[must_use]
    pub fn answer(mut self, node_id: impl Into<String>, answer: impl Into<Value>) -> Self {
        self.answers.add(node_id.into(), answer.into());
        self
    }

    /// Sets the maximum number of schedules to run in order, at least 1 (default [`DEFAULT_SCHEDULES`]).
    #[must_use]
    pub fn max_schedules(mut self, schedules: u64) -> Self {
        // Without any schedule there would be no outcome to report.
        self.max_schedules = schedules.max(1);
        self
    }

    /// Sets the number of random schedules beyond the maximum (default [`DEFAULT_SAMPLES`]).
    #[must_use]
    pub fn samples(mut self, samples: u64) -> Self {
        self.samples = samples;
        self
    }

    /// Sets the seed of the samples and of `Math.random` in CODE (default 0).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.rules.seed = seed;
        self
    }

    /// Lets time limits expire while other events are still possible (default: they expire only when the run is otherwise idle).
    #[must_use]
    pub fn timeouts(mut self, timeouts: bool) -> Self {
        self.rules.timeouts = timeouts;
        self
    }

    /// Makes WAITs end in the order of their durations (default: a WAIT takes any time, like all other work).
    #[must_use]
    pub fn keep_time(mut self, keeps_time: bool) -> Self {
        self.rules.keeps_time = keeps_time;
        self
    }

    /// Distinguishes outcomes also by error message, variables and conversation (default: by status, output and error code).
    #[must_use]
    pub fn strict(mut self, is_strict: bool) -> Self {
        self.rules.is_strict = is_strict;
        self
    }

    /// Stops a schedule when it reaches a state that an earlier one has reached (default). Set it to false for functions, tools and
    /// models with state of earlier calls: then every schedule runs to its end.
    #[must_use]
    pub fn reduce(mut self, is_reduced: bool) -> Self {
        self.rules.is_reduced = is_reduced;
        self
    }

    /// Sets a function that is called after every schedule.
    #[must_use]
    pub fn on_progress(mut self, call: impl FnMut(Progress) + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// Fails the exploration with [`ExploreError::NotOffline`] if a run calls a model that needs the outside world, or a registered
    /// function, which may have effects (default: `echo` replaces such models, and functions are called).
    #[must_use]
    pub fn offline_only(mut self, is_offline_only: bool) -> Self {
        self.is_offline_only = is_offline_only;
        self
    }

    /// Sets a function that is called after every schedule, and ends the exploration if it returns true. The report then contains the
    /// results so far and is not complete.
    #[must_use]
    pub fn stop_when(mut self, is_enough: impl FnMut() -> bool + 'static) -> Self {
        self.stop_when = Box::new(is_enough);
        self
    }

    /// Sets a function that is called at every choice and after every schedule, and ends the exploration if it returns true, without the
    /// result of the schedule in progress: a schedule of a long loop may take seconds.
    #[must_use]
    pub fn interrupt_when(mut self, is_over: impl FnMut() -> bool + 'static) -> Self {
        self.interrupt_when = Box::new(is_over);
        self
    }

    /// Returns the events of the run of [`Self::replay`]. They are buffered until the replay has ended, unless another thread receives
    /// them. An empty `types` selects all types.
    pub fn blocking_events(&mut self, types: &[EventType], capacity: usize) -> BlockingEvents {
        let (deliver, events) = blocking(capacity, None);
        self.subscriptions.push(Subscription {
            types: types.to_vec(),
            after: 0,
            deliver,
        });
        events
    }

    /// Runs one order again: [`Outcome::replay`] of an exploration with equal workflows, input, answers and options.
    ///
    /// ```
    /// # use pirn::{Engine, explore};
    /// # let route = include_str!("../../examples/tutorial/2-route.json");
    /// let explorer = || explore(Engine::builder().workflows(route)).input("Where is it?");
    /// let explored = explorer().run()?;
    /// let outcome = &explored.outcomes[0];
    /// assert_eq!(explorer().replay(&outcome.replay)?, *outcome);
    /// # Ok::<(), pirn::explore::ExploreError>(())
    /// ```
    ///
    /// # Errors
    /// [`ExploreError`]. A run that fails is an outcome, not an error.
    pub fn replay(self, choices: &Choices) -> Result<Outcome, ExploreError> {
        Ok(self.follow(choices, None)?.outcome)
    }

    /// Runs one order again like [`Self::replay`], and returns its events, report and steps.
    ///
    /// # Errors
    /// [`ExploreError`]; `TooManyEvents` if the events need more than `max_bytes` of memory.
    pub fn replay_with_events(self, choices: &Choices, max_bytes: u64) -> Result<ReplayedOrder, ExploreError> {
        let collected = Collected::within(max_bytes);
        let followed = self.follow(choices, Some(&collected));
        if collected.is_full() {
            return Err(ExploreError::TooManyEvents { max_bytes });
        }
        Ok(ReplayedOrder {
            events: collected.take(),
            ..followed?
        })
    }

    /// Runs the exploration on the calling thread.
    ///
    /// # Errors
    /// [`ExploreError`]. A run that fails is an outcome, not an error.
    pub fn run(self) -> Result<Exploration, ExploreError> {
        let mut search = self.start(None, None)?;
        let limit = search.run_all(None)?;
        if limit == Some(TreeLimit::Schedules) {
            search.sample()?;
        }
        search.check_answers(limit)?;
        let (explored, _) = search.all.finish(limit.is_none());
        Ok(explored)
    }

    /// Runs the exploration on the calling thread like [`Self::run`], without samples, and returns the orders as a tree whose JSON has
    /// about `max_bytes` at most.
    ///
    /// # Errors
    /// [`ExploreError`]. A run that fails is an outcome, not an error.
    pub fn tree(self, max_bytes: usize) -> Result<OrderTree, ExploreError> {
        let mut search = self.start(None, None)?;
        let mut tree = TreeBuilder::new();
        let limit = search.run_all(Some((&mut tree, max_bytes)))?;
        search.check_answers(limit)?;
        let (explored, places) = search.all.finish(limit.is_none());
        Ok(tree.finish(explored, &places, limit))
    }

    /// Prepares a search of every order, or a replay of the order of these choices.
    fn start(mut self, only: Option<&Choices>, collected: Option<&Collected>) -> Result<Running, ExploreError> {
        // A copy, because the workflow can switch the reduction off for this exploration only.
        let mut rules = self.rules;
        let plan = match self.source {
            Source::Builder(builder) => builder.plan(),
            Source::Plan(plan) => plan.map(|plan| *plan),
        };
        let mut plan = plan.map_err(ExploreError::Build)?;
        // The events that a trigger or a waiting node receives depend on timing, so no two orders are equivalent there.
        rules.is_reduced &= !listens(&plan);
        let refused = self.is_offline_only.then(Refused::default);
        offline::restrict(&mut plan.ports, refused.as_ref());
        let workflow = self.setup.workflow.unwrap_or_else(|| plan.first_workflow());
        let request = pirn_actors::engine::RunRequest {
            workflow_id: workflow,
            input: self.setup.input.map_err(ExploreError::Refused)?,
            conversation: self.setup.conversation,
            pinned: self.setup.pinned,
            // Nothing outside of the process is called, so no caller needs to be named.
            metadata: None,
            deadline_ms: None,
            // A session orders runs, and an exploration has one run at a time.
            session: None,
            client_tools: Vec::new(),
            run_seed: None,
        };
        let search = only.map_or_else(|| Search::new(rules.is_reduced), Search::following);
        if let Some(collected) = collected {
            self.subscriptions.push(collected.subscription());
            search.count_events(collected.clone());
        }
        search.interrupt_when({
            let (mut stop, refused, collected) = (self.interrupt_when, refused.clone(), collected.cloned());
            Box::new(move || {
                // Both would only repeat what is known already.
                let is_refused = refused.as_ref().is_some_and(|refused| refused.called().is_some());
                is_refused || collected.as_ref().is_some_and(Collected::is_full) || stop()
            })
        });
        let answers = Rc::new(self.answers);
        Ok(Running {
            schedule: ScheduleRun::new(plan, request, rules, Rc::clone(&answers), self.subscriptions),
            answers,
            search,
            stop_when: self.stop_when,
            refused,
            max_schedules: self.max_schedules,
            samples: self.samples,
            seed: rules.seed,
            all: Outcomes {
                by_key: BTreeMap::new(),
                bytes: 0,
                schedules: 0,
                on_progress: self.on_progress,
            },
        })
    }

    /// Runs the order of these choices. The result has no events.
    fn follow(self, choices: &Choices, collected: Option<&Collected>) -> Result<ReplayedOrder, ExploreError> {
        let mut running = self.start(Some(choices), collected)?;
        let prefix = running.search.next_prefix();
        let played = running.play(&prefix).map_err(|error| match error {
            ExploreError::NotRepeatable { order } => ExploreError::NoSuchOrder { order },
            other => other,
        })?;
        match played {
            ScheduleResult::Ended { outcome, report, .. } => {
                running.check_answers(None)?;
                let made = running.search.made();
                let steps = made.iter().map(|choice| OrderStep {
                    event: OrderEvent::of(choice),
                    raised: choice.raised,
                });
                Ok(ReplayedOrder {
                    outcome: *outcome,
                    report,
                    events: Vec::new(),
                    steps: steps.collect(),
                })
            }
            ScheduleResult::Stopped => Err(ExploreError::Stopped),
            // A replay does not stop at known states.
            ScheduleResult::Left { .. } => Err(ExploreError::NoSuchOrder { order: Vec::new() }),
        }
    }
}

/// An exploration in progress.
struct Running {
    schedule: ScheduleRun,
    answers: Rc<Answers>,
    search: Search,
    stop_when: Box<dyn FnMut() -> bool>,
    refused: Option<Refused>,
    max_schedules: u64,
    samples: u64,
    seed: u64,
    all: Outcomes,
}

impl Running {
    /// Fails if an answer was refused by questions and accepted by none.
    fn check_answers(&self, limit: Option<TreeLimit>) -> Result<(), ExploreError> {
        match self.answers.refused() {
            // The orders that were not run may have the question that accepts it.
            Some(_) if limit == Some(TreeLimit::Stopped) => Ok(()),
            Some((node_id, reason)) => Err(ExploreError::AnswerRefused {
                node_id: node_id.to_owned(),
                reason: reason.to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn play(&mut self, prefix: &Prefix) -> Result<ScheduleResult, ExploreError> {
        let played = self.schedule.play(prefix);
        // First, because a refused call fails its node and so changes the choices that follow.
        match self.refused.as_ref().and_then(Refused::called) {
            Some(called) => Err(ExploreError::NotOffline { called }),
            None => played,
        }
    }

    /// Runs all orders. Returns the limit that ended the search; none if every order was run.
    fn run_all(&mut self, mut tree: Option<(&mut TreeBuilder, usize)>) -> Result<Option<TreeLimit>, ExploreError> {
        while self.all.schedules < self.max_schedules {
            let prefix = self.search.next_prefix();
            // An abandoned schedule counts too, because it costs a run up to the known state.
            let played = self.play(&prefix)?;
            let Some(end) = self.all.take(played, false) else {
                return Ok(Some(TreeLimit::Stopped));
            };
            if let Some((tree, _)) = &mut tree {
                tree.add(&self.search.made(), end);
            }
            if !self.search.advance() {
                // No untried choice is left, so sampling would only repeat known orders.
                return Ok(None);
            }
            if self.is_stopped() {
                return Ok(Some(TreeLimit::Stopped));
            }
            if let Some((tree, max_bytes)) = &tree
                && tree.bytes().saturating_add(self.all.bytes) > *max_bytes
            {
                return Ok(Some(TreeLimit::Bytes));
            }
        }
        Ok(Some(TreeLimit::Schedules))
    }

    fn is_stopped(&mut self) -> bool {
        self.search.is_stopped() || (self.stop_when)()
    }

    /// Runs random orders.
    fn sample(&mut self) -> Result<(), ExploreError> {
        for sample in 0..self.samples {
            // A seed for each sample, so that every sample draws another order and a repeated exploration draws the same.
            let prefix = self.search.random_prefix(self.seed.wrapping_add(sample));
            let played = self.play(&prefix)?;
            if self.all.take(played, true).is_none() || self.is_stopped() {
                break;
            }
        }
        Ok(())
    }
}
/// Returns whether a node or trigger waits for events.
fn listens(plan: &Plan) -> bool {
    use pirn_definition::graph::NodeKind;
    let waits = |node: &pirn_definition::graph::Node| matches!(node.kind, NodeKind::WaitEvent { .. });
    // A schedule receives no event, and it does not fire in an exploration.
    let hears = |trigger: &TriggerDefinition| trigger.schedule.is_none();
    let graphs = || plan.graphs.iter();
    plan.triggers.iter().any(hears)
        || graphs().any(|graph| graph.triggers.iter().any(hears) || graph.nodes.iter().any(waits))
}

struct Outcomes {
    /// The outcomes, each with its number in the order of their discovery.
    by_key: BTreeMap<String, (usize, Outcome)>,
    /// Estimated size of the outcomes as JSON.
    bytes: usize,
    schedules: u64,
    on_progress: Option<Box<dyn FnMut(Progress)>>,
}

impl Outcomes {
    /// Adds the result of a schedule. Returns its end; none if it was stopped.
    fn take(&mut self, played: ScheduleResult, is_sampling: bool) -> Option<LeafEnd> {
        let end = match played {
            ScheduleResult::Ended { key, outcome, .. } => LeafEnd::Outcome(self.add(key, *outcome)),
            ScheduleResult::Left { state } => LeafEnd::Known(state),
            ScheduleResult::Stopped => return None,
        };
        self.schedules += 1;
        let progress = Progress {
            schedules: self.schedules,
            outcomes: self.by_key.len(),
            is_sampling,
        };
        if let Some(tell) = &mut self.on_progress {
            tell(progress);
        }
        Some(end)
    }

    /// Adds an outcome and returns its number.
    fn add(&mut self, key: String, outcome: Outcome) -> usize {
        let next = self.by_key.len();
        if let Some((number, known)) = self.by_key.get_mut(&key) {
            // The shortest order is the easiest one to understand. Samples are drawn at random and often longer.
            if outcome.order.len() < known.order.len() {
                *known = outcome;
            }
            return *number;
        }
        let order: usize = outcome.order.iter().map(String::len).sum();
        let message = outcome.error.as_ref().map_or(0, |error| error.message.len());
        self.bytes += key.len() + order + message;
        self.by_key.insert(key, (next, outcome));
        next
    }

    /// Returns the exploration, and the index of each outcome in it by its number.
    fn finish(self, complete: bool) -> (Exploration, Vec<usize>) {
        let mut outcomes: Vec<(usize, Outcome)> = self.by_key.into_values().collect();
        // Ties are ordered by the steps, so that equal explorations print equal reports.
        outcomes.sort_by(|(_, one), (_, other)| (one.order.len(), &one.order).cmp(&(other.order.len(), &other.order)));
        let mut places = vec![0; outcomes.len()];
        for (place, (number, _)) in outcomes.iter().enumerate() {
            places[*number] = place;
        }
        let explored = Exploration {
            outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect(),
            schedules: self.schedules,
            complete,
        };
        (explored, places)
    }
}
