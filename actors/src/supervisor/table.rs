//! The run's threads: by the number the supervisor gives them, and by the id that everyone else knows them by.
//!
//! Numbers ascend from 0 without a gap and a thread is never forgotten (a report lists them all), so both ways cost the
//! same however many there are: the id of thread 7 is the run's id, a full stop, and 7.

use std::sync::Arc;

use super::{Child, ThreadNo};

pub(super) struct Threads {
    run_id: Arc<str>,
    list: Vec<Child>,
    /// Where ids are written before they are shared: the run's id and a full stop stay.
    text: String,
}

impl Threads {
    pub(super) fn of(run_id: Arc<str>) -> Self {
        Self {
            run_id,
            list: Vec::new(),
            text: String::new(),
        }
    }

    /// The id that the next thread gets.
    pub(super) fn next_id(&mut self) -> Arc<str> {
        self.id_of(self.list.len())
    }

    /// The id of the thread that so many were started before. Written by hand: a fork asks for one a branch.
    fn id_of(&mut self, before: usize) -> Arc<str> {
        /// As many digits as a number of 64 bits has.
        const MOST: usize = 20;
        if self.text.is_empty() {
            self.text.reserve_exact(self.run_id.len() + 1 + MOST);
            self.text.extend([&*self.run_id, "."]);
        }
        self.text.truncate(self.run_id.len() + 1);
        let (mut digits, mut first, mut rest) = ([0; MOST], MOST, before);
        while rest > 0 || first == MOST {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for digit in &digits[first..] {
            self.text.push(char::from(*digit));
        }
        self.text.as_str().into()
    }

    /// Makes room for as many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.list.reserve(more);
    }

    /// Adds the thread that [`Self::next_id`] was asked for.
    pub(super) fn add(&mut self, child: Child) -> ThreadNo {
        if self.list.is_empty() {
            // Most runs have one thread.
            self.list.reserve_exact(1);
        }
        self.list.push(child);
        (self.list.len() - 1) as ThreadNo
    }

    pub(super) fn get(&self, no: ThreadNo) -> Option<&Child> {
        self.list.get(no as usize)
    }

    pub(super) fn get_mut(&mut self, no: ThreadNo) -> Option<&mut Child> {
        self.list.get_mut(no as usize)
    }

    /// The thread of this id.
    pub(super) fn number_of(&self, thread_id: &str) -> Option<ThreadNo> {
        let no = thread_id.strip_prefix(&*self.run_id)?.strip_prefix('.')?.parse().ok()?;
        // `7`, `07` and `+7` are one number, but only one of them is the thread's.
        self.get(no).filter(|child| *child.thread_id == *thread_id).map(|_| no)
    }

    /// How many were started.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// All of them, in the order they were started.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Child> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_runs_id_a_full_stop_and_the_number_of_threads_before() {
        let mut threads = Threads::of("run-1".into());
        assert_eq!(&*threads.next_id(), "run-1.0");
        for count in [1, 9, 10, 99, 100, 101, 12_345] {
            assert_eq!(&*threads.id_of(count), format!("run-1.{count}"));
        }
        assert_eq!(&*threads.id_of(usize::MAX), format!("run-1.{}", usize::MAX));
    }
}
