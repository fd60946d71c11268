//! `echo`: repeats the last user message.

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall};
use pirn_conversation::conversation::ModelRequest;
use pirn_conversation::model_call::CallBound;
use pirn_core::thread::ModelReply;
use pirn_definition::error::RunError;
use serde_json::{Map, Value};

use super::{finish, last_user_message};

/// Repeats the last user message, which excludes pinned context. Without one the reply is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Model for Echo {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        async move {
            let content = last_user_message(&call.request).map_or_else(String::new, |message| message.content.clone());
            Ok(finish(&call, content, Vec::new()))
        }
        .boxed()
    }

    /// The request bounds the length of the reply.
    fn call_bound(&self, request: &ModelRequest, _: &Map<String, Value>) -> CallBound {
        CallBound {
            output: Some(request.tokens),
            prices: None,
        }
    }
}
