//! The run's threads: by the number the supervisor gives them, and by the id that everyone else knows them by.
//!
//! Numbers ascend from 0 without a gap and a thread is never forgotten (a report lists them all), so both ways cost the
//! same however many there are: the id of thread 7 is the run's id, a full stop, and 7.

use std::cell::OnceCell;
use std::sync::Arc;

use pirn_core::thread::ThreadId;

use super::{Child, ThreadNo};

pub(super) struct Threads {
    run_id: Arc<str>,
    list: Vec<Child>,
    /// The main thread's id: most of what is said here is said in its name.
    main: OnceCell<Arc<str>>,
}

impl Threads {
    pub(super) fn of(run_id: Arc<str>) -> Self {
        Self {
            run_id,
            list: Vec::new(),
            main: OnceCell::new(),
        }
    }

    /// The id of the thread of this number. It is written anew for each but the main thread.
    pub(super) fn id(&self, no: ThreadNo) -> Arc<str> {
        let written = || ThreadId::written(&self.run_id, no as usize);
        match no {
            0 => Arc::clone(self.main.get_or_init(written)),
            _ => written(),
        }
    }

    /// Makes room for as many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.list.reserve(more);
    }

    /// Adds a thread.
    #[inline]
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
        let digits = thread_id.strip_prefix(&*self.run_id)?.strip_prefix('.')?;
        // `7`, `07` and `+7` are one number, but only one of them is the thread's.
        if digits.starts_with('+') || (digits.starts_with('0') && digits.len() > 1) {
            return None;
        }
        let no = digits.parse().ok()?;
        self.get(no).map(|_| no)
    }

    /// How many were started.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// All of them, in the order they were started.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Child> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_thread_and_no_other_text_does() {
        let threads = Threads::of("run-1".into());
        assert_eq!(&*threads.id(0), "run-1.0");
        assert_eq!(&*threads.id(12), "run-1.12");
        for text in [
            "run-1.0", "run-1", "run-1.", "run-10.0", "run-1.+0", "run-1.00", "run-1.x",
        ] {
            assert_eq!(threads.number_of(text), None, "{text}: nothing was started");
        }
    }
}
