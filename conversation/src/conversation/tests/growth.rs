//! Complexity tests. Operations are counted, not timed, so that the results do not depend on the machine.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::{Conversation, CountedMessage, Estimator, PinStrategy, message_cost, pin_position};
use super::notation::{Counter, message};

#[test]
fn the_tokens_of_a_message_are_counted_once() {
    let tokenizer = Counter::default();
    let mut history = Conversation::new();
    for _ in 0..100 {
        history.append(CountedMessage::new(message("user:hi"), &tokenizer));
    }
    assert_eq!(tokenizer.0.load(Ordering::Relaxed), 100);
    let snapshot = history.clone();
    history.start_new_batch(50).expect("in range");
    let kept: Vec<CountedMessage> = history.visible().iter().cloned().collect();
    history
        .replace_visible(history.basis(), kept)
        .expect("nothing else happened");
    history.restore(&snapshot);
    assert_eq!(
        history.visible_tokens(),
        100 * message_cost(&message("user:hi"), &tokenizer)
    );
    assert_eq!(
        tokenizer.0.load(Ordering::Relaxed),
        101,
        "only the assertion itself counted again"
    );
}

#[test]
fn finding_the_pin_position_reads_only_the_tail() {
    let asked = |length: usize, tail: &[&str]| {
        let user = message("u");
        let tail: Vec<_> = tail.iter().map(|text| message(text)).collect();
        let asked = Cell::new(0_usize);
        pin_position(PinStrategy::default(), length, |index| {
            asked.set(asked.get() + 1);
            match (index + tail.len()).checked_sub(length) {
                Some(at) => tail.get(at),
                None => Some(&user),
            }
        });
        asked.get()
    };
    for tail in [
        &["u", "a"][..],
        &["a[1,2]", "t:1", "t:2", "a", "u", "a"],
        &["u", "a[1]"],
    ] {
        assert_eq!(asked(1_000, tail), asked(1_000_000, tail), "{tail:?}");
        assert!(asked(1_000_000, tail) <= 4, "{tail:?}");
    }
}

#[test]
fn a_snapshot_shares_messages_and_an_append_copies_few() {
    // Each copy of a tree node increments the reference count of its messages.
    let one = CountedMessage::new(message("u"), &Estimator);
    for length in [1_000, 1_000_000] {
        let history = Conversation::from_messages(std::iter::repeat_n(one.clone(), length));
        let messages_held = Arc::strong_count(&one.message);
        let mut branch = history.clone();
        branch.append(one.clone());
        branch.append(one.clone());
        let copied = Arc::strong_count(&one.message) - messages_held;
        assert!(
            copied <= 1_000,
            "{length}: fork and two appends copied {copied} messages"
        );
        assert_eq!((history.len(), branch.len()), (length, length + 2));
    }
}
