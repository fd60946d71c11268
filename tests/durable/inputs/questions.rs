//! People's answers across processes: no answer is lost or used twice, and no work before a question is repeated.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use pirn::store::MemoryStore;
use pirn::tools::{Approval, ToolOptions, ToolRegistry, tool_fn};
use pirn::{AnswerRefused, Engine, InDoubt, RunHandle, ThreadStatus};
use serde_json::{Value, json};

/// Two branches, each with work and a question, followed by a node that fails the first time.
const BUNDLE: &str = r#"{"id": "main", "nodes": [
    {"id": "start", "type": "START"}, {"id": "fork", "type": "FORK", "config": {}},
    {"id": "prepare-a", "type": "CODE", "config": {"function": "prepare"}},
    {"id": "ask-a", "type": "USER_INTERACTION", "config": {"question": "A?"}},
    {"id": "prepare-b", "type": "CODE", "config": {"function": "prepare"}},
    {"id": "ask-b", "type": "USER_INTERACTION", "config": {"question": "B?"}},
    {"id": "join", "type": "JOIN", "config": {"joinStrategy": "ALL_COMPLETED"}},
    {"id": "act", "type": "CODE", "config": {"function": "act", "input": "output"}, "retry": {"maxAttempts": 2, "initialDelayMs": 1}},
    {"id": "end", "type": "END", "config": {"output": "nodes.act"}}],
  "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "prepare-a"}, {"from": "fork", "to": "prepare-b"},
    {"from": "prepare-a", "to": "ask-a"}, {"from": "ask-a", "to": "join"}, {"from": "prepare-b", "to": "ask-b"},
    {"from": "ask-b", "to": "join"}, {"from": "join", "to": "act"}, {"from": "act", "to": "end"}]}"#;

#[derive(Clone, Default)]
struct World {
    store: MemoryStore,
    prepared: Arc<AtomicU32>,
    acted: Arc<AtomicU32>,
}

impl World {
    fn engine(&self) -> Engine {
        let (prepared, acted) = (Arc::clone(&self.prepared), Arc::clone(&self.acted));
        let engine = Engine::builder()
            .virtual_time(None)
            .store(self.store.clone())
            .workflows(BUNDLE)
            .async_function("prepare", move |_| {
                prepared.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok(Value::Null))
            })
            .async_function("act", move |input: Value| {
                let first = acted.fetch_add(1, Ordering::Relaxed) == 0;
                let answers = input["outputs"].clone();
                std::future::ready(if first {
                    Err("on purpose".to_owned())
                } else {
                    Ok(answers)
                })
            });
        engine.build().expect("builds")
    }

    fn resumed(&self) -> (Engine, RunHandle) {
        let engine = self.engine();
        let run = block_on(engine.resume("run-1").start()).expect("goes on");
        engine.wait_idle();
        (engine, run)
    }
}

fn open(run: &RunHandle) -> Vec<(String, String)> {
    let open = block_on(run.interactions());
    open.into_iter()
        .map(|asked| (asked.node_id.to_string(), asked.id))
        .collect()
}

#[test]
fn an_answer_is_used_once_and_no_work_before_its_question_is_repeated() {
    let world = World::default();
    let first = world.engine();
    let run = first.run("main").run_id("run-1").start().expect("starts");
    first.wait_idle();
    let asked = open(&run);
    assert_eq!(
        asked.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(),
        ["ask-a", "ask-b"]
    );
    block_on(run.answer(&asked[1].1, json!("b"))).expect("is taken");
    first.wait_idle();
    drop((run, first));

    let (second, run) = world.resumed();
    assert_eq!(open(&run), asked[..1], "the one that was answered is not asked again");
    assert_eq!(
        block_on(run.answer(&asked[1].1, json!("other"))),
        Err(AnswerRefused::NotOpen)
    );
    block_on(run.answer(&asked[0].1, json!("a"))).expect("is taken");
    second.wait_idle();
    let report = run.try_outcome().expect("it ended");
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    let answers = ["prepare-a", "prepare-b"].map(|path| &report.output[path]["answer"]);
    assert_eq!(
        answers,
        [&json!("a"), &json!("b")],
        "what failed after them had both again"
    );
    assert_eq!(
        world.prepared.load(Ordering::Relaxed),
        2,
        "each branch went once through what led to its question"
    );
    assert_eq!(world.acted.load(Ordering::Relaxed), 2);
}

/// A model makes two calls that both wait for consent, and then replies.
const CONSENTS: &str = r#"{"workflows": [{"id": "main", "nodes": [
    {"id": "start", "type": "START"},
    {"id": "ask", "type": "LLM", "config": {"profileId": "script", "prompt": "go", "tools": ["delete"]}},
    {"id": "end", "type": "END"}],
  "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]}],
  "profiles": [{"id": "script", "provider": "scripted", "responses": [
    {"toolCalls": [{"id": "a", "name": "delete", "arguments": {"n": 1}}, {"id": "b", "name": "delete", "arguments": {"n": 2}}]},
    {"content": "done"}]}]}"#;

/// Returns an engine whose `delete` records its calls; a call in doubt fails.
fn consents(store: &MemoryStore, made: &Arc<Mutex<Vec<Value>>>) -> Engine {
    let made = Arc::clone(made);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let delete = tool_fn("delete", "Deletes", schema, move |given| {
        made.lock().expect("no panic").push(given);
        std::future::ready(Ok("deleted".to_owned()))
    });
    let options = ToolOptions {
        approval: Approval::Ask,
        in_doubt: Some(InDoubt::Fail),
        ..ToolOptions::default()
    };
    let mut tools = ToolRegistry::new();
    tools.register_with(delete, options);
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(CONSENTS)
        .tools(tools);
    engine.build().expect("builds")
}

#[test]
fn consent_is_requested_once_across_processes_and_its_call_is_made_once() {
    let (store, made) = (MemoryStore::default(), Arc::default());
    let first = consents(&store, &made);
    let run = first.run("main").run_id("run-1").start().expect("starts");
    first.wait_idle();
    let asked = block_on(run.interactions());
    assert_eq!(asked.len(), 2);
    let edited = json!({"decision": "allow", "arguments": {"n": 7}});
    block_on(run.answer(&asked[1].id, edited)).expect("is taken");
    first.wait_idle();
    drop((run, first));

    // No process owns the run: the answer is durable, and is used when the run resumes.
    let offline = consents(&store, &made);
    assert_eq!(
        block_on(offline.resume("run-1").interactions()).expect("is read"),
        asked[..1],
        "the one that was answered is not asked again, and the other has its id"
    );
    let wrong = json!({"decision": "allow", "arguments": {"n": "x"}});
    block_on(offline.resume("run-1").answer(None, &asked[0].id, wrong)).expect_err("it does not fit");
    block_on(offline.resume("run-1").answer(None, &asked[0].id, "allow")).expect("is taken");
    assert_eq!(*made.lock().expect("no panic"), [json!({"n": 7})]);
    drop(offline);

    let second = consents(&store, &made);
    let run = block_on(second.resume("run-1").start()).expect("goes on");
    second.wait_idle();
    let report = run.try_outcome().expect("it ended");
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    assert_eq!(*made.lock().expect("no panic"), [json!({"n": 7}), json!({"n": 1})]);
    assert_eq!(
        report.in_doubt.len(),
        0,
        "a call that was still to be allowed had not begun"
    );
}
