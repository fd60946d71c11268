//! Conversion of values to JavaScript and back.

use super::*;
use proptest::prelude::*;

#[test]
fn names_resolve_in_the_order_defined_by_the_core() {
    let mut scope = scope(&json!({"v": 1, "result": "mine", "Date": "today"}), &json!("in"));
    scope.output = Arc::new(json!("out"));
    scope.nodes = [("n-1", json!({"x": 2})), ("n", json!(3)), ("JSON", json!(4))]
        .map(|(id, output)| (Arc::from(id), Arc::new(output)))
        .into();
    scope.event = Some(Arc::new(json!({"type": "CUSTOM"})));
    let mut evaluator = patient();
    for (expression, expected) in [
        ("input + v", json!("in1")),
        ("output + 1", json!("out1")),
        ("result + 1", json!("mine1")),
        ("n + nodes['n-1'].x + nodes.n", json!(8)),
        ("event.type + ''", json!("CUSTOM")),
        ("Date + 1", json!("today1")),
        (
            "JSON.stringify([typeof other, typeof JSON])",
            json!(r#"["undefined","object"]"#),
        ),
        ("Object.keys(variables)", json!(["Date", "result", "v"])),
        ("Object.keys(nodes).length", json!(3)),
        (
            "'v' in variables && !('w' in variables) && variables.hasOwnProperty('v')",
            json!(true),
        ),
        (
            "({...variables, v: 2})",
            json!({"Date": "today", "result": "mine", "v": 2}),
        ),
        ("variables[['v'][0]] + 1", json!(2)),
        ("variables", json!({"Date": "today", "result": "mine", "v": 1})),
        ("JSON.stringify(nodes)", json!(r#"{"JSON":4,"n":3,"n-1":{"x":2}}"#)),
        ("(() => { const v = 5; return v })()", json!(5)),
        ("[1, 2].map(v => v * 2)", json!([2, 4])),
    ] {
        assert_eq!(
            value_in(&mut evaluator, expression, &scope),
            Ok(expected),
            "{expression}"
        );
    }
}

#[test]
fn numbers_convert_without_loss() {
    for (expression, expected) in [
        ("10 + 20", json!(30)),
        ("0.1 + 0.2", json!(0.1 + 0.2)),
        ("2 ** 53", json!(9_007_199_254_740_992_i64)),
        ("-(2 ** 31) - 1", json!(-2_147_483_649_i64)),
        ("-0 + 0 * -1", json!(0)),
        ("1e300 * 10", json!(1e301)),
    ] {
        assert_eq!(value(expression), Ok(expected.clone()), "{expression}");
        assert_eq!(value(expression).unwrap().is_i64(), expected.is_i64(), "{expression}");
    }
}

#[test]
fn a_value_without_json_form_is_an_error_with_its_path() {
    for (expression, part) in [
        ("0 / 0", "NaN"),
        ("1 / 0", "inf"),
        ("({a: [1, 0 / 0]})", "a[1]"),
        ("() => 1", "a function"),
        ("({a: {b: () => 1}})", "`a.b`"),
        ("Symbol()", "a symbol"),
        ("10n + 1n", "BigInt"),
        ("Promise.resolve(1)", "await"),
        ("new Map()", "Map"),
        ("new Set([1])", "Set"),
        ("new Uint8Array(1)", "Uint8Array"),
        ("(a => { a[0] = a; return a })([])", "itself"),
    ] {
        assert_error(value(expression), RunErrorCode::ScriptError, part);
    }
}

#[test]
fn values_are_converted_to_their_json_form() {
    assert_eq!(value("void 0"), Ok(json!(null)));
    assert_eq!(
        value("({a: void 0, b: [void 0, null]})"),
        Ok(json!({"b": [null, null]}))
    );
    assert_eq!(value("new Date(0)"), Ok(json!("1970-01-01T00:00:00.000Z")));
    assert_eq!(
        value("new RangeError('x')"),
        Ok(json!({"name": "RangeError", "message": "x"}))
    );
    assert_eq!(value("'\u{1f600}'.slice(0, 1) + '!'"), Ok(json!("\u{fffd}!")));
    assert_eq!(
        value("({'__proto__': 1, ['__proto__']: 2})"),
        Ok(json!({"__proto__": 2}))
    );
}

#[test]
fn a_thrown_error_has_a_message_and_a_location() {
    let fault = value("1 +\n  [].at(0).x").unwrap_err();
    assert_eq!(fault.code, RunErrorCode::ScriptError);
    assert!(fault.message.starts_with("TypeError"), "{fault}");
    assert_eq!(fault.details.unwrap()["line"], json!(2));
    assert_error(value("(() => { throw 'no' })()"), RunErrorCode::ScriptError, "no");
    assert_error(
        value("(() => { throw {a: 1} })()"),
        RunErrorCode::ScriptError,
        r#"{"a":1}"#,
    );
    assert_error(
        value("(() => { throw new Error('why') })()"),
        RunErrorCode::ScriptError,
        "why",
    );
}

#[test]
fn a_long_unknown_name_is_an_error_with_its_name() {
    for length in [20, 100, 200] {
        let name = "a".repeat(length);
        for expression in [name.clone(), format!("[0].map(x => {name})")] {
            let fault = value(&expression).unwrap_err();
            assert_eq!(fault.code, RunErrorCode::UnknownName, "{expression}: {fault:?}");
            assert_eq!(fault.details.unwrap()["name"], json!(name), "{expression}");
        }
    }
}

#[test]
fn a_byte_order_mark_separates_names() {
    for (expression, expected) in [
        ("\u{feff}total", json!(3)),
        ("total\u{feff}", json!(3)),
        ("total\u{feff}+ 1", json!(4)),
        ("!total\u{feff}", json!(false)),
        ("[0].map(x => total\u{feff})", json!([3])),
    ] {
        let scope = scope(&json!({"total": 3}), &json!(null));
        assert_eq!(
            value_in(&mut patient(), expression, &scope),
            Ok(expected),
            "{expression:?}"
        );
    }
    assert_error(value("a\u{feff}b"), RunErrorCode::ScriptError, "SyntaxError");
}

#[test]
fn an_unknown_name_is_an_error_with_its_location() {
    let known = ScopeValues {
        known: ["later".into()].into(),
        ..scope(&json!({"total": 3}), &json!(null))
    };
    let mut evaluator = patient();
    let mut over = |expression: &str| value_in(&mut evaluator, expression, &known);
    for (expression, name, line, column) in [
        ("(0, totl) + 1", "totl", 1, 5),
        ("[1].map(x => x +\n  totl)", "totl", 2, 3),
        ("`${constructor}`", "constructor", 1, 4),
        ("{{total}} * 1 + [0].map(x => nobody)", "nobody", 1, 30),
        ("(() => fetch('http://localhost'))()", "fetch", 1, 8),
        ("'\u{65e5}\u{e9}' + [0].map(x => nobody)", "nobody", 1, 21),
    ] {
        let fault = over(expression).unwrap_err();
        assert_eq!(fault.code, RunErrorCode::UnknownName, "{expression}");
        let details = fault.details.unwrap();
        assert_eq!(
            (
                &details["name"],
                &details["line"],
                &details["column"],
                &details["expression"]
            ),
            (&json!(name), &json!(line), &json!(column), &json!(expression)),
            "{expression}"
        );
    }
    assert_eq!(
        over("[typeof totl, typeof (totl)]"),
        Ok(json!(["undefined", "undefined"]))
    );
    assert_eq!(over("(0, later)"), Ok(json!(null)));
    assert_eq!(over("(0, variables.totl) ?? nodes?.x ?? 'none'"), Ok(json!("none")));
    assert_eq!(over("(totl => totl)(total)"), Ok(json!(3)));
    assert_eq!(over("(0, total)"), Ok(json!(3)));
}

#[test]
fn a_value_is_one_object_within_an_evaluation_and_fresh_in_the_next() {
    let scope = scope(&json!({"list": [1]}), &json!(null));
    let mut evaluator = patient();
    for _ in 0..2 {
        let pushed = value_in(
            &mut evaluator,
            "list.push(2) && list === variables.list && list.length",
            &scope,
        );
        assert_eq!(pushed, Ok(json!(2)));
    }
}

#[test]
fn only_the_named_variables_are_captured() {
    let many: serde_json::Map<String, Value> = (0..10_000).map(|n| (format!("v{n}"), json!([n]))).collect();
    let scope = scope(&Value::Object(many), &json!(null));
    let names = pirn_definition::script::Names::of("variables.v7[0] + v8[0]");
    assert_eq!(ScopeValues::capture(&names, &scope).variables.len(), 2);
    assert_eq!(
        value_in(&mut patient(), "variables.v7[0] + v8[0]", &scope),
        Ok(json!(15))
    );
    let dynamic = "variables['v' + 9][0] + Object.keys(variables).length";
    assert_eq!(value_in(&mut patient(), dynamic, &scope), Ok(json!(10_009)));
}

/// JSON with numbers that a double can represent.
pub(super) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53)..(1_i64 << 53)).prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite() && number.fract() != 0.0)
            .prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("(a|b|length|0|__proto__|constructor|\\PC{0,3})", inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_values_pass_through_javascript_unchanged(given in any_json()) {
        let scope = scope(&json!({"v": given.clone()}), &json!(null));
        let back = value_in(&mut patient(), "(() => v)()", &scope);
        prop_assert_eq!(back, Ok(given));
    }
}
