//! The run's threads: by the number the supervisor gives them, and by the id that everyone else knows them by.
//!
//! Numbers ascend from 0 without a gap and a thread is never forgotten (a report lists them all), so both ways cost the
//! same however many there are: the id of thread 7 is the run's id, a full stop, and 7.

use std::fmt::Write as _;
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
        if self.text.is_empty() {
            self.text.extend([&*self.run_id, "."]);
        }
        self.text.truncate(self.run_id.len() + 1);
        // Writing to a text never fails.
        let _: std::fmt::Result = write!(self.text, "{}", self.list.len());
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
