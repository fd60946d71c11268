//! The shipped actors under many orders: random ones, and by priorities that change a few times (PCT).
//!
//! A schedule is a scene, a seed and an order. The order picks from the events that are ready at one instant: a mailbox,
//! a timer, a request from outside. A failed schedule is written to a file with its choices and is replayed from it:
//! `cargo run -p pirn-tests --bin schedules -- replay FILE`.

mod heard;
mod merges;
mod scenes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use pirn::scene::Stage;
use pirn_actors::host::{OrderChoices, Priorities, Random, Recorded, Replayed, Schedule};
use serde::{Deserialize, Serialize};

use scenes::SCENES;
pub use scenes::{Play, SceneKind};

/// Choices among which priorities change.
const STEPS: usize = 150;

/// The rule by which an order is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Any ready event, each with equal probability.
    Random,
    /// The ready event with the highest priority; priorities change a few times (PCT).
    Priorities,
}

impl Strategy {
    /// Picks one of the two ways by the seed, each for half of the seeds.
    fn of(seed: u64) -> Self {
        if seed.is_multiple_of(2) {
            Self::Random
        } else {
            Self::Priorities
        }
    }

    fn order(self, seed: u64) -> Box<dyn Schedule> {
        match self {
            Self::Random => Box::new(Random::new(seed)),
            Self::Priorities => Box::new(Priorities::new(seed, 3, STEPS)),
        }
    }
}

/// A failed schedule for replay: `{scene, seed, strategy, choices, message}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The scene's name.
    pub scene: String,
    /// Seed of the scene and of the order.
    pub seed: u64,
    /// The way the order was drawn from the seed.
    pub strategy: Strategy,
    /// The choices of the order, recorded so that a replay does not depend on the random generator of a build.
    pub choices: Vec<u32>,
    /// The fault.
    pub message: String,
}

/// The outcome of a replay of a failed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// The failure repeats.
    Same,
    /// The schedule fails in another way.
    Other(String),
    /// The schedule passes.
    Holds {
        /// True if the run requested exactly the recorded choices. Otherwise it took another path, so the fault may
        /// still exist.
        fits: bool,
    },
}

/// The scenes, compiled once.
pub struct Schedules {
    stages: Vec<(&'static SceneKind, Vec<Stage>)>,
}

impl Default for Schedules {
    fn default() -> Self {
        Self::new()
    }
}

impl Schedules {
    /// Returns every scene, compiled.
    ///
    /// # Panics
    /// Panics if a scene's workflows have faults.
    pub fn new() -> Self {
        Self::of(SCENES)
    }

    /// Returns the given scenes, compiled.
    ///
    /// # Panics
    /// Panics if a scene's workflows have faults.
    pub fn of(scenes: &'static [SceneKind]) -> Self {
        let compiled = |scene: &'static SceneKind| {
            let stages = (scene.engines)().into_iter().map(Stage::of);
            match stages.collect::<Result<Vec<Stage>, _>>() {
                Ok(stages) => (scene, stages),
                Err(error) => panic!("{}: {error}", scene.name),
            }
        };
        Self {
            stages: scenes.iter().map(compiled).collect(),
        }
    }

    /// The names of the scenes.
    pub fn names(&self) -> Vec<&'static str> {
        self.stages.iter().map(|(scene, _)| scene.name).collect()
    }

    /// Executes the schedule with this number: the scenes in turn, half of them in a random order, half by priorities.
    ///
    /// # Errors
    /// Fails with the fault and the choices that led to it.
    pub fn play(&self, number: u64) -> Result<(), Failure> {
        let count = self.stages.len() as u64;
        let (scene, stages) = &self.stages[(number % count) as usize];
        let seed = number / count;
        let strategy = Strategy::of(seed);
        let choices = OrderChoices::default();
        let recorded = Recorded::new(strategy.order(seed), Rc::clone(&choices));
        outcome(scene, stages, seed, Box::new(recorded)).map_err(|message| Failure {
            scene: scene.name.to_owned(),
            seed,
            strategy,
            choices: choices.take(),
            message,
        })
    }

    /// Replays a failed schedule by its recorded choices.
    ///
    /// # Errors
    /// Fails if there is no such scene.
    pub fn replay(&self, failure: &Failure) -> Result<Again, String> {
        let found = self.stages.iter().find(|(scene, _)| scene.name == failure.scene);
        let (scene, stages) = found.ok_or_else(|| format!("there is no scene {}", failure.scene))?;
        let made = OrderChoices::default();
        let order = Recorded::new(Box::new(Replayed::new(failure.choices.clone())), Rc::clone(&made));
        Ok(match outcome(scene, stages, failure.seed, Box::new(order)) {
            Ok(()) => Again::Holds {
                fits: made.take() == failure.choices,
            },
            Err(message) if message == failure.message => Again::Same,
            Err(message) => Again::Other(message),
        })
    }
}

fn outcome(scene: &SceneKind, stages: &[Stage], seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let stage = &stages[(seed / 2 % stages.len() as u64) as usize];
    catch_unwind(AssertUnwindSafe(|| (scene.play)(stage, seed, order))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        Err(text.unwrap_or_else(|| "it panicked".to_owned()))
    })
}
