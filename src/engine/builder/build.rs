//! Construction of an engine from its settings.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pirn_actors::engine::{EngineParts, EngineShared, Spawner};
use pirn_actors::host::HostConfig;
use pirn_actors::ports::{NoScheduleMemory, Ports, ScheduleMemory, TokenizerChoice};
use pirn_actors::sessions::MemorySessions;
use pirn_core::run::DEFAULT_RUN_BYTES;
use pirn_definition::definition::{BuiltInTool, Loaded, TriggerDefinition};
use pirn_definition::graph::Graph;
use pirn_models::ModelCatalog;

use super::{BuildError, Clock, EngineBuilder};
use crate::check::CheckedFiles;
use crate::engine::durable::{
    Definitions, Durable, Resources, StoreJournal, StoredSessions, follow_started, log_unsent,
};
use crate::engine::runtime::{EngineRuntime, process_seed};
use crate::engine::{Engine, EventMemory, Names, STARTS_WITHIN, compiled, compiled_inline};

/// Default maximum number of concurrent runs.
const DEFAULT_MAX_RUNS: usize = 100_000;

/// Default maximum number of runs that wait for one session.
const DEFAULT_MAX_WAITING: usize = 64;

/// Default idle time after which a waiting run is parked.
const DEFAULT_PARK_AFTER: Duration = Duration::from_mins(1);

/// Returns a number greater than those of all runs that an earlier process started.
#[allow(clippy::disallowed_methods)] // no host is asked: the order outlives every one of them
fn micros_since_1970() -> u64 {
    // A clock before 1970 yields 0, which only loses the order relative to earlier processes.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Half of the range remains for the numbers that this process adds.
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX / 2)
}

impl EngineBuilder {
    /// Starts the engine's threads and registers everything that was added. All faults are reported at once.
    pub fn build(mut self) -> Result<Engine, BuildError> {
        self.check_settings()?;
        let checked = self.take_checked()?;
        let loaded = Loaded::of(&self.files);
        let definitions: Arc<Definitions> = Arc::default();
        let durable = self.durable(&definitions);
        let (mut ports, names) = self.ports(checked.as_ref(), &loaded)?;
        if let Some(wrap) = self.over_ports.take() {
            wrap(&mut ports);
        }
        if let Some(durable) = &durable {
            // Must precede `faults::inject_configured`, which wraps these ports: resources are looked up by name, and no call is made.
            durable.set_resources(Resources::new(Arc::clone(&ports.tools), Arc::clone(&ports.models)));
            ports.sessions = Arc::new(StoredSessions::new(
                Arc::clone(&durable.store),
                Arc::clone(&durable.conversations),
            ));
        }
        if self.has_schedules.unwrap_or(true) {
            ports.schedules = Some(match &durable {
                Some(durable) => Arc::clone(durable) as Arc<dyn ScheduleMemory>,
                None => Arc::new(NoScheduleMemory),
            });
        }
        // The seed of the clock is the default, so that `virtual_time(Some(seed))` alone reproduces faults and random values too.
        let seed = self.seed.or(match self.clock {
            Clock::Virtual { seed, .. } => seed,
            Clock::Real => None,
        });
        // Faults are injected before the engine starts, because its actors receive the current ports.
        crate::faults::inject_configured(
            &mut ports,
            std::mem::take(&mut self.faults),
            seed.unwrap_or_else(process_seed),
        );
        let (runtime, spawner) = self.runtime(names)?;
        let run_id_seed = match self.clock {
            // Run ids are part of reports and event logs, which equal seeds must reproduce.
            Clock::Virtual { seed, .. } => seed.unwrap_or_default(),
            Clock::Real => process_seed(),
        };
        let shared = EngineShared::start(EngineParts {
            ports,
            max_runs: self.max_runs.unwrap_or(DEFAULT_MAX_RUNS),
            spawner,
            run_id_seed,
            seed,
            max_waiting: self.max_waiting.unwrap_or(DEFAULT_MAX_WAITING),
            // Numbers order the runs of a session in the store, also across processes.
            first_number: micros_since_1970(),
        })
        .map_err(BuildError::Engine)?;
        let engine = Engine {
            shared,
            runtime,
            durable,
            definitions,
            event_memory: EventMemory::default(),
        };
        if let Some(durable) = &engine.durable {
            durable.peers.join(&engine.shared);
            let own = engine.downgrade();
            engine.shared.follow_started_with(Box::new(move |left| {
                log_unsent(own.upgrade().map(|engine| follow_started(&engine, left)));
            }));
        }
        if let Some(checked) = &checked {
            // Checked workflows are registered before the files, which may refer to them.
            engine.register_compiled(checked.loaded(), checked.compiled());
        }
        engine
            .register(&loaded, &engine.shared.graphs())
            .map_err(BuildError::Workflows)?;
        // The event bus must exist before the first run starts, independent of the caller's timing.
        engine.runtime.wait_idle(STARTS_WITHIN);
        Ok(engine)
    }

    /// Returns the durable part of an engine with a store, which becomes its journal.
    fn durable(&mut self, definitions: &Arc<Definitions>) -> Option<Arc<Durable>> {
        let ask = self.ask.take();
        // `Duration::MAX` does not fit, and `None` means that runs are never parked.
        let parks_after = u64::try_from(self.park_after.unwrap_or(DEFAULT_PARK_AFTER).as_millis()).ok();
        let durable = Durable::new(self.store.take()?, Arc::clone(definitions), ask, parks_after);
        let durable = Arc::new(durable);
        // `check_settings` has refused a store together with a journal, so no journal of the caller is lost here.
        self.journal = Some(Arc::new(StoreJournal(Arc::clone(&durable))));
        Some(durable)
    }

    /// Starts the threads, or the virtual clock.
    fn runtime(&mut self, names: Names) -> Result<(EngineRuntime, Box<dyn Spawner>), BuildError> {
        if let Clock::Virtual { seed, origin } = self.clock {
            return EngineRuntime::simulated((seed, origin), names).map_err(BuildError::Threads);
        }
        let default = HostConfig::default();
        let config = HostConfig {
            arbiters: self.arbiters.unwrap_or(default.arbiters),
            work: self.work.take(),
            ..default
        };
        if self.is_local {
            EngineRuntime::local(config, names).map_err(BuildError::Local)
        } else {
            EngineRuntime::arbiters(config, names).map_err(BuildError::Threads)
        }
    }

    fn check_settings(&self) -> Result<(), BuildError> {
        // A virtual clock owns the thread of its actors, and a local engine shares that of its caller.
        if self.is_local && self.clock != Clock::Real {
            return Err(BuildError::Settings("local actors", "virtual time"));
        }
        if self.store.is_some() && self.journal.is_some() {
            return Err(BuildError::Settings("a store", "a journal"));
        }
        if self.is_local && self.arbiters.is_some() {
            return Err(BuildError::Settings("local actors", "arbiters"));
        }
        Ok(())
    }

    /// Creates everything that an engine needs except threads, for a caller that executes it on the calling thread.
    pub(crate) fn plan(mut self) -> Result<Plan, BuildError> {
        let checked = self.take_checked()?;
        let loaded = Loaded::of(&self.files);
        let (ports, names) = self.ports(checked.as_ref(), &loaded)?;
        let known = checked.as_ref().map_or(&[][..], CheckedFiles::graphs);
        let own = compiled(&loaded, (&names, &names.models.now()), known)
            .map_err(BuildError::Workflows)?
            .graphs;
        let graphs = known.iter().cloned().chain(own).collect();
        let known = checked.as_ref().map_or(&[][..], |checked| &checked.loaded().triggers);
        let triggers = known.iter().chain(&loaded.triggers);
        let triggers = triggers.map(|trigger| trigger.value.clone()).collect();
        Ok(Plan {
            ports,
            graphs,
            triggers,
        })
    }

    fn take_checked(&mut self) -> Result<Option<CheckedFiles>, BuildError> {
        if !self.unread.is_empty() {
            // First, because a missing file would only be reported as missing workflows otherwise.
            return Err(BuildError::Files(std::mem::take(&mut self.unread)));
        }
        let checked = self.checked.take();
        match &checked {
            Some(checked) if !checked.faults().is_empty() => Err(BuildError::Workflows(checked.faults().to_vec())),
            Some(_) | None => Ok(checked),
        }
    }

    fn ports(&mut self, checked: Option<&CheckedFiles>, loaded: &Loaded) -> Result<(Ports, Names), BuildError> {
        let reserved = self.tools.names().filter(|name| BuiltInTool::of_name(name).is_some());
        let reserved: Vec<String> = reserved.map(str::to_owned).collect();
        if !reserved.is_empty() {
            // A model's call would reach the built-in tool, and the registered one could never be called.
            return Err(BuildError::ReservedTools(reserved));
        }
        let tokenizers = std::mem::take(&mut self.tokenizers);
        let configured = std::mem::take(&mut self.profiles);
        let known = checked.map_or(&[][..], |checked| &checked.loaded().profiles);
        let in_files = known.iter().chain(&loaded.profiles);
        let in_files = in_files.map(|profile| profile.value.clone()).collect();
        let in_code = std::mem::take(&mut self.models);
        let models = ModelCatalog::new(configured, in_files, in_code, self.keys.take());
        let models = Arc::new(models.map_err(BuildError::Profiles)?);
        let names = Names {
            models: Arc::clone(&models),
            functions: self.functions.keys().cloned().collect(),
            tokenizers: tokenizers.keys().cloned().collect(),
        };
        let scripts = self.scripts.take().unwrap_or_default();
        // The script crate has no tokenizers of its own, so that it does not depend on the crate of the models.
        scripts.set_default_tokenizers(pirn_models::tokens::tokenizer);
        let ports = Ports {
            // `build` sets the schedules. A plan for the explorer has none, because a schedule always has a next timer.
            schedules: None,
            journal: self.journal.take(),
            models,
            tools: Arc::new(std::mem::take(&mut self.tools)),
            functions: Arc::new(std::mem::take(&mut self.functions)),
            scripts,
            evaluator: Arc::new(pirn_script::evaluator),
            compile: Arc::new(compiled_inline),
            tokenizer: Arc::new(move |choice: &TokenizerChoice<'_>| {
                let of_profile = choice.profile.and_then(|profile| profile.tokenizer.as_deref());
                let name = choice.name.or(of_profile);
                // A registered tokenizer takes precedence over a built-in one of the same name.
                let own = name.and_then(|name| tokenizers.get(name)).cloned();
                own.unwrap_or_else(|| match (name, choice.profile) {
                    (None, Some(profile)) => pirn_models::tokens::of_provider(profile),
                    (name, _) => pirn_models::tokens::tokenizer(name),
                })
            }),
            speculative_at: self.speculative_at,
            run_bytes: self.max_run_bytes.unwrap_or(DEFAULT_RUN_BYTES),
            // `build` replaces them if the engine has a store.
            sessions: Arc::new(MemorySessions::default()),
            notify: self
                .notify
                .take()
                .unwrap_or_else(|| Arc::new(|message, _| tracing::info!(message, "notification"))),
            fits: pirn_models::json_schema::fits,
            schema_fault: pirn_models::json_schema::schema_fault,
        };
        Ok((ports, names))
    }
}

/// An engine without threads.
pub(crate) struct Plan {
    pub(crate) ports: Ports,
    pub(crate) graphs: Vec<Arc<Graph>>,
    pub(crate) triggers: Vec<TriggerDefinition>,
}

impl Plan {
    /// Returns the first workflow of the files that is not a triggered sub-workflow, or an empty string.
    pub(crate) fn first_workflow(&self) -> String {
        let first = self.graphs.iter().find(|graph| !graph.triggered);
        first.map(|graph| graph.workflow_id.to_string()).unwrap_or_default()
    }
}
