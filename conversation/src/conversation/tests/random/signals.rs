//! Signals of random contexts, compared with the table of `watch` evaluated over the whole past.

use proptest::prelude::*;

use crate::conversation::{PendingCall, TokenLimit, TokenSignal, TokenWatch};

const LIMIT: u64 = 100;

/// An event of a watch.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Calls(u64),
    Seen(u64),
    Compressed,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..130_u64).prop_map(Happens::Calls),
        2 => (0..130_u64).prop_map(Happens::Seen),
        1 => Just(Happens::Compressed),
    ]
}

fn first(tokens: u64) -> PendingCall {
    PendingCall {
        tokens,
        turn_start: 0,
        is_repeated: false,
    }
}

/// Returns true if an early compression starts at the last event: its context reaches the share, does not exceed the limit, and has
/// been below the share since the last call that started one or exceeded the limit.
fn begins_early(past: &[Happens], early: u64) -> bool {
    let Some((Happens::Calls(tokens), before)) = past.split_last() else {
        return false;
    };
    let is_armed = before.iter().rev().find_map(|one| match one {
        Happens::Calls(tokens) | Happens::Seen(tokens) if *tokens < early => Some(true),
        Happens::Calls(_) => Some(false),
        Happens::Seen(_) | Happens::Compressed => None,
    });
    (early.max(1)..=LIMIT).contains(tokens) && is_armed.unwrap_or(true)
}

proptest! {
    #[test]
    fn a_compression_starts_early_once_per_crossing(
        all in prop::collection::vec(happens(), 1..40),
        share in 0.01..0.99_f64,
    ) {
        let mut watch = TokenWatch::new(TokenLimit { tokens: Some(LIMIT), speculative_at: Some(share) });
        let mut plain = TokenWatch::new(TokenLimit::from(Some(LIMIT)));
        let early = (LIMIT as f64 * share).ceil() as u64;
        for place in 0..all.len() {
            let mut signals = Vec::new();
            let mut of_plain = Vec::new();
            match all[place] {
                Happens::Calls(tokens) => {
                    signals.extend(watch.before_model_call(first(tokens)));
                    of_plain.extend(plain.before_model_call(first(tokens)));
                }
                Happens::Seen(tokens) => {
                    watch.observe(tokens);
                    plain.observe(tokens);
                }
                Happens::Compressed => {
                    watch.compression_ended();
                    plain.compression_ended();
                }
            }
            let (approached, others): (Vec<_>, Vec<_>) =
                signals.into_iter().partition(|signal| matches!(signal, TokenSignal::Approached { .. }));
            prop_assert_eq!(others, of_plain, "it changes nothing of the others");
            prop_assert_eq!(approached.len(), usize::from(begins_early(&all[..=place], early)), "{:?}", &all[..=place]);
        }
    }

    /// Each turn has messages of random sizes. A compression removes all messages before the current turn except `kept` tokens.
    #[test]
    fn a_thread_above_its_limit_is_compressed_again_as_soon_as_older_messages_can_be_removed(
        turns in prop::collection::vec((1..200_u64, 1..5_usize), 2..30), kept in 0..40_u64,
    ) {
        let mut watch = TokenWatch::new(TokenLimit::from(Some(LIMIT)));
        let mut older = 0;
        for (turn_start, (tokens, calls)) in (1..).zip(turns) {
            for _ in 0..calls {
                let call = PendingCall { tokens: older + tokens, turn_start, is_repeated: false };
                let fires = watch.before_model_call(call).any(|signal| matches!(signal, TokenSignal::Exceeded { .. }));
                let can_shrink = older > kept && call.tokens > LIMIT;
                prop_assert!(fires || !can_shrink, "{} older tokens, {:?}, {:?}", older, call, watch);
                if fires {
                    older = older.min(kept);
                    watch.observe(older + tokens);
                    watch.compression_ended();
                    let again = PendingCall { tokens: older + tokens, turn_start, is_repeated: true };
                    let repeats = watch.before_model_call(again).any(|signal| matches!(signal, TokenSignal::Exceeded { .. }));
                    prop_assert!(!repeats);
                }
            }
            older += tokens;
        }
    }
}
