//! Requests for random histories and pinned contexts.

use pirn_definition::definition::{Pinned, PinnedText};
use pirn_definition::message::{Message, Role};
use proptest::prelude::*;

use super::histories::{broken_pairs, histories, of};
use crate::conversation::tests::notation::message;
use crate::conversation::{
    AgentKind, Conversation, CountedMessage, Estimator, MessageRules, Outline, PinStrategy, RequestParts,
    build_request, message_cost, pin_position, tool_blocks,
};

/// Returns the position of the pinned context by SPEC section 3; `history` is without its first message.
fn place_by_definition(history: &[Message], n: usize) -> usize {
    let blocks = tool_blocks(history);
    if history.len() < n || n == 0 {
        let waiting = blocks
            .last()
            .filter(|block| block.end == history.len())
            .filter(|block| {
                history[block.start].tool_calls.iter().any(|call| {
                    let asked = history[block.start]
                        .tool_calls
                        .iter()
                        .filter(|other| other.id == call.id)
                        .count();
                    let answers = history[block.start + 1..block.end]
                        .iter()
                        .filter(|one| one.tool_call_id.as_ref() == Some(&call.id));
                    answers.count() < asked
                })
            });
        return waiting.map_or(history.len(), |block| block.start);
    }
    let target = history.len() - n;
    let inside = blocks.iter().find(|block| block.start < target && target < block.end);
    inside.map_or(target, |block| block.start)
}

proptest! {
    #[test]
    fn the_pin_position_matches_the_definition(messages in histories(), n in 0_usize..9) {
        let mut all = vec![Message::new(Role::System, "s")];
        all.extend(messages.iter().cloned());
        let at = pin_position(PinStrategy::FromEnd(n), all.len(), |index| all.get(index));
        prop_assert_eq!(at - 1, place_by_definition(&messages, n));
    }

    #[test]
    fn every_sent_request_is_complete(
        messages in histories(),
        boundary in 0_usize..12,
        n in 0_usize..9,
        sub in any::<bool>(),
        system in any::<bool>(),
        sections in 0_u8..4,
    ) {
        let mut history = of(&messages);
        history.start_new_batch(boundary.min(messages.len())).expect("in range");
        let pinned = Pinned {
            todo: (sections & 1 != 0).then(|| PinnedText::Text("PIN 1".to_owned())),
            useful_info: (sections & 2 != 0).then(|| PinnedText::Text("PIN 2".to_owned())),
            ..Pinned::default()
        };
        let parts = RequestParts {
            agent: if sub { AgentKind::Sub } else { AgentKind::Main },
            pinned: Some(&pinned),
            strategy: PinStrategy::FromEnd(n),
            system: system.then_some("SYSTEM"),
            ..RequestParts::default()
        };
        let before = history.clone();
        let request = build_request(&history, &parts, &Estimator);
        prop_assert_eq!(&history, &before);
        prop_assert_eq!(broken_pairs(&request.messages), 0);

        let places: Vec<usize> = request.messages.iter().enumerate().filter(|(_, one)| one.content.starts_with("PIN")).map(|(at, _)| at).collect();
        prop_assert_eq!(places.len(), usize::from(sections.count_ones() as u8));
        prop_assert_eq!(places.first().copied(), request.inserted_at);
        prop_assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "one block: {:?}", places);

        let leading = request.messages.iter().take_while(|one| one.role == Role::System).count();
        let all = request.messages.iter().filter(|one| one.role == Role::System).count();
        // Pinned messages may be between two system messages only if no other message precedes them.
        prop_assert!(all - leading == 0 || request.inserted_at.is_some_and(|at| at <= all), "system first");
        prop_assert!(!system || all > 0);
        if !sub {
            prop_assert!(request.messages.iter().all(|one| !one.sub_agent_internal));
        }
        let cost: u64 = request.messages.iter().map(|one| message_cost(one, &Estimator)).sum();
        prop_assert_eq!(request.tokens, cost);
    }

    /// Prepares requests for both kinds of agents from a growing conversation. New batches between them force new lists.
    #[test]
    fn a_prepared_request_equals_the_built_request(
        (messages, order) in (sound_and_broken(), prop::collection::vec(0_u8..9, 60)),
        n in 0_usize..9,
        after_first in any::<bool>(),
        system in 0_usize..3,
        sections in 0_u8..4,
        rules in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let pinned = Pinned {
            todo: (sections & 1 != 0).then(|| PinnedText::Text("PIN 1".to_owned())),
            useful_info: (sections & 2 != 0).then(|| PinnedText::Text("PIN 2".to_owned())),
            ..Pinned::default()
        };
        let mut history = Conversation::new();
        let mut outline = Outline::default();
        let mut held = Vec::new();
        for (one, then) in messages.into_iter().zip(order.into_iter().cycle()) {
            history.append(CountedMessage::new(one, &Estimator));
            if then == 8 {
                history.start_new_batch(history.len() - 1).expect("in range");
            }
            if then >= 6 {
                continue;
            }
            let parts = RequestParts {
                agent: if then > 3 { AgentKind::Sub } else { AgentKind::Main },
                pinned: Some(&pinned),
                budget: (then == 2).then_some("## Budget"),
                strategy: if after_first { PinStrategy::AfterFirst } else { PinStrategy::FromEnd(n) },
                system: [None, Some("SYSTEM"), Some(" ")][system],
                tool_tokens: 7,
                rules: MessageRules { user_first: rules.0, user_last: rules.1, no_blank: rules.2 },
                ..RequestParts::default()
            };
            let prepared = outline.prepare(&history, &parts, &Estimator);
            let built = build_request(&history, &parts, &Estimator);
            prop_assert_eq!(prepared.tokens(), built.tokens);
            prop_assert_eq!(prepared.repairs(), &built.repairs);
            prop_assert_eq!(prepared.last_said(), built.last_said());
            prop_assert_eq!(prepared.len(), built.messages.len());
            prop_assert_eq!(prepared.inserted_at(), built.inserted_at);
            held.push((prepared, built));
        }
        // Built at the end: messages appended after a request was prepared must not be in it.
        for (prepared, built) in held {
            prop_assert_eq!(&**prepared.built(), &built);
        }
    }
}

/// Generates histories, few of them with a broken pair, and some with blank messages.
fn sound_and_broken() -> impl Strategy<Value = Vec<Message>> {
    let turn = prop_oneof![
        4 => Just(vec!["user:ask", "assistant:answer"]),
        4 => Just(vec!["u", "a[1,2]", "t:2", "t:1", "a"]),
        2 => Just(vec!["a"]),
        2 => Just(vec!["u"]),
        1 => Just(vec!["s", "u~", "a[5]~", "t:5~", "a~"]),
        1 => Just(vec!["user: ", "assistant:"]),
    ];
    let sound = prop::collection::vec(turn, 0..12);
    let sound = sound.prop_map(|turns| turns.into_iter().flatten().map(message).collect());
    prop_oneof![3 => sound, 1 => histories()]
}
