//! Assignments to variables that all threads share: no update is lost, and every outcome on real threads is one that an
//! exploration finds.

use std::collections::BTreeSet;

use pirn::explore::explore;
use pirn::{Engine, EngineBuilder};
use pirn_tests::world::{code, forked, node, say};
use serde_json::{Value, json};

/// Returns the number of real runs of each workflow: `PIRN_DIFFERENTIAL_RUNS`, by default 20.
fn runs() -> usize {
    let runs = std::env::var("PIRN_DIFFERENTIAL_RUNS").ok();
    runs.and_then(|runs| runs.parse().ok()).unwrap_or(20)
}

fn assign(id: &str, name: &str, expression: &str) -> Value {
    node(
        id,
        "VARIABLE",
        json!({ "variableName": name, "expression": expression }),
    )
}

/// Returns a workflow whose branches use the global variables `x` (with this initial value), `y` and `seen`.
fn shared(first: &Value, branches: &[Vec<Value>], output: &str) -> Value {
    let mut workflow = forked(branches, false, &json!({ "joinStrategy": "ALL_COMPLETED" }));
    workflow["variables"] = json!([
        { "name": "x", "value": first, "scope": "global" },
        { "name": "y", "value": 0, "scope": "session" },
        { "name": "seen", "value": [], "scope": "global" },
    ]);
    for node in workflow["nodes"].as_array_mut().into_iter().flatten() {
        if node["type"] == "END" {
            node["config"] = json!({ "output": output });
        }
    }
    workflow
}

fn builder(workflow: &Value) -> EngineBuilder {
    Engine::builder().workflows(workflow.to_string())
}

fn explored(workflow: &Value) -> BTreeSet<String> {
    let explored = explore(builder(workflow)).max_schedules(200_000).run();
    let explored = explored.unwrap_or_else(|error| panic!("{error}"));
    assert!(explored.complete, "{explored}");
    explored
        .outcomes
        .iter()
        .map(|outcome| outcome.output.to_string())
        .collect()
}

fn real(workflow: &Value, runs: usize) -> BTreeSet<String> {
    let engine = builder(workflow)
        .arbiters(2)
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let handles: Vec<_> = (0..runs)
        .map(|_| {
            engine
                .start("forked", Value::Null)
                .unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    handles
        .iter()
        .map(|handle| {
            let report = handle.outcome_blocking();
            assert!(report.error.is_none(), "{:?}", report.error);
            report.output.to_string()
        })
        .collect()
}

/// Common expressions over `x`, its initial value, and the number of updates that a value of it contains. `N` is the branch.
const EXPRESSIONS: [(&str, &str, &str); 14] = [
    ("[]", "[...x, 'N']", "x.length"),
    ("[]", "x.concat(['N'])", "x.length"),
    ("[0]", "x.map(n => n + 1).concat([0])", "x.length - 1"),
    ("[]", "x.filter(n => n !== 'N').concat('N')", "x.length"),
    ("0", "x + 1", "x"),
    ("0", "(() => { let n = x; n += 1; return n })()", "x"),
    ("0", "Math.max(x, 0) + 1", "x"),
    ("{}", "({ ...x, N: 1 })", "Object.keys(x).length"),
    ("{}", "Object.assign({}, x, { N: true })", "Object.keys(x).length"),
    ("\"\"", "`${x}N`", "x.length"),
    ("[]", "x.length > 1 ? [...x, 'last'] : ['N', ...x]", "x.length"),
    ("0", "[1, 2, 3].reduce((sum, n) => n === 2 ? sum + 1 : sum, x)", "x"),
    ("[]", "variables.x.slice().concat('N')", "x.length"),
    (
        "[]",
        "(() => { const all = []; for (const n of x) all.push(n); return [...all, 'N'] })()",
        "x.length",
    ),
];

fn of_branch(expression: &str, branch: &str) -> String {
    expression.replace('N', branch)
}

#[test]
fn no_common_expression_loses_an_update_in_any_order() {
    for (first, expression, updates) in EXPRESSIONS {
        let first: Value = serde_json::from_str(first).expect("a value");
        let branches: Vec<Vec<Value>> = ["a", "b", "c"]
            .map(|branch| {
                let before = format!("{branch}1");
                let assign = assign(&format!("{branch}2"), "x", &of_branch(expression, branch));
                vec![code(&before, "return 1"), assign]
            })
            .into();
        let outcomes = explored(&shared(&first, &branches, updates));
        assert_eq!(outcomes, BTreeSet::from(["3".to_owned()]), "{expression}");
        let outcomes = real(&shared(&first, &branches, updates), runs());
        assert_eq!(outcomes, BTreeSet::from(["3".to_owned()]), "{expression}");
    }
}

#[test]
fn real_threads_reach_no_outcome_that_an_exploration_misses() {
    let twice = |no: &str| {
        vec![
            code(&format!("c{no}"), "return 1"),
            assign(&format!("a{no}"), "x", &format!("[...x, '{no}1']")),
            assign(&format!("b{no}"), "x", &format!("[...x, '{no}2']")),
        ]
    };
    let model = |no: &str| {
        vec![
            say(&format!("l{no}"), "hello"),
            assign(&format!("a{no}"), "x", &format!("[...x, '{no}']")),
        ]
    };
    // One branch writes two variables, the second with an expression that takes several steps; the other branch reads both.
    let writer = vec![
        code("w", "return 1"),
        assign("w1", "x", "1"),
        assign("w2", "y", "[x].map(n => n + 1)[0]"),
    ];
    let reader = vec![
        code("r", "return 1"),
        assign("r1", "seen", "[x, y]"),
        assign("r2", "seen", "[...seen, x, y]"),
    ];
    let plain = vec![code("p", "return 1"), assign("p1", "y", "x"), assign("p2", "x", "5")];
    let cases = [
        shared(&json!([]), &[twice("a"), twice("b")], "x"),
        shared(&json!([]), &[model("a"), model("b"), twice("c")], "x"),
        shared(&json!(0), &[writer.clone(), reader], "[x, y, seen]"),
        shared(&json!(0), &[writer, plain], "[x, y]"),
    ];
    for workflow in &cases {
        let (possible, seen) = (explored(workflow), real(workflow, 3 * runs()));
        assert!(possible.is_superset(&seen), "{seen:?} of {possible:?}");
    }
}

#[test]
fn an_exploration_finds_reads_during_an_evaluation() {
    // The assignment to `y` takes several steps after the write of `x`, so a reader may see `x` without `y`.
    let writer = vec![
        code("w", "return 1"),
        assign("w1", "x", "1"),
        assign("w2", "y", "[1].map(n => n)[0]"),
    ];
    let reader = vec![code("r", "return 1"), assign("r1", "seen", "[x, y]")];
    let outcomes = explored(&shared(&json!(0), &[writer, reader], "seen"));
    let expected = ["[0,0]", "[1,0]", "[1,1]"].map(str::to_owned);
    assert_eq!(outcomes, BTreeSet::from(expected));
}

#[test]
fn an_exploration_finds_a_first_script_that_reads_the_first_assignment_of_another_branch() {
    let writer = vec![assign("w", "x", "1")];
    let reader = vec![code("r", "return variables.x")];
    let workflow = shared(&json!(0), &[writer, reader], "nodes.join.outputs.p1");
    let outcomes = explored(&workflow);
    assert_eq!(outcomes, BTreeSet::from(["0", "1"].map(str::to_owned)));
    assert!(outcomes.is_superset(&real(&workflow, runs())));
}

#[test]
fn a_thousand_appending_branches_cost_a_thousand_evaluations() {
    let items: Vec<usize> = (0..1_000).collect();
    let workflow = json!([
        {
            "id": "forked",
            "variables": [{ "name": "x", "value": [], "scope": "global" }],
            "nodes": [
                { "id": "start", "type": "START" },
                { "id": "map", "type": "MAP", "config": { "items": "input", "subgraphId": "one" } },
                { "id": "end", "type": "END", "config": { "output": "x.length" } },
            ],
            "edges": [{ "from": "start", "to": "map" }, { "from": "map", "to": "end" }],
        },
        {
            "id": "one",
            "variables": [{ "name": "x", "value": [], "scope": "global" }],
            "nodes": [
                { "id": "start", "type": "START" },
                { "id": "add", "type": "VARIABLE", "config": { "variableName": "x", "expression": "[...x, input]" } },
                { "id": "end", "type": "END" },
            ],
            "edges": [{ "from": "start", "to": "add" }, { "from": "add", "to": "end" }],
        },
    ]);
    let engine = builder(&workflow)
        .arbiters(2)
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let run = engine
        .start("forked", json!(items))
        .unwrap_or_else(|error| panic!("{error}"));
    let report = run.outcome_blocking();
    assert_eq!(report.output, json!(1_000), "{:?}", report.error);
}
