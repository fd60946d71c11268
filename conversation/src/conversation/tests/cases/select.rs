use pirn_definition::definition::{HistorySelection, MergeOptions};
use serde_json::{Value, json};

use crate::conversation::tests::notation::{conversation, counted, shown, written};
use crate::conversation::{Conversation, parse_selection, select_from};

#[test]
fn the_validity_of_selection_options_matches_the_cases() {
    let cases = [
        ("C01", json!({"lastN": 5}), true),
        ("C02", json!({"lastNByRole": {"role": "assistant", "count": 3}}), true),
        ("C03", json!({"byRole": "user"}), true),
        ("C04", json!({"range": {"start": 0, "end": 10}}), true),
        (
            "C05",
            json!({"rangeByRole": {"role": "assistant", "start": 0, "end": 5}}),
            true,
        ),
        ("C06", json!({}), false),
        ("C07", json!({"lastN": -1}), false),
        ("C09", json!({"byRole": "invalid_role"}), false),
        ("C10", json!({"range": {"start": 10, "end": 5}}), false),
        ("C13", json!(true), true),
        ("C15", json!({"lastN": 2.5}), false),
        ("C16", json!({"lastNByRole": {"role": "user", "count": 0}}), false),
        ("C17", json!({"range": {"start": 3, "end": 3}}), false),
        ("lastN 0", json!({"lastN": 0}), false),
        ("negative start", json!({"range": {"start": -1, "end": 3}}), false),
        ("unknown option", json!({"newest": 3}), false),
        ("null", Value::Null, false),
        ("list", json!([1]), false),
        ("above u64", json!({"lastN": 1e30}), false),
        ("u64", json!({"lastN": u64::MAX}), true),
    ];
    for (id, options, good) in cases {
        let parsed = parse_selection(&options);
        assert_eq!(parsed.is_ok(), good, "{id}: {parsed:?}");
        if let Err(error) = parsed {
            assert_eq!(error.code(), "INVALID_HISTORY_OPTIONS", "{id}");
        }
    }
}

#[test]
fn c12_history_options_combine_with_variables() {
    let options: MergeOptions = serde_json::from_value(
        json!({"includeVariables": ["var1", "var2"], "includeConversationHistory": {"lastN": 5}}),
    )
    .expect("C12");
    assert!(matches!(
        options.include_conversation_history,
        Some(HistorySelection::Some(_))
    ));
}

#[test]
fn errors_point_at_the_field() {
    let pointer = |options: Value| parse_selection(&options).expect_err("invalid").pointer().to_owned();
    assert_eq!(pointer(json!({"lastN": -1})), "/lastN");
    assert_eq!(
        pointer(json!({"lastNByRole": {"role": "user", "count": 0}})),
        "/lastNByRole/count"
    );
    assert_eq!(pointer(json!({"range": {"start": 3, "end": 3}})), "/range");
    assert_eq!(
        pointer(json!({"rangeByRole": {"role": "x", "start": 0, "end": 1}})),
        "/rangeByRole/role"
    );
}

#[test]
fn selections_return_exactly_the_selected_messages() {
    let base = ["system:S", "user:Hello!", "assistant:Hi"];
    let users = ["system:S", "user:Hello!", "assistant:Hi", "user:U2", "user:U3"];
    let assistants = [
        "system:S",
        "user:Hello!",
        "assistant:Hi",
        "assistant:A2",
        "assistant:A3",
    ];
    let cases: [(&str, &[&str], Value, &[&str]); 9] = [
        (
            "C19",
            &base,
            json!({"range": {"start": 1, "end": 3}}),
            &["Hello!", "Hi"],
        ),
        ("C20", &base, json!({"range": {"start": 5, "end": 10}}), &[]),
        ("C21", &base, json!({"lastN": 2}), &["Hello!", "Hi"]),
        (
            "C23",
            &users,
            json!({"lastNByRole": {"role": "user", "count": 2}}),
            &["U2", "U3"],
        ),
        (
            "C24",
            &assistants,
            json!({"rangeByRole": {"role": "assistant", "start": 0, "end": 2}}),
            &["Hi", "A2"],
        ),
        ("C25", &base, json!({"byRole": "tool"}), &[]),
        (
            "C27",
            &["user:a", "assistant:b", "user:c"],
            json!({"lastN": 2, "byRole": "user"}),
            &["b", "c"],
        ),
        (
            "more than there are",
            &base,
            json!({"lastN": u64::MAX}),
            &["S", "Hello!", "Hi"],
        ),
        (
            "range to the limit",
            &base,
            json!({"range": {"start": 1, "end": u64::MAX}}),
            &["Hello!", "Hi"],
        ),
    ];
    for (id, history, options, expected) in cases {
        assert_eq!(selected(&conversation(history), &options), expected, "{id}");
    }
}

#[test]
fn archived_messages_are_not_selected() {
    let mut history = conversation(&["m0", "m1", "m2", "m3"]);
    history.start_new_batch(2).expect("in range");
    assert_eq!(selected(&history, &json!(true)), ["m2", "m3"], "C28");
    assert_eq!(selected(&history, &json!({"lastN": 3})), ["m2", "m3"], "C29");
    assert_eq!(
        selected(&history, &json!({"range": {"start": 1, "end": 3}})),
        ["m2"],
        "range over the complete history"
    );
    assert_eq!(shown(&history), ["m2", "m3"]);
}

#[test]
fn messages_set_aside_by_a_rollback_are_not_selected() {
    let mut history = conversation(&["m0", "m1", "m2"]);
    history.start_new_batch(3).expect("in range");
    history.extend(counted(&["m3", "m4"]));
    history.rollback_to_batch(0).expect("known");
    history.extend(counted(&["m5", "m6"]));
    assert_eq!(selected(&history, &json!(true)), ["m0", "m1", "m2", "m5", "m6"]);
    assert_eq!(
        selected(&history, &json!({"range": {"start": 2, "end": 6}})),
        ["m2", "m5"]
    );
    assert_eq!(selected(&history, &json!({"lastN": 3})), ["m2", "m5", "m6"]);
}

fn selected(history: &Conversation, options: &Value) -> Vec<String> {
    let selection = parse_selection(options).expect("good options");
    written(
        select_from(history, &selection)
            .expect("good options")
            .expect("not false"),
    )
}
