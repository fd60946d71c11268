//! `extractive`: summarizes its input without a language model: see [`pirn_conversation::conversation::extractive`].

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall};
use pirn_conversation::conversation::extractive::{Budget, summary};
use pirn_conversation::conversation::{Estimator, ModelRequest, message_cost};
use pirn_conversation::model_call::CallBound;
use pirn_core::thread::ModelReply;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::message::{Message, Role};
use serde_json::{Map, Value};

use super::finish;

/// Summarizes user, assistant and tool messages; system messages are excluded.
///
/// Parameters: `maxSentences` (default a third of the sentences, at most 8) and `maxTokens` (default 256).
#[derive(Clone, Copy, Debug, Default)]
pub struct Extractive;

impl Model for Extractive {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        async move {
            let budget = Budget::read(Some(&call.parameters))
                .map_err(|name| RunError::new(RunErrorCode::ModelError, Budget::wrong(name)))?;
            let said = call
                .request
                .messages
                .iter()
                .filter(|message| message.role != Role::System);
            let summary = summary(said.map(|message| message.content.as_str()), budget);
            Ok(finish(&call, summary, Vec::new()))
        }
        .boxed()
    }

    fn call_bound(&self, _: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        let budget = Budget::read(Some(parameters)).unwrap_or_default();
        let message = message_cost(&Message::new(Role::Assistant, String::new()), &Estimator);
        CallBound {
            output: Some(budget.most_tokens().saturating_add(message)),
            prices: None,
        }
    }
}
