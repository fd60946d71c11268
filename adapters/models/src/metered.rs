//! A model that records the reported usage of every attempt for its profile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, ModelSession};
use pirn_conversation::conversation::{MessageRules, ModelRequest, TokenUsage};
use pirn_conversation::model_call::{CallBound, ModelFailure};
use pirn_core::thread::ModelReply;
use pirn_definition::error::RunError;
use serde_json::{Map, Value};

/// Usage reported by the models of each profile, by profile id.
#[derive(Debug, Default)]
pub(super) struct UsageByProfile(Mutex<BTreeMap<String, TokenUsage>>);

impl UsageByProfile {
    pub(super) fn now(&self) -> BTreeMap<String, TokenUsage> {
        self.lock().clone()
    }

    fn add(&self, profile: &str, spent: TokenUsage) {
        if spent.is_nothing() {
            return;
        }
        let mut all = self.lock();
        match all.get_mut(profile) {
            Some(known) => known.add(spent),
            None => drop(all.insert(profile.to_owned(), spent)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TokenUsage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct MeteredModel {
    inner: Arc<dyn Model>,
    profile: Arc<str>,
    usage: Arc<UsageByProfile>,
}

impl MeteredModel {
    pub(super) fn around(inner: Arc<dyn Model>, profile: &str, usage: &Arc<UsageByProfile>) -> Arc<dyn Model> {
        Arc::new(Self {
            inner,
            profile: profile.into(),
            usage: Arc::clone(usage),
        })
    }
}

impl Model for MeteredModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let (profile, usage) = (Arc::clone(&self.profile), Arc::clone(&self.usage));
        self.inner
            .call(call)
            .inspect(move |answered| {
                let spent = match answered {
                    Ok(reply) => reply.usage,
                    Err(error) => ModelFailure::of(error).spent,
                };
                usage.add(&profile, spent);
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
