//! Timers ordered by deadline.
//!
//! One ordered map per thread, driven by one task: setting and cancelling cost one map operation, without a task per timer.
//! Timers with equal deadlines fire in the order they were set.

use std::collections::{BTreeMap, BTreeSet};

/// Identifies a timer of a host: its deadline in the host's ticks, and a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    pub(super) deadline: u64,
    pub(super) sequence: u64,
}

impl TimerKey {
    /// A key, for a host with its own timers. The pair of `deadline` and `sequence` must be unique.
    pub fn new(deadline: u64, sequence: u64) -> Self {
        Self { deadline, sequence }
    }
}

/// Pending timers, ordered by deadline and then by sequence.
#[derive(Debug)]
pub(super) struct Timers<T> {
    due: BTreeMap<TimerKey, T>,
    /// Keys of the background timers.
    background: BTreeSet<TimerKey>,
    sequence: u64,
}

impl<T> Timers<T> {
    /// An empty set of timers.
    pub(super) fn new() -> Self {
        Self {
            due: BTreeMap::new(),
            background: BTreeSet::new(),
            sequence: 0,
        }
    }

    /// Adds a timer.
    pub(super) fn set(&mut self, deadline: u64, what: T) -> TimerKey {
        let key = TimerKey {
            deadline,
            sequence: self.sequence,
        };
        self.sequence += 1;
        self.due.insert(key, what);
        key
    }

    /// Adds a background timer.
    pub(super) fn set_in_background(&mut self, deadline: u64, what: T) -> TimerKey {
        let key = self.set(deadline, what);
        self.background.insert(key);
        key
    }

    /// True if there is a timer that is not in the background.
    pub(super) fn has_foreground(&self) -> bool {
        // Background keys are a subset of `due`, so a comparison of the lengths is enough.
        self.due.len() > self.background.len()
    }

    /// Removes a timer. None if it fired or was removed.
    pub(super) fn take(&mut self, key: TimerKey) -> Option<T> {
        // A key before the first pending one belongs to a timer that has fired. This check avoids a search in the common case.
        if self.due.first_key_value().is_none_or(|(first, _)| key < *first) {
            return None;
        }
        // A foreground key is not in this set, and nothing is removed.
        self.background.remove(&key);
        self.due.remove(&key)
    }

    /// Returns the first deadline.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.due.keys().next().map(|key| key.deadline)
    }

    /// Removes the first timer that is due at `now`.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<T> {
        let first = self.due.first_entry()?;
        if first.key().deadline > now {
            return None;
        }
        let (key, what) = first.remove_entry();
        self.background.remove(&key);
        Some(what)
    }

    /// Returns the keys of the timers due at `now`, in order.
    pub(super) fn due(&self, now: u64) -> impl Iterator<Item = TimerKey> + '_ {
        self.due.keys().copied().take_while(move |key| key.deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timers_fire_by_deadline_and_then_in_creation_order() {
        let mut timers = Timers::new();
        timers.set(20, "c");
        timers.set(10, "a");
        timers.set(10, "b");
        assert_eq!(timers.next_deadline(), Some(10));
        assert_eq!(timers.due(10).count(), 2);
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(20), Some("a"));
        assert_eq!(timers.pop_due(20), Some("b"));
        assert_eq!(timers.pop_due(20), Some("c"));
        assert_eq!(timers.pop_due(20), None);
    }

    #[test]
    fn background_timers_fire_in_order_among_the_others() {
        let mut timers = Timers::new();
        assert!(!timers.has_foreground());
        let first = timers.set_in_background(5, "a");
        assert!(!timers.has_foreground());
        timers.set(7, "b");
        timers.set_in_background(6, "c");
        assert!(timers.has_foreground());
        assert_eq!(timers.take(first), Some("a"));
        assert_eq!(timers.pop_due(9), Some("c"));
        assert!(timers.has_foreground());
        assert_eq!(timers.pop_due(9), Some("b"));
        assert!(!timers.has_foreground());
    }

    proptest! {
        #[test]
        fn cancelling_timers_does_not_change_the_order_of_the_others(
            steps in prop::collection::vec((0..4_u8, 0..6_u64), 0..40),
        ) {
            let mut timers = Timers::new();
            // Model: pending timers by deadline and sequence, and every key ever returned.
            let (mut pending, mut keys) = (Vec::new(), Vec::new());
            for (step, (what, n)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        let key = if what == 0 { timers.set(n, step) } else { timers.set_in_background(n, step) };
                        keys.push((key, step));
                        pending.push((n, step, what == 0));
                        pending.sort_unstable();
                    }
                    2 if !keys.is_empty() => {
                        let (key, of) = keys[n as usize % keys.len()];
                        let place = pending.iter().position(|(_, set, _)| *set == of);
                        prop_assert_eq!(timers.take(key), place.map(|place| pending.remove(place).1));
                    }
                    _ => {
                        let is_due = pending.first().is_some_and(|(deadline, ..)| *deadline <= n);
                        let due = is_due.then(|| pending.remove(0).1);
                        prop_assert_eq!(timers.pop_due(n), due);
                    }
                }
                prop_assert_eq!(timers.has_foreground(), pending.iter().any(|(.., is_awaited)| *is_awaited));
            }
        }
    }

    #[test]
    fn a_cancelled_timer_never_fires() {
        let mut timers = Timers::new();
        let first = timers.set(5, "cancelled");
        timers.set(5, "kept");
        assert_eq!(timers.take(first), Some("cancelled"));
        assert_eq!(timers.take(first), None);
        assert_eq!(timers.pop_due(5), Some("kept"));
        assert_eq!(timers.pop_due(5), None);
    }
}
