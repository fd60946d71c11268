//! The shipped actors under many orders: random ones, and by priorities that change a few times (PCT).
//!
//! A schedule is a scene, a seed and an order. What is ready at the same time (a mailbox, a timer, a request from
//! outside) is what the order picks from. A schedule that fails is written to a file with its choices, and is had again
//! from there: `cargo run -p pirn-tests --bin schedules -- replay FILE`.

mod heard;
mod scenes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use pirn::scene::Stage;
use pirn_actors::host::{OrderChoices, Priorities, Random, Recorded, Replayed, Schedule};
use serde::{Deserialize, Serialize};

use scenes::{SCENES, SceneKind};

/// Choices among which priorities change.
const STEPS: usize = 150;

/// A schedule that failed, to be had again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The scene's name.
    pub scene: String,
    /// Seeds what the scene is like, and the order.
    pub seed: u64,
    /// The choices of the order.
    pub choices: Vec<u32>,
    /// What was wrong.
    pub message: String,
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
    /// Every scene.
    ///
    /// # Panics
    /// Where a scene's workflows have faults: the scene is wrong then.
    pub fn new() -> Self {
        let compiled = |scene: &'static SceneKind| {
            let stages = (scene.engines)().into_iter().map(Stage::of);
            match stages.collect::<Result<Vec<Stage>, _>>() {
                Ok(stages) => (scene, stages),
                Err(error) => panic!("{}: {error}", scene.name),
            }
        };
        Self {
            stages: SCENES.iter().map(compiled).collect(),
        }
    }

    /// The names of the scenes.
    pub fn names(&self) -> Vec<&'static str> {
        self.stages.iter().map(|(scene, _)| scene.name).collect()
    }

    /// Plays the schedule of this number: the scenes in turn, half of them in a random order, half by priorities.
    ///
    /// # Errors
    /// What was wrong, and the choices that led there.
    pub fn play(&self, number: u64) -> Result<(), Failure> {
        let count = self.stages.len() as u64;
        let (scene, stages) = &self.stages[(number % count) as usize];
        let seed = number / count;
        let order: Box<dyn Schedule> = if seed.is_multiple_of(2) {
            Box::new(Random::new(seed))
        } else {
            Box::new(Priorities::new(seed, 3, STEPS))
        };
        let choices = OrderChoices::default();
        let recorded = Recorded::new(order, Rc::clone(&choices));
        outcome(scene, stages, seed, Box::new(recorded)).map_err(|message| Failure {
            scene: scene.name.to_owned(),
            seed,
            choices: choices.take(),
            message,
        })
    }

    /// Plays a schedule that failed again.
    ///
    /// # Errors
    /// What is wrong with it still; also where there is no such scene.
    pub fn replay(&self, failure: &Failure) -> Result<(), String> {
        let found = self.stages.iter().find(|(scene, _)| scene.name == failure.scene);
        let (scene, stages) = found.ok_or_else(|| format!("there is no scene {}", failure.scene))?;
        let order = Replayed::new(failure.choices.clone());
        outcome(scene, stages, failure.seed, Box::new(order))
    }
}

fn outcome(scene: &SceneKind, stages: &[Stage], seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let stage = &stages[(seed / 2 % stages.len() as u64) as usize];
    catch_unwind(AssertUnwindSafe(|| (scene.play)(stage, seed, order))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        Err(text.unwrap_or_else(|| "it panicked".to_owned()))
    })
}
