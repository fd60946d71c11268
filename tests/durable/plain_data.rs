//! Keys and values from outside are data, whatever their names. The written forms of a run have no duplicate keys, preserve the
//! run's own fields and can be read again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::export::{export, import};
use pirn::store::{MemoryStore, Store};
use pirn::tools::tool_fn;
use pirn::{
    Engine, EngineBuilder, Model, ModelCall, ModelReply, PinSection, Role, RunCommand, RunError, ThreadStatus, ToolCall,
};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

/// Names of Pirn's own fields, and names with a meaning in other formats and languages.
const NAMES: &[&str] = &[
    "type",
    "sequence",
    "timestamp",
    "runId",
    "workflowId",
    "threadId",
    "eventName",
    "triggerDepth",
    "data",
    "__proto__",
    "constructor",
    "toString",
    "id",
    "status",
    "at",
    "message",
    "event",
    "nodeId",
    "output",
    "error",
    "step",
    "body",
    "name",
    "",
    "a.b",
    "a/b",
    "~",
    "\u{0}",
    "$ref",
];

/// Returns every name with a value of each kind.
fn reserved() -> Value {
    let values = [
        json!("forged"),
        json!(7),
        json!(null),
        json!({"type": "forged", "n": [1]}),
        json!([{"id": 1}]),
    ];
    let named = NAMES.iter().zip(values.iter().cycle());
    Value::Object(named.map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

/// Accepts only JSON in which no object has a duplicate key.
struct NoDuplicateKey;

impl<'de> Deserialize<'de> for NoDuplicateKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Keys).map(|()| Self)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    /// Records and definitions are JSON strings nested in other JSON.
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok() {
            serde_json::from_str::<NoDuplicateKey>(text).map_err(E::custom)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<NoDuplicateKey>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = std::collections::BTreeSet::new();
        while let Some(key) = members.next_key::<String>()? {
            members.next_value::<NoDuplicateKey>()?;
            if let Some(twice) = seen.replace(key) {
                return Err(A::Error::custom(format!("the key `{twice}` twice")));
            }
        }
        Ok(())
    }
}

#[track_caller]
fn assert_no_duplicate_key(text: &str) {
    if let Err(error) = serde_json::from_str::<NoDuplicateKey>(text) {
        panic!("{error}: {text}");
    }
}

/// A model that calls a tool with reserved names as arguments, then replies with a string that has them too.
struct Speaker;

impl Model for Speaker {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let has_result = call.request.messages.last().map(|message| message.role) == Some(Role::Tool);
        let reply = if has_result {
            ModelReply {
                content: reserved().to_string(),
                ..ModelReply::default()
            }
        } else {
            let call = ToolCall {
                id: "c1".to_owned(),
                name: "echo".to_owned(),
                arguments: reserved(),
            };
            ModelReply {
                tool_calls: vec![call],
                ..ModelReply::default()
            }
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

fn engine(store: &MemoryStore) -> Engine {
    let bundle = json!({"id": "main",
        "variables": [{"name": "kept", "value": reserved(), "scope": "global"}],
        "nodes": [
            {"id": "start", "type": "START"},
            {"id": "f", "type": "CODE", "config": {"function": "reserved"}},
            {"id": "js", "type": "CODE", "config": {"code": "return {...input, made: JSON.parse(JSON.stringify(input))}"}},
            {"id": "set", "type": "VARIABLE", "config": {"variableName": "kept", "expression": "output", "scope": "global"}},
            {"id": "say", "type": "LLM", "config": {"profileId": "m", "prompt": "{{json input}}", "tools": ["echo"],
                "responseFormat": {"type": "json_object"}}},
            {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Who?"}},
            {"id": "go", "type": "WAIT", "config": {"event": "go"}},
            {"id": "more", "type": "USER_INTERACTION", "config": {"question": "More?"}},
            {"id": "end", "type": "END", "config": {"output": "({waited: nodes.go, said: nodes.ask.answer, kept})"}}],
        "edges": [{"from": "start", "to": "f"}, {"from": "f", "to": "js"}, {"from": "js", "to": "set"}, {"from": "set", "to": "say"},
            {"from": "say", "to": "ask"}, {"from": "ask", "to": "go"}, {"from": "go", "to": "more"}, {"from": "more", "to": "end"}],
        "triggers": [{"id": "seen", "condition": {"eventType": "CUSTOM", "eventName": "go", "expression": "event.type === 'CUSTOM' && event.data.type === 'forged'"},
            "action": {"type": "SET_VARIABLE", "parameters": {"variableName": "seen", "expression": "event", "scope": "global"}}}]});
    let builder: EngineBuilder = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(bundle.to_string());
    let echo = |arguments: Value| std::future::ready(Ok::<_, String>(arguments.to_string()));
    builder
        .function("reserved", |_| Ok(reserved()))
        .tool(tool_fn("echo", "echoes", json!({"type": "object"}), echo))
        .model("m", Arc::new(Speaker))
        .build()
        .expect("builds")
}

#[test]
fn no_external_key_is_confused_with_a_field_of_an_event_or_record() {
    let store = MemoryStore::new();
    let first = engine(&store);
    let mut run = first.run("main").run_id("r").input(reserved());
    let events = run.blocking_events(&[], 4_096);
    let run = run.start().expect("starts");
    run.pin(PinSection::Todo, reserved());
    first.wait_idle();
    let question = block_on(run.interactions()).remove(0);
    block_on(run.answer(&question.id, reserved())).expect("is taken");
    let Value::Object(data) = reserved() else {
        unreachable!("an object")
    };
    run.emit("go", data.clone());
    first.wait_idle();
    block_on(run.wait_durable()).expect("is durable");
    drop(run);
    first.shutdown_blocking(Duration::from_secs(5));

    for heard in events {
        let pirn::SubscriptionItem::Event(event) = heard else {
            panic!("events were missed")
        };
        let written = serde_json::to_string(&event).expect("JSON");
        assert_no_duplicate_key(&written);
        let shown = event.to_json();
        assert_eq!(shown, serde_json::from_str::<Value>(&written).expect("JSON"));
        assert_eq!(
            (&shown["runId"], &shown["sequence"]),
            (&json!("r"), &json!(event.sequence))
        );
        assert_eq!(shown["type"], json!(event.raised.event_type));
    }
    // The second event is raised while no process owns the run.
    let second = engine(&store);
    let emit = RunCommand::Emit {
        name: "type".to_owned(),
        data,
    };
    block_on(second.send_command("r", &emit)).expect("is kept");
    let resumed = block_on(second.resume("r").start()).expect("goes on");
    second.wait_idle();
    let question = block_on(resumed.interactions()).remove(0);
    block_on(resumed.answer(&question.id, reserved())).expect("is taken");
    let report = resumed.outcome_blocking();
    assert_eq!((report.status, &report.error), (ThreadStatus::Completed, &None));
    assert_no_duplicate_key(&serde_json::to_string(&*report).expect("JSON"));
    assert_eq!(report.output["waited"]["data"], reserved());
    assert_eq!(
        (&report.output["waited"]["type"], &report.output["waited"]["eventName"]),
        (&json!("CUSTOM"), &json!("go"))
    );
    assert_eq!(
        (&report.output["said"], &report.output["kept"]["id"]),
        (&reserved(), &reserved()["id"])
    );
    assert_eq!(
        report.variables["seen"]["data"],
        reserved(),
        "its trigger saw what is the event's and what is data"
    );

    let view = block_on(second.view("r", None)).expect("is read");
    for event in &view.events {
        assert_no_duplicate_key(&serde_json::to_string(event).expect("JSON"));
    }
    let mut file = Vec::new();
    block_on(export(&store, "r", &mut file)).expect("is exported");
    let text = String::from_utf8(file).expect("UTF-8");
    text.lines().for_each(assert_no_duplicate_key);
    let other = MemoryStore::new();
    block_on(import(&other, &mut text.as_bytes(), None)).expect("is imported");
    let third = engine(&other);
    let again = block_on(third.view("r", None)).expect("is read");
    assert_eq!(again.report.output, report.output);
    let told = |of: &pirn::RunView| of.events.iter().map(|event| event.to_json()).collect::<Vec<_>>();
    assert_eq!(told(&again), told(&view));
}

/// Fails if serde_json gives these keys a meaning. Any crate of the program can cause this by enabling a feature of serde_json.
#[test]
fn no_key_is_special_to_the_parser() {
    for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        let mut value = json!("[1,2]");
        for _ in 0..60 {
            value = json!({key: value.to_string()});
            let read: Value = serde_json::from_str(&value.to_string()).expect("JSON");
            assert_eq!(
                read, value,
                "a cargo feature (`raw_value`, `arbitrary_precision`) gives `{key}` a meaning"
            );
            if value.to_string().len() > 10_000 {
                break;
            }
        }
    }
}

/// Nesting depth that every record supports.
const MAX_LEVELS: usize = 100;

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inside, level| {
        if level % 2 == 0 {
            json!([inside])
        } else {
            json!({"a": inside})
        }
    })
}

/// A model that calls a tool with arguments of the given depth, then replies.
struct Deep(usize);

impl Model for Deep {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let has_result = call.request.messages.last().map(|message| message.role) == Some(Role::Tool);
        let arguments = json!({"a": deep(self.0 - 1)});
        let call = ToolCall {
            id: "c1".to_owned(),
            name: "echo".to_owned(),
            arguments,
        };
        let tool_calls = if has_result { Vec::new() } else { vec![call] };
        let reply = ModelReply {
            content: "said".to_owned(),
            tool_calls,
            ..ModelReply::default()
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

/// Passes a value of the given depth to a run through each input. Returns whether the run accepted it, and asserts that the
/// stored run can be read.
fn entered(levels: usize) -> BTreeMap<&'static str, Result<(), String>> {
    let mut taken = BTreeMap::new();
    for place in ["input", "event", "answer", "arguments", "function", "script", "work"] {
        let store = MemoryStore::new();
        let nodes: &[Value] = &match place {
            "event" => [json!({"type": "WAIT", "config": {"event": "go"}})],
            "answer" => [json!({"type": "USER_INTERACTION", "config": {"question": "What?"}})],
            "arguments" => [json!({"type": "LLM", "config": {"profileId": "m", "prompt": "Go", "tools": ["echo"]}})],
            "script" => [json!({"type": "CODE", "config": {"code":
                format!("let value = 1; for (let n = 0; n < {levels}; n++) value = [value]; return value")}})],
            "work" => [json!({"type": "CODE", "config": {"function": "work"}})],
            _ => [json!({"type": "CODE", "config": {"function": "function", "input": "{{input}}"}})],
        };
        let mut node = nodes[0].clone();
        node["id"] = json!("n");
        let bundle = json!({"id": "main",
            "nodes": [{"id": "s", "type": "START"}, node, {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}},
                {"id": "e", "type": "END", "config": {"output": "nodes.n"}}],
            "edges": [{"from": "s", "to": "n"}, {"from": "n", "to": "ask"}, {"from": "ask", "to": "e"}]});
        let echo = |_: Value| std::future::ready(Ok::<_, String>("echoed".to_owned()));
        let engine = || {
            let is_function = place == "function";
            Engine::builder()
                .virtual_time(None)
                .store(store.clone())
                .workflows(bundle.to_string())
                .function("function", move |_| {
                    Ok(if is_function { deep(levels) } else { json!(1) })
                })
                .async_function("work", move |_| std::future::ready(Ok(deep(levels))))
                .tool(tool_fn("echo", "echoes", json!({"type": "object"}), echo))
                .model("m", Arc::new(Deep(levels)))
                .build()
                .expect("builds")
        };
        let first = engine();
        let input = if place == "input" { deep(levels) } else { json!(1) };
        let started = first.run("main").run_id("r").input(input).start();
        let result = started.map_err(|error| error.to_string()).and_then(|run| {
            first.wait_idle();
            if place == "event" {
                let Value::Object(data) = json!({"a": deep(levels - 1)}) else {
                    unreachable!("an object")
                };
                let emit = RunCommand::Emit {
                    name: "go".to_owned(),
                    data,
                };
                block_on(first.send_command("r", &emit)).map_err(|error| error.to_string())?;
                first.wait_idle();
            }
            if place == "answer" {
                let question = block_on(run.interactions()).remove(0);
                block_on(run.answer(&question.id, deep(levels))).map_err(|error| error.to_string())?;
                first.wait_idle();
            }
            run.try_outcome().map_or(Ok(()), |report| {
                Err(report.error.as_ref().map_or_else(String::new, ToString::to_string))
            })
        });
        first.shutdown_blocking(Duration::from_secs(5));
        // Accepted or rejected: the stored run can be viewed, resumed and removed.
        if block_on(store.run("r")).expect("is read").is_some() {
            let second = engine();
            let view = block_on(second.view("r", None)).unwrap_or_else(|error| panic!("{place} {levels}: {error}"));
            let written = serde_json::to_string(&view.report).expect("JSON");
            assert!(
                serde_json::from_str::<Value>(&written).is_ok(),
                "{place} {levels}: the report"
            );
            if result.is_ok() {
                let run =
                    block_on(second.resume("r").start()).unwrap_or_else(|error| panic!("{place} {levels}: {error}"));
                second.wait_idle();
                let question = block_on(run.interactions()).remove(0);
                block_on(run.answer(&question.id, json!("yes"))).expect("is taken");
                assert_eq!(
                    run.outcome_blocking().status,
                    ThreadStatus::Completed,
                    "{place} {levels}"
                );
            }
        }
        taken.insert(place, result);
    }
    taken
}

#[test]
fn every_input_of_a_run_is_readable_again_or_refused_as_too_deep() {
    for (place, result) in entered(MAX_LEVELS - 2) {
        assert_eq!(result, Ok(()), "{place}");
    }
    for levels in [MAX_LEVELS + 1, 110, 118, 124, 127, 128, 140] {
        for (place, result) in entered(levels) {
            let refused = result.expect_err(place);
            assert!(refused.contains("more than 100 levels"), "{place}: {refused}");
        }
    }
}

#[test]
fn every_workflow_that_is_accepted_can_be_read_from_the_store() {
    let mut accepted = Vec::new();
    for levels in 112..=130 {
        let workflow = json!({"id": "main", "metadata": {"deep": deep(levels - 2)},
            "nodes": [{"id": "s", "type": "START"}, {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}},
                {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]});
        for file in [workflow.clone(), json!([workflow]), json!({"workflows": [workflow]})] {
            let store = MemoryStore::new();
            let engine = || {
                let builder = Engine::builder().virtual_time(None).store(store.clone());
                builder.workflows(file.to_string()).build()
            };
            let first = match engine() {
                Ok(engine) => engine,
                Err(error) => {
                    assert!(error.to_string().contains("levels deep"), "{levels}: {error}");
                    continue;
                }
            };
            accepted.push(levels);
            let _run = first.run("main").run_id("r").start().expect("starts");
            first.wait_idle();
            first.shutdown_blocking(Duration::from_secs(5));
            let second = engine().expect("builds again");
            block_on(second.view("r", None)).unwrap_or_else(|error| panic!("{levels}: {error}"));
            let run = block_on(second.resume("r").start()).unwrap_or_else(|error| panic!("{levels}: {error}"));
            second.wait_idle();
            let question = block_on(run.interactions()).remove(0);
            block_on(run.answer(&question.id, json!("yes"))).expect("is taken");
            assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed, "{levels}");
            let fork = block_on(second.fork("r", 0).make("f"));
            assert!(fork.is_ok(), "{levels}: {:?}", fork.err());
        }
    }
    // Both sides of the limit were exercised, in all three forms of a file.
    assert_eq!(accepted, (112..=120).flat_map(|levels| [levels; 3]).collect::<Vec<_>>());
}
