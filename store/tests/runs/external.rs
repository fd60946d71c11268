//! Simulated outside world, which performs effects. It survives the crash of the run's process.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::thread::{ConsentRequest, Effect, ModelReply, Outcome, PersonsAnswer, ToolResult};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::message::{Role, ToolCall};
use serde_json::{Value, json};

/// Performs effects and receives events. An effect is identified by its key and always has one outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receiver {
    /// Number of times that each effect was requested.
    pub(crate) asked: BTreeMap<String, u32>,
    /// All delivered events, in order.
    pub(crate) events: Vec<String>,
    /// All delivered outcomes of the run.
    pub(crate) reports: Vec<String>,
}

impl Receiver {
    /// Performs an effect. The outcome depends only on its key and the seed.
    pub(crate) fn perform(&mut self, key: &str, seed: u64, effect: &Effect) -> Outcome {
        *self.asked.entry(key.to_owned()).or_default() += 1;
        let chance = mix(key
            .bytes()
            .fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())));
        match effect {
            Effect::Function { .. } | Effect::Script { .. } if chance.is_multiple_of(4) => {
                Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "on purpose"))
            }
            Effect::Function { .. } | Effect::Script { .. } => {
                Outcome::Value(Arc::new(json!({ "did": key, "float": 0.1 + 0.2 })))
            }
            Effect::Model { request, .. } => Outcome::Reply(Box::new(reply(
                key,
                request.built().messages.last().map(|message| message.role),
            ))),
            Effect::Ask { .. } if chance.is_multiple_of(3) => answered(json!("refuse")),
            Effect::Ask { .. } => answered(json!({"decision": "allow", "arguments": {"by": key}})),
            Effect::Tool {
                call,
                is_consented: false,
                ..
            } if chance.is_multiple_of(3) => Outcome::NeedsConsent(Box::new(ConsentRequest {
                reason: "by chance".into(),
                arguments: call.arguments.clone(),
                schema: json!({}),
                timeout_ms: None,
            })),
            Effect::Tool { call, .. } => Outcome::Tool(Box::new(ToolResult {
                content: format!("{} did {key}", call.name),
                failed: chance.is_multiple_of(5),
                ..ToolResult::default()
            })),
            other => panic!("nobody does {other:?}"),
        }
    }
}

fn answered(answer: Value) -> Outcome {
    Outcome::Answered(PersonsAnswer {
        answer: Arc::new(answer),
        by: None,
        at: 0,
    })
}

/// Returns two tool calls at first, and a text after their results.
fn reply(key: &str, last: Option<Role>) -> ModelReply {
    let call = |number: u32| ToolCall {
        id: format!("{key}-{number}"),
        name: "look".to_owned(),
        arguments: Value::Null,
    };
    let tool_calls = if last == Some(Role::Tool) {
        Vec::new()
    } else {
        vec![call(1), call(2)]
    };
    ModelReply {
        content: format!("says {key}"),
        tool_calls,
        ..ModelReply::default()
    }
}

pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
