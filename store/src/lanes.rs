//! The order of commands in a store that carries out several at a time: those of one run take effect as they were given, those of
//! different runs beside each other.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Shared, join_all};

/// Ready when a command is done.
type Done = Shared<oneshot::Receiver<()>>;

/// The commands under way: the last of each run, and the last for all of them.
#[derive(Debug, Default)]
pub struct Lanes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: BTreeMap<String, Done>,
    /// Every later command waits for it.
    last_of_all: Option<Done>,
    /// Lanes are looked through when there are so many.
    look_at: usize,
}

/// The extent of a command.
#[derive(Clone, Copy, Debug)]
pub enum Extent<'a> {
    /// It is after what was given for this run, and what is given for it later is after it.
    Run(&'a str),
    /// It is after everything that was given, and nothing waits for it.
    Reading,
    /// It is after everything that was given, and everything given later is after it.
    All,
}

/// A command's place in the order. Dropped: the command is done.
#[derive(Debug)]
pub struct Lane {
    before: Vec<Done>,
    _done: Option<oneshot::Sender<()>>,
}

impl Lane {
    /// True where it is its turn already.
    pub fn is_free(&mut self) -> bool {
        self.before.retain(|done| done.clone().now_or_never().is_none());
        self.before.is_empty()
    }

    /// Waits for its turn.
    pub async fn turn(&mut self) {
        // One that was dropped is done too.
        join_all(std::mem::take(&mut self.before)).await;
    }
}

impl Lanes {
    /// The place of a command that is given now.
    pub fn enter(&self, extent: Extent<'_>) -> Lane {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |done: &Done| done.peek().is_none();
        if state.last.len() >= state.look_at.max(64) {
            state.last.retain(|_, done| done.clone().now_or_never().is_none());
            state.look_at = state.last.len() * 2;
        }
        let mut before: Vec<Done> = state.last_of_all.iter().cloned().collect();
        match extent {
            Extent::Run(run) => before.extend(state.last.get(run).cloned()),
            Extent::Reading | Extent::All => before.extend(state.last.values().cloned()),
        }
        before.retain(is_open);
        let (done, ended) = oneshot::channel();
        let done = match extent {
            Extent::Run(run) => {
                state.last.insert(run.to_owned(), ended.shared());
                Some(done)
            }
            Extent::All => {
                state.last.clear();
                state.last_of_all = Some(ended.shared());
                Some(done)
            }
            Extent::Reading => None,
        };
        Lane { before, _done: done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(lane: &mut Lane) -> bool {
        let before = lane.before.clone();
        let ready = lane.turn().now_or_never().is_some();
        lane.before = before;
        ready
    }

    #[test]
    fn a_command_waits_for_those_of_its_run_and_no_other() {
        let lanes = Lanes::default();
        let first = lanes.enter(Extent::Run("a"));
        let mut second = lanes.enter(Extent::Run("a"));
        let mut other = lanes.enter(Extent::Run("b"));
        assert!(!is_ready(&mut second) && is_ready(&mut other));
        assert!(!second.is_free() && other.is_free());
        drop(first);
        assert!(second.is_free());
        assert!(is_ready(&mut second));
    }

    #[test]
    fn a_reader_waits_for_everything_before_it_and_holds_nothing_up() {
        let lanes = Lanes::default();
        let (first, other) = (lanes.enter(Extent::Run("a")), lanes.enter(Extent::Run("b")));
        let mut reader = lanes.enter(Extent::Reading);
        let mut later = lanes.enter(Extent::Run("c"));
        assert!(!is_ready(&mut reader) && is_ready(&mut later));
        drop(first);
        assert!(!is_ready(&mut reader));
        drop(other);
        assert!(is_ready(&mut reader), "what came later is not waited for");
    }

    #[test]
    fn what_is_for_all_of_them_is_after_all_and_before_all() {
        let lanes = Lanes::default();
        let first = lanes.enter(Extent::Run("a"));
        let mut all = lanes.enter(Extent::All);
        let mut later = lanes.enter(Extent::Run("b"));
        assert!(!is_ready(&mut all) && !is_ready(&mut later));
        drop(first);
        assert!(is_ready(&mut all) && !is_ready(&mut later));
        drop(all);
        assert!(is_ready(&mut later));
    }

    #[test]
    fn lanes_of_runs_that_are_done_are_forgotten() {
        let lanes = Lanes::default();
        for number in 0..10_000 {
            drop(lanes.enter(Extent::Run(&number.to_string())));
        }
        assert!(lanes.0.lock().expect("whole").last.len() <= 128);
    }
}
