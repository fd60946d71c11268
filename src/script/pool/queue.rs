//! The queue for the threads of scripts: runs take turns, and what one run asks for is served in its order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Waiting items by run.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    waiting: BTreeMap<Arc<str>, VecDeque<T>>,
    /// The runs that have something waiting, each once; the first is next.
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
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, run: &Arc<str>, item: T) {
        self.len += 1;
        if let Some(items) = self.waiting.get_mut(run) {
            items.push_back(item);
            return;
        }
        self.turns.push_back(Arc::clone(run));
        self.waiting.insert(Arc::clone(run), VecDeque::from([item]));
    }

    /// The next item of the first run that may have one more; that run comes last then.
    pub(super) fn pop(&mut self, may_have: impl Fn(&str) -> bool) -> Option<T> {
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

    /// Takes out the first item of a run that is wanted.
    pub(super) fn remove(&mut self, run: &str, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let items = self.waiting.get_mut(run)?;
        let place = items.iter().position(is_wanted)?;
        let item = items.remove(place)?;
        self.len -= 1;
        if items.is_empty() {
            self.waiting.remove(run);
            self.turns.retain(|other| &**other != run);
        }
        Some(item)
    }

    /// Takes out all.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.turns.clear();
        self.len = 0;
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_take_turns_and_each_is_served_in_its_order() {
        let mut queue = FairQueue::default();
        let runs = ["many", "few", "one"].map(Arc::<str>::from);
        for n in 0..100 {
            queue.push(&runs[0], ("many", n));
        }
        queue.push(&runs[1], ("few", 0));
        queue.push(&runs[1], ("few", 1));
        queue.push(&runs[2], ("one", 0));
        let served: Vec<_> = std::iter::from_fn(|| queue.pop(|_| true)).take(7).collect();
        assert_eq!(
            served,
            [
                ("many", 0),
                ("few", 0),
                ("one", 0),
                ("many", 1),
                ("few", 1),
                ("many", 2),
                ("many", 3)
            ]
        );
        assert_eq!(queue.len(), 96);
    }

    #[test]
    fn a_run_that_may_have_no_more_is_passed_over() {
        let mut queue = FairQueue::default();
        let runs = ["a", "b"].map(Arc::<str>::from);
        queue.push(&runs[0], 1);
        queue.push(&runs[1], 2);
        assert_eq!(queue.pop(|run| run != "a"), Some(2));
        assert_eq!(queue.pop(|run| run != "a"), None);
        assert_eq!(queue.pop(|_| true), Some(1));
        assert_eq!((queue.len(), queue.pop(|_| true)), (0, None));
    }

    #[test]
    fn what_is_taken_out_leaves_the_others_where_they_are() {
        let mut queue = FairQueue::default();
        let run = Arc::<str>::from("a");
        (0..4).for_each(|n| queue.push(&run, n));
        assert_eq!(queue.remove("a", |n| *n == 2), Some(2));
        assert_eq!(queue.remove("a", |n| *n == 2), None);
        assert_eq!(queue.remove("b", |_| true), None);
        assert_eq!(queue.drain(), [0, 1, 3]);
        assert_eq!(queue.pop(|_| true), None);
    }
}
