//! SCRIPT nodes: host functions, recovery, limits, and scripts that try to break them.

mod documented;
mod host_functions;
mod hostile;
mod live;
mod plans;
mod recovery;

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Engine, EngineBuilder, EventType, Model, ModelCall, ModelReply, Role, RunError, RunErrorCode, TokenUsage};
use pirn_tests::world::{Ran, node, run_in, workflow};
use serde_json::{Value, json};

/// A model that repeats its prompt. `FAIL` in the prompt makes the call fail, `JSON` returns an object, and `SLOW n` waits.
#[derive(Clone, Default)]
pub(crate) struct Echo {
    prompts: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    pub(crate) fn prompts(&self) -> Vec<String> {
        self.prompts.lock().unwrap().clone()
    }
}

impl Model for Echo {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let mut messages = call.request.messages.iter().rev();
        let prompt = messages
            .find(|message| message.role == Role::User)
            .map(|message| message.content.clone());
        let prompt = prompt.unwrap_or_default();
        self.prompts.lock().unwrap().push(prompt.clone());
        let after = prompt
            .split_once("SLOW ")
            .and_then(|(_, ms)| ms.split(' ').next()?.parse().ok());
        let clock = call.clock.clone();
        async move {
            if let Some(after) = after {
                clock.sleep(after).await;
            }
            if prompt.contains("FAIL") {
                return Err(RunError::new(
                    RunErrorCode::ModelError,
                    format!("no answer to {prompt}"),
                ));
            }
            let content = if prompt.contains("JSON") {
                json!({ "of": prompt }).to_string()
            } else {
                format!("re: {prompt}")
            };
            Ok(ModelReply {
                content,
                usage: TokenUsage::new(10, 5, 15),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "called with `json!`")]
pub(crate) fn script(code: &str, config: Value) -> Value {
    let mut whole = json!({ "code": code });
    whole
        .as_object_mut()
        .unwrap()
        .extend(config.as_object().unwrap().clone());
    let nodes = [
        node("start", "START", json!({})),
        node("plan", "SCRIPT", whole),
        node("end", "END", json!({})),
    ];
    workflow("main", &nodes, &["start>plan>end"])
}

pub(crate) fn engine(echo: &Echo) -> EngineBuilder {
    Engine::builder()
        .virtual_time(Some(7))
        .model("default", Arc::new(echo.clone()))
        .model("other", Arc::new(echo.clone()))
}

/// Runs a script under virtual time. The run is then rebuilt from its recorded inputs.
#[track_caller]
pub(crate) fn runs(code: &str, config: Value, input: Value) -> Ran {
    run_in(engine(&Echo::default()), &script(code, config), input, Vec::new())
}

#[track_caller]
pub(crate) fn output(code: &str) -> Value {
    let ran = runs(code, json!({}), json!({ "n": 3 }));
    assert_eq!(ran.report.error, None);
    ran.report.output.clone()
}

/// Returns the log lines of the script.
pub(crate) fn notes(ran: &Ran) -> Vec<String> {
    let lines = ran.of(EventType::ScriptLog).into_iter();
    let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
    lines
        .map(|event| {
            let event = event.to_json();
            format!("{}: {}", text(event["level"].clone()), text(event["message"].clone()))
        })
        .collect()
}
