//! Guarantees of SPEC section 7 that need no trigger, for every strategy and random histories.

use std::sync::Arc;

use pirn_definition::message::{Message, Role};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::histories::{broken_pairs, histories, of};
use crate::conversation::compression::{
    Accepted, Compression, CompressionContext, CompressionResult, CompressionStats, accept_result, compress,
    current_turn_start, finish_with_checklist, replacement,
};
use crate::conversation::{Conversation, CountedMessage, Estimator, MarkMap, RequestParts, build_request, tool_blocks};

fn done(context: &CompressionContext) -> CompressionResult {
    match compress(context, &Estimator).expect("good parameters") {
        Compression::Done(result) => *result,
        Compression::Summarize(plan) => finish_with_checklist(&plan, Some("SUMMARY. It was long."), &Estimator).result,
    }
}

pub(super) fn strategies() -> impl Strategy<Value = Value> {
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
        (n(), 0_u32..11).prop_map(
            |(n, tenths)| json!({"strategy": "summarize", "parameters": {"keepRecent": n, "keepFacts": f64::from(tenths) / 10.0}})
        ),
        (n(), 0_u64..40).prop_map(
            |(n, least)| json!({"strategy": "clear_tool_results", "parameters": {"keep": n, "minTokens": least, "exclude": ["b"]}})
        ),
        (n(), 2_u64..60).prop_map(
            |(n, budget)| json!({"strategy": "checklist", "parameters": {"keepRecent": n, "budget": budget}})
        ),
        n().prop_map(|n| json!({"strategy": "checklist", "parameters": {"keepRecent": n, "budget": 0.2}})),
        Just(json!({"strategy": "fold"})),
        Just(json!({})),
    ]
}

/// Checks what an accepted result of a strategy shows of messages with different ids.
fn check_pinned_blocks(before: &[Arc<Message>], shown: &[CountedMessage]) -> Result<(), TestCaseError> {
    let ids: Vec<_> = shown.iter().map(|one| one.message.id.clone()).collect();
    let place_of = |message: &Message| ids.iter().position(|id| *id == message.id);
    for pinned in before.iter().filter(|one| one.pin) {
        let same = shown.iter().filter(|one| one.message.id == pinned.id);
        prop_assert_eq!(same.map(|one| &one.message).collect::<Vec<_>>(), [pinned]);
    }
    let others = before.iter().filter(|one| one.role != Role::System && one.id.is_some());
    let places: Vec<usize> = others.filter_map(|one| place_of(one)).collect();
    prop_assert!(places.is_sorted(), "in the original order: {:?}", shown);
    let known = shown
        .iter()
        .filter(|one| one.message.role != Role::System && one.message.id.is_some());
    prop_assert_eq!(known.count(), places.len(), "no message is shown twice: {:?}", shown);
    for block in tool_blocks(before) {
        let Some(at) = place_of(&before[block.start]) else {
            prop_assert!(
                before[block].iter().all(|one| place_of(one).is_none()),
                "results without calls"
            );
            continue;
        };
        let whole = before[block.clone()].iter().map(|one| one.id.clone());
        prop_assert_eq!(&ids[at..ids.len().min(at + block.len())], whole.collect::<Vec<_>>());
        if before[block.clone()].iter().any(|one| one.pin) {
            let now = shown[at..at + block.len()].iter().map(|one| &one.message);
            prop_assert_eq!(
                now.collect::<Vec<_>>(),
                before[block].iter().collect::<Vec<_>>(),
                "a pinned block"
            );
        }
    }
    prop_assert!(broken_pairs(shown) <= broken_pairs(before));
    Ok(())
}

proptest! {
    #[test]
    fn pinned_messages_survive_every_strategy_in_every_order(
        messages in histories(),
        pins in prop::collection::vec(prop::bool::weighted(0.2), 100),
        configs in prop::collection::vec(strategies(), 1..6),
    ) {
        let messages = messages.into_iter().zip(pins).map(|(one, pin)| match one.role {
            // Longer than the note that replaces it.
            Role::Tool => Message { pin, content: "a long result ".repeat(9), ..one },
            Role::System | Role::User | Role::Assistant => Message { pin, ..one },
        });
        let messages: Vec<Message> = messages.collect();
        let pinned: Vec<Message> = messages.iter().filter(|one| one.pin).cloned().collect();
        let mut visible: Vec<Arc<Message>> = messages.into_iter().map(Arc::new).collect();
        for config in configs {
            let result = done(&CompressionContext {
                messages: visible.clone(),
                compression_config: Some(serde_json::from_value(config).expect("config")),
                ..CompressionContext::default()
            });
            let conversation = of(&visible.iter().map(|one| Message::clone(one)).collect::<Vec<_>>());
            let accepted = accept_result(&conversation, conversation.basis(), &result, &Estimator).expect("it is sound");
            if let Accepted::Replace(shown) = accepted {
                check_pinned_blocks(&visible, &shown)?;
            } else {
                prop_assert_eq!(result.stats.tokens_saved, 0, "a smaller result is accepted");
            }
            visible = result.messages;
            let others = |messages: &[Message]| messages.iter().filter(|one| one.role != Role::System).cloned().collect::<Vec<_>>();
            let kept: Vec<Message> = visible.iter().filter(|one| one.pin).map(|one| Message::clone(one)).collect();
            prop_assert_eq!(kept.len(), pinned.len());
            prop_assert_eq!(others(&kept), others(&pinned), "in their order");
        }
    }

    #[test]
    fn pinned_messages_survive_a_result_from_a_script(
        messages in histories(),
        fates in prop::collection::vec((prop::bool::weighted(0.3), any::<bool>()), 100),
    ) {
        let pins = messages.into_iter().zip(&fates).map(|(one, (pin, _))| Message { pin: *pin, ..one });
        let messages: Vec<Message> = pins.collect();
        let conversation = Conversation::from_messages(messages.iter().map(|one| CountedMessage::new(one.clone(), &Estimator)));
        let kept = messages.iter().zip(&fates).filter(|(_, (_, stays))| *stays);
        let kept: Vec<Arc<Message>> = kept.map(|(one, _)| Arc::new(one.clone())).collect();
        let counted = kept.iter().map(|one| CountedMessage::new(Arc::clone(one), &Estimator)).collect();
        let result = CompressionResult { messages: kept, mark_map: MarkMap::default(), stats: CompressionStats::default() };
        let accepted = accept_result(&conversation, conversation.basis(), &result, &Estimator).expect("it is sound");
        let replaced = replacement(&conversation, conversation.basis(), counted).expect("nothing changed");
        let shown = match accepted {
            Accepted::Replace(shown) => vec![shown, replaced],
            Accepted::NotSmaller => vec![replaced],
        };
        for shown in shown {
            for pinned in messages.iter().filter(|one| one.pin) {
                prop_assert_eq!(shown.iter().filter(|one| *one.message == *pinned).count(), 1, "{:?}", pinned);
            }
            for block in tool_blocks(&messages) {
                let there = shown.iter().position(|one| *one.message == messages[block.start]);
                if let Some(at) = there.filter(|_| messages[block.clone()].iter().any(|one| one.pin)) {
                    let now: Vec<&Message> = shown[at..].iter().take(block.len()).map(|one| &*one.message).collect();
                    prop_assert_eq!(now, messages[block].iter().collect::<Vec<_>>(), "a block of a pinned message");
                }
            }
        }
    }

    #[test]
    fn only_old_tool_results_are_cleared(messages in histories(), keep in 0_usize..5, pins in prop::collection::vec(prop::bool::weighted(0.1), 100)) {
        let mut messages: Vec<Message> = messages.into_iter().map(|one| match one.role {
            Role::Tool => Message { content: "a long result ".repeat(9), ..one },
            Role::System | Role::User | Role::Assistant => one,
        }).collect();
        for (one, pin) in messages.iter_mut().zip(pins) {
            one.pin = pin;
        }
        let blocks = tool_blocks(&messages);
        let is_pinned = |at: usize| {
            let block = blocks.iter().find(|block| block.contains(&at)).cloned();
            messages[block.unwrap_or(at..at + 1)].iter().any(|one| one.pin)
        };
        let turn = current_turn_start(&messages);
        let results: Vec<usize> = (0..messages.len()).filter(|at| messages[*at].role == Role::Tool).collect();
        let goes = |at: usize| {
            let is_old = results.iter().position(|one| *one == at).is_some_and(|place| place + keep < results.len());
            is_old && at < turn && !is_pinned(at)
        };
        let result = done(&CompressionContext {
            messages: messages.iter().cloned().map(Arc::new).collect(),
            compression_config: Some(serde_json::from_value(
                json!({"strategy": "clear_tool_results", "parameters": {"keep": keep}})).expect("config")),
            ..CompressionContext::default()
        });
        prop_assert_eq!(result.messages.len(), messages.len());
        for (at, (was, is)) in messages.iter().zip(&result.messages).enumerate() {
            prop_assert_eq!(**is != *was, goes(at), "{}: {:?}", at, is);
            prop_assert_eq!((&is.id, is.role, &is.tool_call_id), (&was.id, was.role, &was.tool_call_id));
        }
    }

    #[test]
    fn payback_compares_saved_tokens_with_tokens_sent_again(messages in histories(), config in strategies(), requests in 0_u64..6) {
        let context = |config: &Value| CompressionContext {
            messages: messages.iter().cloned().map(Arc::new).collect(),
            compression_config: Some(serde_json::from_value(config.clone()).expect("config")),
            ..CompressionContext::default()
        };
        let summarizes = config["strategy"] == "summarize";
        let always = done(&context(&config));
        let mut weighed = config;
        weighed["parameters"]["payback"] = json!(requests);
        let told = done(&context(&weighed));
        let cost = |messages: &[Arc<Message>]| messages.iter().map(|one| CountedMessage::new(Arc::clone(one), &Estimator).tokens).sum::<u64>();
        let same = messages.iter().zip(&always.messages).take_while(|(was, is)| **was == ***is).count();
        let pays = requests * always.stats.tokens_saved > cost(&always.messages[same..]);
        if pays {
            prop_assert_eq!(told, always);
        } else if !summarizes {
            prop_assert_eq!(told.stats.tokens_saved, 0);
        } else {
            prop_assert!(told == always || told.stats.tokens_saved == 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(1000)))]

    #[test]
    fn every_strategy_meets_the_compression_contract(messages in histories(), config in strategies()) {
        let word = config["strategy"].as_str().unwrap_or("none").to_owned();
        let context = CompressionContext {
            messages: messages.iter().cloned().map(Arc::new).collect(),
            compression_config: Some(serde_json::from_value(config).expect("config")),
            ..CompressionContext::default()
        };
        let result = done(&context);
        let shown: Vec<Message> = result.messages.iter().map(|one| Message::clone(one)).collect();
        let cost = |messages: &[Message]| messages.iter().map(|one| CountedMessage::new(one.clone(), &Estimator).tokens).sum::<u64>();

        // The result is smaller, or nothing changed.
        if shown == messages {
            prop_assert_eq!(&result.mark_map, &context.mark_map);
            prop_assert_eq!(result.stats.tokens_saved, 0);
        } else {
            let is_cleared = word == "clear_tool_results" && shown.len() == messages.len();
            prop_assert!((shown.len() < messages.len() || is_cleared) && cost(&shown) < cost(&messages));
            prop_assert_eq!(result.stats.tokens_saved, cost(&messages) - cost(&shown));
        }
        prop_assert!(result.mark_map.check(shown.len()).is_ok());
        prop_assert_eq!(result.stats.compressed_count, shown.len() as u64);

        // System messages are retained and come first.
        let system: Vec<&Message> = messages.iter().filter(|one| one.role == Role::System).collect();
        if !["keep_recent", "clear_tool_results"].contains(&&*word) && shown != messages {
            prop_assert_eq!(&shown.iter().take(system.len()).collect::<Vec<_>>(), &system);
        }
        // The current turn is retained.
        let turn = &messages[current_turn_start(&messages)..];
        prop_assert!(turn.iter().all(|one| shown.contains(one)), "the turn {:?} in {:?}", turn, shown);
        // A block is retained or removed as a whole.
        for block in tool_blocks(&messages).into_iter().filter(|_| word != "clear_tool_results") {
            let kept = messages[block.clone()].iter().filter(|one| shown.contains(one)).count();
            prop_assert!(kept == 0 || kept == block.len(), "split {:?}", &messages[block]);
        }
        // The strategy is idempotent.
        let again = done(&CompressionContext { messages: result.messages.clone(), mark_map: result.mark_map.clone(), ..context });
        prop_assert_eq!(&again.messages, &result.messages);
        prop_assert_eq!(&again.mark_map, &result.mark_map);
        // A request built from the result contains no orphaned call or result.
        let history = Conversation::from_messages(shown.into_iter().map(|one| CountedMessage::new(one, &Estimator)));
        let request = build_request(&history, &RequestParts::default(), &Estimator);
        prop_assert_eq!(broken_pairs(&request.messages), 0);
    }
}
