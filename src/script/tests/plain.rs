//! A plain path without JavaScript gives what JavaScript gives.

use super::*;
use pirn_core::script::Plain;
use proptest::prelude::*;

fn path() -> impl Strategy<Value = String> {
    let root = prop::sample::select(vec![
        "a",
        "b",
        "input",
        "output",
        "result",
        "event",
        "variables",
        "nodes",
        "Math",
        "constructor",
        "nothing",
        "n",
    ]);
    let step = prop_oneof![
        prop::sample::select(vec!["a", "b", "length", "constructor", "toString", "n"])
            .prop_map(|name| format!(".{name}")),
        prop::sample::select(vec!["a", "0", "00", "length", "x-y"]).prop_map(|name| format!("[\"{name}\"]")),
        (0..3_usize).prop_map(|index| format!("[{index}]")),
    ];
    (root, prop::collection::vec(step, 0..4)).prop_map(|(root, steps)| format!("{root}{}", steps.concat()))
}

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-9]{1,4}(\\.[0-9]{0,3})?",
        "'[a-z\"{}]{0,4}'",
        "(true|false|null|undefined|NaN|-0|-0\\.0|00)"
    ]
}

fn member_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(0)),
        Just(json!(7)),
        Just(json!("")),
        Just(json!("h\u{1f600}"))
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("(a|b|length|0|n|x-y|toString)", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn without_javascript_the_result_is_the_same(
        expression in prop_oneof![4 => path(), 1 => literal()],
        values in prop::collection::vec(member_json(), 6),
    ) {
        let shared = |index: usize| Arc::new(values[index].clone());
        let scope = ScopeValues {
            input: shared(0),
            output: shared(1),
            variables: [("a", shared(2)), ("n", shared(3))].map(|(name, value)| (Arc::from(name), value)).into(),
            nodes: [("a", shared(4)), ("b", shared(5))].map(|(name, value)| (Arc::from(name), value)).into(),
            event: None,
        };
        let Some(plain) = Plain::read(&expression) else { return Ok(()) };
        // In brackets it is no plain path any more, and JavaScript evaluates it.
        let script = format!("(({expression}))");
        prop_assert!(Plain::read(&script).is_none());
        let mut evaluator = patient();
        if let Some(value) = plain.value(&scope) {
            let by_script = value_in(&mut evaluator, &script, &scope);
            prop_assert_eq!(value.map(|value| value.as_ref().clone()), by_script, "{}", expression);
        }
        if let Some(truth) = plain.truth(&scope) {
            prop_assert_eq!(truth, evaluator.truth_of(&script, &scope), "{}", expression);
        }
    }
}
