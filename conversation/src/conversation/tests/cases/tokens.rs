use crate::conversation::tests::notation::{conversation, message};
use crate::conversation::{Conversation, CountedMessage, Estimator, TokenUsage, Tokenizer, message_cost};

#[test]
fn h01_the_usage_of_requests_adds_up() {
    let mut spent = TokenUsage::default();
    for (input, output, total) in [(100, 50, 150), (200, 100, 300)] {
        spent.add(TokenUsage::new(input, output, total));
    }
    assert_eq!(spent, TokenUsage::new(300, 150, 450), "H01");
}

#[test]
fn h02_the_last_usage_figure_of_a_stream_counts() {
    let stream = [
        TokenUsage::new(100, 0, 100),
        TokenUsage::new(100, 25, 125),
        TokenUsage::new(100, 50, 150),
    ];
    let mut spent = TokenUsage::default();
    spent.add(stream.into_iter().next_back().expect("three"));
    assert_eq!(spent, TokenUsage::new(100, 50, 150), "H02");
}

#[test]
fn h03_h04_an_empty_conversation_costs_zero_tokens_and_an_empty_message_four() {
    assert_eq!(Conversation::new().visible_tokens(), 0, "H03");
    assert_eq!(message_cost(&message("user:"), &Estimator), 4, "H04");
    assert_eq!(
        Conversation::from_messages([CountedMessage::new(message("user:"), &Estimator)]).visible_tokens(),
        4,
        "H04"
    );
}

#[test]
fn the_estimate_for_chinese_is_near_the_exact_count() {
    // 24 characters; real vocabularies need 15 to 30 tokens for them.
    let text = "工具调用块必须保持完整性不能被其他消息打断上下文压缩";
    let estimated = Estimator.count(text);
    assert!((15..=40).contains(&estimated), "{estimated}");
}

#[test]
fn tool_calls_count_toward_the_cost() {
    let with = message_cost(&message("a[1]"), &Estimator);
    let without = message_cost(&message("a:"), &Estimator);
    assert!(with > without);
}

#[test]
fn the_visible_token_sum_equals_the_sum_of_visible_messages() {
    let mut history = conversation(&["s", "u1", "a1", "u2", "a2"]);
    let sum = |history: &Conversation| history.visible().iter().map(|one| one.tokens).sum::<u64>();
    assert_eq!(history.visible_tokens(), sum(&history));
    history.start_new_batch(3).expect("in range");
    assert_eq!(history.visible_tokens(), sum(&history));
}
