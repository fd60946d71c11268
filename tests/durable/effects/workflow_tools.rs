//! Workflows as tools and workflows that a model writes, across crashes and forks of runs.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, Store};
use serde_json::{Value, json};

use crate::durable::crashes::{crash_at_each_commit, uninterrupted};
use crate::durable::faults::external_effects::{Outside, RUN, answered};

fn line(id: &str, node: &Value) -> Value {
    json!({
        "id": id,
        "nodes": [{"id": "s", "type": "START"}, node, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": node["id"]}, {"from": node["id"], "to": "e"}],
    })
}

/// A script with two agents that call tools, and one after them.
const SCRIPT: &str = "const said = await parallel([1, 2].map(n => () => agent('say ' + n)));
    return said.concat(await agent('last'), await workflow('helper', { n: 3 }))";

/// Returns a workflow with a model that calls two workflows, and submits two graphs and a script in one reply.
fn bundle(consent: &str) -> String {
    let written = |prompt: &str| {
        let speak = json!({"id": "speak", "type": "LLM", "config": {"prompt": prompt, "tools": ["look"]}});
        json!({"graph": line("plan", &speak), "input": {"n": 1}})
    };
    let calls = json!([
        {"id": "a", "name": "helper", "arguments": {"n": 1}},
        {"id": "b", "name": "run_workflow", "arguments": written("rain")},
        {"id": "c", "name": "helper", "arguments": {"n": 2}},
        {"id": "d", "name": "run_workflow", "arguments": written("snow")},
        {"id": "e", "name": "run_workflow", "arguments": {"script": SCRIPT}},
    ]);
    let ask = json!({"id": "ask", "type": "LLM", "config": {
        "profileId": "script", "prompt": "go", "tools": ["run_workflow", "workflow:helper"],
        "dynamic": {"profiles": ["main"], "tools": ["look", "workflow:helper"], "consent": consent},
    }});
    let work = json!({"id": "work", "type": "CODE", "config": {"function": "work"}, "onError": {"targetNodeId": "e"}});
    json!({
        "workflows": [line("main", &ask), line("helper", &work)],
        "profiles": [{"id": "script", "provider": "scripted", "responses": [{"toolCalls": calls}, {"content": "done"}]}],
    })
    .to_string()
}

#[test]
fn the_children_of_tool_calls_run_once_in_a_run_that_is_killed_at_any_commit() {
    for consent in ["auto", "ask"] {
        let bundle = bundle(consent);
        let (whole, commits) = uninterrupted(&bundle);
        let report = &whole.reports[0];
        let threads = report["threads"].as_array().expect("a list");
        let workflows: Vec<_> = threads
            .iter()
            .filter_map(|thread| thread["workflowId"].as_str())
            .collect();
        assert_eq!(
            workflows.iter().filter(|id| **id == "helper").count(),
            3,
            "{workflows:?}"
        );
        if consent == "auto" {
            assert_eq!(
                workflows.iter().filter(|id| id.starts_with("plan@")).count(),
                2,
                "{workflows:?}"
            );
        }
        crash_at_each_commit(&bundle, (&whole, commits));
    }
}

/// Returns a workflow with a model that submits a graph of at most four agents. The graph calls a workflow seven times.
fn limited_bundle() -> String {
    let calls = |ids: std::ops::Range<u32>| -> Value {
        let call = |n| json!({"id": format!("c{n}"), "name": "helper", "arguments": {"n": n}});
        json!({"toolCalls": ids.map(call).collect::<Vec<_>>()})
    };
    let speak = json!({"id": "speak", "type": "LLM", "config": {"prompt": "go", "profileId": "caller", "tools": ["workflow:helper"]}});
    let written = json!({"id": "a", "name": "run_workflow", "arguments": {"graph": line("plan", &speak)}});
    let ask = json!({"id": "ask", "type": "LLM", "config": {
        "profileId": "script", "prompt": "go", "tools": ["run_workflow"],
        "dynamic": {"profiles": ["caller"], "tools": ["workflow:helper"], "consent": "auto", "limits": {"agents": 4}},
    }});
    let work = json!({"id": "work", "type": "CODE", "config": {"function": "work"}, "onError": {"targetNodeId": "e"}});
    json!({
        "workflows": [line("main", &ask), line("helper", &work)],
        "profiles": [
            {"id": "script", "provider": "scripted", "responses": [{"toolCalls": [written]}, {"content": "done"}]},
            {"id": "caller", "provider": "scripted", "responses": [calls(0..2), calls(2..7), {"content": "called"}]},
        ],
    })
    .to_string()
}

#[test]
fn a_submitted_workflow_that_is_killed_at_any_commit_starts_the_agents_of_its_limit() {
    let bundle = limited_bundle();
    let (whole, commits) = uninterrupted(&bundle);
    let threads = whole.reports[0]["threads"].as_array().expect("a list");
    let helpers = threads.iter().filter(|thread| thread["workflowId"] == "helper");
    assert_eq!(helpers.count(), 3, "the node is the first of four agents");
    crash_at_each_commit(&bundle, (&whole, commits));
}

/// Returns a workflow with a model that submits a workflow of at most four agents. Its agents, or a script of its model, call a workflow.
fn nested_bundle(submitted: &Value, responses: &Value) -> String {
    let call = json!({"id": "a", "name": "run_workflow", "arguments": submitted});
    let tools = ["workflow:helper", "run_code"];
    let ask = json!({"id": "ask", "type": "LLM", "config": {
        "profileId": "script", "prompt": "go", "tools": ["run_workflow", "run_code"],
        "dynamic": {"profiles": ["caller"], "tools": tools, "consent": "auto", "limits": {"agents": 4}},
    }});
    let work = json!({"id": "work", "type": "CODE", "config": {"function": "work"}, "onError": {"targetNodeId": "e"}});
    json!({
        "workflows": [line("main", &ask), line("helper", &work)],
        "profiles": [
            {"id": "script", "provider": "scripted", "responses": [{"toolCalls": [call]}, {"content": "done"}]},
            {"id": "caller", "provider": "scripted", "responses": responses},
        ],
    })
    .to_string()
}

#[test]
fn agents_below_a_submitted_workflow_that_is_killed_at_any_commit_count_once() {
    let helper = |n: u32| json!({"id": format!("c{n}"), "name": "helper", "arguments": {"n": n}});
    let agents = "const all = []
        for (let n = 0; n < 3; n++) all.push(await agent('call', { tools: ['workflow:helper'] }))
        return all";
    let calls = json!([{"toolCalls": [helper(0), helper(1)]}, {"content": "a"}, {"toolCalls": [helper(2), helper(3)]}, {"content": "b"}]);
    let code = "for (let n = 0; n < 9; n++) { try { await tools.helper({ n }) } catch (error) { console.log(error.message) } }";
    let llm =
        json!({"id": "speak", "type": "LLM", "config": {"prompt": "go", "tools": ["run_code", "workflow:helper"]}});
    let runs =
        json!([{"toolCalls": [{"id": "c", "name": "run_code", "arguments": {"code": code}}]}, {"content": "ran"}]);
    for (submitted, responses, expected) in [
        (json!({ "script": agents }), calls, 2),
        (json!({"graph": line("plan", &llm)}), runs, 3),
    ] {
        let bundle = nested_bundle(&submitted, &responses);
        let (whole, commits) = uninterrupted(&bundle);
        let threads = whole.reports[0]["threads"].as_array().expect("a list");
        let helpers = threads.iter().filter(|thread| thread["workflowId"] == "helper");
        assert_eq!(helpers.count(), expected, "{submitted}");
        crash_at_each_commit(&bundle, (&whole, commits));
    }
}

/// Calls tools at once and one after the other. Some need consent, some fail, and some are refused.
const CODE: &str = "const all = await parallel([1, 2, 3, 4].map(n => () => tools.look({ n })))
    const caught = async call => { try { return await call } catch (error) { return error.message } }
    const one = await caught(tools.look({ n: 5 }))
    console.log('listed', (await caught(tools.list({}))).length)
    return { all, one, helper: await tools.helper({ n: 6 }), last: await caught(tools.look({ n: 7 })) }";

/// Returns a workflow with a model that runs two scripts in one reply.
fn code_bundle() -> String {
    let call = |id: &str| json!({"id": id, "name": "run_code", "arguments": {"code": CODE}});
    let ask = json!({"id": "ask", "type": "LLM", "config": {
        "profileId": "script", "prompt": "go", "tools": ["run_code", "look", "list", "workflow:helper"],
    }});
    let work = json!({"id": "work", "type": "CODE", "config": {"function": "work"}, "onError": {"targetNodeId": "e"}});
    json!({
        "workflows": [line("main", &ask), line("helper", &work)],
        "profiles": [{"id": "script", "provider": "scripted",
            "responses": [{"toolCalls": [call("a"), call("b")]}, {"content": "done"}]}],
    })
    .to_string()
}

#[test]
fn the_calls_of_run_code_are_made_once_in_a_run_that_is_killed_at_any_commit() {
    let bundle = code_bundle();
    let (whole, commits) = uninterrupted(&bundle);
    let conversation = whole.reports[0]["conversation"].to_string();
    assert!(conversation.contains("Log:"), "{conversation}");
    assert!(
        !conversation.contains("is one of many"),
        "the list stays in the script: {conversation}"
    );
    assert!(whole.asked.len() >= 10, "{:?}", whole.asked);
    crash_at_each_commit(&bundle, (&whole, commits));
}

#[test]
fn a_run_forked_within_a_script_of_run_code_ends_as_its_base() {
    ends_as_its_base(&code_bundle(), 4);
}

#[test]
fn a_run_forked_before_or_after_a_child_ends_as_its_base() {
    ends_as_its_base(&bundle("auto"), 9);
}

/// Forks the run at each of its steps. Each fork has the messages and the number of children of its base.
fn ends_as_its_base(bundle: &str, expected: usize) {
    let outside = Outside::default();
    let store = MemoryStore::new();
    assert!(outside.play(bundle, &store));
    let roles = |report: &Value| -> Vec<Value> {
        let messages = report["conversation"]["messages"].as_array().expect("a list").iter();
        messages.map(|message| message["role"].clone()).collect()
    };
    let base = roles(&outside.known().reports[0]);
    let steps = block_on(store.run(RUN)).expect("is read").expect("exists").steps;
    assert!(steps > 3, "{steps}");
    for step in 0..=steps {
        let engine = outside.engine(bundle, store.clone()).build().expect("builds");
        let fork = block_on(engine.fork(RUN, step).make(format!("fork-{step}"))).expect("is made");
        // Which calls of `look` need consent depends on the id of the run: the questions of a fork are its own.
        let fork = fork.answers(answered, |question, refused| panic!("{question:?}: {refused}"));
        let run = block_on(fork.start()).expect("starts");
        let report = json!(*run.outcome_blocking());
        engine.shutdown_blocking(Duration::from_secs(5));
        assert_eq!(report["status"], "COMPLETED", "{step}: {report}");
        // The texts differ: they contain keys of effects, and these the id of the run.
        assert_eq!(roles(&report), base, "{step}");
        let children = report["threads"].as_array().expect("a list").len() - 1;
        assert_eq!(children, expected, "{step}: no child is missing or started twice");
    }
}
