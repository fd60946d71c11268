//! Faults that prevent the build of an engine: cases A05 to A26, B05, B06, B24, B25, G01, G27, G28, L12.

use std::collections::BTreeSet;

use pirn::{BuildError, Engine};
use pirn_tests::world::{code, forked, line, node, workflow};
use serde_json::{Value, json};

/// Returns the code and location of each fault that an engine finds in a file.
fn faults(file: &Value) -> BTreeSet<(String, String)> {
    let built = Engine::builder()
        .virtual_time(Some(1))
        .workflows(file.to_string())
        .build();
    match built {
        Ok(_) => BTreeSet::new(),
        Err(BuildError::Workflows(faults)) => faults
            .into_iter()
            .map(|fault| (fault.code.to_string(), fault.pointer))
            .collect(),
        Err(other) => panic!("the workflows were not even looked at: {other}"),
    }
}

fn codes(file: &Value) -> Vec<String> {
    let codes: BTreeSet<String> = faults(file).into_iter().map(|(code, _)| code).collect();
    codes.into_iter().collect()
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns a workflow with the FORK or JOIN of a case, and a partner node that matches it as far as possible.
fn around(word: &str, config: &Value) -> Value {
    let pairs = config["forkPaths"].as_array().cloned().unwrap_or_default();
    let of_pairs = |key: &str| {
        pairs
            .iter()
            .filter_map(|pair| pair[key].as_str())
            .map(str::to_owned)
            .collect()
    };
    let mut paths = strings(&config["forkPathIds"]);
    let mut children = strings(&config["childNodeIds"]);
    if !pairs.is_empty() {
        (paths, children) = (of_pairs("pathId"), of_pairs("childNodeId"));
    }
    if word == "JOIN" {
        children = paths.iter().map(|path| format!("at-{path}")).collect();
    }
    let mut fork = json!({"forkPathIds": paths, "childNodeIds": children});
    let mut join = json!({"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"});
    if word == "FORK" {
        fork = config.clone();
    } else {
        join = config.clone();
    }
    let mut nodes = vec![
        node("start", "START", json!({})),
        node("fork", "FORK", fork),
        node("join", "JOIN", join),
        node("end", "END", json!({})),
    ];
    let mut ways = vec!["start>fork".to_owned(), "join>end".to_owned()];
    for child in &children {
        nodes.push(code(child, "return 1"));
        ways.push(format!("fork>{child}>join"));
    }
    let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
    workflow("w", &nodes, &ways)
}

#[test]
fn a05_to_a16_forks_and_joins_are_accepted_or_refused_as_the_cases_require() {
    let rows = include_str!("../cases/fork-join-validate.jsonl").lines();
    let mut met = BTreeSet::new();
    for row in rows.map(|row| serde_json::from_str::<Value>(row).expect("a case is JSON")) {
        let id = row["id"].as_str().expect("a case has an id");
        let word = row["input"]["node"].as_str().expect("a case names its node");
        let found = codes(&around(word, &row["input"]["config"]));
        let wanted = match (row["expect"]["code"].as_str(), row["expect"]["field"].as_str()) {
            (Some(code), _) => code,
            (None, Some("forkPathIds")) => "INVALID_FORK_PATH_IDS",
            (None, Some("joinStrategy")) => "INVALID_JOIN_STRATEGY",
            (None, Some("threshold")) => "INVALID_THRESHOLD",
            (None, Some("timeout")) => "INVALID_TIMEOUT",
            (None, other) => {
                assert_eq!((other, &row["expect"]["ok"]), (None, &json!(true)), "{id}");
                assert_eq!(found, Vec::<String>::new(), "{id}");
                met.insert(id.to_owned());
                continue;
            }
        };
        assert!(
            found.iter().any(|code| code == wanted),
            "{id}: {wanted} is not among {found:?}"
        );
        met.insert(id.to_owned());
    }
    let asked = [
        "A05", "A06", "A08", "A09", "A10", "A11", "A12", "A13", "A14", "A15", "A16",
    ];
    let missing: Vec<&str> = asked.into_iter().filter(|id| !met.contains(*id)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// Returns START > FORK (paths directly to the JOIN) > JOIN > ... > END, with the pairs in sequence.
fn pairs(forked: &[(&[&str], &[&str])]) -> Value {
    let mut nodes = vec![node("start", "START", json!({}))];
    let mut way = vec!["start".to_owned()];
    for (place, (fork, join)) in forked.iter().enumerate() {
        let (f, j) = (format!("fork{place}"), format!("join{place}"));
        let children = vec![j.clone(); fork.len()];
        if !fork.is_empty() {
            nodes.push(node(&f, "FORK", json!({"forkPathIds": fork, "childNodeIds": children})));
            way.push(f);
        }
        nodes.push(node(
            &j,
            "JOIN",
            json!({"forkPathIds": join, "joinStrategy": "ALL_COMPLETED"}),
        ));
        way.push(j);
    }
    nodes.push(node("end", "END", json!({})));
    way.push("end".to_owned());
    workflow("w", &nodes, &[&way.join(">")])
}

#[test]
fn a18_to_a25_forks_and_joins_are_paired_by_their_path_ids() {
    type Pairs<'a> = &'a [(&'a [&'a str], &'a [&'a str])];
    let cases: [(&str, Pairs<'_>, &[&str]); 6] = [
        ("A18", &[(&[], &["j1"])], &["UNPAIRED_JOIN"]),
        ("A20", &[(&["f1"], &["f1"])], &[]),
        ("A21", &[(&["f1"], &["f1"]), (&["f2"], &["f2"])], &[]),
        ("A23", &[(&["p1", "p2"], &["p1", "p3"])], &["FORK_JOIN_MISMATCH"]),
        ("A24", &[(&["p1", "p2"], &["p2", "p1"])], &["FORK_JOIN_MISMATCH"]),
        (
            "A25",
            &[(&["a", "b"], &["a", "b"]), (&["b", "c"], &["b", "c"])],
            &["DUPLICATE_FORK_PATH_ID"],
        ),
    ];
    for (case, forked, expected) in cases {
        assert_eq!(codes(&pairs(forked)), expected, "{case}");
    }
    let a22 = around(
        "FORK",
        &json!({"forkPathIds": ["fork-1", "fork-2"], "childNodeIds": ["a", "b"]}),
    );
    assert_eq!(codes(&a22), Vec::<String>::new(), "A22");
}

#[test]
fn b05_b06_b24_b25_missing_and_invalid_fields_of_forks_and_joins_are_faults() {
    let fork = |config: Value| around("FORK", &config);
    let join = |config: Value| {
        let branches = [vec![code("a", "return 1")], vec![code("b", "return 1")]];
        forked(&branches, false, &config)
    };
    let cases = [
        ("B05", join(json!({"joinStrategy": null})), "INVALID_JOIN_STRATEGY"),
        ("B05", join(json!({})), "INVALID_JOIN_STRATEGY"),
        (
            "B06",
            join(json!({"joinStrategy": "ANY_COMPLETED", "timeout": -1})),
            "INVALID_TIMEOUT",
        ),
        ("B24", fork(json!({"forkId": null})), "INVALID_FORK_PATH_IDS"),
        ("B24", fork(json!({})), "INVALID_FORK_PATH_IDS"),
        (
            "B25",
            fork(json!({"forkPathIds": ["f"], "childNodeIds": ["a"], "forkStrategy": "weird"})),
            "INVALID_VALUE",
        ),
        (
            "B25",
            fork(json!({"forkId": "f", "forkStrategy": "weird"})),
            "INVALID_VALUE",
        ),
    ];
    for (case, file, wanted) in cases {
        let found = codes(&file);
        assert!(
            found.iter().any(|code| code == wanted),
            "{case}: {wanted} is not among {found:?}"
        );
    }
}

#[test]
fn g01_a_trigger_must_name_its_triggered_workflow() {
    let mut main = line("main", &[code("a", "return 1")]);
    main["triggers"] = json!([{"id": "t", "type": "EVENT", "condition": {"eventType": "NODE_COMPLETED"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"waitForCompletion": true}}}]);
    let found = faults(&main);
    assert_eq!(found.len(), 1, "G01: {found:?}");
    let error = Engine::builder().workflows(main.to_string()).build().expect_err("G01");
    assert!(error.to_string().contains("triggeredWorkflowId"), "G01: {error}");
}

/// SPEC section 2: a workflow has no `type`, so its permitted nodes do not depend on one.
#[test]
fn g27_g28_a_workflow_has_no_type() {
    let standalone = json!({"workflows": [
        line("main", &[node("call", "SUBGRAPH", json!({"subgraphId": "sub"}))]),
        line("sub", &[code("a", "return 1")]),
    ]});
    let dependent = json!({"workflows": [line("main", &[code("a", "return 1")])]});
    for (case, word, file) in [("G27", "STANDALONE", standalone), ("G28", "DEPENDENT", dependent)] {
        assert_eq!(codes(&file), Vec::<String>::new(), "{case}: without a type");
        let mut file = file;
        file["workflows"][0]["type"] = json!(word);
        let found: Vec<(String, String)> = faults(&file).into_iter().collect();
        let wanted = ("UNKNOWN_FIELD".to_owned(), "/workflows/0/type".to_owned());
        assert_eq!(found, [wanted], "{case}");
    }
}

#[test]
fn l12_an_unknown_variable_type_is_a_fault() {
    let config = json!({"variableName": "v", "expression": "42", "variableType": "invalid_type"});
    let found: Vec<(String, String)> = faults(&line("w", &[node("set", "VARIABLE", config)]))
        .into_iter()
        .collect();
    let wanted = ("INVALID_VALUE".to_owned(), "/nodes/1/config/variableType".to_owned());
    assert_eq!(found, [wanted], "L12");
}
