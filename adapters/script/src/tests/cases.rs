//! Acceptance cases for expressions that conform to SPEC, by id.

use super::*;

/// `ctx1` of the cases. Its names are variables here, because SPEC has no other bare names.
fn ctx1() -> ScopeValues {
    let user = json!({"age": 25, "role": "admin", "name": "John"});
    let variables = json!({"user": user, "isActive": true, "text": "Hello World", "maxAge": 65, "emptyString": ""});
    scope(&variables, &json!({"status": "active"}))
}

#[test]
fn k_expressions_evaluate_to_the_expected_value() {
    let mut evaluator = patient();
    for (id, expression, expected) in [
        ("K01", "user.age == 25", json!(true)),
        ("K02", "user.age != 25", json!(false)),
        ("K03", "user.age >= 26", json!(false)),
        // K05 and K06 use `in` to search a list's values. SPEC: expressions are JavaScript, where `in` searches its indices;
        // `includes` expresses the intent of these cases.
        ("K05", "user.role in ['admin', 'user']", json!(false)),
        ("K05", "['admin', 'user'].includes(user.role)", json!(true)),
        ("K06", "user.role in ['guest', 'user']", json!(false)),
        ("K07", "user.age >= 18 && user.age <= 65", json!(true)),
        (
            "K09",
            "(user.age >= 18 && user.age <= 65) || user.role == \"admin\"",
            json!(true),
        ),
        ("K11", "!!isActive", json!(true)),
        ("K13", "false && user.nonexistent == 123", json!(false)),
        ("K14", "true || user.nonexistent == 123", json!(true)),
        ("K15", "25 % 7", json!(4)),
        ("K17", "text.startsWith(\"Hello\")", json!(true)),
        ("K18", "text.length", json!(11)),
        (
            "K21",
            "user.age < 18 ? \"minor\" : user.age < 65 ? \"adult\" : \"senior\"",
            json!("adult"),
        ),
        ("K22", "input.status == \"active\"", json!(true)),
        ("K24", "variables.maxAge == 65", json!(true)),
        ("K27", "emptyString == \"\"", json!(true)),
        ("K29", "25 * 2 + 10", json!(60)),
    ] {
        assert_eq!(
            value_in(&mut evaluator, expression, &ctx1()),
            Ok(expected),
            "{id}: {expression}"
        );
    }
}

#[test]
fn k25_and_j06_are_errors_with_the_unknown_name() {
    // The cases expect false. SPEC: an undefined bare name is an error.
    for (id, expression) in [("K25", "nonexistent == 123"), ("J06", "nonexistent > 100")] {
        let fault = value_in(&mut patient(), expression, &ctx1()).unwrap_err();
        assert_eq!(fault.code, RunErrorCode::UnknownName, "{id}");
        assert_eq!(fault.details, Some(json!({"name": "nonexistent"})), "{id}");
    }
}

#[test]
fn k30_to_k35_are_javascript() {
    let mut evaluator = patient();
    let scope = scope(&json!({"a": 1, "b": 2, "s": "5"}), &json!(null));
    let mut value = |expression| value_in(&mut evaluator, expression, &scope);
    assert_eq!(value("(a == 1) && (b == 2)"), Ok(json!(true)), "K30");
    assert_eq!(value("a + 1 == 2"), Ok(json!(true)), "K31");
    // K33 expects no coercion. SPEC: expressions are JavaScript, where `==` coerces and `===` does not.
    assert_eq!(value("s == 5"), Ok(json!(true)), "K33");
    assert_eq!(value("s === 5"), Ok(json!(false)), "K33");
    assert_error(value("__proto__.x == 1"), RunErrorCode::ScriptError, "__proto__");
}

#[test]
fn l_variable_expressions_evaluate_to_the_expected_value() {
    for (id, variables, expression, expected) in [
        ("L01", json!({}), "10 + 20", json!(30)),
        ("L02", json!({"counter": 5}), "counter + 1", json!(6)),
        (
            "L03",
            json!({"baseValue": 10, "multiplier": 2}),
            "{{baseValue}} * {{multiplier}}",
            json!(20),
        ),
        ("L04", json!({"value": 10}), "{{value}}", json!(10)),
        ("L05", json!({"user": {"name": "John"}}), "{{user.name}}", json!("John")),
        ("L07", json!({}), "\"42\"", json!("42")),
        ("L15", json!({"a": 10, "b": 20}), "({{a}} + {{b}}) * 2 - 5", json!(55)),
        ("M05", json!({"items": [1, 2, 3]}), "{{items}}[0]", json!(1)),
        (
            "J05",
            json!({"score": 85, "passed": true}),
            "variables.score >= 80 && variables.passed === true",
            json!(true),
        ),
    ] {
        let scope = scope(&variables, &json!(null));
        assert_eq!(
            value_in(&mut patient(), expression, &scope),
            Ok(expected),
            "{id}: {expression}"
        );
    }
}

#[test]
fn l06_a_missing_placeholder_is_an_error_with_the_path() {
    let fault = value("{{nonExistentVar}} + 1").unwrap_err();
    assert_eq!(fault.code, RunErrorCode::ScriptError, "L06");
    assert!(fault.message.contains("nonExistentVar"), "L06: {fault}");
    assert_eq!(fault.details, Some(json!({"path": "nonExistentVar"})), "L06");
    assert_error(value("{{invalid.items}}"), RunErrorCode::ScriptError, "invalid.items"); // M06
    assert_error(value("'{{a-b.c}}' == ''"), RunErrorCode::ScriptError, "a-b.c");
}

#[test]
fn a_placeholder_is_inserted_as_a_value_and_not_as_code() {
    let scope = scope(&json!({"s": "\"; throw 1; \"", "name": "Eve' + 1 + '"}), &json!(null));
    let mut evaluator = patient();
    assert_eq!(
        value_in(&mut evaluator, "{{s}} + 1", &scope),
        Ok(json!("\"; throw 1; \"1"))
    );
    assert_eq!(
        value_in(&mut evaluator, "'Hi {{name}}!'", &scope),
        Ok(json!("Hi Eve' + 1 + '!"))
    );
}
