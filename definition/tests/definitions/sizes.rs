//! Large input: bounded time, no stack overflow, clear faults.

use std::fmt::Write;

use pirn_definition::definition::{Fault, FaultCode, Located, MAX_FAULTS, NodeConfig};
use pirn_definition::graph::{CompileContext, compile};
use serde_json::{Map, json};

use super::fixtures::{build, codes, loaded, shown, the_fault};

#[test]
fn ten_megabytes_of_nesting_are_refused_with_one_fault() {
    for open in ["[", "{\"a\":"] {
        let text = open.repeat(10_000_000 / open.len());
        let loaded = loaded(text);
        let fault = the_fault(&loaded.faults, FaultCode::LimitExceeded);
        assert_eq!(fault.position.expect("a place").line, 1);
        assert_eq!(loaded.faults.len(), 1);
    }
    // The outer list is the file, and each of its items a definition, which has at most 120 levels.
    for (levels, is_read) in [(121, true), (122, false), (128, false)] {
        let deep = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let faults = loaded(deep).faults;
        let is_limited = faults.iter().any(|fault| fault.code == FaultCode::LimitExceeded);
        assert_eq!(is_limited, !is_read, "{levels}: {}", shown(&faults));
    }
}

#[test]
fn definitions_that_code_builds_have_the_depth_limit_of_files() {
    let file = json!({"id": "w", "nodes": [{"id": "s", "type": "START"},
            {"id": "a", "type": "LLM", "config": {"prompt": "hi", "parameters": {}}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "e"}]});
    let mut refused = Vec::new();
    for levels in 105..=130 {
        let mut definition = loaded(file.to_string()).workflows.remove(0).value;
        let NodeConfig::Llm(llm) = &mut definition.nodes[1].config else {
            panic!("an LLM node")
        };
        let deep = (0..levels).fold(json!(1), |inner, _| json!([inner]));
        llm.parameters = Some(Map::from_iter([("deep".to_owned(), deep)]));
        let as_file = loaded(serde_json::to_string(&definition).expect("is written")).faults;
        let as_value = compile(&[Located::from(definition)], &[], &CompileContext::default()).faults;
        let is_limited = |faults: &[Fault]| faults.iter().any(|fault| fault.code == FaultCode::LimitExceeded);
        assert_eq!(
            is_limited(&as_value),
            is_limited(&as_file),
            "{levels}: {}",
            shown(&as_value)
        );
        refused.push(is_limited(&as_value));
    }
    assert!(refused.contains(&true) && refused.contains(&false), "{refused:?}");
}

#[test]
fn a_hundred_thousand_nodes_in_a_row_compile() {
    let count = 100_000;
    let mut nodes = String::from(r#"{"id":"s","type":"START"}"#);
    let mut edges = String::from(r#"{"from":"s","to":"n0"}"#);
    for place in 0..count {
        write!(
            nodes,
            r#",{{"id":"n{place}","type":"VARIABLE","data":{{"variable":"v","expression":"v + {place}"}}}}"#
        )
        .expect("a string");
        write!(edges, r#",{{"from":"n{place}","to":"n{}"}}"#, place + 1).expect("a string");
    }
    write!(nodes, r#",{{"id":"n{count}","type":"END"}}"#).expect("a string");
    let compiled = build(format!(r#"{{"id":"w","nodes":[{nodes}],"edges":[{edges}]}}"#));
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert_eq!(compiled.graphs[0].nodes.len(), count + 2);
}

#[track_caller]
fn assert_bounded(faults: &[Fault]) {
    assert_eq!(faults.len(), MAX_FAULTS + 1);
    let last = &faults[MAX_FAULTS];
    assert_eq!(last.code, FaultCode::LimitExceeded);
    assert_eq!(last.message, "more than 1000 faults: the check stopped here");
}

#[test]
fn the_first_thousand_of_a_hundred_thousand_faults_have_a_location() {
    let edges = vec![r#"{"from":"s","to":"gone"}"#; 100_000].join(",\n");
    let compiled = build(format!(
        r#"{{"id":"w","nodes":[{{"id":"s","type":"START"}},{{"id":"e","type":"END"}}],"edges":[{edges},{{"from":"s","to":"e"}}]}}"#
    ));
    assert_bounded(&compiled.faults);
    assert_eq!(compiled.faults[999].position.expect("a place").line, 1_000);
    assert_eq!(compiled.faults[999].pointer, "/edges/999/to");
}

#[test]
fn the_first_thousand_of_a_hundred_thousand_unknown_fields_are_reported() {
    let fields: Vec<String> = (0..100_000).map(|place| format!(r#""field{place}":1"#)).collect();
    let loaded = loaded(format!(r#"{{"id":"w","nodes":[],"edges":[],{}}}"#, fields.join(",")));
    assert_bounded(&loaded.faults);
}

#[test]
fn faults_of_nodes_edges_and_workflows_stop_at_the_limit() {
    let many = |item: &str| vec![item; 100_000].join(",");
    let nodes = many(r#"{"id":"n","type":"NONE"}"#);
    let bad = many("1");
    let texts: Vec<String> = (0..5_000)
        .map(|no| format!(r#"{{"id":"n{no}","type":"VARIABLE","config":{{"variableName":"","expression":"1"}}}}"#))
        .collect();
    for file in [
        format!(r#"{{"id":"w","nodes":[{nodes}],"edges":[]}}"#),
        format!(r#"{{"id":"w","nodes":[{bad}],"edges":[{bad}]}}"#),
        format!(r#"{{"id":"w","nodes":[],"edges":[],"variables":[{bad}],"triggers":[{bad}]}}"#),
        format!(r#"{{"id":"w","nodes":[{}],"edges":[]}}"#, texts.join(",")),
        format!("[{}]", many(r#"{"id":"w","nodes":[],"edges":[]}"#)),
        format!("{{{}}}", many(r#""id":"w""#)),
    ] {
        assert_bounded(&build(file).faults);
    }
}

#[test]
fn forks_nested_twenty_thousand_deep_compile_with_a_raised_limit() {
    let depth = 20_000;
    let mut nodes = vec![
        json!({"id": "s", "type": "START"}),
        json!({"id": "e", "type": "END"}),
        json!({"id": "c", "type": "LLM"}),
    ];
    let mut edges = vec![
        json!({"from": "s", "to": "f0"}),
        json!({"from": "j0", "to": "e"}),
        json!({"from": "c", "to": format!("j{}", depth - 1)}),
    ];
    for place in 0..depth {
        let child = if place + 1 == depth {
            "c".to_owned()
        } else {
            format!("f{}", place + 1)
        };
        nodes.push(json!({"id": format!("f{place}"), "type": "FORK",
            "config": {"forkPathIds": [format!("p{place}")], "childNodeIds": [child]}}));
        nodes.push(json!({"id": format!("j{place}"), "type": "JOIN",
            "config": {"forkPathIds": [format!("p{place}")], "joinStrategy": "ALL_COMPLETED"}}));
        edges.push(json!({"from": format!("f{place}"), "to": child}));
        if place > 0 {
            edges.push(json!({"from": format!("j{place}"), "to": format!("j{}", place - 1)}));
        }
    }
    let mut file = json!({"id": "w", "nodes": nodes, "edges": edges});
    assert_eq!(codes(&build(file.to_string())), ["LIMIT_EXCEEDED"]);
    file["config"] = json!({"maxDepth": depth});
    let compiled = build(file.to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert_eq!(compiled.graphs[0].forks.len(), depth);
}

#[test]
fn a_fork_of_a_hundred_thousand_paths_compiles() {
    let count = 100_000;
    let paths: Vec<String> = (0..count).map(|place| format!("p{place}")).collect();
    let children = vec!["c"; count];
    let file = json!({"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}, {"id": "c", "type": "LLM"},
        {"id": "f", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": children}},
        {"id": "j", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}}],
        "edges": [{"from": "s", "to": "f"}, {"from": "f", "to": "c"}, {"from": "c", "to": "j"}, {"from": "j", "to": "e"}]});
    let compiled = build(file.to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert_eq!(compiled.graphs[0].forks[0].paths.len(), count);
}

#[test]
fn a_call_cycle_of_ten_thousand_workflows_is_reported() {
    let workflows: Vec<_> = (0..10_000)
        .map(|place| json!({"id": format!("w{place}"), "config": {"maxDepth": 20_000}, "nodes": [{"id": "s", "type": "START"},
            {"id": "g", "type": "SUBGRAPH", "config": {"subgraphId": format!("w{}", (place + 1) % 10_000)}}, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "g"}, {"from": "g", "to": "e"}]}))
        .collect();
    let compiled = build(json!(workflows).to_string());
    assert_eq!(codes(&compiled), ["SUBGRAPH_CYCLE"]);
}
