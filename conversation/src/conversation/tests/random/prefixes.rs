//! Common prefix of consecutive requests, checked against the built messages. Histories, pinned contexts and changes between the
//! requests are random.

use std::sync::Arc;

use pirn_definition::definition::{Pinned, PinnedText};
use pirn_definition::message::{Message, Role};
use proptest::prelude::*;

use super::histories::{histories, of};
use crate::conversation::{
    Conversation, CountedMessage, Estimator, MessageRules, ModelRequest, Outline, PinStrategy, PrefixBreak,
    PrefixWatch, PreparedRequest, RequestParts, RequestPrefix, build_request, hash_text, message_cost,
};

const TOOL_TOKENS: u64 = 11;

/// A change between two requests.
#[derive(Clone, Debug)]
enum Between {
    Said(Vec<Message>),
    Pinned(Option<u8>),
    System(bool),
    Tools(u8),
    Batch(usize),
    Nothing,
}

fn changes() -> impl Strategy<Value = Vec<(Between, bool)>> {
    let change = prop_oneof![
        5 => histories().prop_map(Between::Said),
        1 => prop::option::of(0_u8..3).prop_map(Between::Pinned),
        1 => any::<bool>().prop_map(Between::System),
        1 => (0_u8..2).prop_map(Between::Tools),
        1 => (0_usize..9).prop_map(Between::Batch),
        1 => Just(Between::Nothing),
    ];
    prop::collection::vec((change, prop::bool::weighted(0.2)), 1..9)
}

fn contents(request: &ModelRequest) -> Vec<Message> {
    request.messages.iter().map(|one| (**one).clone()).collect()
}

proptest! {
    #[test]
    fn the_stable_prefix_is_the_longest_common_prefix_of_two_requests(changes in changes(), strict: bool) {
        let mut history = Conversation::new();
        let (mut pinned, mut system, mut tools) = (None, false, 0);
        let (mut watch, mut of_built) = (PrefixWatch::default(), PrefixWatch::default());
        let mut outline = Outline::default();
        let mut sent: Option<(u8, Vec<Message>)> = None;
        let mut prepared = None;
        for (change, again) in changes {
            match change {
                Between::Said(messages) => history.extend(messages.into_iter().map(|one| CountedMessage::new(one, &Estimator))),
                Between::Pinned(other) => pinned = other,
                Between::System(other) => system = other,
                Between::Tools(other) => tools = other,
                Between::Batch(length) => {
                    let _ = history.start_new_batch(history.len().saturating_sub(length));
                }
                Between::Nothing => {}
            }
            let pins = Pinned { todo: pinned.map(|word| PinnedText::Text(format!("PIN {word}"))), ..Pinned::default() };
            let parts = RequestParts {
                pinned: Some(&pins),
                strategy: PinStrategy::FromEnd(3),
                system: system.then_some("SYSTEM"),
                tool_tokens: TOOL_TOKENS,
                rules: if strict { MessageRules::STRICT } else { MessageRules::default() },
                ..RequestParts::default()
            };
            let request = outline.prepare(&history, &parts, &Estimator);
            let opening = RequestPrefix { tools: hash_text([tools.to_string()]), ..RequestPrefix::default() };
            // Restored as after a crash: only hashes are stored, so that every message is compared by hash.
            let stored = serde_json::to_string(&watch).expect("it is plain");
            let mut restored: PrefixWatch = serde_json::from_str(&stored).expect("it was written");
            let told = watch.prepared(&request, &outline, opening, again, &Estimator);
            prop_assert_eq!(restored.prepared(&request, &outline, opening, again, &Estimator), told);
            // A built request has no lists, so that no range is skipped. The result must be equal.
            let built = PreparedRequest::from(Arc::clone(request.built()));
            prop_assert_eq!(of_built.prepared(&built, &outline, opening, again, &Estimator), told);

            let now = (tools, contents(request.built()));
            if !again {
                sent = prepared.take();
            }
            let (tokens, broken) = match &sent {
                None => (0, None),
                Some((other, _)) if *other != tools => (0, Some(0)),
                Some((_, before)) => {
                    let common = before.iter().zip(&now.1).take_while(|(one, other)| one == other).count();
                    let tokens: u64 = now.1[..common].iter().map(|one| message_cost(one, &Estimator)).sum();
                    (TOOL_TOKENS + tokens, (common < before.len()).then_some(common))
                }
            };
            prop_assert_eq!(told.tokens, tokens);
            prop_assert_eq!(told.broken.map(|(at, _)| at), broken);
            if let (Some((at, why)), Some((_, before))) = (told.broken, &sent) {
                let is = |found: &dyn Fn(&Message) -> bool| [before, &now.1].iter().any(|all| all.get(at).is_some_and(found));
                match why {
                    PrefixBreak::Tools => prop_assert_eq!(at, 0),
                    PrefixBreak::System => prop_assert!(is(&|one| one.role == Role::System)),
                    PrefixBreak::Pinned => prop_assert!(is(&|one| one.content.starts_with("PIN"))),
                    PrefixBreak::Repair => prop_assert!(is(&|one| one.id.is_none())),
                    PrefixBreak::History => prop_assert!(!is(&|one| one.content.starts_with("PIN"))),
                    PrefixBreak::Profile | PrefixBreak::ResponseFormat => prop_assert!(false, "{:?}", why),
                }
            }
            prepared = Some(now);
        }
    }

    #[test]
    fn messages_reported_as_repeated_were_in_the_previous_request(messages in histories(), n in 0_usize..7, has_pins: bool, strict: bool) {
        let messages: Vec<Message> = messages.into_iter().filter(|one| !one.sub_agent_internal).collect();
        let pins = Pinned { todo: has_pins.then(|| PinnedText::Text("PIN".to_owned())), ..Pinned::default() };
        let parts = RequestParts {
            pinned: Some(&pins),
            strategy: PinStrategy::FromEnd(n),
            system: Some("SYSTEM"),
            rules: if strict { MessageRules::STRICT } else { MessageRules::default() },
            ..RequestParts::default()
        };
        let request = build_request(&of(&messages), &parts, &Estimator);
        prop_assert!(request.repeated <= request.messages.len());
        let Some(replied) = messages.iter().rposition(|one| one.role == Role::Assistant) else {
            prop_assert_eq!(request.repeated, 0);
            return Ok(());
        };
        // A system message after the reply is sent before all others, which changes the prefix.
        let came_later = |from: usize| messages[from..].iter().any(|one| one.role == Role::System);
        if came_later(replied) || !messages[..replied].iter().any(|one| one.role == Role::User) {
            return Ok(());
        }
        let before = build_request(&of(&messages[..replied]), &parts, &Estimator);
        let (now, then) = (contents(&request), contents(&before));
        let stable = request.inserted_at.unwrap_or(now.len());
        let shared = request.repeated.min(stable);
        prop_assert_eq!(now.get(..shared), then.get(..shared));
        if before.repairs.user_last {
            return Ok(());
        }
        // `repeated` is maximal: a cache mark of the previous request cannot cover more of the common prefix.
        let marked = before.inserted_at.unwrap_or(then.len());
        let common = now.iter().zip(&then).take_while(|(one, other)| one == other).count();
        prop_assert!(shared >= marked.min(common).min(stable), "{} of {} {} {}", shared, marked, common, stable);
    }
}
