//! `scripted`: returns responses from its profile.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, ModelSession};
use pirn_conversation::conversation::{Estimator, ModelRequest, message_cost};
use pirn_conversation::model_call::{CallBound, FailureKind, FinishReason};
use pirn_core::thread::ModelReply;
use pirn_definition::Millis;
use pirn_definition::definition::{Profile, json_from_value, nearest};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::message::{Message, Role, ToolCall};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{finish, last_user_message};
use crate::ProfileFault;

/// Answers from a list, in order within a thread: each time with the first unused response with a `match` that matches the last
/// user message (pinned context is not one). If none remains, the call fails with `MODEL_ERROR`.
#[derive(Clone, Debug)]
pub struct Scripted {
    profile: Arc<str>,
    responses: Arc<[Response]>,
}

#[derive(Clone, Debug)]
struct Response {
    content: String,
    tool_calls: Vec<ToolCall>,
    pattern: Option<Regex>,
    delay: Millis,
    finish: FinishReason,
    error: Option<Value>,
}

impl Scripted {
    /// Reads `responses` of a profile.
    ///
    /// # Errors
    /// All responses that are not `{content?, toolCalls?, match?, delayMs?, finishReason?, error?}`, and all invalid `match`
    /// patterns.
    pub fn new(profile: &Profile) -> Result<Self, Vec<ProfileFault>> {
        let fault = |pointer: String, message: String| ProfileFault::new(profile.id.as_str(), pointer, message);
        let list = match profile.rest.get("responses") {
            Some(Value::Array(list)) => list,
            Some(_) => return Err(vec![fault("/responses".into(), "`responses` must be a list".into())]),
            None => {
                let message = "`scripted` needs `responses`, a list such as [{\"content\": \"Hello\"}]";
                return Err(vec![fault("/responses".into(), message.into())]);
            }
        };
        let mut faults = Vec::new();
        let mut responses = Vec::with_capacity(list.len());
        for (place, value) in list.iter().enumerate() {
            match Response::read(place, value) {
                Ok(response) => responses.push(response),
                Err((part, message)) => faults.push(fault(format!("/responses/{place}{part}"), message)),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            profile: profile.id.as_str().into(),
            responses: responses.into(),
        })
    }

    /// Takes the response for a request and marks it as used by the thread.
    fn next(&self, request: &ModelRequest, session: &ModelSession) -> Option<&Response> {
        let asked = last_user_message(request).map(|message| message.content.as_str());
        let wanted = |place: usize| {
            self.responses
                .get(place)
                .is_some_and(|response| match &response.pattern {
                    None => true,
                    Some(pattern) => asked.is_some_and(|text| pattern.is_match(text)),
                })
        };
        self.responses.get(session.take(self.responses.len(), wanted)?)
    }

    fn ran_out(&self) -> RunError {
        let count = self.responses.len();
        let message = format!(
            "profile `{}` has no response left that matches the request (of {count})",
            self.profile
        );
        let details = json!({ "profileId": &*self.profile, "noResponseLeft": true });
        RunError::new(RunErrorCode::ModelError, message).with_details(details)
    }
}

impl Model for Scripted {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        // Taken now rather than when the future is polled, so that the order of the calls determines it and not the executor.
        let response = self
            .next(&call.request, &call.session)
            .cloned()
            .ok_or_else(|| self.ran_out());
        async move {
            let response = response?;
            if response.delay > 0 {
                call.clock.sleep(response.delay).await;
            }
            match &response.error {
                Some(error) => Err(said_error(error)),
                None => Ok(ModelReply {
                    finish_reason: response.finish,
                    ..finish(&call, response.content, response.tool_calls)
                }),
            }
        }
        .boxed()
    }

    fn answered(&self, request: &ModelRequest, session: &ModelSession) {
        self.next(request, session);
    }

    /// The bound is the longest response.
    fn call_bound(&self, _: &ModelRequest, _: &Map<String, Value>) -> CallBound {
        let costs = self.responses.iter().map(|response| {
            let mut reply = Message::new(Role::Assistant, response.content.clone());
            reply.tool_calls.clone_from(&response.tool_calls);
            message_cost(&reply, &Estimator)
        });
        CallBound {
            output: Some(costs.max().unwrap_or_default()),
            prices: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<WrittenCall>,
    #[serde(rename = "match")]
    pattern: Option<String>,
    #[serde(default)]
    delay_ms: Millis,
    #[serde(default)]
    finish_reason: FinishReason,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCall {
    id: Option<String>,
    name: String,
    #[serde(default = "no_arguments")]
    arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(Map::new())
}

impl Response {
    fn read(place: usize, value: &Value) -> Result<Self, (&'static str, String)> {
        let written =
            json_from_value::<Written>(value.clone()).map_err(|error| ("", error.sentence("the response")))?;
        let kind = written.error.as_ref().and_then(|error| error.get("kind"));
        if let Some(kind) = kind.filter(|kind| FailureKind::deserialize(*kind).is_err()) {
            return Err(("/error/kind", unknown_kind(kind)));
        }
        let pattern = written.pattern.as_deref().map(Regex::new).transpose();
        // A call without an id gets one that is unique in this script.
        let call = |(index, call): (usize, WrittenCall)| ToolCall {
            id: call.id.unwrap_or_else(|| format!("call-{}-{}", place + 1, index + 1)),
            name: call.name,
            arguments: call.arguments,
        };
        Ok(Self {
            content: written.content.unwrap_or_default(),
            tool_calls: written.tool_calls.into_iter().enumerate().map(call).collect(),
            pattern: pattern.map_err(|error| ("/match", format!("not a regular expression: {error}")))?,
            delay: written.delay_ms,
            finish: written.finish_reason,
            error: written.error,
        })
    }
}

fn unknown_kind(kind: &Value) -> String {
    let words = FailureKind::ALL.map(FailureKind::as_str);
    let near = kind.as_str().and_then(|word| nearest(word, words.into_iter()));
    let help = near.map_or_else(
        || format!("the kinds are {}", words.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    format!("unknown kind of failure {kind}; {help}")
}

/// Parses `error`: a string, or an object with a `message` and further members as structured details.
fn said_error(error: &Value) -> RunError {
    match error {
        Value::String(text) => RunError::new(RunErrorCode::ModelError, text.as_str()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let message = error.get("message").and_then(Value::as_str);
            let message = message.map_or_else(|| error.to_string(), str::to_owned);
            RunError::new(RunErrorCode::ModelError, message).with_details(error.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_of_failure_is_refused_with_the_nearest_one() {
        let scripted = |kind: &Value| {
            let responses = json!([{"error": {"kind": kind, "message": "m"}}]);
            let profile = json!({"id": "p", "provider": "scripted", "responses": responses});
            Scripted::new(&json_from_value::<Profile>(profile).expect("a profile"))
        };
        for kind in FailureKind::ALL {
            assert!(scripted(&json!(kind.as_str())).is_ok(), "{kind:?}");
        }
        for (kind, message) in [
            (
                json!("rate_limitd"),
                "unknown kind of failure \"rate_limitd\"; did you mean `rate_limited`?",
            ),
            (json!("weather"), "the kinds are unreachable, key, rate_limited"),
            (json!(7), "unknown kind of failure 7"),
        ] {
            let faults = scripted(&kind).expect_err("is no kind");
            assert_eq!(faults[0].pointer, "/responses/0/error/kind");
            assert!(faults[0].message.contains(message), "{kind}: {}", faults[0].message);
        }
    }
}
