//! An engine on the calling thread, on a host with an order that the caller chooses, for tests of concurrent requests.
//!
//! [`Engine`](crate::Engine) under virtual time processes requests from outside one by one. Here requests are part of the order: a
//! request added by [`Scene::soon`] can take effect at any point of it.

use std::sync::Arc;

use pirn_actors::engine::{EngineParts, EngineShared, RunRequest, StartedRun};
use pirn_actors::host::{Host, Schedule, SimulatedConfig, SimulatedHost};
use pirn_definition::error::RunError;

use crate::engine::{BuildError, EngineBuilder, Plan, with_inline_spawner};

/// Compiled workflows in which scenes are executed.
pub struct Stage {
    plan: Plan,
}

/// A scene during its setup.
pub struct Scene {
    engine: Arc<EngineShared>,
    host: Host,
}

impl Stage {
    /// Creates the stage that `builder` describes; its clock and threads are not used.
    ///
    /// # Errors
    /// Like [`EngineBuilder::build`].
    pub fn of(builder: EngineBuilder) -> Result<Self, BuildError> {
        builder.plan().map(|plan| Self { plan })
    }

    /// Executes a scene: `set` adds its requests, which are then executed in the order of `schedule`.
    ///
    /// # Errors
    /// Fails if `set` fails or the engine does not start.
    pub fn play<T>(
        &self,
        seed: u64,
        schedule: Box<dyn Schedule>,
        set: impl FnOnce(&Scene) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let simulated = SimulatedHost::with_config(SimulatedConfig {
            seed: Some(seed),
            schedule: Some(schedule),
            ..SimulatedConfig::default()
        });
        with_inline_spawner(&simulated.host(), |spawner| {
            let engine = EngineShared::start(EngineParts {
                ports: self.plan.ports.clone(),
                max_runs: usize::MAX >> 1,
                spawner,
                run_id_seed: seed,
                seed: Some(seed),
                max_waiting: 0,
                first_number: 0,
            })?;
            for graph in &self.plan.graphs {
                engine.register(graph);
            }
            for trigger in &self.plan.triggers {
                drop(engine.add_trigger(trigger.clone()));
            }
            // The registrations are complete before the scene starts, so the schedule only orders the requests of the scene.
            simulated.run_until_idle();
            let scene = Scene {
                engine: Arc::clone(&engine),
                host: simulated.host(),
            };
            // Nothing runs during `set`: its requests are all pending when the schedule makes its first choice.
            let played = set(&scene);
            simulated.run_until_idle();
            played
        })
    }
}

impl Scene {
    /// The engine.
    pub fn engine(&self) -> &Arc<EngineShared> {
        &self.engine
    }

    /// Starts a run now.
    ///
    /// # Errors
    /// OVERLOADED, CANCELLED, or an unknown workflow.
    pub fn start(&self, request: RunRequest) -> Result<StartedRun, RunError> {
        start(&self.engine, request)
    }

    /// Adds an action that happens at any point of the order.
    pub fn soon(&self, act: impl FnOnce(&Arc<EngineShared>) + 'static) {
        let engine = Arc::clone(&self.engine);
        self.host.spawn(None, Box::pin(async move { act(&engine) }));
    }
}

/// Starts a run in an engine of a scene.
///
/// # Errors
/// Like [`Scene::start`].
pub fn start(engine: &Arc<EngineShared>, request: RunRequest) -> Result<StartedRun, RunError> {
    let (started, admitted) = engine.admit_run(engine.next_run_id(), request, Vec::new())?;
    admitted.go()?;
    Ok(started)
}
