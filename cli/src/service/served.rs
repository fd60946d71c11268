//! Workflow files that a command offers while it runs: opened at the start, and read again on a reload.

use std::collections::{BTreeMap, BTreeSet};

use futures::executor::block_on;
use pirn::Engine;
use pirn::check::{CheckedFiles, Fault, SourceFile, World, check};
use pirn::store::Store;

use crate::config::service_settings::ServiceSettings;
use crate::config::{Config, ConfigFile};
use crate::output::failure::Failure;
use crate::store::place::Place;
use crate::store::{SERVED_CONFIG, refused};
use crate::{files, tools};

/// The workflow files and their config.
#[derive(clap::Args)]
pub(crate) struct ServedFiles {
    /// Workflow files, loaded together
    #[arg(default_value = files::DEFAULT, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    config: ConfigFile,
    /// Maximum number of runs at once; more are refused
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_runs: Option<u32>,
}

/// The offered workflows by their ids, each with its warnings.
pub(crate) type Offer = BTreeMap<String, Vec<Fault>>;

impl ServedFiles {
    /// Creates the arguments from files that a command has found.
    #[cfg(feature = "cluster")]
    pub(crate) fn of(files: Vec<String>, config: ConfigFile, max_runs: Option<u32>) -> Self {
        Self {
            files,
            config,
            max_runs,
        }
    }

    /// Returns the settings of a service in the config file.
    pub(crate) fn settings(&self) -> Result<ServiceSettings, Failure> {
        Ok(self.config.read(&self.files)?.unwrap_or_default().service)
    }

    /// Maximum number of concurrent runs that are taken over from other processes.
    pub(crate) fn max_runs(&self) -> usize {
        const DEFAULT: usize = 1_000;
        self.max_runs.map_or(DEFAULT, |runs| runs as usize)
    }

    /// Reads and checks all files, and builds the engine.
    ///
    /// # Errors
    /// Fails if the files or the config are invalid, or if a tool server fails to start.
    pub(crate) fn open(&self, place: Option<&Place>) -> Result<(Engine, Offer), Failure> {
        let (_, config, checked) = self.read()?;
        let offer = checked.warnings_by_workflow();
        let config = config.unwrap_or_default();
        let text = config.text;
        let tools = tools::registry(config.tools)?;
        let mut builder = Engine::builder()
            .profiles(config.profiles)
            .tools(tools)
            .faults(config.faults);
        if let Some(runs) = self.max_runs {
            builder = builder.max_runs(runs as usize);
        }
        if let Some(place) = place {
            let store = place.open(text.as_ref())?;
            self.tell_store(&*store)?;
            builder = builder.shared_store(store);
        }
        let engine = builder.checked(checked).build();
        let engine = engine.map_err(|error| Failure::failed("ENGINE_NOT_BUILT", error.to_string()))?;
        Ok((engine, offer))
    }

    /// Records the path of the config in the store, for commands that resume the runs.
    fn tell_store(&self, store: &dyn Store) -> Result<(), Failure> {
        let at = self.config.place(&self.files);
        let kept = block_on(store.set_meta(SERVED_CONFIG, at));
        kept.map_err(|error| refused(&error))
    }

    /// Reads the workflow files again and replaces the engine's workflows with theirs.
    ///
    /// # Errors
    /// Fails if any file is invalid; the engine's workflows are unchanged then.
    pub(crate) fn reload(&self, engine: &Engine) -> Result<Offer, Failure> {
        let (files, config, checked) = self.read()?;
        if engine.load_files(&files).is_err() {
            let text = config.as_ref().and_then(|config| config.text.as_ref());
            return Err(Failure::invalid(files, text, checked));
        }
        Ok(checked.warnings_by_workflow())
    }

    fn read(&self) -> Result<(Vec<SourceFile>, Option<Config>, CheckedFiles), Failure> {
        let files = files::read(&self.files)?;
        let config = self.config.read(&self.files)?;
        let text = config.as_ref().and_then(|config| config.text.as_ref());
        let world = World {
            config: text,
            functions: Some(&BTreeSet::new()),
            ..World::default()
        };
        let checked = check(&files, &world);
        if !checked.faults().is_empty() {
            return Err(Failure::invalid(files, text, checked));
        }
        Ok((files, config, checked))
    }
}
