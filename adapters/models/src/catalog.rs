//! Models of an engine's runs: those of the configured profiles, of the profiles in workflow files, and of the profiles in a stored
//! run's definition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use pirn_actors::journal::Graphs;
use pirn_actors::ports::{Model, Models};
use pirn_definition::definition::Profile;
use pirn_definition::graph::Graph;

use crate::{ChooseKey, ModelRegistry, ModelsByName, ProfileFault};

/// Models of an engine's runs. A run retains the models with which it started: a file that is loaded later changes those of future
/// runs.
pub struct ModelCatalog {
    configured: Vec<Profile>,
    in_code: ModelsByName,
    keys: Option<Arc<ChooseKey>>,
    now: RwLock<Now>,
    brought: Mutex<Vec<DefinitionModels>>,
}

#[derive(Default)]
struct Now {
    models: Arc<ModelRegistry>,
    /// Profiles of files, by id.
    of_files: BTreeMap<String, Profile>,
}

/// Models of runs of a stored definition's workflows.
struct DefinitionModels {
    graphs: Weak<BTreeMap<String, Arc<Graph>>>,
    models: Arc<ModelRegistry>,
}

impl ModelCatalog {
    /// Creates the models of an engine with these configured profiles and those of its files.
    ///
    /// # Errors
    /// All faults of the profiles.
    pub fn new(
        configured: Vec<Profile>,
        of_files: Vec<Profile>,
        in_code: ModelsByName,
        keys: Option<Arc<ChooseKey>>,
    ) -> Result<Self, Vec<ProfileFault>> {
        let all = configured.iter().chain(&of_files).cloned().collect();
        let models = ModelRegistry::with_keys(all, &in_code, keys.as_ref())?;
        let of_files = of_files.into_iter().map(|profile| (profile.id.clone(), profile));
        let now = Now {
            models: Arc::new(models),
            of_files: of_files.collect(),
        };
        Ok(Self {
            configured,
            in_code,
            keys,
            now: RwLock::new(now),
            brought: Mutex::default(),
        })
    }

    /// Returns the models of runs that start now.
    pub fn now(&self) -> Arc<ModelRegistry> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner).models)
    }

    /// Returns models of the present profiles with separate limits and usage, for trial runs.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn apart(&self) -> Result<Arc<ModelRegistry>, Vec<ProfileFault>> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        self.with(now.of_files.values(), &ModelRegistry::default())
    }

    /// Returns the models of runs that start after files with these profiles were loaded. A profile replaces one of an earlier file
    /// with its id, but not a configured one.
    ///
    /// # Errors
    /// Like [`Self::new`].
    pub fn with_files(&self, profiles: &[&Profile]) -> Result<Arc<ModelRegistry>, Vec<ProfileFault>> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        if profiles
            .iter()
            .all(|profile| now.of_files.get(&profile.id) == Some(profile))
        {
            return Ok(Arc::clone(&now.models));
        }
        let is_replaced = |known: &&Profile| profiles.iter().any(|profile| profile.id == known.id);
        let kept = now.of_files.values().filter(|known| !is_replaced(known));
        self.with(kept.chain(profiles.iter().copied()), &now.models)
    }

    /// Makes runs start with the models that [`Self::with_files`] returned for these profiles.
    pub fn load(&self, profiles: &[&Profile], models: Arc<ModelRegistry>) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        now.models = models;
        let loaded = profiles.iter().map(|profile| (profile.id.clone(), (*profile).clone()));
        now.of_files.extend(loaded);
    }

    /// Returns the models of runs whose definition has these profiles, in addition to the configured ones.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_definition(&self, profiles: &[&Profile]) -> Result<Arc<ModelRegistry>, Vec<ProfileFault>> {
        self.with(profiles.iter().copied(), &self.now())
    }

    /// Makes runs of these workflows call these models, until the workflows are dropped.
    pub fn bring(&self, graphs: &Graphs, models: Arc<ModelRegistry>) {
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        brought.retain(|one| one.graphs.strong_count() > 0);
        brought.push(DefinitionModels {
            graphs: Arc::downgrade(graphs),
            models,
        });
    }

    /// Builds the models with additional profiles. An unchanged profile retains its model and its limits.
    fn with<'a>(
        &'a self,
        more: impl Iterator<Item = &'a Profile> + 'a,
        before: &ModelRegistry,
    ) -> Result<Arc<ModelRegistry>, Vec<ProfileFault>> {
        let is_configured = |profile: &&Profile| self.configured.iter().any(|own| own.id == profile.id);
        let more = more.filter(|profile| !is_configured(profile));
        let all = self.configured.iter().chain(more).cloned().collect();
        ModelRegistry::after(before, all, &self.in_code, self.keys.as_ref()).map(Arc::new)
    }
}

impl Models for ModelCatalog {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        self.now().choose(profile_id)
    }

    fn of_run(&self, graphs: &Graphs) -> Option<Arc<dyn Models>> {
        let brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let its = brought
            .iter()
            .find(|one| std::ptr::eq(one.graphs.as_ptr(), Arc::as_ptr(graphs)));
        Some(its.map_or_else(|| self.now(), |its| Arc::clone(&its.models)))
    }
}
