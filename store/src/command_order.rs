//! Order of commands in a store that executes several concurrently: commands of one run take effect in the order given, and
//! commands of different runs in any order.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Shared, join_all};

/// Completes when a command is done or dropped.
// Shared, because several later commands may wait for one earlier command.
type Done = Shared<oneshot::Receiver<()>>;

/// Unfinished commands: the last one of each run, and the last one for all runs.
#[derive(Debug, Default)]
pub struct CommandOrder(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: BTreeMap<String, Done>,
    /// Last command with `Extent::All`. Every later command waits for it.
    last_of_all: Option<Done>,
    /// Number of lanes at which finished ones are removed next.
    look_at: usize,
}

/// Set of commands that a command is ordered against.
#[derive(Clone, Copy, Debug)]
pub enum Extent<'a> {
    /// Waits for earlier commands of this run. Later commands of the run wait for it.
    Run(&'a str),
    /// Waits for all earlier commands. No command waits for it.
    Reading,
    /// Waits for all earlier commands. All later commands wait for it.
    All,
}

/// Position of a command in the order. Dropping it marks the command as done.
#[derive(Debug)]
pub struct Lane {
    before: Vec<Done>,
    _done: Option<oneshot::Sender<()>>,
}

impl Lane {
    /// Returns true if no earlier command is pending.
    pub fn is_free(&mut self) -> bool {
        // Polled once: a receiver that nobody has polled does not report that its sender was dropped.
        self.before.retain(|done| done.clone().now_or_never().is_none());
        self.before.is_empty()
    }

    /// Waits for the earlier commands.
    pub async fn turn(&mut self) {
        // Errors are ignored: a dropped command counts as done.
        join_all(std::mem::take(&mut self.before)).await;
    }
}

impl CommandOrder {
    /// Adds a command, and returns its position.
    pub fn enter(&self, extent: Extent<'_>) -> Lane {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |done: &Done| done.peek().is_none();
        // Finished lanes are removed when their number has doubled, so that the cost for each command is constant.
        if state.last.len() >= state.look_at.max(64) {
            state.last.retain(|_, done| done.clone().now_or_never().is_none());
            state.look_at = state.last.len() * 2;
        }
        // Kept apart from the runs, because a run without a lane must wait for it too.
        let mut before: Vec<Done> = state.last_of_all.iter().cloned().collect();
        match extent {
            // The last command is enough: it waits for the one before it.
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
                // Later commands wait for this one, and it waits for all of the removed ones.
                state.last.clear();
                state.last_of_all = Some(ended.shared());
                Some(done)
            }
            // Later commands do not wait for a read: a read that is late sees more, which is allowed.
            Extent::Reading => None,
        };
        // The sender is dropped with the lane, also if the command fails or its future is dropped.
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
    fn a_command_waits_only_for_commands_of_its_run() {
        let command_order = CommandOrder::default();
        let first = command_order.enter(Extent::Run("a"));
        let mut second = command_order.enter(Extent::Run("a"));
        let mut other = command_order.enter(Extent::Run("b"));
        assert!(!is_ready(&mut second) && is_ready(&mut other));
        assert!(!second.is_free() && other.is_free());
        drop(first);
        assert!(second.is_free());
        assert!(is_ready(&mut second));
    }

    #[test]
    fn a_reader_waits_for_all_earlier_commands_and_blocks_none() {
        let command_order = CommandOrder::default();
        let (first, other) = (
            command_order.enter(Extent::Run("a")),
            command_order.enter(Extent::Run("b")),
        );
        let mut reader = command_order.enter(Extent::Reading);
        let mut later = command_order.enter(Extent::Run("c"));
        assert!(!is_ready(&mut reader) && is_ready(&mut later));
        drop(first);
        assert!(!is_ready(&mut reader));
        drop(other);
        assert!(is_ready(&mut reader), "what came later is not waited for");
    }

    #[test]
    fn a_command_for_all_runs_is_ordered_with_every_command() {
        let command_order = CommandOrder::default();
        let first = command_order.enter(Extent::Run("a"));
        let mut all = command_order.enter(Extent::All);
        let mut later = command_order.enter(Extent::Run("b"));
        assert!(!is_ready(&mut all) && !is_ready(&mut later));
        drop(first);
        assert!(is_ready(&mut all) && !is_ready(&mut later));
        drop(all);
        assert!(is_ready(&mut later));
    }

    #[test]
    fn lanes_without_commands_are_removed() {
        let command_order = CommandOrder::default();
        for number in 0..10_000 {
            drop(command_order.enter(Extent::Run(&number.to_string())));
        }
        assert!(command_order.0.lock().expect("whole").last.len() <= 128);
    }
}
