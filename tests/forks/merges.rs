//! SPEC section 4: values that a join merges into its parent: variables, the conversation, tokens spent.

use pirn::{Engine, EventType, Message, Role};
use pirn_tests::world::{code, forked, node, run, run_in, say, wait};
use serde_json::{Value, json};

#[test]
fn a_branch_has_private_variables_and_sees_its_parents_variables() {
    let set = |id: &str, name: &str, expression: &str, scope: &str| {
        node(
            id,
            "VARIABLE",
            json!({"variableName": name, "expression": expression, "scope": scope}),
        )
    };
    let mut bundle = forked(
        &[
            vec![
                set("a", "branchVar", "\"value-a\"", "thread"),
                code("ra", "return [branchVar, sharedVar]"),
            ],
            vec![
                set("b", "branchVar", "\"value-b\"", "thread"),
                code("rb", "return [branchVar, sharedVar]"),
            ],
        ],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    bundle["variables"] = json!([{"name": "sharedVar", "type": "string", "value": "shared-value", "scope": "global"}]);
    let ran = run(&bundle, Value::Null);
    assert_eq!(
        ran.report.output["outputs"],
        json!({"p0": ["value-a", "shared-value"], "p1": ["value-b", "shared-value"]}),
        "B28 B29"
    );
    assert!(
        !ran.report.variables.contains_key("branchVar"),
        "thread ones stay in the branch"
    );
}

#[test]
fn variables_are_merged_by_the_mode_of_the_join() {
    let set = |place: usize, name: &str, value: usize| {
        node(
            &format!("v{place}{name}"),
            "VARIABLE",
            json!({"variableName": name, "expression": value.to_string()}),
        )
    };
    let apart = [vec![set(0, "x", 1)], vec![set(1, "y", 2)]];
    let clash = [vec![set(0, "x", 1)], vec![set(1, "x", 2)]];
    let same = [vec![set(0, "x", 1)], vec![set(1, "x", 1)]];
    let cases = [
        ("none", &apart, "", json!({})),
        ("main", &apart, "", json!({"x": 1})),
        ("main", &clash, "", json!({"x": 1})),
        ("all", &apart, "", json!({"x": 1, "y": 2})),
        ("all", &same, "", json!({"x": 1})),
        ("all", &clash, "VARIABLE_MERGE_CONFLICT", json!({})),
    ];
    for (merge, branches, code, variables) in cases {
        let ran = run(
            &forked(
                branches,
                false,
                &json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": merge}),
            ),
            Value::Null,
        );
        assert_eq!(ran.code(), code, "{merge}");
        assert_eq!(json!(ran.report.variables), variables, "{merge}");
    }
}

#[test]
fn assignments_are_merged_even_if_they_do_not_change_the_value() {
    let cases = [
        // The reducer, the mode and the values of the paths. The value before the FORK is 1.
        ("min", "all", [json!(1), json!(5)], Ok(json!(1))),
        ("sum", "all", [json!(1), json!(2)], Ok(json!(3))),
        ("", "all", [json!(1), json!(2)], Err("VARIABLE_MERGE_CONFLICT")),
        ("", "all", [json!(2), json!(2.0)], Ok(json!(2))),
        ("append", "main", [json!(2), json!(3)], Ok(json!(2))),
    ];
    for (reduce, merge, values, expected) in cases {
        let set = |path: usize| {
            let fields = json!({"variableName": "x", "expression": values[path].to_string()});
            vec![node(&format!("v{path}"), "VARIABLE", fields)]
        };
        let join = json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": merge});
        let mut bundle = forked(&[set(0), set(1)], false, &join);
        bundle["variables"] = json!([{"name": "x", "type": "number", "value": 1}]);
        if !reduce.is_empty() {
            bundle["variables"][0]["reduce"] = json!(reduce);
        }
        let ran = run(&bundle, Value::Null);
        let case = format!("{reduce} {merge} {values:?}");
        let changes = ran.of(EventType::VariableChanged);
        match expected {
            Ok(value) => {
                assert_eq!((ran.code(), &ran.report.variables["x"]), ("", &value), "{case}");
                assert_eq!(changes.len(), 3, "{case}");
                let last = &changes[2];
                assert_eq!(*last.thread_id, *ran.report.thread_id, "{case}");
                assert_eq!(last.raised.fields["value"], value, "{case}");
            }
            Err(code) => assert_eq!((ran.code(), changes.len()), (code, 2), "{case}"),
        }
    }
}

#[test]
fn the_main_paths_conversation_replaces_the_parents() {
    let hello = vec![Message::new(Role::User, "hello")];
    let two = |join: Value| forked(&[vec![say("a", "from c0")], vec![say("b", "from c1")]], false, &join);
    let cases = [
        (
            "B20",
            json!({"joinStrategy": "ALL_COMPLETED", "mainPathId": "p1"}),
            Vec::new(),
            vec!["from c1"],
        ),
        (
            "B21",
            json!({"joinStrategy": "ALL_COMPLETED"}),
            Vec::new(),
            vec!["from c0"],
        ),
        (
            "B23",
            json!({"joinStrategy": "ALL_COMPLETED"}),
            hello.clone(),
            vec!["hello", "from c0"],
        ),
    ];
    for (case, join, before, after) in cases {
        let ran = run_in(Engine::builder().virtual_time(Some(1)), &two(join), Value::Null, before);
        assert_eq!(ran.visible(), after, "{case}");
        assert_eq!(
            ran.report.conversation.messages.len(),
            after.len(),
            "{case}: nothing else in the history"
        );
    }
    // The default main path did not complete: the first completed path is used; without one, the conversation is unchanged.
    let fails = |id: &str| vec![say(id, "lost"), code(&format!("{id}x"), "throw 1")];
    let any = forked(
        &[
            fails("a"),
            vec![wait("w", 5), say("b", "second")],
            vec![wait("v", 9), say("c", "third")],
        ],
        false,
        &json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2}),
    );
    let ran = run_in(
        Engine::builder().virtual_time(Some(1)),
        &any,
        Value::Null,
        hello.clone(),
    );
    assert_eq!(ran.visible(), ["hello", "second"]);
    let none = forked(
        &[fails("a"), fails("b")],
        false,
        &json!({"joinStrategy": "ALL_FAILED", "mainPathId": "p1"}),
    );
    let ran = run_in(Engine::builder().virtual_time(Some(1)), &none, Value::Null, hello);
    assert_eq!(ran.visible(), ["hello"], "B10: unchanged");
}

#[test]
fn a_failed_join_does_not_change_the_parents_conversation() {
    let bundle = forked(
        &[vec![say("a", "from c0")], vec![wait("w", 5), code("b", "throw 1")]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    let ran = run_in(
        Engine::builder().virtual_time(Some(1)),
        &bundle,
        Value::Null,
        vec![Message::new(Role::User, "hello")],
    );
    assert_eq!(ran.code(), "JOIN_CONDITION_NOT_MET");
    assert_eq!(ran.visible(), ["hello"]);
}

#[test]
fn tokens_spent_by_branches_count_for_every_outcome_of_the_join() {
    let ask = |id: &str| {
        node(
            id,
            "LLM",
            json!({"profileId": "main", "prompt": "a question of some words"}),
        )
    };
    let spent = |join: Value, late_ms: u32, fails: bool| {
        let last = if fails { "throw 1" } else { "return 1" };
        let branches = [
            vec![ask("a"), wait("aw", 5)],
            vec![ask("b"), wait("bw", late_ms), code("bc", last)],
        ];
        let bundle = forked(&branches, false, &join);
        let bundle = json!({"workflows": [bundle], "profiles": [{"id": "main", "provider": "echo"}]});
        json!(run(&bundle, Value::Null).report.tokens.spent)
    };
    let both = spent(json!({"joinStrategy": "ALL_COMPLETED"}), 5, false);
    let cases = [
        ("a loser", json!({"joinStrategy": "ANY_COMPLETED"}), 500, false),
        ("a failed join", json!({"joinStrategy": "ALL_COMPLETED"}), 50, true),
        (
            "a timeout",
            json!({"joinStrategy": "ALL_COMPLETED", "timeout": 0.1}),
            500,
            false,
        ),
        ("a failure", json!({"joinStrategy": "ANY_FAILED"}), 50, true),
    ];
    for (case, join, late_ms, fails) in cases {
        assert_eq!(spent(join, late_ms, fails), both, "{case}");
    }
}
