//! Random histories: valid, shuffled parallel results, missing results, a user message inside a block, orphaned results, a pending
//! tail. Blocks, selections and repairs on them.

use pirn_definition::definition::{ConversationHistoryOptions, HistoryRange, RoleCount, RoleRange};
use pirn_definition::message::{Message, Role};
use proptest::prelude::*;

use crate::conversation::tests::notation::message;
use crate::conversation::{
    Conversation, CountedMessage, Estimator, repair_tool_pairs, select, split_block, tool_blocks,
};

/// Generates histories: mostly whole turns, some of them broken, with single messages between them.
pub(super) fn histories() -> impl Strategy<Value = Vec<Message>> {
    let turn = prop_oneof![
        Just(vec!["user:ask", "assistant:answer"]),
        Just(vec!["u", "a[1]", "t:1", "a"]),
        Just(vec!["u", "a[1,2,3]", "t:3", "t:1", "t:2", "a"]),
        Just(vec!["u", "a[1,2]", "t:1", "a"]),
        Just(vec!["u", "a[1,2]", "t:1", "user:wait", "t:2"]),
        Just(vec!["a[1]", "t:1", "t:1", "t:9"]),
        Just(vec!["t:7", "t:8"]),
        Just(vec!["a[4,4]", "t:4"]),
        Just(vec!["a[]", "t:"]),
        Just(vec!["s", "a~", "a[5]~", "t:5~"]),
        Just(vec!["u", "a[6]"]),
        Just(vec!["user:one", "user:two"]),
    ];
    let single =
        prop::sample::select(vec!["s", "u", "a", "a[1]", "a[1,2]", "t:1", "t:2", "tool"]).prop_map(|one| vec![one]);
    (
        any::<bool>(),
        prop::collection::vec(prop_oneof![3 => turn, 1 => single], 0..8),
    )
        .prop_map(|(system, turns)| {
            let first = system.then_some("s");
            let all = first.into_iter().chain(turns.into_iter().flatten());
            let numbered = all.enumerate().map(|(at, text)| Message {
                id: Some(format!("m{at}")),
                ..message(text)
            });
            numbered.collect()
        })
}

pub(super) fn roles() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::System, Role::User, Role::Assistant, Role::Tool])
}

pub(super) fn of(messages: &[Message]) -> Conversation {
    Conversation::from_messages(messages.iter().map(|one| CountedMessage::new(one.clone(), &Estimator)))
}

/// Returns the start of the block of a message, by the definition in the SPEC.
pub(super) fn block_start_by_definition(messages: &[Message], at: usize) -> Option<usize> {
    let start = if messages[at].role == Role::Tool {
        (0..at).rev().find(|before| messages[*before].role != Role::Tool)?
    } else {
        at
    };
    let asks = messages[start].role == Role::Assistant && !messages[start].tool_calls.is_empty();
    asks.then_some(start)
}

/// Returns the number of calls without result and results without call, by definition.
pub(super) fn broken_pairs<M: AsRef<Message>>(messages: &[M]) -> usize {
    let messages: Vec<Message> = messages.iter().map(|one| one.as_ref().clone()).collect();
    let mut broken = 0;
    let mut calls: std::collections::BTreeMap<(usize, &str), i64> = std::collections::BTreeMap::new();
    for (at, message) in messages.iter().enumerate() {
        for call in &message.tool_calls {
            *calls.entry((at, &call.id)).or_default() += 1;
        }
        if message.role != Role::Tool {
            continue;
        }
        let start = block_start_by_definition(&messages, at);
        let named = start.zip(message.tool_call_id.as_deref());
        match named.and_then(|named| calls.get_mut(&named)).filter(|open| **open > 0) {
            Some(open) => *open -= 1,
            None => broken += 1,
        }
    }
    broken + usize::try_from(calls.values().sum::<i64>()).expect("never below zero")
}

fn options() -> impl Strategy<Value = ConversationHistoryOptions> {
    let number = || prop_oneof![1_u64..12, Just(u64::MAX)];
    let range = || (0_u64..12, number()).prop_map(|(start, more)| (start, start.saturating_add(more)));
    prop_oneof![
        number().prop_map(|n| ConversationHistoryOptions {
            last_n: Some(n),
            ..Default::default()
        }),
        (roles(), number()).prop_map(|(role, count)| ConversationHistoryOptions {
            last_n_by_role: Some(RoleCount { role, count }),
            ..Default::default()
        }),
        roles().prop_map(|role| ConversationHistoryOptions {
            by_role: Some(role),
            ..Default::default()
        }),
        range().prop_map(|(start, end)| ConversationHistoryOptions {
            range: Some(HistoryRange { start, end }),
            ..Default::default()
        }),
        (roles(), range()).prop_map(|(role, (start, end))| ConversationHistoryOptions {
            range_by_role: Some(RoleRange { role, start, end }),
            ..Default::default()
        }),
    ]
}

proptest! {
    #[test]
    fn tool_blocks_match_the_definition(messages in histories()) {
        let mut expected: Vec<(usize, usize)> = Vec::new();
        for at in 0..messages.len() {
            match (block_start_by_definition(&messages, at), expected.last_mut()) {
                (Some(start), Some(last)) if last.0 == start => last.1 = at + 1,
                (Some(start), _) => expected.push((start, at + 1)),
                (None, _) => {}
            }
        }
        let found: Vec<(usize, usize)> = tool_blocks(&messages).iter().map(|block| (block.start, block.end)).collect();
        prop_assert_eq!(&found, &expected);
        for at in 0..=messages.len() {
            let inside = expected.iter().find(|(start, end)| *start < at && at < *end).map(|(start, _)| *start);
            prop_assert_eq!(split_block(at, |index| messages.get(index)), inside);
        }
    }

    #[test]
    fn a_selection_matches_a_reference_implementation(messages in histories(), boundary in 0_usize..12, options in options()) {
        let boundary = boundary.min(messages.len());
        let mut history = of(&messages);
        history.start_new_batch(boundary).expect("in range");
        let visible: Vec<(usize, &Message)> = messages.iter().enumerate().filter(|(at, _)| *at >= boundary).collect();
        let of_role = |role: Role| visible.iter().filter(|(_, one)| one.role == role).map(|(_, one)| *one).collect::<Vec<_>>();
        let last = |all: Vec<&Message>, n: u64| all.into_iter().rev().take(usize::try_from(n).expect("64 bit")).collect::<Vec<_>>().into_iter().rev().cloned().collect::<Vec<_>>();
        let expected: Vec<Message> = if let Some(n) = options.last_n {
            last(visible.iter().map(|(_, one)| *one).collect(), n)
        } else if let Some(by) = options.last_n_by_role {
            last(of_role(by.role), by.count)
        } else if let Some(role) = options.by_role {
            of_role(role).into_iter().cloned().collect()
        } else if let Some(range) = options.range {
            visible.iter().filter(|(at, _)| (range.start..range.end).contains(&(*at as u64))).map(|(_, one)| (*one).clone()).collect()
        } else {
            let range = options.range_by_role.expect("the last of them");
            of_role(range.role).into_iter().enumerate().filter(|(at, _)| (range.start..range.end).contains(&(*at as u64))).map(|(_, one)| one.clone()).collect()
        };
        let found: Vec<Message> = select(&history, &options).expect("good").iter().map(|one| Message::clone(one)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn repairing_leaves_no_unpaired_call_or_result(messages in histories()) {
        let (sound, repairs) = repair_tool_pairs(messages.clone(), |stated| stated);
        prop_assert_eq!(broken_pairs(&sound), 0);
        prop_assert_eq!(repairs.closed_calls.len() + repairs.dropped_results.len(), broken_pairs(&messages));
        prop_assert_eq!(sound.len() + repairs.dropped_results.len(), messages.len() + repairs.closed_calls.len());
        if repairs.is_empty() {
            prop_assert_eq!(&sound, &messages);
        }
        let (again, nothing) = repair_tool_pairs(sound.clone(), |stated| stated);
        prop_assert!(nothing.is_empty());
        prop_assert_eq!(again, sound);
    }
}
