//! Fair queue in front of a resource that runs share: runs take turns (round robin), and the items of one run are served in FIFO
//! order.
//!
//! 1. A run that starts to wait is appended to the end of the round; so is a run that was served and has more items. Between two
//!    turns of a run, every other waiting run has exactly one turn, however many items each of them has.
//! 2. Within a run, items are served in the order of their pushes.
//! 3. A run that may not have more is skipped and stays at its position.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Waiting items by run; each item has a number that increases with every push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FairQueue<T> {
    waiting: BTreeMap<Arc<str>, VecDeque<(u64, T)>>,
    /// Runs with waiting items, each once, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Items that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the next item and its number.
    pub fn first(&self) -> Option<(u64, &T)> {
        let (id, item) = self.waiting.get(self.turns.front()?)?.front()?;
        Some((*id, item))
    }

    /// Adds an item; `id` must be higher than those of all earlier items.
    pub fn push(&mut self, run: &Arc<str>, id: u64, item: T) {
        self.len += 1;
        if let Some(items) = self.waiting.get_mut(run) {
            items.push_back((id, item));
            return;
        }
        self.turns.push_back(Arc::clone(run));
        self.waiting.insert(Arc::clone(run), VecDeque::from([(id, item)]));
    }

    /// Removes and returns the next item of the first run for which `may_have` is true, and moves that run to the end.
    pub fn pop(&mut self, may_have: impl Fn(&str) -> bool) -> Option<(u64, T)> {
        let place = self.turns.iter().position(|run| may_have(run))?;
        let run = self.turns.remove(place)?;
        let items = self.waiting.get_mut(&run)?;
        let item = items.pop_front()?;
        self.len -= 1;
        if items.is_empty() {
            self.waiting.remove(&run);
        } else {
            self.turns.push_back(run);
        }
        Some(item)
    }

    /// Removes an item of a run.
    pub fn remove(&mut self, run: &str, id: u64) -> Option<T> {
        let items = self.waiting.get_mut(run)?;
        let place = items.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let (_, item) = items.remove(place)?;
        self.len -= 1;
        if items.is_empty() {
            self.waiting.remove(run);
            self.turns.retain(|other| &**other != run);
        }
        Some(item)
    }

    /// Removes all items.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.turns.clear();
        self.len = 0;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().flatten().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RUNS: [&str; 4] = ["many", "few", "one", "late"];

    fn run(which: usize) -> Arc<str> {
        RUNS[which].into()
    }

    #[test]
    fn a_run_with_one_item_is_served_after_one_item_of_each_other_run() {
        let mut queue = FairQueue::default();
        (0..5000).for_each(|n| queue.push(&run(0), n, "many"));
        queue.push(&run(1), 5000, "few");
        queue.push(&run(1), 5001, "few");
        queue.push(&run(2), 5002, "one");
        let served: Vec<_> = std::iter::from_fn(|| queue.pop(|_| true)).take(7).collect();
        let order = [
            (0, "many"),
            (5000, "few"),
            (5002, "one"),
            (1, "many"),
            (5001, "few"),
            (2, "many"),
            (3, "many"),
        ];
        assert_eq!(served, order);
        assert_eq!(queue.len(), 4996);
    }

    #[test]
    fn removing_an_item_does_not_change_the_order_of_the_others() {
        let mut queue = FairQueue::default();
        (0..4).for_each(|n| queue.push(&run(0), n, n));
        assert_eq!(queue.remove(RUNS[0], 2), Some(2));
        assert_eq!(queue.remove(RUNS[0], 2), None);
        assert_eq!(queue.remove(RUNS[1], 0), None);
        assert_eq!(queue.first(), Some((0, &0)));
        assert_eq!(queue.drain().collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!((queue.len(), queue.pop(|_| true)), (0, None));
    }

    #[derive(Clone, Debug)]
    enum Move {
        Push(usize),
        /// Serve one item, except to the runs marked here.
        Pop([bool; RUNS.len()]),
        Remove(usize),
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            4 => (0..RUNS.len()).prop_map(Move::Push),
            3 => any::<[bool; RUNS.len()]>().prop_map(Move::Pop),
            2 => Just(Move::Pop([false; RUNS.len()])),
            1 => (0usize..40).prop_map(Move::Remove),
        ];
        proptest::collection::vec(one, 1..120)
    }

    proptest! {
        /// The oracle is one list of all waiting items, and for each run the moment since which it waits for its turn. It serves
        /// the longest-waiting run that may have more, and that run's item with the lowest number.
        #[test]
        fn the_first_item_of_the_longest_waiting_run_is_served(moves in moves()) {
            let mut queue = FairQueue::default();
            let mut waiting: Vec<(usize, u64)> = Vec::new();
            let mut since = [0; RUNS.len()];
            for (now, step) in moves.into_iter().enumerate() {
                let id = now as u64;
                let waits = |waiting: &[(usize, u64)], which| waiting.iter().any(|(run, _)| *run == which);
                match step {
                    Move::Push(which) => {
                        if !waits(&waiting, which) {
                            since[which] = now;
                        }
                        waiting.push((which, id));
                        queue.push(&run(which), id, which);
                    }
                    Move::Pop(passed) => {
                        let next = (0..RUNS.len()).filter(|which| !passed[*which] && waits(&waiting, *which));
                        let next = next.min_by_key(|which| since[*which]);
                        let served = next.map(|which| {
                            since[which] = now;
                            let place = waiting.iter().position(|(run, _)| *run == which).unwrap();
                            let (run, id) = waiting.remove(place);
                            (id, run)
                        });
                        let may_have = |run: &str| !passed[RUNS.iter().position(|name| *name == run).unwrap()];
                        prop_assert_eq!(queue.pop(may_have), served);
                    }
                    Move::Remove(place) => if let Some(&(which, id)) = waiting.get(place) {
                        waiting.remove(place);
                        prop_assert_eq!(queue.remove(RUNS[which], id), Some(which));
                        prop_assert_eq!(queue.remove(RUNS[which], id), None);
                    },
                }
                prop_assert_eq!(queue.len(), waiting.len());
                let first = (0..RUNS.len()).filter(|which| waits(&waiting, *which)).min_by_key(|which| since[*which]);
                let first = first.and_then(|which| waiting.iter().find(|(run, _)| *run == which));
                prop_assert_eq!(queue.first().map(|(id, which)| (*which, id)), first.copied());
            }
        }

        /// A waiting run is served after at most one item of each other run, however many items those have.
        #[test]
        fn between_two_turns_of_a_run_every_other_run_has_at_most_one_turn(moves in moves(), watched in 0..RUNS.len()) {
            let mut queue = FairQueue::default();
            let mut since_then = [0; RUNS.len()];
            for (id, step) in moves.into_iter().enumerate() {
                match step {
                    Move::Push(which) => queue.push(&run(which), id as u64, which),
                    Move::Pop(_) | Move::Remove(_) => {
                        let Some((_, served)) = queue.pop(|_| true) else { continue };
                        if served == watched || !queue.waiting.contains_key(RUNS[watched]) {
                            since_then = [0; RUNS.len()];
                        } else {
                            since_then[served] += 1;
                            prop_assert!(since_then[served] <= 1, "{} was served twice", RUNS[served]);
                        }
                    }
                }
            }
        }
    }
}
