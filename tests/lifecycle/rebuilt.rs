//! Runs of generated workflows and of the shipped examples, rebuilt from what they were told. Every scenario that
//! `world::run_in` plays is rebuilt too.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pirn::config::ConfigText;
use pirn::tools::ToolRegistry;
use pirn::{Engine, EngineBuilder, Journal, Message, Role, RunBuilder, RunReport, ThreadStatus};
use pirn_tests::rebuilt::Recorder;
use pirn_tests::world::{code, forked, line, long_conversation, node, run_in, say, wait};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Something that one node does.
#[derive(Clone, Debug)]
enum Does {
    Script(u8),
    Throw,
    Assign(u8),
    Global(u8),
    Say(u8),
    Ask,
    Wait(u8),
    Call(&'static str),
    Compress,
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        3 => (0..9_u8).prop_map(Does::Script),
        1 => Just(Does::Throw),
        2 => (0..3_u8).prop_map(Does::Assign),
        2 => (0..3_u8).prop_map(Does::Global),
        2 => (0..9_u8).prop_map(Does::Say),
        2 => Just(Does::Ask),
        2 => (0..4_u8).prop_map(Does::Wait),
        2 => prop::sample::select(vec!["share", "fork", "none"]).prop_map(Does::Call),
        1 => Just(Does::Compress),
    ]
}

impl Does {
    fn node(&self, id: &str) -> Value {
        let variable = |n: &u8, scope: &str| {
            let config =
                json!({"variableName": format!("{scope}{n}"), "expression": format!("'{id}'"), "scope": scope});
            node(id, "VARIABLE", config)
        };
        match self {
            Self::Script(n) => code(id, &format!("return {n}")),
            Self::Throw => code(id, "throw new Error('on purpose')"),
            Self::Assign(n) => variable(n, "thread"),
            Self::Global(n) => variable(n, "global"),
            Self::Say(n) => say(id, &format!("text {n}")),
            Self::Ask => node(id, "LLM", json!({"profileId": "main", "prompt": "question"})),
            Self::Wait(n) => wait(id, u32::from(*n) * 5),
            Self::Call(mode) => node(id, "SUBGRAPH", json!({"subgraphId": "called", "conversation": mode})),
            Self::Compress => node(
                id,
                "CONTEXT_PROCESSOR",
                json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 2}}),
            ),
        }
    }
}

/// A fork of some branches, with triggers on what they do.
#[derive(Clone, Debug)]
struct Generated {
    branches: Vec<Vec<Does>>,
    strategy: &'static str,
    serial: bool,
    detach: bool,
    merge: &'static str,
    timeout: Option<u8>,
    waits: bool,
    triggers: bool,
}

fn generated() -> impl Strategy<Value = Generated> {
    let strategies = vec!["ALL_COMPLETED", "ANY_COMPLETED", "ALL_FAILED", "ANY_FAILED"];
    (
        prop::collection::vec(prop::collection::vec(does(), 1..4), 1..4),
        prop::sample::select(strategies),
        prop::sample::select(vec!["none", "main", "all"]),
        prop::option::of(0..4_u8),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(branches, strategy, merge, timeout, (serial, detach, waits, triggers))| Generated {
                branches,
                strategy,
                serial,
                detach,
                merge,
                timeout,
                waits,
                triggers,
            },
        )
}

impl Generated {
    fn bundle(&self) -> Value {
        let branch = |(no, does): (usize, &Vec<Does>)| -> Vec<Value> {
            let nodes = does.iter().enumerate();
            nodes
                .map(|(place, does)| does.node(&format!("n{no}x{place}")))
                .collect()
        };
        let branches: Vec<Vec<Value>> = self.branches.iter().enumerate().map(branch).collect();
        let mut join = json!({
            "joinStrategy": self.strategy,
            "mergeVariables": self.merge,
            "onDecided": if self.detach { "detach" } else { "cancel" },
        });
        if let Some(timeout) = self.timeout {
            join["timeout"] = json!(f64::from(timeout) * 0.004);
        }
        let mut main = forked(&branches, self.serial, &join);
        let trigger = |id: &str, event: &str, condition: &str| {
            json!({"id": id, "type": "EVENT", "condition": {"eventType": event, "expression": condition},
                "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {
                    "triggeredWorkflowId": "watcher", "waitForCompletion": self.waits}}})
        };
        if self.triggers {
            main["triggers"] = json!([
                trigger("said", "MESSAGE_ADDED", "event.index < 3"),
                trigger(
                    "done",
                    "NODE_COMPLETED",
                    "event.nodeId == 'n0x0' || event.nodeId == 'n1x1'"
                ),
            ]);
        }
        let watcher = json!({"id": "watcher", "nodes": [
                node("begin", "START_FROM_TRIGGER", json!({})),
                node("set", "VARIABLE", json!({"variableName": "thread0", "expression": "'watched'"})),
                wait("rest", 3),
                say("note", "watched"),
                node("back", "CONTINUE_FROM_TRIGGER", json!({
                    "variableCallback": {"includeVariables": ["thread0"]},
                    "conversationHistoryCallback": {"lastN": 1}})),
            ], "edges": [
                {"from": "begin", "to": "set"}, {"from": "set", "to": "rest"},
                {"from": "rest", "to": "note"}, {"from": "note", "to": "back"}]});
        let called = line("called", &[wait("w", 4), say("s", "called")]);
        json!({"workflows": [main, watcher, called], "profiles": [{"id": "main", "provider": "echo"}]})
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn generated_runs_are_rebuilt_from_what_they_were_told(generated in generated(), seed in 0..1_000_u64) {
        let said = vec![Message::new(Role::System, "You are kind."), Message::new(Role::User, "hello")];
        run_in(Engine::builder().virtual_time(Some(seed)), &generated.bundle(), json!({}), said);
    }
}

/// The text of a shipped file.
fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    std::fs::read_to_string(path).expect("the example is there")
}

#[test]
fn the_shipped_examples_are_rebuilt_from_what_they_were_told() {
    let examples: [(&[&str], &str, Value); 4] = [
        (
            &["support-fork.json", "topic-of.json"],
            "",
            json!({"ticket": "Never! My refund!"}),
        ),
        (&["topic-of.json"], "", json!({"ticket": "Where is it?"})),
        (
            &[
                "compression-002/main.json",
                "compression-002/002-compression-workflow.json",
                "compression-002/002-trigger.json",
            ],
            "long",
            json!({}),
        ),
        (
            &[
                "compression-003/main.json",
                "compression-003/003-compression-workflow.json",
                "compression-003/003-trigger.json",
            ],
            "long",
            json!({}),
        ),
    ];
    for (files, conversation, input) in examples {
        let mut builder = Engine::builder().virtual_time(Some(3));
        for file in files {
            builder = builder.workflows(example(file));
        }
        let first: Value = serde_json::from_str(&example(files[0])).expect("it is JSON");
        let id = first
            .pointer("/workflows/0/id")
            .or_else(|| first.get("id"))
            .and_then(Value::as_str);
        let messages = if conversation.is_empty() {
            Vec::new()
        } else {
            long_conversation()
        };
        let id = id.expect("it has an id");
        rebuilds(builder, |engine| engine.run(id).input(input).conversation(messages));
    }
}

#[test]
fn the_support_desk_is_rebuilt_with_its_tools_and_its_compression() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/support-desk");
    let config = ConfigText::read(folder.join("pirn.toml")).expect("it is there");
    let mut tools = ToolRegistry::new();
    tools.configure(config.tools().expect("tools"));
    let builder = Engine::builder()
        .virtual_time(Some(3))
        .profiles(config.profiles().expect("profiles"))
        .tools(tools)
        .workflows(example("support-desk/workflow.json"));
    let read = |name: &str| -> Value { serde_json::from_str(&example(&format!("support-desk/{name}"))).expect("JSON") };
    let messages: Vec<Message> = serde_json::from_value(read("conversation.json")).expect("messages");
    let report = rebuilds(builder, |engine| {
        let run = engine.run("support-desk").input(read("ticket.json"));
        run.conversation(messages)
            .pinned(serde_json::from_value(read("pinned.json")).expect("sections"))
    });
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    assert_eq!(report.firings.len(), 1, "it compressed once");
}

/// A workflow whose second node panics, in a thread of its own too.
#[test]
fn a_run_that_panicked_is_rebuilt_with_its_panics() {
    let panics = |id: &str| node(id, "CODE", json!({"function": "panics"}));
    let branches = [vec![say("s", "a"), panics("bad")], vec![say("t", "b"), wait("w", 5)]];
    let main = forked(&branches, false, &json!({"joinStrategy": "ANY_COMPLETED"}));
    let alone = line("alone", &[say("s", "kept"), panics("bad")]);
    for (workflow, status) in [(main, ThreadStatus::Completed), (alone, ThreadStatus::Failed)] {
        let id = workflow["id"].as_str().expect("an id").to_owned();
        let builder = Engine::builder()
            .virtual_time(Some(3))
            .function("panics", |_| panic!("on purpose"))
            .workflows(workflow.to_string());
        assert_eq!(rebuilds(builder, |engine| engine.run(&id)).status, status);
    }
}

/// Plays a run and rebuilds it.
fn rebuilds(builder: EngineBuilder, run: impl FnOnce(&Engine) -> RunBuilder) -> Arc<RunReport> {
    let recorder = Arc::new(Recorder::default());
    let journal = Arc::clone(&recorder) as Arc<dyn Journal>;
    let engine = builder.journal(journal).build().expect("the workflow is valid");
    let handle = run(&engine).start().expect("it is admitted");
    let report = handle.outcome_blocking();
    handle.settled_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    assert!(recorder.count() > 0);
    recorder.check(&engine);
    report
}
