//! The idempotency keys of a retried node: one key for all attempts, even if the process ends between two of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::{self, BoxFuture, FutureExt};
use pirn::store::{MemoryStore, Store};
use pirn::{
    Engine, EngineBuilder, Model, ModelCall, ModelReply, Role, RunError, RunErrorCode, Tool, ToolCall, ToolSpec,
    WorkClock, idempotency_key,
};
use serde_json::{Value, json};

use crate::durable::faults::failing_store::{Crash, Failing};

/// The calls, each with its name and idempotency key.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(String, String)>>>);

impl Calls {
    /// Records the call, and fails the first `failures` calls of each name.
    fn call(&self, name: &str, failures: usize) -> Result<(), String> {
        let key = idempotency_key().expect("a call has one");
        let mut calls = self.0.lock().expect("no panic");
        calls.push((name.to_owned(), key));
        let so_far = calls.iter().filter(|(called, _)| called == name).count();
        if so_far <= failures {
            Err("busy".to_owned())
        } else {
            Ok(())
        }
    }

    fn keys_of(&self, name: &str) -> Vec<String> {
        let calls = self.0.lock().expect("no panic");
        let of = calls.iter().filter(|(called, _)| called == name);
        of.map(|(_, key)| key.clone()).collect()
    }
}

struct Speaker(Calls);

impl Model for Speaker {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let said = self.0.call("model", 2).map(|()| ModelReply {
            content: "done".to_owned(),
            ..ModelReply::default()
        });
        future::ready(said.map_err(|message| RunError::new(RunErrorCode::NodeFailed, message))).boxed()
    }
}

struct Order(Calls);

impl Tool for Order {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "order".to_owned(),
            description: "Orders".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(&self, _: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let said = self.0.call("tool", 2).map(|()| "ordered".to_owned());
        future::ready(said).boxed()
    }
}

fn retried(id: &str, kind: &str, config: &Value) -> Value {
    json!({"id": id, "type": kind, "config": config, "retry": {"maxAttempts": 3, "initialDelayMs": 1}})
}

fn line(nodes: &[Value]) -> String {
    let mut all = vec![json!({"id": "start", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "end", "type": "END"}));
    let ids: Vec<&Value> = all.iter().map(|node| &node["id"]).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": "main", "nodes": all, "edges": edges}).to_string()
}

/// Returns an engine whose function, tool and model succeed at the third attempt. A second node calls the tool again.
fn engine(calls: &Calls) -> EngineBuilder {
    let called = calls.clone();
    Engine::builder()
        .model("m", Arc::new(Speaker(calls.clone())))
        .tool(Arc::new(Order(calls.clone())))
        .async_function("pay", move |_| {
            future::ready(called.call("function", 2).map(|()| json!("paid")))
        })
        .workflows(line(&[
            retried("pay", "CODE", &json!({"function": "pay"})),
            retried("order", "TOOL", &json!({"tool": "order", "arguments": {"n": 1}})),
            retried("ask", "LLM", &json!({"prompt": "done?"})),
            retried("again", "TOOL", &json!({"tool": "order", "arguments": {"n": 1}})),
        ]))
}

fn assert_one_key_each(calls: &Calls, context: &str) {
    for name in ["function", "model"] {
        let keys = calls.keys_of(name);
        assert!(keys.len() >= 3, "{context}: {name}: {keys:?}");
        assert!(keys.iter().all(|key| *key == keys[0]), "{context}: {name}: {keys:?}");
    }
    let mut keys = calls.keys_of("tool");
    keys.dedup();
    assert_eq!(keys.len(), 2, "{context}: each node has its own: {keys:?}");
}

#[test]
fn all_attempts_of_a_node_share_one_idempotency_key() {
    let calls = Calls::default();
    let engine = engine(&calls).simulated(1).build().expect("builds");
    let report = engine
        .run("main")
        .run_id("r")
        .start()
        .expect("starts")
        .outcome_blocking();
    assert_eq!(report.output, json!("ordered"), "{:?}", report.error);
    assert_eq!(calls.keys_of("function").len(), 3);
    assert_one_key_each(&calls, "without a crash");
}

#[test]
fn attempts_before_and_after_a_crash_share_one_idempotency_key() {
    for number in 0..24 {
        for crash in [Crash::Before(number), Crash::After(number)] {
            let (calls, kept) = (Calls::default(), MemoryStore::new());
            let first = engine(&calls).store(Failing::new(kept.clone(), crash)).build();
            let first = first.expect("builds");
            let run = first.run("main").run_id("r").start();
            let ended = run.expect("starts").outcome_blocking();
            first.shutdown_blocking(Duration::from_secs(5));
            let in_store = block_on(kept.run("r")).expect("is read").map(|run| run.status);
            if in_store.is_some_and(|status| !status.is_final()) {
                let second = engine(&calls).store(kept).build().expect("builds");
                let report = block_on(second.resume("r").start())
                    .expect("goes on")
                    .outcome_blocking();
                assert_eq!(report.output, json!("ordered"), "{crash:?}: {:?}", report.error);
                second.shutdown_blocking(Duration::from_secs(5));
            } else if in_store.is_none() && ended.error.is_some() {
                // The first commit failed, so there is no run.
                continue;
            }
            assert_one_key_each(&calls, &format!("{crash:?}"));
        }
    }
}

/// A model that orders in its first reply, and again if the call had no result.
struct Orders;

impl Model for Orders {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let last = call.request.messages.last();
        let is_done = last.is_some_and(|message| message.role == Role::Tool && message.content == "ordered");
        let number = call.request.messages.len();
        let order = |n: u32| ToolCall {
            id: format!("c{number}-{n}"),
            name: "order".to_owned(),
            arguments: json!({ "n": n }),
        };
        let reply = ModelReply {
            content: "well".to_owned(),
            tool_calls: if is_done { Vec::new() } else { vec![order(1), order(2)] },
            ..ModelReply::default()
        };
        future::ready(Ok(reply)).boxed()
    }
}

/// A tool whose first call of each order stays pending.
struct Slow(Arc<Mutex<Vec<(Value, String)>>>);

impl Tool for Slow {
    fn spec(&self) -> ToolSpec {
        Order(Calls::default()).spec()
    }

    fn call(&self, arguments: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let key = idempotency_key().expect("a call has one");
        let mut calls = self.0.lock().expect("no panic");
        let is_first = calls.iter().all(|(before, _)| *before != arguments);
        calls.push((arguments, key));
        if is_first {
            future::pending().boxed()
        } else {
            future::ready(Ok("ordered".to_owned())).boxed()
        }
    }
}

#[test]
fn a_retried_tool_call_of_a_model_has_the_key_of_the_call_that_timed_out() {
    let calls = Arc::default();
    let mut ask = retried("ask", "LLM", &json!({"prompt": "order", "tools": ["order"]}));
    ask["timeoutMs"] = json!(1_000);
    let engine = Engine::builder()
        .model("m", Arc::new(Orders))
        .tool(Arc::new(Slow(Arc::clone(&calls))))
        .workflows(line(&[ask]))
        .simulated(1);
    let engine = engine.build().expect("builds");
    let report = engine
        .run("main")
        .run_id("r")
        .start()
        .expect("starts")
        .outcome_blocking();
    assert_eq!(report.output["content"], "well", "{:?}", report.error);
    let calls = calls.lock().expect("no panic");
    assert_eq!(calls.len(), 4);
    let keys_of = |n: u32| -> Vec<&String> {
        let of = calls.iter().filter(|(arguments, _)| *arguments == json!({ "n": n }));
        of.map(|(_, key)| key).collect()
    };
    let (first, second) = (keys_of(1), keys_of(2));
    assert_eq!(first[0], first[1]);
    assert_eq!(second[0], second[1]);
    assert_ne!(first[0], second[0], "other arguments are another call");
}
