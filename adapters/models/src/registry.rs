//! Profiles and their models by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, Models, laid_over_profile};
use pirn_conversation::conversation::extractive::Budget;
use pirn_conversation::conversation::{Currency, ModelRequest};
use pirn_conversation::model_call::{CallBound, FailureKind, ModelFailure};
use pirn_core::thread::ModelReply;
use pirn_definition::definition::{Profile, nearest, variable_name_fault};
use pirn_definition::error::RunError;
use serde_json::{Map, Value};

use crate::limiter::Limiter;
use crate::metered::{MeteredModel, ModelRequests, RequestsByProfile};
use crate::policy::{self, CallPolicy};
use crate::priced::PricedModel;
use crate::retrying::{Link, RetryingModel};
use crate::structured::StructuredOutputModel;
use crate::{ChooseKey, Echo, Extractive, ProfileFault, Scripted};

/// Models registered in code, by the name of a provider or the id of a profile.
pub type ModelsByName = BTreeMap<String, Arc<dyn Model>>;

/// Finds the model of an LLM node. A node that names a profile gets that profile. Other nodes get the profile `default`, else the
/// first one defined, else the built-in `echo`. The profiles `echo` and `extractive` always exist. A call of an undefined profile
/// fails; it is not redirected to another model.
#[derive(Clone)]
pub struct ModelRegistry {
    profiles: BTreeMap<String, Entry>,
    built_in: BTreeMap<String, Entry>,
    default: Option<String>,
    echo: Entry,
    requests: Arc<RequestsByProfile>,
}

#[derive(Clone)]
struct Entry {
    link: Link,
    /// The link's model with the call settings of its profile.
    served: Arc<dyn Model>,
}

impl ModelRegistry {
    /// Creates a registry of profiles with built-in providers.
    ///
    /// # Errors
    /// As [`ModelRegistry::with_models`].
    pub fn new(profiles: Vec<Profile>) -> Result<Self, Vec<ProfileFault>> {
        Self::with_models(profiles, &ModelsByName::new())
    }

    /// Creates a registry of profiles with providers that are built in or among `models`. A model named like a profile's id serves
    /// that profile, regardless of its provider. A model to which no profile refers gets a new profile with its name as id, after
    /// the others.
    ///
    /// # Errors
    /// All faults of the profiles: a missing or duplicate id, an unknown provider, and settings that the provider rejects.
    pub fn with_models(profiles: Vec<Profile>, models: &ModelsByName) -> Result<Self, Vec<ProfileFault>> {
        Self::with_keys(profiles, models, None)
    }

    /// Like [`ModelRegistry::with_models`], with a function `choose` that returns the keys of network calls.
    ///
    /// # Errors
    /// All faults of the profiles.
    pub fn with_keys(
        profiles: Vec<Profile>,
        models: &ModelsByName,
        choose: Option<&Arc<ChooseKey>>,
    ) -> Result<Self, Vec<ProfileFault>> {
        Self::after(&Self::default(), profiles, models, choose)
    }

    /// Like [`ModelRegistry::with_keys`]. A profile that is unchanged since `before` retains its model and limits, and its requests
    /// are counted with the earlier ones.
    pub(super) fn after(
        before: &Self,
        profiles: Vec<Profile>,
        models: &ModelsByName,
        choose: Option<&Arc<ChooseKey>>,
    ) -> Result<Self, Vec<ProfileFault>> {
        let mut registry = Self::counted_in(Arc::clone(&before.requests));
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
            let known = before.profiles.get(&profile.id).map(|known| &known.link);
            let link = match known.filter(|known| *known.profile == profile) {
                Some(known) => Ok(known.clone()),
                None => link_of(profile, models, choose),
            };
            match link {
                Ok(link) => registry.define(link),
                Err(mut found) => faults.append(&mut found),
            }
        }
        for (name, model) in models {
            if !registry.is_named(name) {
                registry.define(of_its_own(name, Arc::clone(model)));
            }
        }
        if faults.is_empty() {
            // Fallbacks are checked only if all profiles are valid: a missing fallback may be an invalid profile.
            faults.append(&mut registry.unknown_fallbacks());
            faults.append(&mut registry.other_currencies());
        }
        registry.serve();
        if faults.is_empty() { Ok(registry) } else { Err(faults) }
    }

    /// Assigns `model` to the profile with the id `name` and to every profile with the provider `name`. If there is neither, a
    /// profile with this id and provider is defined.
    pub fn register(&mut self, name: impl Into<String>, model: Arc<dyn Model>) {
        let name = name.into();
        for (id, entry) in &mut self.profiles {
            if *id == name || entry.link.profile.provider == name {
                entry.link.model = Arc::clone(&model);
            }
        }
        if !self.is_named(&name) {
            self.define(of_its_own(&name, model));
        }
        self.serve();
    }

    /// Returns whether a profile has this id or provider.
    fn is_named(&self, name: &str) -> bool {
        let mut profiles = self.profiles.iter();
        profiles.any(|(id, entry)| id == name || entry.link.profile.provider == name)
    }

    /// Returns whether no profile is defined, so that a node without a profile gets the built-in offline model.
    pub fn is_offline(&self) -> bool {
        self.default.is_none()
    }

    /// Returns the ids of the defined profiles, in order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// Returns the valid values of a node's `profileId`: the ids of the defined and the built-in profiles.
    #[doc(hidden)]
    pub fn known_ids(&self) -> impl Iterator<Item = &str> {
        self.ids().chain(self.built_in.keys().map(String::as_str))
    }

    /// Returns the bound of calls of a profile with these parameters over its defaults, or `None` if the profile does not exist.
    #[doc(hidden)]
    pub fn bound_of(&self, profile_id: Option<&str>, own: &Map<String, Value>) -> Option<CallBound> {
        let entry = match profile_id {
            Some(id) => self.named(id)?,
            None => self.default_entry(),
        };
        let parameters = laid_over_profile(&entry.link.profile, Some(own));
        Some(entry.served.call_bound(&ModelRequest::default(), &parameters))
    }

    /// Returns the requests so far, by profile.
    pub fn requests(&self) -> BTreeMap<String, ModelRequests> {
        self.requests.now()
    }

    fn define(&mut self, link: Link) {
        let id = link.profile.id.clone();
        if self.default.is_none() || id == "default" {
            self.default = Some(id.clone());
        }
        self.profiles.insert(id, Entry::of(link));
    }

    /// Wraps every model in its profile's policy. Called after all profiles are defined, because fallbacks refer to other profiles.
    fn serve(&mut self) {
        let served: Vec<Arc<dyn Model>> = self.profiles.values().map(|entry| self.served(&entry.link)).collect();
        for (entry, served) in self.profiles.values_mut().zip(served) {
            entry.served = served;
        }
    }

    fn served(&self, link: &Link) -> Arc<dyn Model> {
        let link = self.accounted(link);
        if link.policy.is_plain() {
            return StructuredOutputModel::around(link.model);
        }
        let ids = link.policy.fallback.iter();
        let fallbacks = ids
            .filter_map(|id| self.named(id))
            .map(|entry| self.accounted(&entry.link));
        StructuredOutputModel::around(Arc::new(RetryingModel::new(link.clone(), fallbacks)))
    }

    /// Returns the link with a model that reports its cost and is counted for its profile.
    fn accounted(&self, link: &Link) -> Link {
        let priced = PricedModel::around(Arc::clone(&link.model), link.policy.prices);
        Link {
            model: MeteredModel::around(priced, &link.profile.id, &self.requests),
            ..link.clone()
        }
    }

    /// Returns faults for prices in different currencies, because costs are added up.
    fn other_currencies(&self) -> Vec<ProfileFault> {
        let links = self.profiles.values().map(|entry| &entry.link);
        let mut priced = links.filter_map(|link| Some((link, link.policy.prices?.currency)));
        let Some((first, currency)) = priced.next() else {
            return Vec::new();
        };
        let others = priced.filter(|(_, other)| *other != currency);
        let fault = |(link, other): (&Link, Currency)| {
            let first = &first.profile.id;
            let message = format!("`{other}`, but the prices of `{first}` are in `{currency}`: costs are added up");
            ProfileFault::new(link.profile.id.as_str(), "/prices/currency", message)
        };
        others.map(fault).collect()
    }

    fn unknown_fallbacks(&self) -> Vec<ProfileFault> {
        let links = self.profiles.values().map(|entry| &entry.link);
        let wanted = links.flat_map(|link| link.policy.fallback.iter().enumerate().map(move |one| (link, one)));
        wanted
            .filter(|(_, (_, id))| self.named(id).is_none())
            .map(|(link, (place, id))| {
                let meant = self.nearest(id);
                let message = format!("no profile has the id `{id}`{meant}");
                ProfileFault::new(link.profile.id.as_str(), format!("/fallback/{place}"), message)
            })
            .collect()
    }

    fn named(&self, id: &str) -> Option<&Entry> {
        self.profiles.get(id).or_else(|| self.built_in.get(id))
    }

    fn default_entry(&self) -> &Entry {
        let default = self.default.as_deref().and_then(|id| self.profiles.get(id));
        default.unwrap_or(&self.echo)
    }

    /// Returns `; did you mean ...?` if a similar id exists.
    fn nearest(&self, id: &str) -> String {
        let near = nearest(id, self.known_ids());
        near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
    }
}

/// Replaces an undefined profile that was named: every call of it fails.
struct MissingProfile(String);

impl Model for MissingProfile {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let error = ModelFailure::new(FailureKind::Rejected).into_error(self.0.clone());
        std::future::ready(Err(error)).boxed()
    }
}

/// Creates a profile for a model, with the model's name as id.
fn of_its_own(name: &str, model: Arc<dyn Model>) -> Link {
    let profile = Profile {
        id: name.to_owned(),
        provider: name.to_owned(),
        ..Profile::default()
    };
    Link::plain(profile, model)
}

impl Default for ModelRegistry {
    /// Creates a registry without profiles: all models are offline.
    fn default() -> Self {
        Self::counted_in(Arc::default())
    }
}

impl ModelRegistry {
    /// Creates a registry without profiles that records requests in `requests`.
    fn counted_in(requests: Arc<RequestsByProfile>) -> Self {
        let echo = Entry::built_in("echo", Arc::new(Echo), &requests);
        let extractive = Entry::built_in("extractive", Arc::new(Extractive), &requests);
        let built_in = [&echo, &extractive].map(|entry| (entry.link.profile.id.clone(), entry.clone()));
        Self {
            profiles: BTreeMap::new(),
            built_in: built_in.into(),
            default: None,
            echo,
            requests,
        }
    }
}

impl Models for ModelRegistry {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        let entry = match profile_id {
            None => self.default_entry(),
            Some(id) => {
                let Some(entry) = self.named(id) else {
                    let message = format!("no profile has the id `{id}`{}", self.nearest(id));
                    let profile = Profile {
                        id: id.to_owned(),
                        ..Profile::default()
                    };
                    return (Arc::new(profile), Arc::new(MissingProfile(message)));
                };
                entry
            }
        };
        (Arc::clone(&entry.link.profile), Arc::clone(&entry.served))
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
    fn built_in(id: &str, model: Arc<dyn Model>, requests: &Arc<RequestsByProfile>) -> Self {
        let profile = Profile {
            id: id.to_owned(),
            provider: id.to_owned(),
            ..Profile::default()
        };
        // The link is not metered: a profile that falls back to it records the request itself.
        Self {
            served: StructuredOutputModel::around(MeteredModel::around(Arc::clone(&model), id, requests)),
            link: Link::plain(profile, model),
        }
    }

    fn of(link: Link) -> Self {
        Self {
            served: StructuredOutputModel::around(Arc::clone(&link.model)),
            link,
        }
    }
}

/// Creates the link of a profile: its model and its policy.
fn link_of(
    profile: Profile,
    models: &ModelsByName,
    choose: Option<&Arc<ChooseKey>>,
) -> Result<Link, Vec<ProfileFault>> {
    if let Some(message) = profile.api_key_env.as_deref().and_then(variable_name_fault) {
        return Err(vec![ProfileFault::new(profile.id.as_str(), "/apiKeyEnv", message)]);
    }
    let is_in_code = models.contains_key(&profile.id) || models.contains_key(&profile.provider);
    let own: Option<&[&str]> = match profile.provider.as_str() {
        "scripted" => Some(&["responses"]),
        "echo" | "extractive" => Some(&[]),
        // Other built-in providers check their fields themselves.
        _ => None,
    };
    let own = own.filter(|_| !is_in_code);
    let mut faults = own.map_or_else(Vec::new, |own| policy::unknown_fields(&profile, own));
    let model = match model_of(&profile, models, choose) {
        Ok(model) if faults.is_empty() => model,
        failed => {
            faults.extend(failed.err().into_iter().flatten());
            return Err(faults);
        }
    };
    for warning in warnings(&profile) {
        tracing::warn!(%warning, "a profile");
    }
    let policy = CallPolicy::read(&profile, !is_in_code && is_remote(&profile.provider))?;
    Ok(Link {
        profile: Arc::new(profile),
        model,
        limiter: Limiter::new(policy.limits),
        policy: Arc::new(policy),
    })
}

/// Returns warnings about fields of a built-in provider's profile that are valid and have no effect.
#[cfg(feature = "providers")]
pub fn warnings(profile: &Profile) -> Vec<ProfileFault> {
    crate::providers::warnings(profile)
}

/// Returns no warnings: there are no providers.
#[cfg(not(feature = "providers"))]
pub fn warnings(_: &Profile) -> Vec<ProfileFault> {
    Vec::new()
}

#[cfg(feature = "providers")]
fn is_remote(provider: &str) -> bool {
    crate::providers::is_one(provider)
}

#[cfg(not(feature = "providers"))]
fn is_remote(_: &str) -> bool {
    false
}

/// Finds the model of a profile; `models` takes precedence over built-in providers of an equal name.
#[cfg_attr(not(feature = "providers"), allow(unused_variables))] // keys are for providers
fn model_of(
    profile: &Profile,
    models: &ModelsByName,
    choose: Option<&Arc<ChooseKey>>,
) -> Result<Arc<dyn Model>, Vec<ProfileFault>> {
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
        #[cfg(feature = "providers")]
        other if is_remote(other) => Ok(Arc::new(crate::Remote::with_keys(profile, choose.cloned())?)),
        other => {
            let names = ["echo", "extractive", "scripted"].into_iter();
            #[cfg(feature = "providers")]
            let names = names.chain(crate::providers::names());
            let names = names.map(str::to_owned);
            let names: std::collections::BTreeSet<String> = names.chain(models.keys().cloned()).collect();
            let near = nearest(other, names.iter().map(String::as_str))
                .or_else(|| provider_of(other).filter(|name| names.contains(*name)));
            let meant = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            Err(fault(
                "/provider",
                format!("unknown provider `{other}`; {meant}the providers are {names}"),
            ))
        }
    }
}

/// Returns the provider that serves the models of a company or a program, or that replaces a model in tests.
fn provider_of(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "claude" => "anthropic",
        "google" | "vertex" => "gemini",
        "azure" | "chatgpt" | "deepseek" | "gpt" | "groq" | "llama.cpp" | "lmstudio" | "mistral" | "openrouter"
        | "vllm" => "openai",
        "fake" | "mock" | "test" => "scripted",
        _ => return None,
    })
}
