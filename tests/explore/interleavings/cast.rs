//! The model, the tool and the functions of a scenario, and the violations that they notice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Engine, EngineBuilder, Message, Role};
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Model, ModelCall, Tool, ToolSpec};
use pirn_core::thread::ModelReply;
use pirn_definition::error::RunError;
use pirn_definition::message::ToolCall;
use serde_json::{Value, json};

/// Returns the content of a message without its padding.
pub(crate) fn unpadded(content: &str) -> String {
    content.split('~').next().unwrap_or_default().trim().to_owned()
}

/// Returns the contents of these messages without padding, with summaries expanded.
pub(crate) fn unpadded_all<'a>(contents: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    contents
        .into_iter()
        .flat_map(|content| match summarized(content) {
            Some(inner) => inner.split('|').map(str::to_owned).collect(),
            None => vec![unpadded(content)],
        })
        .filter(|unpadded| !unpadded.is_empty())
        .collect()
}

/// Returns the messages that a summary replaces.
pub(crate) fn summarized(content: &str) -> Option<&str> {
    content.strip_prefix("SUM[")?.strip_suffix(']')
}

/// Returns a summary that lists the messages it replaces, each once.
fn summary(messages: &[Arc<Message>]) -> String {
    let told = messages.iter().filter(|message| message.role != Role::System);
    let mut seen = BTreeSet::new();
    let mut said = unpadded_all(told.map(|message| message.content.as_str()));
    said.retain(|unpadded| seen.insert(unpadded.clone()));
    format!("SUM[{}]", said.join("|"))
}

/// Observations of the model and the functions.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    inner: Arc<Mutex<Noted>>,
}

#[derive(Default)]
struct Noted {
    wrong: Vec<String>,
    counted: BTreeMap<String, u64>,
    squeezing: BTreeMap<String, i64>,
}

impl Notes {
    fn with<T>(&self, then: impl FnOnce(&mut Noted) -> T) -> T {
        then(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the violated invariants.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.with(|noted| noted.wrong.clone())
    }

    /// Returns the number of calls of a CUSTOM trigger.
    pub(crate) fn counted(&self, id: &str) -> u64 {
        self.with(|noted| noted.counted.get(id).copied().unwrap_or_default())
    }

    /// Records that a detached compression of the thread starts (1) or ends (-1).
    fn squeezing(&self, input: &Value, change: i64) {
        let thread = input["threadId"].as_str().unwrap_or_default().to_owned();
        self.with(|noted| {
            let now = noted.squeezing.entry(thread).or_insert(0);
            *now += change;
            if !(0..=1).contains(now) {
                noted.wrong.push(format!("{now} compressions of one thread at once"));
            }
        });
    }

    /// Checks the invariants of every request that reaches the model.
    fn look_at(&self, messages: &[Arc<Message>]) {
        let mut wrong = Vec::new();
        if messages.first().is_none_or(|first| first.role != Role::System) {
            wrong.push(format!("no system message first: {messages:?}"));
        }
        let mut open: Vec<&str> = Vec::new();
        for message in messages {
            if message.role == Role::Tool {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                match open.iter().position(|call| *call == id) {
                    Some(place) => drop(open.remove(place)),
                    None => wrong.push(format!("the result {id} has no call before it")),
                }
            } else {
                if !open.is_empty() {
                    wrong.push(format!("{open:?} have no result"));
                }
                open = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
            }
        }
        let mut seen = BTreeSet::new();
        for message in messages.iter().filter(|message| summarized(&message.content).is_none()) {
            let unpadded = unpadded(&message.content);
            if !seen.insert(unpadded.clone()) {
                wrong.push(format!("{unpadded} was sent twice"));
            }
        }
        self.with(|noted| noted.wrong.extend(wrong));
    }
}

/// Returns a builder with the model, the tool and the functions, under virtual time.
pub(crate) fn engine(seed: u64, notes: &Notes) -> EngineBuilder {
    let (marks, ends, fails, breaks, counts) = (
        notes.clone(),
        notes.clone(),
        notes.clone(),
        notes.clone(),
        notes.clone(),
    );
    Engine::builder()
        .virtual_time(Some(seed))
        .model("m", Arc::new(Teller { notes: notes.clone() }))
        .tool(Arc::new(Note))
        .function("noop", |_| Ok(Value::Null))
        .function("panics", |_| panic!("on purpose"))
        .function("fails", move |input| {
            if input.get("markMap").is_some() && input.get("triggerId").is_none() {
                fails.squeezing(input, -1);
            }
            Err("on purpose".to_owned())
        })
        .function("mark", move |input| {
            marks.squeezing(input, 1);
            Ok(Value::Null)
        })
        .function("squeeze", move |input| {
            ends.squeezing(input, -1);
            let messages: Vec<Arc<Message>> =
                serde_json::from_value(input["messages"].clone()).map_err(|error| error.to_string())?;
            let (system, _): (Vec<_>, Vec<_>) = messages.iter().partition(|message| message.role == Role::System);
            let mut shown: Vec<Message> = system.into_iter().map(|message| (**message).clone()).collect();
            shown.push(Message::new(Role::User, summary(&messages)));
            Ok(json!({"messages": shown, "markMap": input["markMap"],
                "stats": {"originalCount": messages.len(), "compressedCount": shown.len(), "tokensSaved": 0}}))
        })
        .function("broken", move |input| {
            breaks.squeezing(input, -1);
            let marks =
                json!({"originalIndices": [], "batchBoundaries": [99], "boundaryToBatch": [3], "currentBatch": 7});
            Ok(json!({"messages": [], "markMap": marks,
                "stats": {"originalCount": 1, "compressedCount": 0, "tokensSaved": 9}}))
        })
        .function("count", move |input| {
            let id = input["parameters"]["id"].as_str().unwrap_or_default().to_owned();
            counts.with(|noted| *noted.counted.entry(id).or_insert(0) += 1);
            Ok(Value::Null)
        })
}

/// A model that answers `ask X` with `re X`, `tool X` with a tool call first, and `squeeze` with a summary.
struct Teller {
    notes: Notes,
}

impl Model for Teller {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let notes = self.notes.clone();
        async move {
            let delay = call.parameters.get("delayMs").and_then(Value::as_u64);
            call.clock.sleep(delay.unwrap_or_default()).await;
            let messages = &call.request.messages;
            notes.look_at(messages);
            let asked = messages.iter().rev().find(|message| message.role == Role::User);
            let asked = asked.map_or_else(String::new, |message| unpadded(&message.content));
            let was_called = messages.last().is_some_and(|last| last.role == Role::Tool);
            if asked == "squeeze" {
                let told = &messages[..messages.len() - 1];
                return Ok(say(summary(told)));
            }
            if asked.starts_with("tool") && !was_called {
                let id = asked.replace(' ', "-");
                let call = ToolCall {
                    id: id.clone(),
                    name: "note".to_owned(),
                    arguments: json!({"what": asked}),
                };
                return Ok(ModelReply {
                    tool_calls: vec![call],
                    ..say(format!("call {asked}"))
                });
            }
            Ok(say(format!("re {asked}")))
        }
        .boxed()
    }
}

fn say(content: String) -> ModelReply {
    ModelReply {
        content,
        ..ModelReply::default()
    }
}

struct Note;

impl Tool for Note {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "note".to_owned(),
            description: "Notes something.".to_owned(),
            parameters: json!({"type": "object", "properties": {"what": {"type": "string"}}}),
        }
    }

    fn call(&self, arguments: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        async move {
            clock.sleep(4).await;
            Ok(format!("noted {}", arguments["what"].as_str().unwrap_or_default()))
        }
        .boxed()
    }

    fn is_external(&self) -> bool {
        false
    }
}
