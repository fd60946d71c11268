//! A model that records each request, every attempt included, for its profile: the reported usage, and the duration.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, ModelSession};
use pirn_conversation::conversation::{MessageRules, ModelRequest, TokenUsage};
use pirn_conversation::model_call::{CallBound, FailureKind, ModelFailure};
use pirn_core::thread::ModelReply;
use pirn_definition::Millis;
use pirn_definition::error::RunError;
use serde_json::{Map, Value};

/// Returns OpenTelemetry's name of a profile's provider.
pub fn conventional_provider(provider: &str) -> &str {
    match provider {
        "gemini" => "gcp.gemini",
        other => other,
    }
}

/// Number of bounds of a [`Distribution`].
const BOUNDS: usize = 14;

/// Upper bounds for tokens of one request: those of OpenTelemetry's `gen_ai.client.token.usage`, powers of 4.
pub const TOKEN_BOUNDS: [u64; BOUNDS] = powers(1, 4);

/// Upper bounds for durations in milliseconds: those of OpenTelemetry's `gen_ai.client.operation.duration`, 10 ms doubled.
pub const DURATION_BOUNDS_MS: [u64; BOUNDS] = powers(10, 2);

const fn powers(first: u64, base: u64) -> [u64; BOUNDS] {
    let mut bounds = [first; BOUNDS];
    let mut place = 1;
    while place < BOUNDS {
        bounds[place] = bounds[place - 1] * base;
        place += 1;
    }
    bounds
}

/// Counts of values by upper bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Distribution {
    /// Number of values above the previous bound and up to each bound; the last entry counts the values above all bounds.
    pub counts: [u64; BOUNDS + 1],
    /// Sum of the values.
    pub sum: u64,
}

impl Distribution {
    fn count(&mut self, bounds: &[u64; BOUNDS], value: u64) {
        self.counts[bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum = self.sum.saturating_add(value);
    }
}

/// Requests that the model of a profile has answered, or failed to. Cancelled requests are not counted.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelRequests {
    /// Reported usage.
    pub usage: TokenUsage,
    /// Tokens of each request, cached ones included, by [`TOKEN_BOUNDS`]. Requests without reported usage are not counted.
    pub input_tokens: Distribution,
    /// Tokens of each reply, reasoning included, by [`TOKEN_BOUNDS`]. Requests without reported usage are not counted.
    pub output_tokens: Distribution,
    /// Durations in milliseconds by [`DURATION_BOUNDS_MS`], without the time in the profile's queue. The key is the kind of the failure;
    /// `None` for answered requests.
    pub durations_ms: BTreeMap<Option<FailureKind>, Distribution>,
}

impl ModelRequests {
    fn count(&mut self, spent: TokenUsage, failure: Option<FailureKind>, duration: Millis) {
        if !spent.is_nothing() {
            self.usage.add(spent);
            self.input_tokens.count(&TOKEN_BOUNDS, spent.sent());
            self.output_tokens.count(&TOKEN_BOUNDS, spent.received());
        }
        let durations = self.durations_ms.entry(failure).or_default();
        durations.count(&DURATION_BOUNDS_MS, duration);
    }
}

/// Requests to the models of each profile, by profile id.
#[derive(Debug, Default)]
pub(super) struct RequestsByProfile(Mutex<BTreeMap<String, ModelRequests>>);

impl RequestsByProfile {
    pub(super) fn now(&self) -> BTreeMap<String, ModelRequests> {
        self.lock().clone()
    }

    fn add(&self, profile: &str, spent: TokenUsage, failure: Option<FailureKind>, duration: Millis) {
        let mut all = self.lock();
        // `entry` would allocate the id for each request.
        if let Some(known) = all.get_mut(profile) {
            return known.count(spent, failure, duration);
        }
        let known = all.entry(profile.to_owned()).or_default();
        known.count(spent, failure, duration);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ModelRequests>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct MeteredModel {
    inner: Arc<dyn Model>,
    profile: Arc<str>,
    requests: Arc<RequestsByProfile>,
}

impl MeteredModel {
    pub(super) fn around(inner: Arc<dyn Model>, profile: &str, requests: &Arc<RequestsByProfile>) -> Arc<dyn Model> {
        Arc::new(Self {
            inner,
            profile: profile.into(),
            requests: Arc::clone(requests),
        })
    }
}

impl Model for MeteredModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let (profile, requests) = (Arc::clone(&self.profile), Arc::clone(&self.requests));
        let clock = call.clock.clone();
        let began = clock.now();
        self.inner
            .call(call)
            .inspect(move |answered| {
                let (spent, failure) = match answered {
                    Ok(reply) => (reply.usage, None),
                    Err(error) => {
                        let failure = ModelFailure::of(error);
                        (failure.spent, Some(failure.kind))
                    }
                };
                requests.add(&profile, spent, failure, clock.now().saturating_sub(began));
            })
            .boxed()
    }

    fn answered(&self, request: &ModelRequest, session: &ModelSession) {
        self.inner.answered(request, session);
    }

    fn is_external(&self) -> bool {
        self.inner.is_external()
    }

    fn call_bound(&self, request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        self.inner.call_bound(request, parameters)
    }

    fn message_rules(&self) -> MessageRules {
        self.inner.message_rules()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_counts_once_with_its_tokens_and_its_duration() {
        let requests = RequestsByProfile::default();
        let failure = Some(FailureKind::RateLimited);
        requests.add("p", TokenUsage::new(4, 5, 9), None, 10);
        requests.add("p", TokenUsage::default(), failure, 11);
        requests.add("p", TokenUsage::new(70_000_000, 1, 70_000_001), None, 90_000);
        let known = requests.now();
        let of_profile = &known["p"];
        let counted = |of: &Distribution| -> Vec<(usize, u64)> {
            let counts = of.counts.iter().copied().enumerate();
            counts.filter(|(_, count)| *count > 0).collect()
        };
        assert_eq!(of_profile.usage.output, 6);
        assert_eq!(counted(&of_profile.input_tokens), [(1, 1), (14, 1)]);
        assert_eq!(
            (counted(&of_profile.output_tokens), of_profile.output_tokens.sum),
            (vec![(0, 1), (2, 1)], 6)
        );
        let answered = &of_profile.durations_ms[&None];
        assert_eq!((counted(answered), answered.sum), (vec![(0, 1), (14, 1)], 90_010));
        assert_eq!(counted(&of_profile.durations_ms[&failure]), [(1, 1)]);
    }

    #[test]
    fn the_bounds_are_those_of_the_conventions() {
        assert_eq!(TOKEN_BOUNDS[..4], [1, 4, 16, 64]);
        assert_eq!(TOKEN_BOUNDS[13], 67_108_864);
        assert_eq!(
            (DURATION_BOUNDS_MS[0], DURATION_BOUNDS_MS[1], DURATION_BOUNDS_MS[13]),
            (10, 20, 81_920)
        );
    }
}
