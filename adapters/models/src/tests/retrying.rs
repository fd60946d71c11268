//! Tests of retries, limits, timeouts and fallbacks, on a virtual clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use pirn_actors::ports::{Model, ModelCall, Models, TokenSink, laid_over_profile};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_core::thread::ModelReply;
use pirn_definition::error::{RunError, RunErrorCode};
use serde_json::{Value, json};

use super::{Caller, profile};
use crate::ModelRegistry;

/// A scripted profile with additional fields.
fn scripted(id: &str, responses: &Value, more: &Value) -> Value {
    let mut profile = json!({"id": id, "provider": "scripted", "responses": responses});
    for (name, value) in more.as_object().into_iter().flatten() {
        profile[name] = value.clone();
    }
    profile
}

fn registry(profiles: impl IntoIterator<Item = Value>) -> ModelRegistry {
    ModelRegistry::new(profiles.into_iter().map(profile).collect()).expect("good profiles")
}

fn failing(kind: &str, more: &Value) -> Value {
    let mut error = json!({"message": format!("it is {kind}"), "kind": kind});
    for (name, value) in more.as_object().into_iter().flatten() {
        error[name] = value.clone();
    }
    json!({ "error": error })
}

/// Calls profile `a` once, as a thread does.
fn ask(registry: &ModelRegistry, caller: &Caller) -> Result<ModelReply, RunError> {
    let (profile, model) = registry.choose(Some("a"));
    let call = ModelCall {
        parameters: profile.parameters.clone().unwrap_or_default(),
        profile,
        ..caller.model_call(TokenSink::closed())
    };
    caller.run(&*model, call)
}

#[test]
fn a_transient_failure_is_retried_after_a_delay() {
    let responses = json!([failing("provider", &json!({})), failing("dropped", &json!({})), {"content": "there"}]);
    let registry = registry([scripted(
        "a",
        &responses,
        &json!({"retry": {"maxAttempts": 3, "initialDelayMs": 1000}}),
    )]);
    let caller = Caller::saying("x");
    assert_eq!(ask(&registry, &caller).expect("a reply").content, "there");
    let now = caller.host.host().now();
    assert!((1_500..=3_000).contains(&now), "half to all of 1 s and 2 s: {now}");
}

#[test]
fn retry_after_is_respected_up_to_the_maximum_delay() {
    let limited = |ms: u64| failing("rate_limited", &json!({"status": 429, "retryAfterMs": ms}));
    let retry = json!({"retry": {"maxAttempts": 2, "initialDelayMs": 10, "maxDelayMs": 20_000}});
    let good = registry([scripted("a", &json!([limited(15_000), {"content": "there"}]), &retry)]);
    let caller = Caller::saying("x");
    assert_eq!(ask(&good, &caller).expect("a reply").content, "there");
    assert!(caller.host.host().now() >= 15_000);

    let bad = registry([scripted("a", &json!([limited(20_001), {"content": "never"}]), &retry)]);
    let caller = Caller::saying("x");
    let error = ask(&bad, &caller).expect_err("it asks for too long");
    assert_eq!(caller.host.host().now(), 0);
    let failure = ModelFailure::of(&error);
    assert_eq!((failure.status, failure.retry_after), (Some(429), Some(20_001)));
}

#[test]
fn every_run_of_a_profile_without_limits_waits_for_retry_after() {
    let limited = failing("rate_limited", &json!({"status": 429, "retryAfterMs": 5_000}));
    let retry = json!({"retry": {"maxAttempts": 2, "initialDelayMs": 10}});
    let registry = registry([scripted(
        "a",
        &json!([limited, {"content": "1"}, {"content": "2"}]),
        &retry,
    )]);
    let caller = Caller::saying("x");
    let (profile, model) = registry.choose(Some("a"));
    let call = || {
        model.call(ModelCall {
            profile: Arc::clone(&profile),
            ..caller.model_call(TokenSink::closed())
        })
    };
    let mut first = call();
    let host = caller.host.host();
    let (reply, waited_until) = caller
        .host
        .block_on(async {
            assert!((&mut first).now_or_never().is_none());
            let reply = call().await;
            (reply, host.now())
        })
        .expect("they end");
    assert!(reply.is_ok());
    assert!(waited_until >= 5_000, "{waited_until}");
}

#[test]
fn the_error_names_every_profile_that_was_called() {
    let first = scripted(
        "a",
        &json!([failing("provider", &json!({})), failing("provider", &json!({}))]),
        &json!({"retry": {"maxAttempts": 2, "initialDelayMs": 1}, "fallback": ["b"]}),
    );
    let second = scripted("b", &json!([failing("key", &json!({"status": 401}))]), &json!({}));
    let error = ask(&registry([first, second]), &Caller::saying("x")).expect_err("both fail");
    assert_eq!(error.code, RunErrorCode::ModelError);
    assert_eq!(error.message, "profile `b`: it is key");
    let cause = error.cause.as_ref().expect("the first one's");
    assert_eq!(cause.message, "profile `a`: it is provider (2 attempts)");
    assert_eq!(cause.details.as_ref().expect("facts")["attempts"], 2);
}

#[test]
fn a_fallback_gets_the_parameters_of_the_node_and_a_separate_session() {
    let first = scripted(
        "a",
        &json!([failing("key", &json!({})), failing("key", &json!({}))]),
        &json!({"fallback": ["seen"], "parameters": {"temperature": 1, "only": "a", "equal": 7}}),
    );
    let second = json!({"id": "seen", "provider": "seer", "parameters": {"temperature": 0, "top": 5, "equal": 8}});
    let recorder = Arc::new(RecordingModel::default());
    let models = [("seer".to_owned(), Arc::clone(&recorder) as Arc<dyn Model>)].into();
    let profiles = [first, second].into_iter().map(profile).collect();
    let registry = ModelRegistry::with_models(profiles, &models).expect("good profiles");
    let caller = Caller::saying("x");
    let (own, model) = registry.choose(Some("a"));
    // One of the node's parameters equals that of the first profile.
    let of_node = json!({"node": true, "equal": 7})
        .as_object()
        .cloned()
        .expect("parameters");
    let call = ModelCall {
        parameters: laid_over_profile(&own, Some(&of_node)),
        own_parameters: of_node,
        profile: own,
        ..caller.model_call(TokenSink::closed())
    };
    caller.run(&*model, call).expect("the fallback's reply");
    let calls = recorder.calls.lock().unwrap();
    assert_eq!(calls[0].profile.id, "seen");
    assert_eq!(
        Value::Object(calls[0].parameters.clone()),
        json!({"temperature": 0, "top": 5, "node": true, "equal": 7})
    );
}

#[test]
fn a_call_that_takes_too_long_goes_to_the_fallback() {
    let first = scripted(
        "a",
        &json!([{"content": "late", "delayMs": 60_000}]),
        &json!({"timeouts": {"totalMs": 5_000}, "fallback": ["echo"]}),
    );
    let caller = Caller::saying("said");
    assert_eq!(ask(&registry([first]), &caller).expect("a reply").content, "said");
    assert_eq!(caller.host.host().now(), 5_000);
}

#[test]
fn usage_counts_once_for_the_profile_that_was_called() {
    let prices = json!({"prices": {"input": 1, "output": 1}, "fallback": ["b"]});
    let first = scripted("a", &json!([{"content": "here"}, failing("key", &json!({}))]), &prices);
    let second = scripted(
        "b",
        &json!([failing("key", &json!({}))]),
        &json!({"fallback": ["echo"]}),
    );
    let more = json!({"fallback": ["echo"]});
    let third = scripted("c", &json!([failing("key", &json!({}))]), &more);
    let registry = registry([first, second, third]);
    let caller = Caller::saying("said");
    let here = ask(&registry, &caller).expect("a reply").usage;
    assert!(here.cost.is_some());
    ask(&registry, &caller).expect_err("neither has a key");
    let (profile, model) = registry.choose(Some("c"));
    let call = ModelCall {
        profile,
        ..caller.model_call(TokenSink::closed())
    };
    let echoed = caller.run(&*model, call).expect("the built-in model's reply").usage;
    assert!(!echoed.is_nothing());
    let expected = [("a".to_owned(), here), ("echo".to_owned(), echoed)];
    let requests = registry.requests().into_iter();
    let spent = requests
        .filter(|(_, requests)| !requests.usage.is_nothing())
        .map(|(profile, requests)| (profile, requests.usage));
    assert_eq!(spent.collect::<BTreeMap<_, _>>(), expected.into());
    let failed = |profile: &str| -> Vec<Option<FailureKind>> {
        registry.requests()[profile].durations_ms.keys().copied().collect()
    };
    assert_eq!(
        (failed("b"), failed("echo")),
        (vec![Some(FailureKind::Key)], vec![None])
    );
}

#[test]
fn the_total_timeout_also_ends_retry_delays() {
    let responses: Vec<Value> = (0..9).map(|_| failing("provider", &json!({}))).collect();
    let more =
        json!({"timeouts": {"totalMs": 4_000}, "retry": {"maxAttempts": 9, "initialDelayMs": 1_000, "backoff": 1}});
    let caller = Caller::saying("x");
    let error = ask(&registry([scripted("a", &json!(responses), &more)]), &caller).expect_err("it never works");
    assert!(caller.host.host().now() <= 4_000);
    assert_eq!(
        ModelFailure::of(&error).kind,
        FailureKind::Provider,
        "what went wrong, not that time passed"
    );
}

#[test]
fn a_retry_restarts_the_streamed_reply() {
    let registry = registry([scripted(
        "a",
        &json!([failing("dropped", &json!({})), {"content": "one two"}]),
        &json!({"retry": {"maxAttempts": 2, "initialDelayMs": 1}}),
    )]);
    let said = Arc::new(Mutex::new(Vec::new()));
    let (pieces, again) = (Arc::clone(&said), Arc::clone(&said));
    let sink = TokenSink::new(move |piece| pieces.lock().unwrap().push(piece.to_owned()))
        .on_restart(move || again.lock().unwrap().push("|".to_owned()));
    let caller = Caller::saying("x");
    let (profile, model) = registry.choose(Some("a"));
    let call = ModelCall {
        profile,
        ..caller.model_call(sink)
    };
    caller.run(&*model, call).expect("a reply");
    assert_eq!(*said.lock().unwrap(), ["|", "one ", "two"]);
}

#[test]
fn concurrent_requests_stay_within_the_limit_of_the_profile() {
    let registry = slow(&json!({"limits": {"requestsAtOnce": 3}}));
    let caller = Caller::saying("x");
    let (profile, model) = registry.0.choose(Some("a"));
    let calls: Vec<_> = (0..10)
        .map(|_| {
            model.call(ModelCall {
                profile: Arc::clone(&profile),
                ..caller.model_call(TokenSink::closed())
            })
        })
        .collect();
    let replies = caller.host.block_on(join_all(calls)).expect("they end");
    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(registry.1.most.lock().unwrap().1, 3);
    assert_eq!(caller.host.host().now(), 4_000, "ten calls of a second, three at once");
}

#[test]
fn a_dropped_call_releases_its_slot() {
    let registry = slow(&json!({"limits": {"requestsAtOnce": 1}}));
    let caller = Caller::saying("x");
    let (profile, model) = registry.0.choose(Some("a"));
    let call = || {
        model.call(ModelCall {
            profile: Arc::clone(&profile),
            ..caller.model_call(TokenSink::closed())
        })
    };
    let (mut under_way, mut waiting, last) = (call(), call(), call());
    let reply = caller.host.block_on(async {
        assert!((&mut under_way).now_or_never().is_none());
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(under_way);
        last.await
    });
    assert!(reply.expect("it ends").is_ok());
    assert_eq!(caller.host.host().now(), 1_000);
}

#[test]
fn tokens_per_minute_are_limited_by_the_reported_usage() {
    let registry = slow(&json!({"limits": {"tokensPerMinute": 250}}));
    let caller = Caller::saying("x");
    let (profile, model) = registry.0.choose(Some("a"));
    let times: Vec<u64> = (0..5)
        .map(|_| {
            let call = ModelCall {
                profile: Arc::clone(&profile),
                ..caller.model_call(TokenSink::closed())
            };
            caller.run(&*model, call).expect("a reply");
            caller.host.host().now()
        })
        .collect();
    // A hundred tokens each, reported only at the end: the third exceeds the limit, so the fourth waits.
    assert_eq!(times, [1_000, 2_000, 3_000, 61_000, 62_000]);
}

#[test]
fn an_unknown_fallback_is_a_fault() {
    let profiles = vec![profile(scripted(
        "a",
        &json!([]),
        &json!({"fallback": ["echo", "nobody"]}),
    ))];
    let faults = ModelRegistry::new(profiles).expect_err("a fault");
    assert_eq!((faults.len(), faults[0].pointer.as_str()), (1, "/fallback/1"));
}

/// Records its requests.
#[derive(Default)]
struct RecordingModel {
    calls: Mutex<Vec<ModelCall>>,
}

impl Model for RecordingModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        self.calls.lock().unwrap().push(call);
        async { Ok(ModelReply::default()) }.boxed()
    }
}

/// A model that takes a second and a hundred tokens, and records the current and maximum number of concurrent calls.
#[derive(Default)]
struct Slow {
    most: Arc<Mutex<(usize, usize)>>,
}

impl Model for Slow {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let most = Arc::clone(&self.most);
        async move {
            {
                let mut most = most.lock().unwrap();
                most.0 += 1;
                most.1 = most.1.max(most.0);
            }
            call.clock.sleep(1_000).await;
            most.lock().unwrap().0 -= 1;
            Ok(ModelReply {
                usage: pirn_conversation::conversation::TokenUsage::new(60, 40, 100),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn slow(more: &Value) -> (ModelRegistry, Arc<Slow>) {
    let mut written = json!({"id": "a", "provider": "slow"});
    for (name, value) in more.as_object().into_iter().flatten() {
        written[name] = value.clone();
    }
    let slow = Arc::new(Slow::default());
    let models = [("slow".to_owned(), Arc::clone(&slow) as Arc<dyn Model>)].into();
    let registry = ModelRegistry::with_models(vec![profile(written)], &models).expect("good profiles");
    (registry, slow)
}
