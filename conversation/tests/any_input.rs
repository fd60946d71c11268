//! Arbitrary inputs for a conversation: a rejected input changes nothing, every message is announced once, no panic.

use pirn_conversation::conversation::{
    Conversation, ConversationEffect, ConversationInput, ConversationMachine, CountedMessage, Estimator, TokenLimit,
    TokenUsage, Tokenizer,
};
use pirn_definition::message::{Message, Role};
use proptest::prelude::*;

/// An input. Some refer to an earlier state, or to one that never existed.
#[derive(Clone, Debug)]
enum Action {
    Append(usize),
    /// Replaces what was visible in an earlier state.
    Replace(usize, usize),
    Restore(usize),
    StartNewBatch(usize),
    Rollback(u64),
    BeforeModelCall(u64),
    CompressionEnded,
    Spent(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..4_usize).prop_map(Action::Append),
        3 => (0..12_usize, 0..3_usize).prop_map(|(moment, count)| Action::Replace(moment, count)),
        1 => (0..12_usize).prop_map(Action::Restore),
        2 => (0..30_usize).prop_map(Action::StartNewBatch),
        2 => (0..6_u64).prop_map(Action::Rollback),
        2 => prop_oneof![0..300_u64, Just(u64::MAX)].prop_map(Action::BeforeModelCall),
        1 => Just(Action::CompressionEnded),
        1 => prop_oneof![0..300_u64, Just(u64::MAX)].prop_map(Action::Spent),
    ]
}

fn messages(count: usize) -> Vec<CountedMessage> {
    let tokenizer: &dyn Tokenizer = &Estimator;
    let message = |number: usize| Message::new(if number == 0 { Role::User } else { Role::Assistant }, "text");
    (0..count)
        .map(|number| CountedMessage::new(message(number), tokenizer))
        .collect()
}

proptest! {
    #[test]
    fn a_conversation_machine_meets_its_contract_for_any_inputs(
        all in prop::collection::vec(action(), 0..40),
        tokens in prop::option::of(1..200_u64),
        speculative_at in prop::option::of(0.01..0.99_f64),
    ) {
        let mut machine = ConversationMachine::new(Conversation::new(), TokenLimit { tokens, speculative_at });
        let mut moments = vec![machine.conversation().clone()];
        for action in all {
            let earlier = |place: usize| moments[place % moments.len()].clone();
            let input = match action {
                Action::Append(count) => ConversationInput::Append(messages(count)),
                Action::Replace(moment, count) => {
                    ConversationInput::Replace { basis: earlier(moment).basis(), messages: messages(count) }
                }
                Action::Restore(moment) => ConversationInput::Restore(earlier(moment)),
                Action::StartNewBatch(index) => ConversationInput::StartNewBatch(index),
                Action::Rollback(batch) => ConversationInput::RollbackToBatch(batch),
                Action::BeforeModelCall(tokens) => ConversationInput::BeforeModelCall { tokens, is_repeated: false },
                Action::CompressionEnded => ConversationInput::CompressionEnded,
                Action::Spent(tokens) => {
                    ConversationInput::Spent(TokenUsage::new(tokens, tokens, tokens))
                }
            };
            let before = machine.clone();
            let mut out = Vec::new();
            machine.step(0, input.clone(), &mut out);

            let rejected = out.iter().any(|effect| matches!(effect, ConversationEffect::Rejected(_)));
            if rejected {
                prop_assert_eq!(out.len(), 1);
                prop_assert_eq!(&machine, &before, "what is refused changes nothing");
            }
            let (old, new) = (before.conversation(), machine.conversation());
            let grown = new.complete().len().saturating_sub(old.complete().len());
            if let ConversationInput::Append(added) = &input {
                prop_assert_eq!(grown, added.len());
                prop_assert_eq!(out.len(), added.len(), "one word a message");
            }
            let indices: Vec<usize> = out.iter().filter_map(|effect| match effect {
                ConversationEffect::MessageAdded { index, .. } => Some(*index),
                _ => None,
            }).collect();
            if !indices.is_empty() {
                let expected: Vec<usize> = (old.complete().len()..new.complete().len()).collect();
                prop_assert_eq!(indices, expected);
            }
            // The log is append-only, unless another conversation's content replaces it.
            if !matches!(input, ConversationInput::Restore(_)) {
                prop_assert!(new.complete().len() >= old.complete().len());
            }
            prop_assert!(new.visible().len() <= new.complete().len());
            let text = serde_json::to_string(&machine)?;
            prop_assert_eq!(&serde_json::from_str::<ConversationMachine>(&text)?, &machine);
            moments.push(machine.conversation().clone());
        }
    }
}
