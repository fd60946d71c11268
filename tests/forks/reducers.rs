//! Variables that several paths set and a reducer combines: named reducers and expressions, at a JOIN and after a MAP.

use pirn::EventType;
use pirn_tests::world::{Ran, code, forked, line, node, run, wait};
use proptest::prelude::*;
use serde_json::{Value, json};

fn set(id: &str, expression: &str) -> Value {
    node(id, "VARIABLE", json!({"variableName": "x", "expression": expression}))
}

/// Paths that each set `x` after a delay, so that they end in another order than they are listed in.
fn joined(values: &[(Value, u32)], reduce: &str) -> Ran {
    let branch = |(place, (value, ms)): (usize, &(Value, u32))| {
        vec![
            wait(&format!("w{place}"), *ms),
            set(&format!("v{place}"), &value.to_string()),
        ]
    };
    let branches: Vec<Vec<Value>> = values.iter().enumerate().map(branch).collect();
    let join = json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": "all"});
    let mut bundle = forked(&branches, false, &join);
    bundle["variables"] = json!([{"name": "x", "reduce": reduce}, {"name": "seen", "value": "!"}]);
    run(&bundle, Value::Null)
}

/// The values as items of a MAP.
fn mapped(values: &[(Value, u32)], reduce: Option<&str>, assign: &Value) -> Ran {
    let items: Vec<Value> = values
        .iter()
        .map(|(value, ms)| json!({"value": value, "ms": ms}))
        .collect();
    let mut item = line(
        "item",
        &[
            code("rest", "return input.ms"),
            node("when", "WAIT", json!({"seconds": 0.001})),
            set("v", "input.value"),
            node("own", "VARIABLE", json!({"variableName": "own", "expression": "1"})),
        ],
    );
    item["variables"] = json!([{"name": "x"}]);
    let mut main = line(
        "main",
        &[node(
            "map",
            "MAP",
            json!({"items": items, "subgraphId": "item", "assign": assign}),
        )],
    );
    main["variables"] = match reduce {
        Some(reduce) => json!([{"name": "x", "value": "before", "reduce": reduce}, {"name": "seen", "value": "!"}]),
        None => json!([{"name": "x", "value": "before"}]),
    };
    run(&json!({"workflows": [main, item]}), Value::Null)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_reducer_expression_combines_the_values_of_the_paths_in_path_order(
        values in prop::collection::vec(("[a-z]{1,2}", 1..50_u32), 2..5),
        needs_javascript in any::<bool>(),
    ) {
        let expression = if needs_javascript { "[a, b].map(c => c).join('')" } else { "a + b" };
        let expected: String = values.iter().map(|(value, _)| value.as_str()).collect();
        let values: Vec<(Value, u32)> = values.into_iter().map(|(value, ms)| (json!(value), ms)).collect();
        let ran = joined(&values, expression);
        prop_assert_eq!((ran.code(), &ran.report.variables["x"]), ("", &json!(expected)));
        let ran = mapped(&values, Some(expression), &json!(["x"]));
        prop_assert_eq!((ran.code(), &ran.report.variables["x"]), ("", &json!(expected)));
    }
}

#[test]
fn a_reducer_sees_the_threads_variables_and_its_failure_fails_the_join() {
    let values = [(json!(1), 2), (json!(2), 1)];
    assert_eq!(joined(&values, "a + seen + b").report.variables["x"], json!("1!2"));
    assert_eq!(joined(&values, "a.b.c + b").code(), "SCRIPT_ERROR");
    assert_eq!(joined(&values, "sum").report.variables["x"], json!(3));
}

#[test]
fn a_conflict_of_a_reducer_names_the_reducer_and_the_path_of_the_value() {
    for (values, reducer, expected) in [
        ([json!("a"), json!("a")], "sum", "that of path p0 is text"),
        ([json!(1), json!("a")], "max", "that of path p1 is text"),
        ([json!([1]), json!([2])], "merge", "that of path p0 is a list"),
    ] {
        let error = joined(&values.map(|value| (value, 1)), reducer).report.error.clone();
        let error = error.expect("failed");
        assert_eq!(error.code.as_str(), "VARIABLE_MERGE_CONFLICT");
        let expected = format!("`{reducer}` cannot combine the values of x: {expected}");
        assert!(error.message.contains(&expected), "{error:?}");
        let details = error.details.clone().unwrap_or_default();
        assert_eq!(details["reducers"], json!({"x": reducer}), "{details}");
    }
}

#[test]
fn a_map_returns_only_the_variables_in_assign_in_item_order() {
    let values = [(json!([3]), 9), (json!([1]), 5), (json!(null), 1)];
    let ran = mapped(&values, Some("append"), &json!(["x"]));
    assert_eq!(ran.code(), "");
    // Also of the item that assigned the initial value.
    assert_eq!(ran.report.variables["x"], json!([3, 1, null]));
    let changes = ran.of(EventType::VariableChanged).into_iter();
    let last = &changes.last().expect("the MAP assigned x").raised.fields;
    assert_eq!(json!([last["name"], last["value"]]), json!(["x", [3, 1, null]]));
    assert!(!ran.report.variables.contains_key("own"));
    let ran = mapped(&values, Some("append"), &json!([]));
    assert_eq!(
        ran.report.variables["x"],
        json!("before"),
        "nothing is assigned unless it is said"
    );
}

#[test]
fn items_that_disagree_without_a_reducer_are_a_conflict_by_index() {
    let ran = mapped(&[(json!(1), 1), (json!(2), 1)], None, &json!(["x"]));
    let error = ran.report.error.clone().expect("failed");
    assert_eq!(error.code.as_str(), "VARIABLE_MERGE_CONFLICT");
    assert_eq!(error.details, Some(json!({"conflicts": {"x": {"0": 1, "1": 2}}})));
}

#[test]
fn an_invalid_reducer_or_assign_list_is_reported_when_the_workflow_is_loaded() {
    let faults = |bundle: &Value| -> Vec<(String, String, Option<String>)> {
        let faults = pirn::Engine::builder().workflows(bundle.to_string()).build();
        let Err(pirn::BuildError::Workflows(faults)) = faults else {
            panic!("it is refused")
        };
        let facts = faults
            .into_iter()
            .map(|fault| (fault.code.as_str().to_owned(), fault.pointer, fault.help));
        facts.collect()
    };
    let mut main = line(
        "main",
        &[node(
            "map",
            "MAP",
            json!({"items": "input", "subgraphId": "item", "assign": ["tottal"]}),
        )],
    );
    main["variables"] = json!([
        {"name": "total", "reduce": "summ"}, {"name": "two", "reduce": "a +"}, {"name": "three", "reduce": "a + c"}
    ]);
    let bundle = json!({"workflows": [main, line("item", &[])]});
    let found = faults(&bundle);
    let short: Vec<(&str, &str)> = found
        .iter()
        .map(|(code, pointer, _)| (code.as_str(), pointer.as_str()))
        .collect();
    assert_eq!(
        short,
        [
            ("UNKNOWN_NAME", "/workflows/0/nodes/1/config/assign/0"),
            ("INVALID_VALUE", "/workflows/0/variables/0/reduce"),
            ("INVALID_EXPRESSION", "/workflows/0/variables/1/reduce"),
            ("UNKNOWN_NAME", "/workflows/0/variables/2/reduce"),
        ]
    );
    assert!(
        found[0].2.as_ref().is_some_and(|help| help.contains("total")),
        "{found:?}"
    );
    assert!(
        found[1].2.as_ref().is_some_and(|help| help.contains("sum")),
        "{found:?}"
    );
}
