//! Timers of a clock that does not stand still: by the millisecond that they fall due in.
//!
//! 1. Setting a timer costs the same however many there are: it is appended to its bucket. A bucket is put in order when
//!    its millisecond begins, which for timers set one after another it mostly is already.
//! 2. Timers fire by deadline, and of one deadline in the order they were set.
//! 3. What is to happen lies in a slot. Cancelling empties that; the key stays in its bucket until that is opened, or
//!    until most keys are of that kind.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::timers::TimerKey;

/// A bucket is so many microseconds wide, as a power of two: about a millisecond.
const WIDTH: u32 = 10;

/// Keys of cancelled timers that are kept in any case.
const FEW: usize = 64;

/// What is to happen, by deadline in microseconds and then by the order of setting.
pub(super) struct Buckets<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Those that have not begun.
    later: BTreeMap<u64, Bucket>,
    /// The one that has begun; the next to fire is the last.
    begun: Vec<TimerKey>,
    /// The list of the one before it, for the next one that is needed.
    spare: Vec<TimerKey>,
    /// What was set for a bucket that had begun.
    late: BinaryHeap<Reverse<TimerKey>>,
    /// The first bucket that has not begun.
    next: u64,
    sequence: u64,
    /// Timers that are set, and keys of them and of cancelled ones.
    live: usize,
    keys: usize,
}

struct Slot<T> {
    sequence: u64,
    what: Option<T>,
}

struct Bucket {
    first: u64,
    keys: Vec<TimerKey>,
}

impl<T> Buckets<T> {
    /// No timers.
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            later: BTreeMap::new(),
            begun: Vec::new(),
            spare: Vec::new(),
            late: BinaryHeap::new(),
            next: 0,
            sequence: 0,
            live: 0,
            keys: 0,
        }
    }

    /// Remembers `what` for `deadline`.
    pub(super) fn set(&mut self, deadline: u64, what: T) -> TimerKey {
        let sequence = self.sequence;
        self.sequence += 1;
        let filled = Slot {
            sequence,
            what: Some(what),
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = filled;
            slot
        } else {
            self.slots.push(filled);
            (self.slots.len() - 1) as u32
        };
        let key = TimerKey {
            deadline,
            sequence,
            slot,
        };
        self.live += 1;
        self.keys += 1;
        let bucket = deadline >> WIDTH;
        if bucket < self.next {
            self.late.push(Reverse(key));
        } else {
            let spare = &mut self.spare;
            let bucket = self.later.entry(bucket).or_insert_with(|| Bucket {
                first: deadline,
                keys: std::mem::take(spare),
            });
            bucket.first = bucket.first.min(deadline);
            bucket.keys.push(key);
        }
        key
    }

    /// Takes a timer out, if it is still there.
    pub(super) fn take(&mut self, key: TimerKey) -> Option<T> {
        let taken = self.empty(key);
        self.tidy_up();
        taken
    }

    /// No timer falls due before this; the first one does then, or was cancelled.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let begun = self.begun.last().map(|key| key.deadline);
        let late = self.late.peek().map(|Reverse(key)| key.deadline);
        match (begun, late) {
            (Some(begun), Some(late)) => Some(begun.min(late)),
            (Some(one), None) | (None, Some(one)) => Some(one),
            (None, None) => self.later.first_key_value().map(|(_, bucket)| bucket.first),
        }
    }

    /// Takes the first timer whose deadline is not after `now`.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<T> {
        loop {
            let is_late = match (self.begun.last(), self.late.peek()) {
                (Some(begun), Some(Reverse(late))) => late < begun,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (None, None) => {
                    self.begin(now)?;
                    false
                }
            };
            let first = if is_late {
                self.late.peek().map(|Reverse(key)| *key)
            } else {
                self.begun.last().copied()
            };
            let key = first.filter(|key| key.deadline <= now)?;
            if is_late {
                self.late.pop();
            } else {
                self.begun.pop();
            }
            self.keys -= 1;
            if let Some(what) = self.empty(key) {
                self.tidy_up();
                return Some(what);
            }
        }
    }

    /// Begins the next bucket, where its time has come.
    fn begin(&mut self, now: u64) -> Option<()> {
        let entry = self.later.first_entry().filter(|entry| entry.get().first <= now)?;
        let (number, bucket) = entry.remove_entry();
        self.next = number + 1;
        let spare = std::mem::replace(&mut self.begun, bucket.keys);
        if self.spare.capacity() < spare.capacity() {
            self.spare = spare;
        }
        self.begun.sort_unstable_by(|one, other| other.cmp(one));
        Some(())
    }

    fn empty(&mut self, key: TimerKey) -> Option<T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.sequence != key.sequence {
            return None;
        }
        let what = slot.what.take()?;
        self.free.push(key.slot);
        self.live -= 1;
        Some(what)
    }

    /// Forgets the keys of cancelled timers, where most are.
    fn tidy_up(&mut self) {
        if self.keys <= FEW + 2 * self.live {
            return;
        }
        let slots = &self.slots;
        let is_set = |key: &TimerKey| {
            let slot = slots.get(key.slot as usize);
            slot.is_some_and(|slot| slot.sequence == key.sequence && slot.what.is_some())
        };
        self.begun.retain(is_set);
        self.late.retain(|Reverse(key)| is_set(key));
        self.later.retain(|_, bucket| {
            bucket.keys.retain(is_set);
            !bucket.keys.is_empty()
        });
        self.keys = self.live;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u64),
        /// One of those that were ever set.
        Cancel(usize),
        /// Time goes on.
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop_oneof![0..3_000_u64, 0..100_000_u64].prop_map(Step::Set),
            2 => any::<usize>().prop_map(Step::Cancel),
            2 => prop_oneof![0..50_u64, 0..5_000_u64].prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// Beside a map from deadline and order of setting to what is to happen.
        #[test]
        fn timers_fire_by_deadline_then_by_the_order_of_setting(steps in prop::collection::vec(step(), 0..400)) {
            let mut buckets = Buckets::new();
            let (mut oracle, mut keys, mut now) = (BTreeMap::new(), Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Set(after) => {
                        let n = keys.len();
                        keys.push((buckets.set(now + after, n), (now + after, n)));
                        oracle.insert((now + after, n), n);
                    }
                    Step::Cancel(which) => {
                        if let Some((key, place)) = keys.get(which % keys.len().max(1)) {
                            prop_assert_eq!(buckets.take(*key), oracle.remove(place));
                        }
                    }
                    Step::Pass(time) => {
                        now += time;
                        loop {
                            let due = oracle.first_key_value().filter(|((deadline, _), _)| *deadline <= now);
                            let due = due.map(|(place, _)| *place).and_then(|place| oracle.remove(&place));
                            let fired = buckets.pop_due(now);
                            prop_assert_eq!(fired, due);
                            if fired.is_none() {
                                break;
                            }
                        }
                    }
                }
                let first = oracle.first_key_value().map(|((deadline, _), _)| *deadline);
                let next = buckets.next_deadline();
                prop_assert!(first.is_none() || next.is_some_and(|next| Some(next) <= first), "slept through");
                prop_assert_eq!(buckets.live, oracle.len());
                prop_assert!(buckets.keys <= FEW + 2 * buckets.live, "cancelled timers are forgotten");
            }
        }
    }

    #[test]
    fn time_limits_that_are_cancelled_again_and_again_leave_nothing_behind() {
        let mut buckets = Buckets::new();
        for limit in 0..100_000_u64 {
            let key = buckets.set(30_000_000 + limit * 10, limit);
            assert_eq!(buckets.take(key), Some(limit));
        }
        assert!(buckets.keys <= FEW && buckets.slots.len() == 1);
    }
}
