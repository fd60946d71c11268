use serde_json::{Value, json};

use crate::conversation::tests::notation::{conversation, counted, shown};
use crate::conversation::{ConversationError, ResolvedContext, apply};

const FIVE: [&str; 5] = ["system:S", "user:U1", "assistant:A1", "user:U2", "assistant:A2"];

fn truncate(value: Value) -> ResolvedContext {
    ResolvedContext::Truncate(serde_json::from_value(value).expect("truncate"))
}

fn filter(value: Value) -> ResolvedContext {
    ResolvedContext::Filter(serde_json::from_value(value).expect("filter"))
}

fn insert(position: i64, texts: &[&str]) -> ResolvedContext {
    ResolvedContext::Insert {
        messages: counted(texts),
        position,
    }
}

fn replace(target: Option<Value>, texts: &[&str]) -> ResolvedContext {
    ResolvedContext::Replace {
        target: target.map(|options| serde_json::from_value(options).expect("options")),
        messages: counted(texts),
    }
}

#[test]
fn context_operations_match_the_cases() {
    let six = ["m0", "m1", "m2", "m3", "m4", "m5"];
    let turns = ["u0", "a1", "u2", "a3", "u4", "a5"];
    let tools = ["s", "u", "a[1,2]", "t:1", "t:2", "a"];
    let cases: Vec<(&str, &[&str], ResolvedContext, &[&str])> = vec![
        ("D15", &six, truncate(json!({"keepLast": 2})), &["m4", "m5"]),
        (
            "D16",
            &turns,
            filter(json!({"roles": ["assistant"]})),
            &["a1", "a3", "a5"],
        ),
        ("D17", &["m0", "m1", "m2"], insert(1, &["X"]), &["m0", "X", "m1", "m2"]),
        ("E01", &FIVE, truncate(json!({"keepFirst": 2})), &["S", "U1"]),
        (
            "E05",
            &FIVE,
            truncate(json!({"range": {"start": 1, "end": 3}})),
            &["U1", "A1"],
        ),
        ("E06", &FIVE, truncate(json!({"role": "user", "keepLast": 1})), &["U2"]),
        (
            "E08",
            &FIVE,
            truncate(json!({"role": "user", "range": {"start": 0, "end": 1}})),
            &["U1"],
        ),
        (
            "E09",
            &FIVE,
            insert(-1, &["user:N"]),
            &["S", "U1", "A1", "U2", "A2", "N"],
        ),
        ("E13", &FIVE, filter(json!({"roles": ["user"]})), &["U1", "U2"]),
        ("E14", &FIVE, filter(json!({"contentContains": ["1"]})), &["U1", "A1"]),
        ("clear", &FIVE, ResolvedContext::Clear { keep_system: true }, &["S"]),
        ("removeFirst", &FIVE, truncate(json!({"removeFirst": 4})), &["A2"]),
        ("removeLast", &FIVE, truncate(json!({"removeLast": 99})), &[]),
        (
            "excludes",
            &FIVE,
            filter(json!({"contentExcludes": ["1"]})),
            &["S", "U2", "A2"],
        ),
        (
            "system stays first",
            &FIVE,
            insert(0, &["X"]),
            &["S", "X", "U1", "A1", "U2", "A2"],
        ),
        (
            "before the last",
            &FIVE,
            insert(-2, &["X"]),
            &["S", "U1", "A1", "U2", "X", "A2"],
        ),
        (
            "insert in a block",
            &tools,
            insert(4, &["X"]),
            &["s", "u", "X", "a[1,2]", "t:1", "t:2", "a"],
        ),
        (
            "truncate in a block",
            &tools,
            truncate(json!({"keepLast": 2})),
            &["a[1,2]", "t:1", "t:2", "a"],
        ),
        (
            "filter a block",
            &tools,
            filter(json!({"roles": ["tool"]})),
            &["a[1,2]", "t:1", "t:2"],
        ),
        (
            "exclude in a block",
            &tools,
            filter(json!({"contentExcludes": ["found"]})),
            &["s", "u", "a"],
        ),
        ("replace all", &FIVE, replace(None, &["X"]), &["S", "X"]),
        (
            "replace one",
            &FIVE,
            replace(Some(json!({"range": {"start": 1, "end": 3}})), &["X"]),
            &["S", "X", "U2", "A2"],
        ),
        (
            "replace in a block",
            &tools,
            replace(Some(json!({"range": {"start": 3, "end": 4}})), &["X"]),
            &["s", "u", "X", "a"],
        ),
    ];
    for (id, history, operation, expected) in cases {
        let mut changed = conversation(history);
        let at_end = matches!(operation, ResolvedContext::Insert { position: -1, .. });
        let before = shown(&changed);
        apply(&mut changed, operation).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(shown(&changed), expected, "{id}");
        assert_eq!(
            changed.mark_map().current_batch,
            u64::from(!at_end),
            "{id}: a new batch unless at the end"
        );
        if !at_end {
            changed.rollback_to_batch(0).expect("archived");
            assert_eq!(shown(&changed), before, "{id}: what was visible is archived");
        }
    }
}

#[test]
fn d18_a_batch_after_a_truncate_starts_empty() {
    let mut history = conversation(&["m0", "m1", "m2"]);
    apply(&mut history, truncate(json!({"keepLast": 1}))).expect("D18");
    history.start_new_batch(history.len()).expect("D18");
    assert_eq!(shown(&history), Vec::<String>::new(), "D18");
    history.rollback_to_batch(1).expect("D18");
    assert_eq!(shown(&history), ["m2"], "D18: archived");
}

#[test]
fn e16_an_out_of_range_operation_is_refused_and_nothing_changes() {
    let cases = [
        ("E16", replace(Some(json!({"range": {"start": 10, "end": 11}})), &["x"])),
        ("position", insert(6, &["x"])),
        ("negative position", insert(-7, &["x"])),
        ("lowest position", insert(i64::MIN, &["x"])),
        ("no way", truncate(json!({}))),
        ("two ways", truncate(json!({"keepFirst": 1, "keepLast": 1}))),
        ("empty options", replace(Some(json!({})), &["x"])),
        ("empty range", truncate(json!({"range": {"start": 3, "end": 3}}))),
    ];
    for (id, operation) in cases {
        let mut history = conversation(&FIVE);
        let before = history.clone();
        let error: ConversationError = apply(&mut history, operation).expect_err(id);
        assert_eq!(history, before, "{id}: {error}");
    }
}
