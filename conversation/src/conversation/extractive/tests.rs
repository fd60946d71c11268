//! Tests of the summarizer.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const ENGLISH: &str = "The harbour bridge was closed after the storm. Engineers inspected the harbour bridge for storm damage. \
    My cousin likes marmalade. The storm damage to the bridge was small, engineers said. Tickets cost nine francs.";
const CHINESE: &str = "桥梁在暴风雨之后关闭。工程师检查了桥梁的暴风雨损坏。我表弟喜欢果酱。工程师说桥梁的损坏很小！";

fn budget(sentences: u64) -> Budget {
    Budget {
        sentences: Some(sentences),
        tokens: None,
    }
}

#[test]
fn the_central_sentences_are_chosen_in_text_order() {
    assert_eq!(
        summary([ENGLISH], budget(2)),
        "Engineers inspected the harbour bridge for storm damage. The storm damage to the bridge was small, engineers said."
    );
    let most = summary([ENGLISH], budget(3));
    assert!(most.starts_with("The harbour bridge was closed"), "{most}");
    assert!(!most.contains("marmalade") && !most.contains("Tickets"), "{most}");
}

#[test]
fn chinese_is_split_and_compared_without_spaces() {
    let chosen = summary([CHINESE], budget(2));
    assert_eq!(chosen.matches(['。', '！']).count(), 2, "{chosen}");
    assert!(
        !chosen.contains("果酱") && chosen.contains("桥梁") && !chosen.contains(' '),
        "{chosen}"
    );
}

#[test]
fn a_repeated_sentence_is_chosen_once() {
    let twice = "The bridge is closed today. The bridge is closed today. The bridge is closed, today.";
    assert_eq!(summary([twice], budget(9)), "The bridge is closed today.");
}

#[test]
fn each_message_starts_a_new_line() {
    assert_eq!(
        summary(["First text here", "Second one there"], budget(9)),
        "First text here\nSecond one there"
    );
}

#[test]
fn a_sentence_over_the_budget_is_truncated() {
    let tokens = |most| Budget {
        sentences: None,
        tokens: Some(most),
    };
    let long = "word ".repeat(10_000);
    assert_eq!(summary([long.as_str()], tokens(4)), "word word wo…");
    assert_eq!(summary(["很长很长很长的句子"], tokens(4)), "很长很…");
    assert_eq!(summary(["longer than that"], tokens(1)), "…");
}

#[test]
fn an_empty_input_has_an_empty_summary() {
    assert_eq!(summary([], Budget::default()), "");
    assert_eq!(summary(["", " \n ...", "！！"], Budget::default()), "");
}

#[test]
fn parameters_are_whole_numbers_above_zero() {
    let read = |parameters: Value| Budget::read(parameters.as_object());
    let all = Budget {
        sentences: Some(2),
        tokens: Some(30),
    };
    assert_eq!(
        read(json!({"maxSentences": 2, "maxTokens": 30, "temperature": 0.5})),
        Ok(all)
    );
    assert_eq!(read(json!({"maxSentences": null})), Ok(Budget::default()));
    for bad in [json!(0), json!(-1), json!(1.5), json!("2")] {
        assert_eq!(read(json!({"maxTokens": bad})), Err("maxTokens"), "{bad}");
    }
}

/// Words from a small vocabulary, so that sentences share terms.
fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "storm", "bridge", "the", "engineer", "桥梁", "损坏", "ÄRGER", "x", "3.5", "🎉",
    ]);
    let mark = prop::sample::select(vec![". ", "! ", "。", "？", "\n", ", ", "...", " "]);
    prop::collection::vec((prop::collection::vec(word, 0..8), mark), 0..40)
        .prop_map(|parts| parts.into_iter().map(|(words, mark)| words.join(" ") + mark).collect())
}

proptest! {
    #[test]
    fn a_summary_is_whole_sentences_in_order_within_the_budget(
        texts in prop::collection::vec(text(), 0..4), most in 1_u64..6, tokens in 1_u64..80,
    ) {
        let budget = Budget { sentences: Some(most), tokens: Some(tokens) };
        let given = || texts.iter().map(String::as_str);
        let chosen = summary(given(), budget);
        prop_assert_eq!(&chosen, &summary(given(), budget));
        prop_assert!(Estimator.count(&chosen) <= tokens, "{}", chosen);
        let all = sentences(given());
        prop_assert_eq!(chosen.is_empty(), all.is_empty());
        let places = within(&all, &ranked(&all), budget);
        prop_assert!(places.is_sorted_by(|a, b| a < b) && places.len() as u64 <= most);
        if !places.is_empty() {
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            let expected: String = places.iter().map(|place| bare(all[*place].text)).collect();
            prop_assert_eq!(bare(&chosen), expected);
        }
        let roomy = within(&all, &ranked(&all), Budget { tokens: Some(u64::MAX), ..budget });
        prop_assert_eq!(roomy.len() as u64, most.min(ranked(&all).len() as u64));
    }

    #[test]
    fn any_string_is_summarized_within_the_budget(text in ".*", tokens in 1_u64..20) {
        let budget = Budget { sentences: None, tokens: Some(tokens) };
        prop_assert!(Estimator.count(&summary([text.as_str()], budget)) <= tokens);
    }
}
