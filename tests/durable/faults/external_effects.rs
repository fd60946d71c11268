//! The outside world of a run: performs its effects, answers its questions and records its events. This record survives the run's
//! processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::Store;
use pirn::tools::{Verdict, tool_fn};
use pirn::{
    Engine, EngineBuilder, Event, EventType, Interaction, Model, ModelCall, ModelReply, ResumeError, Role, RunBuilder,
    RunError, RunReport, SubscriptionItem, TokenUsage, ToolCall, idempotency_key,
};
use serde_json::{Value, json};

pub(crate) const RUN: &str = "run-1";

/// Handle to the outside world that all processes of a run share.
#[derive(Clone, Default)]
pub(crate) struct Outside {
    known: Arc<Mutex<Known>>,
    /// Parking delay for [`EngineBuilder::park_after`].
    park_after: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// Number of executions of each effect, by its idempotency key.
    pub(crate) asked: BTreeMap<String, u32>,
    /// Every event delivered, by its sequence number, without its timestamp.
    pub(crate) events: BTreeMap<u64, Value>,
    /// Every outcome delivered, except those of a failed store.
    pub(crate) reports: Vec<Value>,
}

impl Outside {
    pub(crate) fn of(known: Known) -> Self {
        Self {
            known: Arc::new(Mutex::new(known)),
            park_after: None,
        }
    }

    /// Returns this world with runs that park whenever they wait.
    pub(crate) fn parking(self) -> Self {
        Self {
            park_after: Some(Duration::ZERO),
            ..self
        }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one execution of the current effect and returns its key and a pseudo-random number that depends only on the key.
    fn perform(&self) -> (String, u64) {
        let key = idempotency_key().expect("an effect has a key");
        *self.known().asked.entry(key.clone()).or_default() += 1;
        let chance = chance_of(&key);
        (key, chance)
    }

    pub(crate) fn engine(&self, bundle: &str, store: impl Store) -> EngineBuilder {
        let (work, look, note, notified) = (self.clone(), self.clone(), self.clone(), self.clone());
        let list = self.clone();
        let look = move |_: Value| {
            let (key, chance) = look.perform();
            let result = format!("looked {key}");
            std::future::ready(if chance.is_multiple_of(5) {
                Err(result)
            } else {
                Ok(result)
            })
        };
        Engine::builder()
            .park_after(self.park_after.unwrap_or(Duration::MAX))
            .virtual_time(None)
            .store(store)
            .workflows(bundle)
            .async_function("work", move |_| {
                let (key, chance) = work.perform();
                std::future::ready(if chance.is_multiple_of(4) {
                    Err("on purpose".to_owned())
                } else {
                    Ok(json!({ "did": key, "float": 0.1 + 0.2 }))
                })
            })
            .function("breaks", |_| panic!("on purpose"))
            .function("note", move |_| {
                let (key, chance) = note.perform();
                if chance.is_multiple_of(3) {
                    Err(format!("{key} failed"))
                } else {
                    Ok(Value::Null)
                }
            })
            .on_notification(move |_, _| drop(notified.perform()))
            .tool(tool_fn("look", "looks", json!({"type": "object"}), look))
            .tool(tool_fn(
                "list",
                "says much",
                json!({"type": "object"}),
                move |_: Value| {
                    let (key, _) = list.perform();
                    std::future::ready(Ok::<_, String>(format!("{key} is one of many. ").repeat(200)))
                },
            ))
            .approve_tools(|request| match chance_of(&request.call_id) % 3 {
                0 => Verdict::Ask("by chance".to_owned()),
                _ => Verdict::Allow,
            })
            .model("main", Arc::new(Speaker(self.clone())))
    }

    /// Adds the run to the store without an owner, for a process that executes it later.
    pub(crate) fn put(&self, bundle: &str, store: &(impl Store + Clone)) -> Result<(), ResumeError> {
        let engine = self.engine(bundle, store.clone()).build().expect("builds");
        let put = block_on(prepared(&engine).enqueue());
        engine.shutdown_blocking(Duration::from_secs(5));
        put.map(|id| assert_eq!(&*id, RUN))
    }

    /// Starts or resumes the run and executes it until it ends or its store fails. Returns true if the run has ended.
    pub(crate) fn play(&self, bundle: &str, store: &(impl Store + Clone)) -> bool {
        let engine = self.engine(bundle, store.clone()).build().expect("builds");
        let seen = self.known().events.keys().last().copied().unwrap_or_default();
        let there = block_on(store.run(RUN)).expect("is read");
        let (run, events) = match there {
            None => {
                let mut run =
                    prepared(&engine).answers(answered, |_, refused| assert_eq!(refused.code(), "STORE_ERROR"));
                let events = run.blocking_events(&[], 65_536);
                (run.start().expect("starts"), events)
            }
            // The run ended before its outcome was delivered, so the outcome is read from the store.
            Some(there) if there.status.is_final() => {
                let view = block_on(engine.view(RUN, None)).expect("is read");
                let later = view.events.iter().filter(|event| event.sequence > seen);
                later.for_each(|event| self.heard(event));
                self.known().reports.push(shown(&view.report));
                return true;
            }
            Some(_) => {
                let mut run = engine
                    .resume(RUN)
                    .answers(answered, |_, refused| assert_eq!(refused.code(), "STORE_ERROR"));
                let events = run.blocking_events_after(seen, &[], 65_536);
                (block_on(run.start()).expect("goes on"), events)
            }
        };
        engine.cancel_if_deadlocked(&run);
        let report = run.outcome_blocking();
        run.wait_all_ended_blocking();
        engine.shutdown_blocking(Duration::from_secs(5));
        for heard in events {
            match heard {
                SubscriptionItem::Event(event) => self.heard(&event),
                SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
            }
        }
        let failed = report
            .error
            .as_ref()
            .is_some_and(|error| error.code.as_str() == "STORE_ERROR");
        if !failed {
            self.known().reports.push(shown(&report));
        }
        !failed
    }

    fn heard(&self, event: &Event) {
        if event.raised.event_type == EventType::LlmToken {
            return;
        }
        let mut shown = event.to_json();
        shown["timestamp"] = Value::Null;
        let before = self.known().events.insert(event.sequence, shown.clone());
        assert_eq!(before, None, "event {} was told twice: {shown}", event.sequence);
    }
}

fn prepared(engine: &Engine) -> RunBuilder {
    let input = json!({"ticket": 7, "weight": 0.1});
    engine.run("main").run_id(RUN).input(input)
}

/// Returns a person's answer, which depends only on the question.
#[allow(clippy::unnecessary_wraps)] // as a run's questions are answered
pub(crate) fn answered(question: &Interaction) -> Option<Value> {
    Some(match (&question.tool, chance_of(&question.id) % 3) {
        (None, _) => json!(format!("answer to {}", question.id)),
        (Some(_), 0) => json!("allow"),
        (Some(_), 1) => json!({"decision": "allow", "arguments": {"edited": question.id}}),
        (Some(_), _) => json!({"decision": "refuse", "reason": question.id}),
    })
}

/// Returns the report without the fields that differ between two executions.
fn shown(report: &RunReport) -> Value {
    let mut shown = json!(report);
    for name in ["elapsedMs", "inDoubt", "repeated"] {
        if let Some(fields) = shown.as_object_mut() {
            fields.remove(name);
        }
    }
    for firing in shown["firings"].as_array_mut().into_iter().flatten() {
        firing["timestamp"] = Value::Null;
    }
    shown
}

/// A model that calls two tools, and replies with a string once they have answered.
struct Speaker(Outside);

impl Model for Speaker {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let (key, _) = self.0.perform();
        let is_listing = call.tools.iter().any(|tool| tool.name == "list");
        let tool = if is_listing { "list" } else { "look" }.to_owned();
        let tool_call = |number: u32| ToolCall {
            id: format!("{key}-{number}"),
            name: tool.clone(),
            arguments: json!({}),
        };
        let asks =
            call.request.messages.last().map(|message| message.role) != Some(Role::Tool) && !call.tools.is_empty();
        let reply = ModelReply {
            content: format!("says {key}"),
            tool_calls: if asks {
                vec![tool_call(1), tool_call(2)]
            } else {
                Vec::new()
            },
            // A call with a token limit has to report its usage.
            usage: match call.parameters.get("maxTokens") {
                Some(_) => TokenUsage::new(10, 20, 30),
                None => TokenUsage::default(),
            },
            ..ModelReply::default()
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

fn chance_of(text: &str) -> u64 {
    text.bytes().fold(7_u64, |sum, byte| mix(sum ^ u64::from(byte)))
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
