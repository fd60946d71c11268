//! Tests of the registry.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, Models};
use pirn_core::thread::ModelReply;
use pirn_definition::definition::Profile;
use pirn_definition::error::RunError;
use serde_json::{Value, json};

use super::{Caller, profile};
use crate::{Echo, Extractive, ModelRegistry, ModelsByName, ProfileFault, Scripted};

fn says(word: &str) -> Value {
    json!([{"content": word}, {"content": word}])
}

fn scripted(id: &str) -> Profile {
    profile(json!({"id": id, "provider": "scripted", "responses": says(id)}))
}

/// Returns the chosen profile, and its model's reply to "echoed".
fn chosen(registry: &ModelRegistry, id: Option<&str>) -> (String, String) {
    let (profile, model) = registry.choose(id);
    (profile.id.clone(), Caller::saying("echoed").content(&*model))
}

fn is(id: &str, said: &str) -> (String, String) {
    (id.to_owned(), said.to_owned())
}

#[test]
fn a_profile_is_found_by_its_id() {
    let registry = ModelRegistry::new(vec![scripted("a"), scripted("b")]).expect("good profiles");
    assert_eq!(chosen(&registry, Some("b")), is("b", "b"));
    assert!(!registry.is_offline());
}

#[test]
fn without_a_profile_the_default_profile_is_used() {
    let named = ModelRegistry::new(vec![scripted("z"), scripted("default"), scripted("a")]).expect("good profiles");
    let first = ModelRegistry::new(vec![scripted("z"), scripted("a")]).expect("good profiles");
    let none = ModelRegistry::default();
    assert_eq!(chosen(&named, None), is("default", "default"));
    assert_eq!(chosen(&first, None), is("z", "z"));
    assert_eq!(chosen(&none, None), is("echo", "echoed"));
    assert!(none.is_offline());
}

#[test]
fn a_call_to_an_unknown_profile_fails() {
    let some = ModelRegistry::new(vec![scripted("small"), scripted("default")]).expect("good profiles");
    for (registry, near) in [(&some, "; did you mean `small`?"), (&ModelRegistry::default(), "")] {
        let (profile, model) = registry.choose(Some("smal"));
        assert_eq!(profile.id, "smal");
        let error = Caller::saying("hi").call(&*model).expect_err("nobody answers");
        assert_eq!(error.message, format!("no profile has the id `smal`{near}"));
    }
}

#[test]
fn built_in_profiles_exist_unless_redefined() {
    let registry = ModelRegistry::new(vec![scripted("a"), scripted("echo")]).expect("good profiles");
    assert_eq!(chosen(&registry, Some("extractive")), is("extractive", "echoed"));
    assert_eq!(registry.choose(Some("extractive")).0.provider, "extractive");
    assert_eq!(chosen(&registry, Some("echo")), is("echo", "echo"));
}

#[test]
fn a_model_registered_in_code_serves_its_profile_and_its_provider() {
    let model = |word: &str| -> Arc<dyn Model> {
        Arc::new(
            Scripted::new(&profile(
                json!({"id": "c", "provider": "scripted", "responses": says(word)}),
            ))
            .unwrap(),
        )
    };
    let own = |id: &str| profile(json!({"id": id, "provider": "own", "model": "m"}));
    let models = ModelsByName::from([
        ("own".to_owned(), model("by provider")),
        ("b".to_owned(), model("by id")),
    ]);
    let mut registry = ModelRegistry::with_models(vec![own("a"), own("b")], &models).expect("known provider");
    assert_eq!(chosen(&registry, Some("a")), is("a", "by provider"));
    assert_eq!(chosen(&registry, Some("b")), is("b", "by id"));
    assert_eq!(registry.choose(Some("a")).0.model.as_deref(), Some("m"));

    registry.register("a", model("later"));
    assert_eq!(chosen(&registry, Some("a")), is("a", "later"));
    registry.register("new", model("new"));
    assert_eq!(chosen(&registry, Some("new")), is("new", "new"));
    assert_eq!(chosen(&registry, None), is("a", "later"));

    let mut empty = ModelRegistry::default();
    empty.register("mine", Arc::new(Extractive));
    assert_eq!(chosen(&empty, None).0, "mine");
    empty.register("default", Arc::new(Echo));
    assert_eq!(chosen(&empty, None).0, "default");
}

#[test]
fn a_registered_model_without_a_profile_gets_a_profile() {
    let models = ModelsByName::from([("mine".to_owned(), Arc::new(Extractive) as Arc<dyn Model>)]);
    let alone = ModelRegistry::with_models(Vec::new(), &models).expect("no profiles");
    assert_eq!(chosen(&alone, None).0, "mine", "where there is no other");
    assert!(!alone.is_offline());
    let written = json!({"id": "a", "provider": "scripted", "responses": says("a"), "fallback": ["mine"]});
    let beside = ModelRegistry::with_models(vec![profile(written)], &models).expect("a known fallback");
    assert_eq!(chosen(&beside, None), is("a", "a"));
    assert_eq!(chosen(&beside, Some("mine")).0, "mine");
}

#[test]
fn every_fault_of_the_profiles_is_reported_at_once() {
    let faults = ModelRegistry::new(vec![
        scripted("a"),
        scripted("a"),
        profile(json!({"id": "", "provider": "echo"})),
        profile(json!({"id": "b", "provider": "oracle"})),
        profile(json!({"id": "c", "provider": "scripted", "responses": [{"match": "["}]})),
        profile(json!({"id": "d", "provider": "extractive", "parameters": {"maxTokens": 0}})),
    ])
    .expect_err("faults");
    let found: Vec<(&str, &str)> = faults
        .iter()
        .map(|fault| (fault.profile.as_str(), fault.pointer.as_str()))
        .collect();
    let expected = [
        ("a", "/id"),
        ("", "/id"),
        ("b", "/provider"),
        ("c", "/responses/0/match"),
        ("d", "/parameters/maxTokens"),
    ];
    assert_eq!(found, expected);
    let said = faults.iter().map(ProfileFault::to_string).collect::<String>();
    assert!(said.contains("`oracle`") && said.contains("echo, extractive"), "{said}");
}

#[test]
fn the_bound_of_a_call_is_that_of_its_own_parameters_in_any_spelling() {
    for [of_profile, own] in [["maxTokens", "max_tokens"], ["max_tokens", "maxTokens"]] {
        let bounded = json!({"id": "a", "provider": "mine", "parameters": {of_profile: 9}, "fallback": ["b"]});
        let fallback = json!({"id": "b", "provider": "mine", "parameters": {of_profile: 8}});
        let models = [("mine".to_owned(), Arc::new(Plain) as Arc<dyn Model>)].into();
        let profiles = [bounded, fallback].into_iter().map(profile).collect();
        let registry = ModelRegistry::with_models(profiles, &models).expect("good profiles");
        let own = serde_json::Map::from_iter([(own.to_owned(), json!(70))]);
        let bound = |own| registry.bound_of(Some("a"), own).expect("a profile").output;
        assert_eq!(bound(&own), Some(70));
        assert_eq!(bound(&serde_json::Map::new()), Some(9));
    }
}

/// A model with the default bound.
struct Plain;

impl Model for Plain {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        std::future::ready(Ok(ModelReply::default())).boxed()
    }
}
