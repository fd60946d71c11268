//! Profiles and their models by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_actors::ports::{Model, Models};
use pirn_core::definition::Profile;

use super::extractive::Budget;
use super::{Echo, Extractive, ProfileFault, Scripted};

/// Models registered in code, by the name of a provider or the id of a profile.
pub type ModelsByName = BTreeMap<String, Arc<dyn Model>>;

/// Chooses the model of an LLM node (SPEC section 9): the profile it names; where there is none, the profile `default`,
/// else the first defined, else the built-in `echo`. The profiles `echo` and `extractive` exist in any case.
#[derive(Clone)]
pub struct ModelRegistry {
    profiles: BTreeMap<String, Entry>,
    built_in: BTreeMap<String, Entry>,
    default: Option<String>,
    echo: Entry,
}

#[derive(Clone)]
struct Entry {
    profile: Arc<Profile>,
    model: Arc<dyn Model>,
}

impl ModelRegistry {
    /// A registry of profiles whose providers are all built in.
    ///
    /// # Errors
    /// As [`ModelRegistry::with_models`].
    pub fn new(profiles: Vec<Profile>) -> Result<Self, Vec<ProfileFault>> {
        Self::with_models(profiles, &ModelsByName::new())
    }

    /// A registry of profiles whose providers are built in or among `models`; a model named as a profile's id serves
    /// that profile, whatever its provider.
    ///
    /// # Errors
    /// Everything that is wrong with the profiles: no id, an id twice, an unknown provider, what a provider itself
    /// does not accept.
    pub fn with_models(profiles: Vec<Profile>, models: &ModelsByName) -> Result<Self, Vec<ProfileFault>> {
        let mut registry = Self::default();
        let mut faults = Vec::new();
        for profile in profiles {
            if profile.id.is_empty() {
                faults.push(ProfileFault::new("", "/id", "a profile needs an id"));
                continue;
            }
            if registry.profiles.contains_key(&profile.id) {
                faults.push(ProfileFault::new(
                    profile.id.as_str(),
                    "/id",
                    "another profile has this id",
                ));
                continue;
            }
            match model_of(&profile, models) {
                Ok(model) => registry.define(profile, model),
                Err(mut found) => faults.append(&mut found),
            }
        }
        if faults.is_empty() { Ok(registry) } else { Err(faults) }
    }

    /// Gives `model` to the profile with the id `name` and to every profile whose provider is `name`. Where there is
    /// neither, a profile with this id and provider is defined.
    pub fn register(&mut self, name: impl Into<String>, model: Arc<dyn Model>) {
        let name = name.into();
        let mut serves_any = false;
        for (id, entry) in &mut self.profiles {
            if *id == name || entry.profile.provider == name {
                entry.model = Arc::clone(&model);
                serves_any = true;
            }
        }
        if !serves_any {
            let profile = Profile {
                id: name.clone(),
                provider: name,
                ..Profile::default()
            };
            self.define(profile, model);
        }
    }

    /// Whether no profile is defined, so that a node without one of its own gets the built-in offline model.
    pub fn is_offline(&self) -> bool {
        self.default.is_none()
    }

    /// The ids of the defined profiles, in order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    fn define(&mut self, profile: Profile, model: Arc<dyn Model>) {
        if self.default.is_none() || profile.id == "default" {
            self.default = Some(profile.id.clone());
        }
        let entry = Entry {
            profile: Arc::new(profile),
            model,
        };
        self.profiles.insert(entry.profile.id.clone(), entry);
    }

    fn entry(&self, id: Option<&str>) -> &Entry {
        let named = id.and_then(|id| self.profiles.get(id).or_else(|| self.built_in.get(id)));
        let default = || self.profiles.get(self.default.as_deref()?);
        named.or_else(default).unwrap_or(&self.echo)
    }
}

impl Default for ModelRegistry {
    /// A registry without profiles: everything is offline.
    fn default() -> Self {
        let echo = Entry::built_in("echo", Arc::new(Echo));
        let extractive = Entry::built_in("extractive", Arc::new(Extractive));
        let built_in = [&echo, &extractive].map(|entry| (entry.profile.id.clone(), entry.clone()));
        Self {
            profiles: BTreeMap::new(),
            built_in: built_in.into(),
            default: None,
            echo,
        }
    }
}

impl Models for ModelRegistry {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        let Entry { profile, model } = self.entry(profile_id).clone();
        (profile, model)
    }
}

impl std::fmt::Debug for ModelRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelRegistry")
            .field("profiles", &self.profiles.keys())
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

impl Entry {
    fn built_in(id: &str, model: Arc<dyn Model>) -> Self {
        let profile = Profile {
            id: id.to_owned(),
            provider: id.to_owned(),
            ..Profile::default()
        };
        Self {
            profile: Arc::new(profile),
            model,
        }
    }
}

/// One found in `models` goes before a built-in of the same name.
fn model_of(profile: &Profile, models: &ModelsByName) -> Result<Arc<dyn Model>, Vec<ProfileFault>> {
    if let Some(model) = models.get(&profile.id).or_else(|| models.get(&profile.provider)) {
        return Ok(Arc::clone(model));
    }
    let fault = |pointer: &str, message: String| vec![ProfileFault::new(profile.id.as_str(), pointer, message)];
    match profile.provider.as_str() {
        "scripted" => Ok(Arc::new(Scripted::new(profile)?)),
        "echo" => Ok(Arc::new(Echo)),
        "extractive" => match Budget::read(profile.parameters.as_ref()) {
            Ok(_) => Ok(Arc::new(Extractive)),
            Err(name) => Err(fault(&format!("/parameters/{name}"), Budget::wrong(name))),
        },
        other => {
            let names = ["echo", "extractive", "scripted"].into_iter().map(str::to_owned);
            let known: std::collections::BTreeSet<String> = names.chain(models.keys().cloned()).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            Err(fault(
                "/provider",
                format!("`{other}` is no known provider; known are {known}"),
            ))
        }
    }
}
