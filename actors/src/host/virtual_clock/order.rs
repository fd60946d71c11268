//! Orders of ready tasks and timers: random, by changing priorities, or recorded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::host::chance::Chance;

/// Decides what runs next.
pub trait Schedule {
    /// Returns the index of one of `ready`, which has at least two elements. Each identifies a task (during its lifetime) or a
    /// timer.
    fn next(&mut self, ready: &[u64]) -> usize;
}

/// The choices of a schedule in order, written by [`Recorded`] and replayed by [`Replayed`].
pub type Choices = Rc<RefCell<Vec<u32>>>;

/// A uniformly random order.
pub struct Random(Chance);

impl Random {
    /// An order with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Chance::new(seed))
    }
}

impl Schedule for Random {
    fn next(&mut self, ready: &[u64]) -> usize {
        self.0.below(ready.len())
    }
}

/// Probabilistic concurrency testing (Burckhardt and others, ASPLOS 2010). Every task has a random priority, and the ready task
/// with the highest runs. At `changes` random steps the task that would run gets the lowest priority. This finds bugs caused by a
/// few badly timed switches, which a uniform order rarely produces.
pub struct Priorities {
    chance: Chance,
    by_task: BTreeMap<u64, u64>,
    changes: Vec<u64>,
    step: u64,
}

impl Priorities {
    /// An order with this seed, and `changes` changes of priority among the first `steps` choices.
    pub fn new(seed: u64, changes: usize, steps: usize) -> Self {
        let chance = Chance::new(seed);
        let mut at: Vec<u64> = (0..changes).map(|_| chance.below(steps) as u64).collect();
        // Sorted, so that a later change gives a lower priority.
        at.sort_unstable();
        Self {
            chance,
            by_task: BTreeMap::new(),
            changes: at,
            step: 0,
        }
    }

    fn highest(&self, ready: &[u64]) -> usize {
        let priority = |place: &usize| self.by_task.get(&ready[*place]).copied();
        (0..ready.len()).max_by_key(priority).unwrap_or_default()
    }
}

impl Schedule for Priorities {
    fn next(&mut self, ready: &[u64]) -> usize {
        for task in ready {
            // Initial priorities are above all lowered ones.
            let drawn = self.chance.next() | 1 << 63;
            self.by_task.entry(*task).or_insert(drawn);
        }
        let step = self.step;
        self.step += 1;
        for place in 0..self.changes.len() {
            if self.changes[place] == step {
                let falls = ready[self.highest(ready)];
                self.by_task.insert(falls, (self.changes.len() - place) as u64);
            }
        }
        self.highest(ready)
    }
}

/// Records the choices of another order.
pub struct Recorded {
    order: Box<dyn Schedule>,
    choices: Choices,
}

impl Recorded {
    /// Records `order` in `choices`.
    pub fn new(order: Box<dyn Schedule>, choices: Choices) -> Self {
        Self { order, choices }
    }
}

impl Schedule for Recorded {
    fn next(&mut self, ready: &[u64]) -> usize {
        let place = self.order.next(ready);
        self.choices.borrow_mut().push(u32::try_from(place).unwrap_or(u32::MAX));
        place
    }
}

/// Replays recorded choices; FIFO order after their end.
pub struct Replayed(std::vec::IntoIter<u32>);

impl Replayed {
    /// Replays these choices.
    pub fn new(choices: Vec<u32>) -> Self {
        Self(choices.into_iter())
    }
}

impl Schedule for Replayed {
    fn next(&mut self, ready: &[u64]) -> usize {
        let place = self.0.next().unwrap_or_default() as usize;
        // A run that differs from the recorded one may have fewer ready tasks.
        place.min(ready.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_order_is_constant_until_it_changes() {
        let mut order = Priorities::new(3, 0, 100);
        let first = order.next(&[1, 2, 3]);
        assert!((0..50).all(|_| order.next(&[1, 2, 3]) == first));
    }

    #[test]
    fn a_priority_change_lets_another_task_run() {
        let mut order = Priorities::new(3, 1, 10);
        let taken: std::collections::BTreeSet<usize> = (0..10).map(|_| order.next(&[1, 2, 3])).collect();
        assert_eq!(taken.len(), 2);
    }

    #[test]
    fn a_recorded_order_is_replayed() {
        let choices = Choices::default();
        let mut recorded = Recorded::new(Box::new(Random::new(9)), Rc::clone(&choices));
        let taken: Vec<usize> = (2..40).map(|count| recorded.next(&vec![0; count])).collect();
        let mut again = Replayed::new(choices.take());
        assert_eq!(
            taken,
            (2..40).map(|count| again.next(&vec![0; count])).collect::<Vec<_>>()
        );
    }
}
