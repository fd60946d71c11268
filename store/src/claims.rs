//! Runs of a store that several processes share.

use crate::pending::Pending;

/// Claims on the runs of a store, which say what process carries each.
///
/// 1. A run is claimed by one process at a time. A claim lasts while its process lives; of one that has died or stands still for
///    too long the runs are claimed by others.
/// 2. What a process writes for a run that it has claimed before is refused once another may have it
///    ([`StoreError::RunLost`](crate::StoreError::RunLost)); so is what anybody else writes for a run that is claimed
///    ([`StoreError::RunHeld`](crate::StoreError::RunHeld)).
/// 3. A run that ends is not claimed any more.
/// 4. A process that stood still asks whether it still has a run before it begins something outside ([`Claims::stands`]).
pub trait Claims: Send + Sync + 'static {
    /// Claims a run for this process. [`StoreError::RunHeld`](crate::StoreError::RunHeld) where another has it.
    fn claim(&self, run: &str) -> Pending<()>;

    /// Says whether this process still has a run that it has claimed, by the time that its claim lasts, and asks where that is nearly
    /// over. [`StoreError::RunLost`](crate::StoreError::RunLost) where another has it by now. Without an end: always.
    fn stands(&self, _run: &str) -> Pending<()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Gives a run up, after everything that was given before: others claim it, once so many milliseconds have passed. Nothing
    /// happens where this process has not claimed it.
    fn release(&self, run: &str, after_ms: u64);

    /// Has as many runs that nobody carries claimed for this process, one after the other, that it carries so many at most; at
    /// first none.
    fn carry(&self, at_most: usize);

    /// Waits for what is next for this process.
    fn assigned(&self) -> Pending<Assignment>;

    /// Waits until the run has its turn in its session: one run at a time, whatever process it is in. Its turn is over when it
    /// ends, or leaves the session something.
    fn turn(&self, session: &str, run: &str) -> Pending<()>;

    /// Waits until a run has ended, whatever process carries it, or is removed.
    fn ended(&self, run: &str) -> Pending<()>;

    /// Tells a run something by the process that carries it. Its answer; none where no process carries it any more.
    fn tell(&self, run: &str, request: String) -> Pending<Option<String>>;

    /// Answers what a run was told.
    fn answer(&self, request: u64, answer: String);

    /// Keeps a value under a name that has none, or none any more: the last `most` names have theirs. The value that the name has then,
    /// for all processes. A store that keeps no such names says this one.
    fn settle(&self, _name: &str, value: String, _most: usize) -> Pending<String> {
        Box::pin(std::future::ready(Ok(value)))
    }

    /// Takes a name's value away, where it is this one.
    fn unsettle(&self, _name: &str, _value: String) -> Pending<()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Something that a process is to do for the runs of a store that it shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Go on with this run, which nobody carried: it is claimed.
    Run(String),
    /// Stop this run, which another process carries by now, and release it.
    Lost(String),
    /// Tell this run something, and answer.
    Tell {
        /// For the answer.
        request: u64,
        /// The run.
        run: String,
        /// As [`Claims::tell`] had it.
        body: String,
    },
}
