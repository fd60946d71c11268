//! Batches, rollbacks, versions and replacements, against a list of the visible messages.

use pirn_definition::definition::{FilterContext, HistoryRange, TruncateContext};
use pirn_definition::message::Message;
use proptest::prelude::*;

use super::histories::{histories, of, roles};
use crate::conversation::tests::notation::message;
use crate::conversation::{
    Conversation, ConversationError, CountedMessage, Estimator, ResolvedContext, apply, tool_blocks,
};

#[derive(Clone, Debug)]
enum Change {
    Append(usize),
    StartNewBatch(usize),
    Rollback(u64),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        3 => (0_usize..6).prop_map(Change::Append),
        2 => (0_usize..25).prop_map(Change::StartNewBatch),
        2 => (0_u64..5).prop_map(Change::Rollback),
    ];
    prop::collection::vec(change, 0..25)
}

/// Reference model: the visible indices of each batch up to the current one, at the time when it was left.
#[derive(Default)]
struct Plain {
    length: usize,
    boundary: Vec<usize>,
    left: Vec<Vec<usize>>,
    visible: Vec<usize>,
}

impl Plain {
    fn take(&mut self, change: &Change) -> bool {
        match *change {
            Change::Append(count) => {
                self.visible.extend(self.length..self.length + count);
                self.length += count;
                true
            }
            Change::StartNewBatch(index) => {
                let good = index <= self.length && self.boundary.last().is_none_or(|low| *low <= index);
                if good {
                    self.left.push(self.visible.clone());
                    self.boundary.push(index);
                    self.visible.retain(|at| *at >= index);
                }
                good
            }
            Change::Rollback(batch) => {
                let batch = usize::try_from(batch).expect("small");
                if batch < self.left.len() {
                    self.visible = self.left[batch].clone();
                    self.left.truncate(batch);
                    self.boundary.truncate(batch);
                    true
                } else {
                    batch == self.left.len()
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn visible_messages_match_a_reference_implementation(changes in changes()) {
        let mut plain = Plain::default();
        let mut history = Conversation::new();
        for change in &changes {
            let before = history.clone();
            let taken = match *change {
                Change::Append(count) => {
                    history.extend((0..count).map(|_| CountedMessage::new(message("u"), &Estimator)));
                    Ok(())
                }
                Change::StartNewBatch(index) => history.start_new_batch(index),
                Change::Rollback(batch) => history.rollback_to_batch(batch),
            };
            prop_assert_eq!(taken.is_ok(), plain.take(change), "{:?}: {:?}", change, taken);
            if taken.is_err() {
                prop_assert_eq!(&history, &before);
            }
            let indices: Vec<usize> = history.visible().indexed().map(|(at, _)| at).collect();
            prop_assert_eq!(&indices, &plain.visible);
            prop_assert_eq!(history.visible().len(), indices.len());
            let view = history.visible();
            prop_assert!(indices.iter().enumerate().all(|(position, index)| view.index(position) == Some(*index)));
            prop_assert_eq!(history.len(), plain.length);
            prop_assert_eq!(history.visible_tokens(), history.visible().iter().map(|one| one.tokens).sum::<u64>());
            prop_assert!(history.mark_map().check(history.len()).is_ok());
            let stored = serde_json::to_string(&history).expect("plain data");
            prop_assert_eq!(&serde_json::from_str::<Conversation>(&stored).expect("its own"), &history);
        }
    }

    #[test]
    fn a_replacement_retains_later_messages_or_is_refused(
        messages in histories(),
        tail in 0_usize..5,
        reshaped in any::<bool>(),
    ) {
        let mut history = of(&messages);
        let basis = history.basis();
        let added: Vec<CountedMessage> = (0..tail).map(|at| CountedMessage::new(message(&format!("user:late {at}")), &Estimator)).collect();
        history.extend(added.clone());
        if reshaped {
            history.start_new_batch(messages.len()).expect("in range");
        }
        let before = history.clone();
        let summary = CountedMessage::new(message("user:SUMMARY"), &Estimator);
        let outcome = history.replace_visible(basis, [summary.clone()]);
        if reshaped {
            prop_assert_eq!(outcome, Err(ConversationError::Changed));
            prop_assert_eq!(history, before);
        } else {
            prop_assert_eq!(outcome, Ok(()));
            prop_assert_eq!(history.version(), before.version() + 1);
            let shown: Vec<CountedMessage> = history.visible().iter().cloned().collect();
            prop_assert_eq!(shown, [vec![summary], added].concat());
            history.rollback_to_batch(0).expect("archived");
            prop_assert_eq!(history.visible().messages(), before.visible().messages());
        }
    }

    #[test]
    fn operations_archive_visible_messages_and_split_no_block(
        messages in histories(),
        role in prop::option::of(roles()),
        n in prop_oneof![0_u64..9, Just(u64::MAX)],
        end in prop_oneof![0_u64..9, Just(u64::MAX)],
        position in prop_oneof![-12_i64..12, Just(i64::MIN), Just(i64::MAX)],
        kind in 0_u8..8,
    ) {
        let truncate = |change: fn(&mut TruncateContext, u64)| {
            let mut truncate = TruncateContext { role, ..TruncateContext::default() };
            change(&mut truncate, n);
            ResolvedContext::Truncate(truncate)
        };
        let operation = match kind {
            0 => truncate(|truncate, n| truncate.keep_first = Some(n)),
            1 => truncate(|truncate, n| truncate.keep_last = Some(n)),
            2 => truncate(|truncate, n| truncate.remove_first = Some(n)),
            3 => truncate(|truncate, n| truncate.remove_last = Some(n)),
            4 => ResolvedContext::Truncate(TruncateContext { range: Some(HistoryRange { start: n, end }), role, ..TruncateContext::default() }),
            5 => ResolvedContext::Filter(FilterContext { roles: role.map(|role| vec![role]), content_contains: None, content_excludes: Some(vec!["one".to_owned()]) }),
            6 => ResolvedContext::Clear { keep_system: end > 3 },
            _ => ResolvedContext::Insert { messages: vec![CountedMessage::new(message("user:NEW"), &Estimator)], position },
        };
        let mut history = of(&messages);
        let before = history.clone();
        if apply(&mut history, operation).is_err() {
            prop_assert_eq!(history, before);
            return Ok(());
        }
        let shown: Vec<Message> = history.visible().messages().iter().map(|one| Message::clone(one)).collect();
        for block in tool_blocks(&messages) {
            let whole = &messages[block];
            let there = shown.windows(whole.len()).any(|window| window == whole);
            let none = whole.iter().all(|one| !shown.contains(one));
            prop_assert!(there || none, "split: {:?} in {:?}", whole, shown);
        }
        if history.mark_map().current_batch > 0 {
            history.rollback_to_batch(0).expect("archived");
            prop_assert_eq!(history.visible().messages(), before.visible().messages());
        }
    }
}
