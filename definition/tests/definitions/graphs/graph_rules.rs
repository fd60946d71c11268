//! START, END, reachability, edges, routes: cases M16 to M24, J02, J08, K36.

use pirn_definition::definition::{EdgeDefinition, FaultCode, Located, NodeConfig, NodeDefinition, WorkflowDefinition};
use pirn_definition::graph::{CompileContext, Compiled, Graph, NodeKind, compile};
use serde_json::{Value, json};

use crate::definitions::fixtures::{build, codes, codes_of, flow, idle, node, shown, the_fault};

fn line() -> (Value, Vec<&'static str>) {
    (
        json!([node("s", "START"), idle("a"), idle("b"), node("e", "END")]),
        vec!["s>a", "a>b", "b>e"],
    )
}

#[test]
fn m16_m20_a_workflow_has_one_start_and_an_end() {
    let none = json!([idle("a"), node("e", "END")]);
    assert_eq!(codes_of(&flow(&none, &["a>e"])), ["MISSING_START"], "M16");
    let two = json!([node("s", "START"), node("t", "START"), node("e", "END")]);
    let compiled = build(flow(&two, &["s>e", "t>e"]).to_string());
    assert_eq!(codes(&compiled), ["MULTIPLE_START"], "M20");
    assert_eq!(compiled.faults[0].pointer, "/nodes/1", "M20");
    let endless = json!([node("s", "START"), idle("a")]);
    assert_eq!(codes_of(&flow(&endless, &["s>a"])), ["MISSING_END"]);
    assert_eq!(codes_of(&flow(&json!([]), &[])), ["MISSING_START", "MISSING_END"]);
}

#[test]
fn m18_no_edge_leads_into_start_or_out_of_end() {
    let (nodes, edges) = line();
    for edge in ["a>s", "e>a", "s>s"] {
        let all = [edges.as_slice(), &[edge]].concat();
        let compiled = build(flow(&nodes, &all).to_string());
        assert_eq!(codes(&compiled), ["INVALID_EDGE"], "M18 {edge}");
        assert_eq!(compiled.faults[0].pointer, "/edges/3", "M18 {edge}");
    }
}

#[test]
fn m21_m23_an_unreachable_node_is_reported() {
    let (_, edges) = line();
    let alone = json!([node("s", "START"), idle("a"), idle("b"), node("e", "END"), idle("x")]);
    let compiled = build(flow(&alone, &edges).to_string());
    assert_eq!(codes(&compiled), ["UNREACHABLE_NODE"], "M21");
    assert_eq!(compiled.faults[0].pointer, "/nodes/4", "M21");
    let leads_on = [edges.as_slice(), &["x>b"]].concat();
    assert_eq!(codes_of(&flow(&alone, &leads_on)), ["UNREACHABLE_NODE"], "M23");
}

#[test]
fn m22_a_loop_is_allowed_if_it_can_end() {
    let (nodes, edges) = line();
    assert!(
        codes_of(&flow(&nodes, &[edges.as_slice(), &["b>a"]].concat())).is_empty(),
        "M22"
    );
    let compiled = build(flow(&nodes, &["s>a", "s>e", "a>b", "b>a"]).to_string());
    assert_eq!(codes(&compiled), ["DEAD_END"], "M22: no way out of the loop");
    assert_eq!(
        compiled.faults.len(),
        1,
        "one report for one loop:\n{}",
        shown(&compiled.faults)
    );
}

#[test]
fn m24_a_node_that_cannot_reach_an_end_is_a_dead_end() {
    let (nodes, _) = line();
    let compiled = build(flow(&nodes, &["s>a", "s>e", "a>b"]).to_string());
    let fault = the_fault(&compiled.faults, FaultCode::DeadEnd);
    assert_eq!(fault.pointer, "/nodes/2", "M24: at the node where the thread stops");
}

#[test]
fn unknown_node_references_are_reported_with_their_location() {
    let nodes = json!([node("s", "START"),
        {"id": "r", "type": "ROUTE", "config": {"routes": [{"condition": "a", "targetNodeId": "x1"}],
         "defaultTargetNodeId": "x2"}, "onError": {"targetNodeId": "x3"}},
        node("e", "END")]);
    let compiled = build(flow(&nodes, &["s>r", "r>x4", "x5>e", "s>e"]).to_string());
    let pointers: Vec<&str> = compiled
        .faults
        .iter()
        .filter(|fault| fault.code == FaultCode::UnknownNodeReference)
        .map(|fault| fault.pointer.as_str())
        .collect();
    assert_eq!(
        pointers,
        [
            "/edges/1/to",
            "/edges/2/from",
            "/nodes/1/config/routes/0/targetNodeId",
            "/nodes/1/config/defaultTargetNodeId",
            "/nodes/1/onError/targetNodeId"
        ]
    );
}

#[test]
fn node_ids_are_unique() {
    let nodes = json!([node("s", "START"), idle("a"), idle("a"), node("e", "END")]);
    let compiled = build(flow(&nodes, &["s>a", "a>e"]).to_string());
    assert_eq!(
        the_fault(&compiled.faults, FaultCode::DuplicateNodeId).pointer,
        "/nodes/2/id"
    );
}

fn graph_of(file: &Value) -> std::sync::Arc<Graph> {
    let compiled = build(file.to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    compiled.graphs[0].clone()
}

fn targets<'g>(graph: &'g Graph, id: &str) -> Vec<&'g str> {
    graph
        .node(graph.by_id[id])
        .edges
        .iter()
        .map(|edge| &*graph.node(edge.target).id)
        .collect()
}

#[test]
fn j08_edges_are_tried_heaviest_first_then_in_list_order() {
    let nodes = json!([
        node("s", "START"),
        idle("a"),
        idle("b"),
        idle("c"),
        idle("d"),
        node("e", "END")
    ]);
    let mut file = flow(&nodes, &["a>e", "b>e", "c>e", "d>e"]);
    let edges = file["edges"].as_array_mut().expect("a list");
    for (target, weight) in [("b", json!(5)), ("a", json!(10)), ("d", json!(null)), ("c", json!(-1))] {
        edges.push(json!({"from": "s", "to": target, "weight": weight, "condition": "x > 1"}));
    }
    edges.push(json!({"from": "s", "to": "e", "weight": 5}));
    assert_eq!(targets(&graph_of(&file), "s"), ["a", "b", "e", "d", "c"]);
}

#[test]
fn j02_routes_are_tried_by_priority_then_in_list_order() {
    let routes = json!([{"condition": "1", "targetNodeId": "a", "priority": 1}, {"condition": "2", "targetNodeId": "b", "priority": 10},
        {"condition": "3", "targetNodeId": "c", "priority": 1}, {"condition": "4", "targetNodeId": "d"}]);
    let nodes = json!([node("s", "START"), {"id": "r", "type": "ROUTE", "config": {"routes": routes, "defaultTargetNodeId": "e"}},
        idle("a"), idle("b"), idle("c"), idle("d"), node("e", "END")]);
    let graph = graph_of(&flow(&nodes, &["s>r", "r>a", "a>e", "b>e", "c>e", "d>e"]));
    let NodeKind::Route { routes, default } = &graph.node(graph.by_id["r"]).kind else {
        panic!("a ROUTE")
    };
    let order: Vec<&str> = routes.iter().map(|(_, target)| &*graph.node(*target).id).collect();
    assert_eq!(order, ["b", "a", "c", "d"]);
    assert_eq!(*default, Some(graph.by_id["e"]));
    assert!(
        graph.node(graph.by_id["r"]).edges.is_empty(),
        "edges beside routes are for the drawing"
    );
}

#[test]
fn a_route_node_without_routes_uses_its_edges() {
    let nodes = json!([node("s", "START"), node("r", "ROUTE"), idle("a"), node("e", "END")]);
    let mut file = flow(&nodes, &["s>r", "a>e"]);
    let edges = file["edges"].as_array_mut().expect("a list");
    edges.push(json!({"from": "r", "to": "e"}));
    edges.push(json!({"from": "r", "to": "a", "condition": "x", "weight": 2}));
    let graph = graph_of(&file);
    let NodeKind::Route { routes, default } = &graph.node(graph.by_id["r"]).kind else {
        panic!("a ROUTE")
    };
    assert_eq!(
        routes.iter().map(|(_, target)| *target).collect::<Vec<_>>(),
        [graph.by_id["a"]]
    );
    assert_eq!(*default, Some(graph.by_id["e"]));
}

#[test]
fn nan_and_infinite_numbers_are_refused_in_definitions_built_in_code() {
    let node = |id: &str, config: NodeConfig| NodeDefinition {
        id: id.to_owned(),
        name: None,
        description: None,
        config,
        retry: None,
        timeout_ms: None,
        on_error: None,
        in_doubt: None,
    };
    let definition = WorkflowDefinition {
        id: "w".to_owned(),
        name: None,
        version: None,
        description: None,
        metadata: None,
        input_schema: None,
        variables: Vec::new(),
        nodes: vec![
            node("s", NodeConfig::Start),
            node("e", NodeConfig::End(pirn_definition::definition::EndConfig::default())),
        ],
        edges: vec![EdgeDefinition {
            id: None,
            source_node_id: "s".to_owned(),
            target_node_id: "e".to_owned(),
            edge_type: None,
            label: None,
            condition: None,
            weight: f64::NAN,
        }],
        triggers: Vec::new(),
        config: pirn_definition::definition::WorkflowConfig::default(),
    };
    let compiled = compile(&[Located::from(definition)], &[], &CompileContext::default());
    let fault = the_fault(&compiled.faults, FaultCode::InvalidValue);
    assert_eq!((fault.pointer.as_str(), fault.position), ("/edges/0/weight", None));
}

#[test]
fn k36_an_expression_has_at_most_a_thousand_characters() {
    let file = |length: usize| {
        let nodes = json!([node("s", "START"), node("e", "END")]);
        let mut file = flow(&nodes, &[]);
        file["edges"] = json!([{"from": "s", "to": "e", "condition": "y".repeat(length)}]);
        file
    };
    assert!(codes_of(&file(1000)).is_empty());
    let compiled = build(file(1001).to_string());
    let fault = the_fault(&compiled.faults, FaultCode::InvalidExpression);
    assert!(
        fault.help.as_deref().is_some_and(|help| help.contains("CODE")),
        "K36 names the way out"
    );
}

#[test]
fn missing_and_contradictory_fields_of_a_node_are_faults() {
    for (config, code) in [
        (json!({"type": "CODE", "config": {}}), "MISSING_FIELD"),
        (
            json!({"type": "CODE", "config": {"code": "1", "function": "f"}}),
            "INVALID_VALUE",
        ),
        (json!({"type": "WAIT"}), "MISSING_FIELD"),
        (
            json!({"type": "WAIT", "config": {"seconds": 1, "event": "x"}}),
            "INVALID_VALUE",
        ),
        (json!({"type": "WAIT", "config": {"seconds": -1}}), "INVALID_TIMEOUT"),
        (
            json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "truncate"}}),
            "INVALID_VALUE",
        ),
        (
            json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "truncate", "keepFirst": 1, "keepLast": 1}}),
            "INVALID_VALUE",
        ),
        (
            json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "shuffle"}}),
            "INVALID_VALUE",
        ),
        (json!({"type": "CONTEXT_PROCESSOR", "config": {}}), "MISSING_FIELD"),
        (
            json!({"type": "LLM", "timeoutMs": 999_999_999_999_u64}),
            "INVALID_TIMEOUT",
        ),
        (json!({"type": "LLM", "timeoutMs": -5}), "INVALID_TIMEOUT"),
        (json!({"type": "LLM", "retry": {"maxAttempts": 0}}), "INVALID_VALUE"),
        (
            json!({"type": "LLM", "config": {"prompt": "x", "responseFormat": {"schema": {"type": "object"}}}}),
            "INVALID_SCHEMA",
        ),
        (
            json!({"type": "LLM", "config": {"prompt": "x", "responseFormat": {"type": "json_object", "schema": {}}}}),
            "INVALID_SCHEMA",
        ),
        (
            json!({"type": "VARIABLE", "config": {"variableName": "v", "expression": "1", "variableType": "invalid_type"}}),
            "INVALID_VALUE",
        ),
    ] {
        let mut a = config.clone();
        a["id"] = json!("a");
        let nodes = json!([node("s", "START"), a, node("e", "END")]);
        assert_eq!(codes_of(&flow(&nodes, &["s>a", "a>e"])), [code], "{config}");
    }
}

#[test]
fn a_literal_that_always_fails_is_a_fault() {
    let loops = |iterable: Value| json!({"loopId": "l", "dataSource": {"iterable": iterable}});
    let maps = |items: Value| json!({"subgraphId": "one", "items": items, "maxItems": 2});
    let pins = |section: &str, value: Value| json!({"operation": "pin", "section": section, "value": value});
    let long = json!({"a": 1, "b": 2, "c": 3});
    for (word, config, place) in [
        ("LOOP_START", loops(json!(true)), Some("dataSource/iterable")),
        ("LOOP_START", loops(json!(-1)), Some("dataSource/iterable")),
        ("LOOP_START", loops(json!(1.5)), Some("dataSource/iterable")),
        ("LOOP_START", loops(json!(1e300)), Some("dataSource/iterable")),
        ("LOOP_START", loops(json!(3.0)), None),
        ("LOOP_START", loops(json!(u64::MAX)), None),
        ("LOOP_START", loops(json!([])), None),
        ("LOOP_START", loops(json!({"a": 1})), None),
        ("LOOP_START", loops(json!("-1")), None),
        ("MAP", maps(json!(5)), Some("items")),
        ("MAP", maps(json!(false)), Some("items")),
        ("MAP", maps(json!([1, 2, "{{input}}"])), Some("items")),
        ("MAP", maps(long), Some("items")),
        ("MAP", maps(json!([1, "{{input}}"])), None),
        ("MAP", maps(json!({"a": 1})), None),
        ("MAP", maps(json!("[1, 2, 3]")), None),
        ("CONTEXT_PROCESSOR", pins("role", json!(5)), Some("value")),
        (
            "CONTEXT_PROCESSOR",
            pins("todo", json!([{"content": "a", "status": "weird"}])),
            Some("value/0/status"),
        ),
        (
            "CONTEXT_PROCESSOR",
            pins("todo", json!([{"status": "done"}])),
            Some("value/0"),
        ),
        (
            "CONTEXT_PROCESSOR",
            pins("folderNotes", json!({"a": "x"})),
            Some("value/a"),
        ),
        ("CONTEXT_PROCESSOR", pins("role", json!(null)), None),
        ("CONTEXT_PROCESSOR", pins("role", json!("{{input}}")), None),
        (
            "CONTEXT_PROCESSOR",
            pins("usefulInfo", json!([{"text": "t", "lines": "1-2"}])),
            None,
        ),
        (
            "CONTEXT_PROCESSOR",
            pins("todo", json!([{"content": "a", "status": "{{input}}"}])),
            None,
        ),
    ] {
        let nodes = json!([node("s", "START"), {"id": "a", "type": word, "config": config}, node("e", "END"),
            {"id": "z", "type": "LOOP_END", "config": {"loopId": "l"}}]);
        let is_loop = word == "LOOP_START";
        let edges: &[&str] = if is_loop {
            &["s>a", "a>z", "z>e"]
        } else {
            &["s>a", "a>e"]
        };
        let mut main = flow(&nodes, edges);
        if !is_loop {
            main["nodes"].as_array_mut().expect("a list").pop();
        }
        let mut one = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
        one["id"] = json!("one");
        let compiled = build(json!({ "workflows": [main, one] }).to_string());
        let found = compiled.faults.iter().map(|fault| (fault.code, fault.pointer.clone()));
        let expected = place.map(|place| (FaultCode::InvalidValue, format!("/workflows/0/nodes/1/config/{place}")));
        assert_eq!(found.collect::<Vec<_>>(), Vec::from_iter(expected), "{word} {config}");
    }
}

/// Compiles a workflow of START and END with these variables.
fn with_variables(variables: &Value) -> Compiled {
    let mut file = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
    file["variables"] = variables.clone();
    build(file.to_string())
}

#[test]
fn an_initial_value_has_the_type_of_its_variable_or_is_null() {
    for (word, value, help) in [
        ("number", json!("5"), "write 5 without quotes"),
        ("boolean", json!("true"), "write true without quotes"),
        ("array", json!("[1]"), "write [1] without quotes"),
        ("number", json!("five"), "write a number, or omit `type`"),
        ("string", json!(5), "write a string, or omit `type`"),
        ("object", json!([]), "write an object, or omit `type`"),
    ] {
        let compiled = with_variables(&json!([{"name": "n", "type": word, "value": value}]));
        let fault = the_fault(&compiled.faults, FaultCode::InvalidValue);
        assert_eq!(
            (fault.pointer.as_str(), fault.help.as_deref()),
            ("/variables/0/value", Some(help)),
            "{word} {value}"
        );
    }
    for (word, value) in [
        ("number", json!(5)),
        ("number", json!(null)),
        ("string", json!("")),
        ("boolean", json!(false)),
        ("array", json!([])),
        ("object", json!({})),
    ] {
        let compiled = with_variables(&json!([{"name": "n", "type": word, "value": value}]));
        assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    }
}

#[test]
fn a_name_that_no_expression_can_contain_is_a_fault_wherever_a_variable_is_named() {
    for name in ["", "a b", "class", "1a", "a.b", "-a", "__proto__"] {
        assert_eq!(
            codes(&with_variables(&json!([{ "name": name }]))),
            ["INVALID_VALUE"],
            "{name}"
        );
        for (word, config) in [
            ("VARIABLE", json!({"variableName": name, "expression": "1"})),
            ("TOOL", json!({"tool": "t", "assignTo": name})),
            ("USER_INTERACTION", json!({"question": "Which?", "assignTo": name})),
            ("MAP", json!({"items": [1], "subgraphId": "one", "itemName": name})),
        ] {
            let nodes = json!([node("s", "START"), {"id": "a", "type": word, "config": config}, node("e", "END")]);
            let mut one = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
            one["id"] = json!("one");
            let file = json!([flow(&nodes, &["s>a", "a>e"]), one]);
            assert_eq!(codes_of(&file), ["INVALID_VALUE"], "{word} {name}");
        }
        let mut file = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
        file["triggers"] = json!([{"id": "t", "condition": {"eventType": "NODE_COMPLETED"},
            "action": {"type": "SET_VARIABLE", "parameters": {"variableName": name, "value": 1}}}]);
        assert_eq!(codes_of(&file), ["INVALID_VALUE"], "SET_VARIABLE {name}");
    }
}

#[test]
fn a_name_that_expressions_read_as_something_else_is_a_warning() {
    for (name, help) in [
        ("input", "rename"),
        ("output", "rename"),
        ("result", "rename"),
        ("event", "rename"),
        ("nodes", "`variables['nodes']`"),
        ("variables", "`variables['variables']`"),
        ("a-b", "`variables['a-b']`"),
    ] {
        let compiled = with_variables(&json!([{ "name": name }]));
        assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
        let warning = the_fault(&compiled.warnings, FaultCode::InvalidValue);
        assert_eq!(warning.pointer, "/variables/0/name", "{name}");
        assert!(
            warning.help.as_deref().is_some_and(|text| text.contains(help)),
            "{warning}"
        );
    }
    for name in ["loop", "n", "_a", "$", "straße", "inputs"] {
        let compiled = with_variables(&json!([{ "name": name }]));
        let found = [compiled.faults, compiled.warnings].concat();
        assert!(found.is_empty(), "{}", shown(&found));
    }
}

#[test]
fn a_wait_with_a_faulty_field_has_no_second_fault() {
    for (config, code) in [
        (json!({"seconds": "{{input}}"}), "INVALID_TIMEOUT"),
        (json!({"second": 5}), "UNKNOWN_FIELD"),
    ] {
        let nodes = json!([node("s", "START"), {"id": "a", "type": "WAIT", "config": config}, node("e", "END")]);
        let compiled = build(flow(&nodes, &["s>a", "a>e"]).to_string());
        assert_eq!(compiled.faults.len(), 1, "{}", shown(&compiled.faults));
        assert_eq!(codes(&compiled), [code], "{config}");
    }
}

#[test]
fn an_edge_of_a_route_node_that_is_none_of_its_routes_is_reported() {
    let route = json!({"id": "r", "type": "ROUTE", "config": {"routes": [{"condition": "1", "targetNodeId": "a"}]}});
    let nodes = json!([node("s", "START"), route, idle("a"), idle("b"), node("e", "END")]);
    let edges = ["s>r", "r>a", "r>b", "a>e", "b>e"];
    let compiled = build(flow(&nodes, &edges).to_string());
    let warning = the_fault(&compiled.warnings, FaultCode::IgnoredEdge);
    assert_eq!(warning.pointer, "/edges/2");
    let help = warning.help.as_deref().unwrap_or_default();
    assert!(help.contains("`defaultTargetNodeId`"), "{warning}");
    let fault = the_fault(&compiled.faults, FaultCode::UnreachableNode);
    assert_eq!(fault.pointer, "/nodes/3");
    let help = fault.help.as_deref().unwrap_or_default();
    assert!(
        help.contains("the ROUTE `r`") && help.contains("add a route"),
        "{fault}"
    );
}

fn compressing(compression: &Value, config: &Value) -> Compiled {
    let mut config = config.clone();
    config["operation"] = json!("compress");
    let shorten = json!({"id": "a", "type": "CONTEXT_PROCESSOR", "config": config});
    let nodes = json!([node("s", "START"), shorten, node("e", "END")]);
    let mut file = flow(&nodes, &["s>a", "a>e"]);
    file["config"] = json!({ "compression": compression });
    build(file.to_string())
}

#[test]
fn the_parameters_of_a_built_in_strategy_are_checked_by_name_and_type() {
    for (strategy, parameters, code, help) in [
        (
            "keep_recent",
            json!({"cuont": 1}),
            "UNKNOWN_FIELD",
            "did you mean `count`?",
        ),
        (
            "keep_recent",
            json!({"exclude": []}),
            "UNKNOWN_FIELD",
            "the parameters are `count`, `payback`",
        ),
        (
            "sliding_window",
            json!({"windowSiz": 3}),
            "UNKNOWN_FIELD",
            "did you mean `windowSize`?",
        ),
        (
            "checklist",
            json!({"profileId": "p"}),
            "UNKNOWN_FIELD",
            "the parameters are",
        ),
        ("summarize", json!({"keepRecent": "3"}), "INVALID_VALUE", ""),
        ("summarize", json!({"keepRecent": -1}), "INVALID_VALUE", ""),
        ("summarize", json!({"floors": {"fact": 0.4}}), "INVALID_VALUE", ""),
        ("clear_tool_results", json!({"exclude": "search"}), "INVALID_VALUE", ""),
    ] {
        let own = json!({"strategy": strategy, "parameters": parameters});
        let inherits = compressing(&json!({ "strategy": strategy }), &json!({ "parameters": parameters }));
        for (compiled, place) in [
            (compressing(&json!({}), &own), "/nodes/1/config"),
            (inherits, "/nodes/1/config"),
            (compressing(&own, &json!({})), "/config/compression"),
        ] {
            assert_eq!(compiled.faults.len(), 1, "{}", shown(&compiled.faults));
            let fault = &compiled.faults[0];
            let pointer = format!("{place}/parameters/");
            assert!(fault.pointer.starts_with(&pointer), "{fault} {}", fault.pointer);
            assert_eq!(fault.code.as_str(), code, "{fault}");
            assert!(fault.help.as_deref().unwrap_or_default().starts_with(help), "{fault}");
        }
    }
}

#[test]
fn valid_parameters_of_a_strategy_and_any_of_an_unknown_one_are_accepted() {
    for (strategy, parameters) in [
        ("keep_recent", json!({"lastN": 3, "payback": 10})),
        ("keep_system_recent", json!({"count": null})),
        (
            "sliding_window",
            json!({"tokenBudget": 900, "size": 3, "keepHead": true}),
        ),
        (
            "summarize",
            json!({"profileId": "p", "keepRecent": 2, "keepFacts": 0.9, "budget": 0.5, "floors": {"facts": 0.4}}),
        ),
        ("checklist", json!({"count": 2, "budget": 500})),
        (
            "clear_tool_results",
            json!({"keep": 1, "minTokens": 5, "exclude": ["search"]}),
        ),
        ("my_own", json!({"cuont": [1]})),
    ] {
        let compiled = compressing(&json!({}), &json!({"strategy": strategy, "parameters": parameters}));
        assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    }
    let compiled = compressing(&json!({}), &json!({"parameters": {"cuont": 1}}));
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
}
