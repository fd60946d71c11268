//! The promises of SPEC section 7 that need no trigger, for every strategy and every history.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::compression::{CompressionContext, current_turn_start};
use super::super::{Conversation, Counted, Estimator, RequestParts, build_request, tool_blocks};
use super::case_compression::done;
use super::random_histories::{broken_pairs, histories};
use crate::message::{Message, Role};

fn strategies() -> impl Strategy<Value = Value> {
    let n = || 0_u64..9;
    prop_oneof![
        n().prop_map(|n| json!({"strategy": "keep_recent", "parameters": {"count": n}})),
        n().prop_map(|n| json!({"strategy": "keep_system_recent", "parameters": {"count": n}})),
        (n(), 0_u64..3)
            .prop_map(|(n, head)| json!({"strategy": "sliding_window", "parameters": {"count": n, "keepHead": head}})),
        (0_u64..90, 0_u64..3).prop_map(
            |(n, head)| json!({"strategy": "sliding_window", "parameters": {"maxTokens": n, "keepHead": head}})
        ),
        n().prop_map(|n| json!({"strategy": "summarize", "parameters": {"keepRecent": n}})),
        Just(json!({"strategy": "fold"})),
        Just(json!({})),
    ]
}

proptest! {
    #[test]
    fn every_strategy_keeps_every_promise(messages in histories(), config in strategies()) {
        let word = config["strategy"].as_str().unwrap_or("none").to_owned();
        let context = CompressionContext {
            messages: messages.iter().cloned().map(Arc::new).collect(),
            compression_config: Some(serde_json::from_value(config).expect("config")),
            ..CompressionContext::default()
        };
        let result = done(&context);
        let shown: Vec<Message> = result.messages.iter().map(|one| Message::clone(one)).collect();
        let cost = |messages: &[Message]| messages.iter().map(|one| Counted::new(one.clone(), &Estimator).tokens).sum::<u64>();

        // Smaller, or no change.
        if shown == messages {
            prop_assert_eq!(&result.mark_map, &context.mark_map);
            prop_assert_eq!(result.stats.tokens_saved, 0);
        } else {
            prop_assert!(shown.len() < messages.len() && cost(&shown) < cost(&messages));
            prop_assert_eq!(result.stats.tokens_saved, cost(&messages) - cost(&shown));
        }
        prop_assert!(result.mark_map.check(shown.len()).is_ok());
        prop_assert_eq!(result.stats.compressed_count, shown.len() as u64);

        // System messages stay and stand first.
        let system: Vec<&Message> = messages.iter().filter(|one| one.role == Role::System).collect();
        if word != "keep_recent" && shown != messages {
            prop_assert_eq!(&shown.iter().take(system.len()).collect::<Vec<_>>(), &system);
        }
        // The current turn stays.
        let turn = &messages[current_turn_start(&messages)..];
        prop_assert!(turn.iter().all(|one| shown.contains(one)), "the turn {:?} in {:?}", turn, shown);
        // A block is kept or goes as a whole.
        for block in tool_blocks(&messages) {
            let kept = messages[block.clone()].iter().filter(|one| shown.contains(one)).count();
            prop_assert!(kept == 0 || kept == block.len(), "split {:?}", &messages[block]);
        }
        // Twice is once.
        let again = done(&CompressionContext { messages: result.messages.clone(), mark_map: result.mark_map.clone(), ..context });
        prop_assert_eq!(&again.messages, &result.messages);
        prop_assert_eq!(&again.mark_map, &result.mark_map);
        // Nothing is orphaned in what is sent.
        let history = Conversation::from_messages(shown.into_iter().map(|one| Counted::new(one, &Estimator)));
        let request = build_request(&history, &RequestParts::default(), &Estimator);
        prop_assert_eq!(broken_pairs(&request.messages), 0);
    }
}
