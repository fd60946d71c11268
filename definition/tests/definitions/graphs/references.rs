//! References between workflows: cases M12 to M14, cycles, declared sub-workflows.

use std::collections::BTreeSet;

use pirn_definition::definition::{FaultCode, SourceFile, load};
use pirn_definition::graph::{CompileContext, compile, compile_loaded};
use serde_json::{Value, json};

use crate::definitions::fixtures::{build, codes, codes_of, flow, node, shown, the_fault};

/// A workflow that calls others one after another.
fn caller(id: &str, called: &[&str]) -> Value {
    let mut nodes = vec![node("s", "START")];
    let mut edges = Vec::new();
    let mut last = "s".to_owned();
    for (place, target) in called.iter().enumerate() {
        let id = format!("call{place}");
        nodes.push(json!({"id": id, "type": "SUBGRAPH", "config": {"subgraphId": target}}));
        edges.push(format!("{last}>{id}"));
        last = id;
    }
    nodes.push(node("e", "END"));
    edges.push(format!("{last}>e"));
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    let mut file = flow(&Value::Array(nodes), &edges);
    file["id"] = json!(id);
    file
}

fn triggered(id: &str) -> Value {
    let nodes = json!([
        node("first", "START_FROM_TRIGGER"),
        node("last", "CONTINUE_FROM_TRIGGER")
    ]);
    let mut file = flow(&nodes, &["first>last"]);
    file["id"] = json!(id);
    file
}

#[test]
fn m12_m13_a_subgraph_refers_to_an_existing_workflow() {
    let compiled = build(caller("main", &["missing"]).to_string());
    let fault = the_fault(&compiled.faults, FaultCode::UnknownWorkflowReference);
    assert_eq!(fault.pointer, "/nodes/1/config/subgraphId", "M12");
    assert_eq!(codes_of(&caller("main", &[""])), ["MISSING_FIELD"], "M13");
    assert!(codes_of(&json!([caller("main", &["other"]), caller("other", &[])])).is_empty());
}

#[test]
fn m14_calls_nest_up_to_max_depth() {
    let chain = |length: usize| -> Value {
        let called = |place: usize| format!("w{}", place + 1);
        let mut all: Vec<Value> = (0..length)
            .map(|place| caller(&format!("w{place}"), &[&called(place)]))
            .collect();
        all.push(caller(&format!("w{length}"), &[]));
        Value::Array(all)
    };
    assert!(codes_of(&chain(10)).is_empty(), "M14: ten deep is allowed");
    assert_eq!(codes_of(&chain(11)), ["LIMIT_EXCEEDED"], "M14");
    let mut raised = chain(11);
    raised[0]["config"] = json!({"maxDepth": 11});
    assert!(codes_of(&raised).is_empty(), "M14: the limit can be raised");
}

#[test]
fn call_cycles_are_reported_with_their_path() {
    let compiled = build(json!([caller("a", &["b"]), caller("b", &["c"]), caller("c", &["a"])]).to_string());
    let fault = the_fault(&compiled.faults, FaultCode::SubgraphCycle);
    assert!(fault.message.contains("a -> b -> c -> a"), "{}", fault.message);
    assert!(codes_of(&caller("a", &["a"])).contains(&"SUBGRAPH_CYCLE"));
    let diamond = json!([
        caller("a", &["b", "c"]),
        caller("b", &["d"]),
        caller("c", &["d"]),
        caller("d", &[])
    ]);
    assert!(codes_of(&diamond).is_empty(), "two ways to one workflow are no circle");
}

#[test]
fn a_cycle_through_a_trigger_is_not_a_call_cycle() {
    let mut main = caller("main", &["other"]);
    main["triggers"] = json!([{"id": "t", "condition": {"eventType": "THREAD_COMPLETED"},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "main"}}}]);
    assert!(codes_of(&json!([main, caller("other", &[])])).is_empty());
}

#[test]
fn a_subgraph_without_edges_declares_a_triggered_workflow() {
    let declaring = |target: &str, edges: &[&str]| {
        let nodes = json!([node("s", "START"), node("e", "END"),
            {"id": "later", "type": "SUBGRAPH", "config": {"subgraphId": target}}]);
        let mut main = flow(&nodes, &[&["s>e"], edges].concat());
        main["id"] = json!("main");
        build(json!([main, triggered("tidy"), caller("normal", &[])]).to_string())
    };
    let alone = declaring("tidy", &[]);
    assert!(
        alone.faults.is_empty() && alone.warnings.is_empty(),
        "{}",
        shown(&alone.faults)
    );
    let drawn = declaring("tidy", &["s>later"]);
    assert!(drawn.faults.is_empty(), "{}", shown(&drawn.faults));
    assert_eq!(drawn.warnings[0].code.as_str(), "IGNORED_EDGE");
    let graph = &drawn.graphs[0];
    assert_eq!(graph.node(graph.start).edges.len(), 1, "no thread takes the edge");
    assert_eq!(
        codes(&declaring("normal", &["s>later"])),
        ["INVALID_TRIGGERED_WORKFLOW"]
    );
    assert_eq!(codes(&declaring("nowhere", &[])), ["UNKNOWN_WORKFLOW_REFERENCE"]);
    assert_eq!(
        codes(&declaring("tidy", &["s>later", "later>e"])),
        ["INVALID_TRIGGERED_WORKFLOW"],
        "it cannot be called"
    );
}

#[test]
fn workflows_in_several_files_and_registered_workflows_resolve() {
    let first = load(&SourceFile::new("first.json", caller("main", &["other"]).to_string()));
    let second = load(&SourceFile::new("second.json", caller("other", &[]).to_string()));
    let other = compile(&second.workflows, &[], &CompileContext::default())
        .into_result()
        .expect("valid");
    let context = CompileContext {
        registered: &other,
        first_uid: 7,
        ..CompileContext::default()
    };
    let main = compile(&first.workflows, &[], &context)
        .into_result()
        .expect("the earlier one is known");
    assert_eq!(main[0].uid, 7);
    let mut both = first.clone();
    both.extend(second);
    assert_eq!(compile_loaded(&both, &CompileContext::default()).graphs.len(), 2);
    let again = compile(
        &first.workflows,
        &[],
        &CompileContext {
            registered: &main,
            ..CompileContext::default()
        },
    );
    assert!(
        again
            .faults
            .iter()
            .any(|fault| fault.code == FaultCode::DuplicateWorkflowId)
    );
}

#[test]
fn an_invalid_workflow_is_not_reported_as_missing() {
    let compiled =
        build(json!([caller("main", &["broken"]), {"id": "broken", "name": 5, "nodes": 5, "edges": []}]).to_string());
    assert!(
        !codes(&compiled).contains(&"UNKNOWN_WORKFLOW_REFERENCE"),
        "{}",
        shown(&compiled.faults)
    );
    assert!(!compiled.faults.is_empty());
}

#[test]
fn functions_and_profiles_are_checked_if_the_context_lists_them() {
    let nodes = json!([node("s", "START"), {"id": "f", "type": "CODE", "config": {"function": "known"}},
        {"id": "g", "type": "CODE", "config": {"function": "unknown"}},
        {"id": "l", "type": "LLM", "config": {"profileId": "nobody"}}, node("e", "END")]);
    let loaded = load(&SourceFile::new(
        "w.json",
        flow(&nodes, &["s>f", "f>g", "g>l", "l>e"]).to_string(),
    ));
    let functions = BTreeSet::from(["known".to_owned()]);
    let profiles = BTreeSet::new();
    let context = CompileContext {
        functions: Some(&functions),
        profiles: Some(&profiles),
        ..CompileContext::default()
    };
    let compiled = compile_loaded(&loaded, &context);
    assert_eq!(
        the_fault(&compiled.faults, FaultCode::UnknownFunction).pointer,
        "/nodes/2/config/function"
    );
    assert_eq!(
        the_fault(&compiled.faults, FaultCode::UnknownProfile).pointer,
        "/nodes/3/config/profileId"
    );
    assert!(compile_loaded(&loaded, &CompileContext::default()).faults.is_empty());
}
