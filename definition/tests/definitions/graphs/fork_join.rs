//! FORK and JOIN: cases A01 to A27.

use pirn_definition::definition::{FaultCode, JoinStrategy};
use pirn_definition::graph::{CompileContext, NodeKind, compile};
use serde_json::{Value, json};

use crate::definitions::fixtures::{
    build, cases, codes, codes_of, flow, fork, idle, join, loaded, node, shown, the_fault,
};

/// Adds a matching partner to the FORK or JOIN of a case, as far as possible.
fn around(word: &str, config: &Value) -> Value {
    let strings = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let pairs = config["forkPaths"].as_array().cloned().unwrap_or_default();
    let mut paths = strings(&config["forkPathIds"]);
    paths.extend(
        pairs
            .iter()
            .filter_map(|pair| pair["pathId"].as_str())
            .map(str::to_owned),
    );
    let mut children = strings(&config["childNodeIds"]);
    children.extend(
        pairs
            .iter()
            .filter_map(|pair| pair["childNodeId"].as_str())
            .map(str::to_owned),
    );
    if word == "JOIN" {
        children = paths.iter().map(|path| format!("at-{path}")).collect();
    }
    let mut fork = json!({"id": "fork", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": children}});
    let mut join =
        json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}});
    if word == "FORK" {
        fork["config"] = config.clone();
    } else {
        join["config"] = config.clone();
    }
    let mut nodes = vec![node("start", "START"), fork, join, node("end", "END")];
    let mut edges = vec!["start>fork".to_owned(), "join>end".to_owned()];
    for child in &children {
        nodes.push(idle(child));
        edges.push(format!("fork>{child}"));
        edges.push(format!("{child}>join"));
    }
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    flow(&Value::Array(nodes), &edges)
}

#[test]
fn the_validity_of_fork_and_join_configs_matches_the_cases() {
    let rows = cases("fork-join-validate.jsonl");
    assert!(rows.len() >= 12);
    for row in rows {
        let id = row["id"].as_str().unwrap_or_default();
        let compiled = build(
            around(
                row["input"]["node"].as_str().unwrap_or_default(),
                &row["input"]["config"],
            )
            .to_string(),
        );
        let ok = row["expect"]["ok"] == true;
        assert_eq!(compiled.faults.is_empty(), ok, "{id}:\n{}", shown(&compiled.faults));
        if let Some(code) = row["expect"]["code"].as_str() {
            assert!(
                codes(&compiled).contains(&code),
                "{id}: {code} is not among\n{}",
                shown(&compiled.faults)
            );
        }
        let wanted = match row["expect"]["field"].as_str() {
            Some("forkPathIds") => "INVALID_FORK_PATH_IDS",
            Some("joinStrategy") => "INVALID_JOIN_STRATEGY",
            Some("threshold") => "INVALID_THRESHOLD",
            Some("timeout") => "INVALID_TIMEOUT",
            Some(other) => panic!("{id}: no code is known for {other}"),
            None => continue,
        };
        assert!(
            codes(&compiled).contains(&wanted),
            "{id}: {wanted} is not among\n{}",
            shown(&compiled.faults)
        );
    }
}

#[test]
fn a01_fork_paths_are_converted_to_the_two_lists() {
    let config = json!({"forkPaths": [{"pathId": "p", "childNodeId": "c"}, {"pathId": "q", "childNodeId": "d"}],
                        "forkStrategy": "serial"});
    let compiled = build(around("FORK", &config).to_string());
    let graph = &compiled.graphs[0];
    let paths: Vec<(&str, &str)> = graph.forks[0]
        .paths
        .iter()
        .map(|path| (&*path.id, &*graph.node(path.child).id))
        .collect();
    assert_eq!(paths, [("p", "c"), ("q", "d")]);
}

#[test]
fn a14_the_default_main_path_is_the_first_and_the_default_timeout_is_none() {
    let compiled = build(
        around(
            "JOIN",
            &json!({"forkPathIds": ["p1", "p2"], "joinStrategy": "all_completed"}),
        )
        .to_string(),
    );
    let rule = &compiled.graphs[0].forks[0].join;
    assert_eq!(
        (rule.main_path, rule.main_path_explicit, rule.timeout_ms),
        (0, false, None)
    );
    assert_eq!(rule.strategy, JoinStrategy::AllCompleted);
}

#[test]
fn a_join_timeout_is_in_fractional_seconds_and_zero_means_none() {
    for (timeout, wanted) in [(json!(1.5), Some(1500)), (json!(0), None), (json!(0.0001), Some(1))] {
        let config = json!({"forkPathIds": ["p"], "joinStrategy": "ANY_COMPLETED", "timeout": timeout});
        let compiled = build(around("JOIN", &config).to_string());
        assert_eq!(compiled.graphs[0].forks[0].join.timeout_ms, wanted, "{timeout}");
    }
    for timeout in [json!(-1), json!(1e12), json!("5"), json!(true)] {
        let config = json!({"forkPathIds": ["p"], "joinStrategy": "ANY_COMPLETED", "timeout": timeout});
        assert_eq!(codes_of(&around("JOIN", &config)), ["INVALID_TIMEOUT"], "{timeout}");
    }
}

#[test]
fn a_threshold_is_an_integer_from_one_to_the_number_of_paths() {
    for (threshold, ok) in [
        (json!(1), true),
        (json!(2), true),
        (json!(2.0), true),
        (json!(0), false),
        (json!(3), false),
        (json!(-1), false),
        (json!(1.5), false),
        (json!("1"), false),
        (json!(null), false),
    ] {
        let config =
            json!({"forkPathIds": ["p", "q"], "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": threshold});
        let compiled = build(around("JOIN", &config).to_string());
        assert_eq!(
            compiled.faults.is_empty(),
            ok,
            "{threshold}:\n{}",
            shown(&compiled.faults)
        );
        assert!(
            ok || codes(&compiled).iter().all(|code| *code == "INVALID_THRESHOLD"),
            "{threshold}"
        );
    }
}

#[test]
fn an_unknown_join_strategy_is_reported_once_with_the_other_faults() {
    let config = json!({"forkPathIds": ["p"], "joinStrategy": "SOME", "mainPathId": "q", "timeout": -1});
    let compiled = build(around("JOIN", &config).to_string());
    let mut found = codes(&compiled);
    found.sort_unstable();
    assert_eq!(
        found,
        ["INVALID_JOIN_STRATEGY", "INVALID_TIMEOUT", "MAIN_PATH_ID_NOT_FOUND"]
    );
}

#[test]
fn a18_a_join_without_fork_is_unpaired() {
    let nodes = json!([node("s", "START"), join("j", &["j1"]), node("e", "END")]);
    assert_eq!(codes_of(&flow(&nodes, &["s>j", "j>e"])), ["UNPAIRED_JOIN"]);
}

#[test]
fn a_fork_without_join_is_unpaired() {
    let nodes = json!([
        node("s", "START"),
        fork("f", &["p"], &["c"]),
        idle("c"),
        node("e", "END")
    ]);
    assert_eq!(codes_of(&flow(&nodes, &["s>f", "f>c", "c>e"])), ["UNPAIRED_FORK"]);
}

#[test]
fn a20_a_path_may_start_at_its_join() {
    let nodes = json!([
        node("s", "START"),
        fork("f", &["f1"], &["j"]),
        join("j", &["f1"]),
        node("e", "END")
    ]);
    let compiled = build(flow(&nodes, &["s>f", "f>j", "j>e"]).to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert_eq!(
        compiled.graphs[0].forks[0].paths[0].child,
        compiled.graphs[0].forks[0].join_node
    );
}

#[test]
fn a21_two_pairs_may_follow_each_other() {
    let nodes = json!([
        node("s", "START"),
        fork("g", &["f1"], &["i"]),
        join("i", &["f1"]),
        fork("h", &["f2"], &["j"]),
        join("j", &["f2"]),
        node("e", "END")
    ]);
    assert!(codes_of(&flow(&nodes, &["s>g", "g>i", "i>h", "h>j", "j>e"])).is_empty());
}

#[test]
fn a22_a_fork_of_two_paths_with_nodes_between_is_valid() {
    let nodes = json!([
        node("s", "START"),
        fork("f", &["1", "2"], &["a", "b"]),
        idle("a"),
        idle("b"),
        join("j", &["1", "2"]),
        idle("after"),
        node("e", "END")
    ]);
    let edges = ["s>f", "f>a", "f>b", "a>j", "b>j", "j>after", "after>e"];
    assert!(codes_of(&flow(&nodes, &edges)).is_empty());
}

fn pair(forked: &[&str], joined: &[&str]) -> Value {
    let children: Vec<String> = (0..forked.len()).map(|place| format!("c{place}")).collect();
    let refs: Vec<&str> = children.iter().map(String::as_str).collect();
    let mut nodes = vec![
        node("s", "START"),
        fork("f", forked, &refs),
        join("j", joined),
        node("e", "END"),
    ];
    let mut edges = vec!["s>f".to_owned(), "j>e".to_owned()];
    for child in &children {
        nodes.push(idle(child));
        edges.extend([format!("f>{child}"), format!("{child}>j")]);
    }
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    flow(&Value::Array(nodes), &edges)
}

#[test]
fn a23_a24_overlapping_path_lists_must_be_equal_in_order() {
    assert_eq!(
        codes_of(&pair(&["p1", "p2"], &["p1", "p3"])),
        ["FORK_JOIN_MISMATCH"],
        "A23"
    );
    assert_eq!(
        codes_of(&pair(&["p1", "p2"], &["p2", "p1"])),
        ["FORK_JOIN_MISMATCH"],
        "A24"
    );
    assert_eq!(codes_of(&pair(&["p1", "p2"], &["p1"])), ["FORK_JOIN_MISMATCH"]);
    assert_eq!(codes_of(&pair(&["p1"], &["p2"])), ["UNPAIRED_FORK", "UNPAIRED_JOIN"]);
}

#[test]
fn a25_a_path_id_is_unique_in_a_workflow() {
    let nodes = json!([
        node("s", "START"),
        fork("g", &["a", "b"], &["i", "i"]),
        join("i", &["a", "b"]),
        fork("h", &["b", "c"], &["j", "j"]),
        join("j", &["b", "c"]),
        node("e", "END")
    ]);
    let compiled = build(flow(&nodes, &["s>g", "g>i", "i>h", "h>j", "j>e"]).to_string());
    assert_eq!(codes(&compiled), ["DUPLICATE_FORK_PATH_ID"]);
    assert_eq!(compiled.faults[0].pointer, "/nodes/3/config/forkPathIds/0");
}

#[test]
fn a26_global_path_ids_are_distinct_and_the_given_ids_are_unchanged() {
    let compiled = build(
        around(
            "JOIN",
            &json!({"forkPathIds": ["path1", "path2"], "joinStrategy": "ALL_COMPLETED", "mainPathId": "path1"}),
        )
        .to_string(),
    );
    let paths = &compiled.graphs[0].forks[0].paths;
    let ids: Vec<&str> = paths.iter().map(|path| &*path.id).collect();
    let global: Vec<&str> = paths.iter().map(|path| &*path.global_id).collect();
    assert_eq!(ids, ["path1", "path2"]);
    assert_eq!(global, ["w/fork/path1", "w/fork/path2"]);
    assert_eq!(compiled.graphs[0].forks[0].join.main_path, 0);
}

#[test]
fn global_path_ids_differ_even_if_ids_contain_slashes() {
    let global = |workflow: &str, fork_id: &str, path: &str| {
        let nodes = json!([
            node("s", "START"),
            fork(fork_id, &[path], &["j"]),
            join("j", &[path]),
            node("e", "END")
        ]);
        let mut file = flow(&nodes, &["j>e"]);
        file["id"] = json!(workflow);
        file["edges"] = json!([{"from": "s", "to": fork_id}, {"from": fork_id, "to": "j"}, {"from": "j", "to": "e"}]);
        build(file.to_string()).graphs[0].forks[0].paths[0].global_id.clone()
    };
    assert_ne!(global("a/b", "c", "d"), global("a", "b/c", "d"));
    assert_ne!(global("a", "b/c", "d"), global("a", "b", "c/d"));
    assert_ne!(global("a~1b", "c", "d"), global("a/b", "c", "d"));
}

#[test]
fn a27_compiling_twice_gives_equal_graphs_and_leaves_the_definition_unchanged() {
    let loaded = loaded(
        around(
            "JOIN",
            &json!({"forkPathIds": ["p", "q"], "joinStrategy": "ALL_COMPLETED"}),
        )
        .to_string(),
    );
    let before = loaded.workflows[0].value.clone();
    let context = CompileContext::default();
    let first = compile(&loaded.workflows, &[], &context).into_result().expect("valid");
    let second = compile(&loaded.workflows, &[], &context)
        .into_result()
        .expect("still valid");
    assert_eq!(loaded.workflows[0].value, before);
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
}

#[test]
fn every_child_of_a_fork_is_the_target_of_one_of_its_edges() {
    let unknown = json!([
        node("s", "START"),
        fork("f", &["p"], &["zzz"]),
        idle("c"),
        join("j", &["p"]),
        node("e", "END")
    ]);
    let compiled = build(flow(&unknown, &["s>f", "f>c", "c>j", "j>e"]).to_string());
    let fault = the_fault(&compiled.faults, FaultCode::InvalidForkPathIds);
    assert_eq!(fault.pointer, "/nodes/1/config/childNodeIds/0");

    let no_edge = json!([
        node("s", "START"),
        fork("f", &["p"], &["c"]),
        idle("c"),
        join("j", &["p"]),
        node("e", "END")
    ]);
    assert_eq!(
        codes_of(&flow(&no_edge, &["s>f", "c>j", "j>e"])),
        ["INVALID_FORK_PATH_IDS"]
    );
    let compiled = build(flow(&no_edge, &["s>f", "c>j", "j>e"]).to_string());
    let fault = the_fault(&compiled.faults, FaultCode::InvalidForkPathIds);
    let help = r#"add it to `edges`: {"from":"f","to":"c"}"#;
    assert_eq!(fault.help.as_deref(), Some(help));
    assert_eq!(
        codes_of(&flow(&no_edge, &["s>f", "f>c", "f>j", "c>j", "j>e"])),
        ["INVALID_EDGE"]
    );
}

#[test]
fn a_branch_that_can_end_before_its_join_is_found() {
    let nodes = json!([
        node("s", "START"),
        fork("f", &["p", "q"], &["a", "b"]),
        idle("a"),
        idle("b"),
        join("j", &["p", "q"]),
        node("e", "END")
    ]);
    let base = ["s>f", "f>a", "f>b", "b>j", "j>e"];
    let with = |more: &[&'static str]| codes_of(&flow(&nodes, &[base.as_slice(), more].concat()));
    assert!(with(&["a>j"]).is_empty());
    assert_eq!(with(&["a>e"]), ["FORK_JOIN_NOT_REACHABLE"], "only END");
    assert_eq!(
        with(&["a>j", "a>e"]),
        ["FORK_JOIN_NOT_REACHABLE"],
        "END beside the JOIN"
    );
    assert_eq!(with(&[]), ["FORK_JOIN_NOT_REACHABLE"], "a dead end");
    assert_eq!(with(&["a>a"]), ["FORK_JOIN_NOT_REACHABLE"], "a loop without way out");
    assert_eq!(
        with(&["a>j", "a>f"]),
        ["FORK_JOIN_NOT_REACHABLE"],
        "back to its own FORK"
    );
    assert!(
        with(&["a>j", "a>b"]).is_empty(),
        "into the other branch, which has the same JOIN"
    );
    assert_eq!(
        with(&["a>j", "s>j"]),
        ["FORK_JOIN_NOT_REACHABLE"],
        "into the JOIN from outside"
    );
    assert_eq!(
        with(&["a>j", "s>b"]),
        ["FORK_JOIN_NOT_REACHABLE"],
        "into a branch from outside"
    );
}

#[test]
fn routes_and_error_targets_also_lead_out_of_branches() {
    let with = |extra: Value| {
        let mut a = json!({"id": "a", "type": "CODE", "config": {"code": "return 1"}});
        for (key, value) in extra.as_object().expect("an object") {
            a[key] = value.clone();
        }
        let nodes = json!([
            node("s", "START"),
            fork("f", &["p"], &["a"]),
            a,
            join("j", &["p"]),
            node("e", "END")
        ]);
        codes_of(&flow(&nodes, &["s>f", "f>a", "a>j", "j>e"]))
    };
    assert!(with(json!({})).is_empty());
    assert!(with(json!({"onError": {"targetNodeId": "j"}})).is_empty());
    assert_eq!(
        with(json!({"onError": {"targetNodeId": "e"}})),
        ["FORK_JOIN_NOT_REACHABLE"]
    );
    let route = json!({"type": "ROUTE", "config": {"routes": [{"condition": "x", "targetNodeId": "e"}],
        "defaultTargetNodeId": "j"}});
    assert_eq!(with(route), ["FORK_JOIN_NOT_REACHABLE"]);
}

#[test]
fn fork_regions_nest_and_never_cross() {
    let nodes = json!([
        node("s", "START"),
        fork("f", &["p", "q"], &["g", "b"]),
        fork("g", &["x", "y"], &["c", "d"]),
        idle("b"),
        idle("c"),
        idle("d"),
        join("i", &["x", "y"]),
        join("j", &["p", "q"]),
        node("e", "END")
    ]);
    let base = ["s>f", "f>g", "f>b", "g>c", "g>d", "d>i", "i>j", "b>j", "j>e"];
    let with = |more: &[&'static str]| codes_of(&flow(&nodes, &[base.as_slice(), more].concat()));
    assert!(with(&["c>i"]).is_empty());
    assert_eq!(with(&["c>j"]), ["FORK_JOIN_NOT_REACHABLE"], "past the inner JOIN");
    assert_eq!(
        with(&["c>i", "b>c"]),
        ["FORK_JOIN_NOT_REACHABLE"],
        "into the inner region"
    );
    assert_eq!(
        with(&["c>i", "b>i"]),
        ["FORK_JOIN_NOT_REACHABLE"],
        "into the inner JOIN"
    );
}

#[test]
fn the_compiled_fork_and_join_refer_to_each_other() {
    let compiled = build(pair(&["p", "q"], &["p", "q"]).to_string());
    let graph = &compiled.graphs[0];
    let fork = &graph.forks[0];
    assert!(matches!(graph.node(fork.fork_node).kind, NodeKind::Fork(0)));
    assert!(matches!(graph.node(fork.join_node).kind, NodeKind::Join(0)));
    assert!(
        graph.node(fork.fork_node).edges.is_empty(),
        "a FORK has paths, not edges"
    );
}

#[test]
fn a_threshold_that_its_strategy_ignores_is_a_warning() {
    let map = json!({"id": "m", "type": "MAP", "config": {"items": [1], "subgraphId": "w", "threshold": 1}});
    let join = json!({"id": "j", "type": "JOIN", "config": {"forkPathIds": ["p"], "joinStrategy": "ANY_COMPLETED", "threshold": 1}});
    for (node, strategy) in [(map, "ALL_COMPLETED"), (join, "ANY_COMPLETED")] {
        let compiled = build(flow(&json!([node]), &[]).to_string());
        let warning = the_fault(&compiled.warnings, FaultCode::InvalidThreshold);
        assert_eq!(warning.pointer, "/nodes/0/config/threshold");
        assert!(warning.message.contains(strategy), "{warning}");
        let used = json!("SUCCESS_COUNT_THRESHOLD");
        let mut node = node;
        node["config"]["joinStrategy"] = used;
        let compiled = build(flow(&json!([node]), &[]).to_string());
        assert!(compiled.warnings.is_empty(), "{}", shown(&compiled.warnings));
    }
}
