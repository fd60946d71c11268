//! Evaluation of plain paths gives equal values with and without JavaScript.

use super::*;
use pirn_definition::script::Plain;
use proptest::prelude::*;

use crate::TextSyntax;

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

/// Expressions of the grammar that needs no JavaScript, and slightly beyond it.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        3 => path(),
        2 => literal(),
        1 => prop::sample::select(vec!["{{a.b}}", "{{input}}", "{{n}}", "'<{{a.b}}>'", "b?.a.b", "input?.a?.length", "nothing?.x.y", "a\n. b"]).prop_map(str::to_owned),
        1 => Just("'a'".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let binary = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "===", "!==", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "??", "**", "|", ",",
        ]);
        let method = prop::sample::select(vec!["includes", "indexOf", "startsWith", "endsWith", "map"]);
        let function = prop::sample::select(vec![
            "Number", "String", "Boolean", "Array.isArray", "Math.abs", "Math.ceil", "Math.floor", "Math.trunc", "Math.max",
            "Math.min", "Math.round",
        ]);
        prop_oneof![
            4 => (inner.clone(), binary, inner.clone()).prop_map(|(left, op, right)| format!("{left} {op} {right}")),
            1 => inner.clone().prop_map(|inside| format!("({inside})")),
            1 => (prop::sample::select(vec!["!", "-", "+", "typeof "]), inner.clone()).prop_map(|(op, inside)| format!("{op}({inside})")),
            1 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("{a} ? {b} : {c}")),
            1 => (inner.clone(), method, inner.clone()).prop_map(|(of, method, argument)| format!("({of}).{method}({argument})")),
            1 => (inner.clone(), prop::sample::select(vec!["trim()", "toLowerCase()", "toUpperCase()", "length"])).prop_map(|(of, what)| format!("({of}).{what}")),
            1 => (function, prop::collection::vec(inner.clone(), 0..3)).prop_map(|(name, arguments)| format!("{name}({})", arguments.join(", "))),
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            1 => (inner.clone(), inner).prop_map(|(one, other)| format!("({{ a: {one}, 'b c': {other}, n }})")),
        ]
    })
}

fn seen_by_all(values: &[Value]) -> ScopeValues {
    let shared = |index: usize| Arc::new(values[index].clone());
    ScopeValues {
        input: shared(0),
        output: shared(1),
        variables: [("a", shared(2)), ("n", shared(3))]
            .map(|(name, value)| (Arc::from(name), value))
            .into(),
        nodes: [("a", shared(4)), ("b", shared(5))]
            .map(|(name, value)| (Arc::from(name), value))
            .into(),
        ..ScopeValues::default()
    }
}

/// Normalizes numbers for comparison: `1.0` equals 1.
fn by_value(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(by_value).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), by_value(field)))
            .collect(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn plain_evaluation_and_javascript_give_equal_results(
        expressions in prop::collection::vec(prop_oneof![2 => path(), 1 => literal(), 6 => expression()], 12),
        values in prop::collection::vec(member_json(), 6),
    ) {
        let scope = seen_by_all(&values);
        let mut evaluator = patient();
        for expression in expressions {
            let Some(plain) = Plain::read(&expression) else { continue };
            // As the second operand of a comma it is not plain, so JavaScript evaluates it.
            let script = format!("(0, ({expression}))");
            prop_assert!(Plain::read(&script).is_none());
            if let Some(value) = plain.value(&scope) {
                let by_script = value_in(&mut evaluator, &script, &scope);
                let without_place = |fault: ScriptFault| (fault.code, fault.message);
                let value = value.map(|value| by_value(&value)).map_err(without_place);
                let by_script = by_script.map(|value| by_value(&value)).map_err(without_place);
                prop_assert_eq!(value, by_script, "{}", expression);
            }
            if let Some(truth) = plain.truth(&scope) {
                let by_script = evaluator.truth_of(&script, &scope).map_err(fault);
                let without_place = |fault: ScriptFault| (fault.code, fault.message);
                prop_assert_eq!(truth.map_err(without_place), by_script.map_err(without_place), "{}", expression);
            }
        }
    }

    #[test]
    fn every_plain_expression_is_a_javascript_expression(pieces in prop::collection::vec(prop::collection::vec(prop::sample::select(PIECES), 1..9), 100)) {
        let syntax = TextSyntax::default();
        for pieces in pieces {
            let text = pieces.concat();
            if Plain::read(&text).is_some() {
                prop_assert_eq!(syntax.ask_quickjs(&text), Ok(()), "{}", text);
            }
        }
    }
}

const PIECES: &[&str] = &[
    "a",
    "b.c",
    " ",
    "(",
    ")",
    "[",
    "]",
    ".",
    "?.",
    "?",
    ":",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "<",
    ">",
    "=",
    "==",
    "===",
    "!=",
    "&&",
    "||",
    "??",
    "0",
    "1",
    "1.5",
    "'x'",
    "\"y\"",
    "'",
    ",",
    "in",
    "new",
    "null",
    "true",
    "this",
    "let",
    "async",
    "of",
    "\n",
    "$",
    "_",
    "e",
    "n",
    "{",
    "}",
    "{{a}}",
    "typeof",
    "length",
    ".includes(",
    "Math.max(",
    "\\",
];
