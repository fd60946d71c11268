use std::sync::Arc;

use pirn_definition::definition::CompressionParameter;
use pirn_definition::message::Role;
use serde_json::{Value, json};

use crate::conversation::compression::{
    Accepted, Compression, CompressionContext, CompressionResult, CompressionStats, accept_result, compress,
    current_turn_tokens, finish_summary, plan_summary, replacement,
};
use crate::conversation::tests::notation::{conversation, counted, messages, written};
use crate::conversation::{Conversation, CountedMessage, Estimator, MarkMap};

type Texts<'a> = &'a [&'a str];

pub(super) fn context(texts: &[&str], strategy: &str, parameters: &Value) -> CompressionContext {
    let config = json!({"strategy": strategy, "parameters": parameters});
    CompressionContext {
        messages: messages(texts).into_iter().map(Arc::new).collect(),
        compression_config: serde_json::from_value(config).expect("config"),
        ..CompressionContext::default()
    }
}

pub(in crate::conversation::tests) fn done(context: &CompressionContext) -> CompressionResult {
    match compress(context, &Estimator).expect("good parameters") {
        Compression::Done(result) => *result,
        Compression::Summarize(plan) => finish_summary(&plan, "SUMMARY", &Estimator),
    }
}

#[test]
fn compression_strategies_match_the_cases() {
    let blocks = ["u1", "a[tool 1,tool 2]", "tool:1", "tool:2", "assistant:x"];
    let turns = ["s", "u1", "a1", "u2", "a2"];

    let cases: [(&str, Texts<'_>, &str, Value, Texts<'_>); 10] = [
        (
            "H09",
            &["s", "u1", "a1", "u2", "a2", "u3"],
            "keep_recent",
            json!({"count": 3}),
            &["u2", "a2", "u3"],
        ),
        (
            "H10",
            &turns,
            "keep_system_recent",
            json!({"count": 2}),
            &["s", "u2", "a2"],
        ),
        (
            "H12",
            &blocks,
            "keep_recent",
            json!({"count": 2}),
            &["a[1,2]", "t:1", "t:2", "x"],
        ),
        ("default count", &turns, "keep_recent", json!({}), &turns),
        ("unknown", &turns, "fold", json!({}), &turns),
        (
            "window",
            &turns,
            "sliding_window",
            json!({"count": 2}),
            &["s", "u2", "a2"],
        ),
        (
            "window with head",
            &turns,
            "sliding_window",
            json!({"count": 1, "keepHead": 1}),
            &["s", "u1", "a2"],
        ),
        ("window without bounds", &turns, "sliding_window", json!({}), &turns),
        (
            "budget",
            &turns,
            "sliding_window",
            json!({"maxTokens": 15}),
            &["s", "u2", "a2"],
        ),
        (
            "the turn stays",
            &["s", "a", "u1", "a[1]", "t:1"],
            "keep_recent",
            json!({"count": 1}),
            &["u1", "a[1]", "t:1"],
        ),
    ];
    for (id, history, strategy, parameters, expected) in cases {
        let before = context(history, strategy, &parameters);
        let result = done(&before);
        assert_eq!(written(&result.messages), expected, "{id}");
        assert_eq!(result.stats.original_count, history.len() as u64, "{id}");
        assert_eq!(result.stats.compressed_count, expected.len() as u64, "{id}");
        let changed = expected.len() < history.len();
        assert_eq!(result.stats.tokens_saved > 0, changed, "{id}");
        assert_eq!(result.mark_map.current_batch, u64::from(changed), "{id}");
    }
}

#[test]
fn a_strategy_reads_every_parameter_that_a_definition_may_have() {
    let strategies = [
        "keep_recent",
        "keep_system_recent",
        "sliding_window",
        "summarize",
        "checklist",
        "clear_tool_results",
    ];
    for strategy in strategies {
        let known = CompressionParameter::of_strategy(strategy).expect("built in");
        // The caller of a strategy reads the profile.
        let names = known.iter().flat_map(|parameter| parameter.names);
        for name in names.filter(|name| **name != "profileId") {
            let mut parameters = json!({});
            parameters[*name] = json!([1.5]);
            let wrong = compress(&context(&["u"], strategy, &parameters), &Estimator);
            let message = wrong.expect_err(name).to_string();
            assert!(
                message.starts_with(&format!("`{name}` must be ")),
                "{strategy}: {message}"
            );
        }
    }
}

#[test]
fn a_keep_facts_value_outside_zero_to_one_is_refused() {
    for share in [json!(1.1), json!(-0.1), json!("all"), json!(true)] {
        let wrong = compress(&context(&["u"], "summarize", &json!({"keepFacts": share})), &Estimator);
        assert_eq!(
            wrong.expect_err("no share").to_string(),
            "`keepFacts` must be a number from 0 to 1",
            "{share}"
        );
    }
}

#[test]
fn a_parameter_that_is_not_a_count_is_refused() {
    for parameters in [json!({"count": -1}), json!({"count": "3"}), json!({"count": 1.5})] {
        assert!(
            compress(&context(&["u"], "keep_recent", &parameters), &Estimator).is_err(),
            "{parameters}"
        );
    }
}

#[test]
fn only_visible_messages_are_compressed() {
    let mut archived = context(
        &["u0", "a0", "u1", "a1", "u2", "a2"],
        "keep_recent",
        &json!({"count": 2}),
    );
    archived.mark_map.start_new_batch(2, 6).expect("in range");
    let result = done(&archived);
    assert_eq!(written(&result.messages), ["u2", "a2"]);
    assert_eq!((result.stats.original_count, result.mark_map.current_batch), (4, 2));
}

#[test]
fn a_summary_records_the_messages_it_replaces_and_includes_the_earlier_summary() {
    let long = "user:a question that takes quite a number of words to ask";
    let first = done(&context(
        &["s", long, "assistant:yes", "u2", "a2"],
        "summarize",
        &json!({"keepRecent": 2}),
    ));
    assert_eq!(written(&first.messages), ["s", "SUMMARY", "u2", "a2"]);
    let stands_for =
        |result: &CompressionResult| result.messages[1].metadata.clone().expect("metadata")["summaryOf"].clone();
    assert_eq!(
        stands_for(&first),
        json!({"ids": ["0:1", "0:2"], "count": 2, "batch": 0})
    );

    let mut second = context(&[], "summarize", &json!({"keepRecent": 2}));
    second.messages = [
        first.messages.clone(),
        messages(&[long, "a3"]).into_iter().map(Arc::new).collect(),
    ]
    .concat();
    second.mark_map = first.mark_map;
    let second = done(&second);
    assert_eq!(
        written(&second.messages),
        ["s", "SUMMARY", long.trim_start_matches("user:"), "a3"]
    );
    assert_eq!(
        stands_for(&second),
        json!({"ids": ["1:1", "1:2", "1:3"], "count": 4, "batch": 1})
    );

    let mut third = context(&[], "summarize", &json!({"keepRecent": 2}));
    third.messages = second.messages;
    assert_eq!(plan_summary(&third, 2), Ok(None), "twice is once");
}

#[test]
fn a_stored_plan_finishes_with_an_equal_result() {
    let long = "user:a question that takes quite a number of words to ask";
    let before = context(&["s", long, "a1", "u2", "a2"], "summarize", &json!({}));
    let plan = plan_summary(&before, 1).expect("sound").expect("something to do");
    let stored = serde_json::to_string(&plan).expect("plain data");
    let read = serde_json::from_str(&stored).expect("its own");
    assert_eq!(
        finish_summary(&read, "S", &Estimator),
        finish_summary(&plan, "S", &Estimator)
    );
}

#[test]
fn a_summary_that_is_not_smaller_changes_nothing() {
    let before = context(&["s", "u1", "a1", "u2", "a2"], "summarize", &json!({"keepRecent": 2}));
    let plan = plan_summary(&before, 2).expect("sound").expect("something to do");
    for text in ["x".repeat(1_000), " ".to_owned()] {
        let result = finish_summary(&plan, &text, &Estimator);
        assert_eq!(
            (&result.messages, &result.mark_map),
            (&before.messages, &before.mark_map)
        );
    }
}

#[test]
fn a_script_result_is_checked_and_never_removes_the_current_turn() {
    let history = conversation(&["s", "u1", "a1", "user:now"]);
    let result = |texts: &[&str], mark_map: MarkMap| CompressionResult {
        messages: messages(texts).into_iter().map(Arc::new).collect(),
        mark_map,
        stats: CompressionStats::default(),
    };
    let accept = |result: &CompressionResult| accept_result(&history, history.basis(), result, &Estimator);

    let good = accept(&result(&["s", "user:S"], MarkMap::default())).expect("sound");
    let Accepted::Replace(shown) = good else {
        panic!("smaller")
    };
    assert_eq!(written(&shown), ["s", "S", "now"]);
    let with_turn = accept(&result(&["s", "user:now"], MarkMap::default())).expect("sound");
    let Accepted::Replace(shown) = with_turn else {
        panic!("smaller")
    };
    assert_eq!(written(&shown), ["s", "now"], "the turn is not said twice");

    let broken = MarkMap {
        batch_boundaries: vec![9],
        ..MarkMap::default()
    };
    assert_eq!(
        accept(&result(&["s"], broken)).expect_err("beyond").code(),
        "INVALID_MARK_MAP"
    );
    let same = accept(&result(&["s", "u1", "a1", "user:now"], MarkMap::default()));
    assert_eq!(same, Ok(Accepted::NotSmaller));
}

#[test]
fn clearing_tool_results_leaves_the_block_of_a_pinned_message_unchanged() {
    let texts = [
        "user:q",
        "a[1,2]",
        "t:1",
        "t:2",
        "a[3]",
        "t:3",
        "assistant:x",
        "user:now",
    ];
    for pinned in 0..texts.len() {
        let mut before = context(&texts, "clear_tool_results", &json!({"keep": 0}));
        for message in &mut before.messages {
            if let Role::Tool = message.role {
                Arc::make_mut(message).content = "result ".repeat(40);
            }
        }
        Arc::make_mut(&mut before.messages[pinned]).pin = true;
        let history = Conversation::from_messages(
            (before.messages.iter()).map(|one| CountedMessage::new(Arc::clone(one), &Estimator)),
        );
        let accepted = accept_result(&history, history.basis(), &done(&before), &Estimator);
        let Ok(Accepted::Replace(shown)) = accepted else {
            panic!("a block without a pinned message is cleared: {accepted:?}")
        };
        assert_eq!(written(&shown), written(messages(&texts)), "in the original order");
        let cleared = before.messages.iter().zip(&shown).enumerate();
        let cleared = cleared.filter(|(_, (was, is))| **was != is.message);
        let cleared: Vec<usize> = cleared.map(|(at, _)| at).collect();
        let expected: &[usize] = match pinned {
            1..=3 => &[5],
            4 | 5 => &[2, 3],
            _ => &[2, 3, 5],
        };
        assert_eq!(cleared, expected, "{pinned} is pinned");
    }
}

#[test]
fn a_script_result_that_replaces_results_of_a_pinned_block_has_no_second_result_for_a_call() {
    let texts = ["user:q", "a[1,2]", "t:1", "t:2", "assistant:x", "user:now"];
    for (pinned, removed, expected) in [
        (1, None, &texts[..]),
        (2, None, &texts),
        (
            2,
            Some(2),
            &["a[1,2]", "t:1", "t:2", "user:q", "assistant:x", "user:now"],
        ),
    ] {
        let mut before = messages(&texts);
        before[pinned].pin = true;
        before[3].content = "result ".repeat(40);
        let history =
            Conversation::from_messages(before.iter().map(|one| CountedMessage::new(one.clone(), &Estimator)));
        let mut returned = before.clone();
        returned[3].content = "left out".to_owned();
        if let Some(removed) = removed {
            returned.remove(removed);
        }
        let returned = returned
            .into_iter()
            .map(|one| CountedMessage::new(one, &Estimator))
            .collect();
        let shown = replacement(&history, history.basis(), returned).expect("unchanged since");
        assert_eq!(written(&shown), written(messages(expected)));
        let kept = shown.iter().filter(|one| *one.message == before[pinned]).count();
        let is_replaced = shown.iter().any(|one| one.message.content == "left out");
        assert_eq!((kept, is_replaced), (1, removed.is_none()));
    }
}

#[test]
fn a_replacement_starts_with_the_system_message_and_ends_with_the_current_turn() {
    let history = conversation(&["s", "u1", "a1", "user:now"]);
    let shown = replacement(&history, history.basis(), counted(&["user:S"])).expect("unchanged since");
    assert_eq!(written(&shown), ["s", "S", "now"]);
    let shown = replacement(&history, history.basis(), counted(&["user:S", "s2"])).expect("unchanged since");
    assert_eq!(written(&shown), ["s2", "S", "now"]);
}

#[test]
fn the_token_cost_of_the_current_turn_is_computed() {
    let history = conversation(&["s", "u1", "a1", "user:now"]);
    assert_eq!(
        current_turn_tokens(&history),
        conversation(&["user:now"]).visible_tokens()
    );
    assert_eq!(current_turn_tokens(&Conversation::new()), 0);
}
