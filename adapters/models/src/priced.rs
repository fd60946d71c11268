//! A model with prices in its profile: reported usage includes the cost.

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, ModelSession};
use pirn_conversation::conversation::{MessageRules, ModelRequest, TokenUsage};
use pirn_conversation::model_call::{CallBound, ModelFailure, Prices};
use pirn_core::thread::ModelReply;
use pirn_definition::error::RunError;
use serde_json::{Map, Value};
use std::sync::Arc;

pub(super) struct PricedModel {
    inner: Arc<dyn Model>,
    prices: Prices,
}

impl PricedModel {
    pub(super) fn around(inner: Arc<dyn Model>, prices: Option<Prices>) -> Arc<dyn Model> {
        match prices {
            Some(prices) => Arc::new(Self { inner, prices }),
            None => inner,
        }
    }
}

impl Model for PricedModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let prices = self.prices;
        let with_cost = move |spent: TokenUsage| TokenUsage {
            // A custom model may report its actual cost.
            cost: spent.cost.or_else(|| Some(prices.of(&spent))),
            ..spent
        };
        self.inner
            .call(call)
            .map(move |answered| match answered {
                Ok(mut reply) => {
                    if let Some(cache) = &mut reply.cache {
                        cache.premium.get_or_insert(prices.premium());
                    }
                    Ok(ModelReply {
                        usage: with_cost(reply.usage),
                        ..reply
                    })
                }
                Err(error) => {
                    let spent = ModelFailure::of(&error).spent;
                    Err(if spent.is_nothing() {
                        error
                    } else {
                        ModelFailure::spending(error, with_cost(spent))
                    })
                }
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
        let bound = self.inner.call_bound(request, parameters);
        CallBound {
            prices: bound.prices.or(Some(self.prices)),
            ..bound
        }
    }

    fn message_rules(&self) -> MessageRules {
        self.inner.message_rules()
    }
}
