//! Workloads and their sizes.

/// Workload with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// W1: chain of trivial nodes.
    Chain(usize),
    /// W2: fork into trivial branches, joined when all have ended.
    Fork(usize),
    /// W2 as a MAP: list of items with trivial work.
    Map(usize),
    /// W3: one branch that an event ends, and sleeping branches that the join stops.
    Any(usize),
    /// W4: conversation of 10,000 messages, forked to branches that append one message each.
    Talk(usize),
    /// W4 by the number of messages, forked to ten branches.
    History(usize),
    /// W6: 20,000 events with a number of triggers. Each event matches one trigger.
    Events(usize),
    /// W8: branches with 20 ms of computation each.
    Cpu(usize),
    /// W10: concurrent runs, each with ten waits of a millisecond.
    Runs(usize),
}

/// Number of messages in W4's conversation.
pub const MESSAGES: usize = 10_000;
/// Number of events in W6.
pub const EVENTS: usize = 20_000;
/// Number of waits in a run of W10.
pub const WAITS: usize = 10;

impl Workload {
    /// All workloads, in the order of the table.
    pub const ALL: [Self; 15] = [
        Self::Chain(1_000),
        Self::Fork(8),
        Self::Fork(100),
        Self::Fork(1_000),
        Self::Fork(10_000),
        Self::Map(10_000),
        Self::Any(1_000),
        Self::Talk(100),
        Self::Events(1_000),
        Self::Events(100_000),
        Self::Cpu(8),
        Self::Runs(1_000),
        Self::Runs(10_000),
        Self::Runs(100_000),
        Self::History(100_000),
    ];

    /// Returns the label.
    pub fn label(self) -> String {
        match self {
            Self::Chain(nodes) => format!("W1 chain of {nodes} nodes"),
            Self::Fork(branches) => format!("W2 fork {branches}, join ALL"),
            Self::Map(items) => format!("W2 MAP of {items} items"),
            Self::Any(losers) => format!("W3 ANY, {losers} sleeping losers"),
            Self::Talk(branches) => format!("W4 {MESSAGES} messages to {branches} branches"),
            Self::History(messages) => format!("W4 {messages} messages to 10 branches"),
            Self::Events(triggers) => format!("W6 {EVENTS} events, {triggers} triggers"),
            Self::Cpu(branches) => format!("W8 {branches} branches of 20 ms"),
            Self::Runs(runs) => format!("W10 {runs} runs of {WAITS} waits"),
        }
    }

    /// Returns the workload as arguments of the command line: name and size.
    pub fn words(self) -> (&'static str, usize) {
        match self {
            Self::Chain(size) => ("chain", size),
            Self::Fork(size) => ("fork", size),
            Self::Map(size) => ("map", size),
            Self::Any(size) => ("any", size),
            Self::Talk(size) => ("talk", size),
            Self::History(size) => ("history", size),
            Self::Events(size) => ("events", size),
            Self::Cpu(size) => ("cpu", size),
            Self::Runs(size) => ("runs", size),
        }
    }

    /// Returns the number of rounds that one process measures.
    pub fn rounds(self) -> usize {
        match self {
            Self::Chain(_) | Self::Fork(8..=1_000) => 31,
            Self::Talk(_) | Self::History(_) | Self::Any(_) => 15,
            Self::Fork(_) | Self::Map(_) => 7,
            Self::Events(_) | Self::Cpu(_) | Self::Runs(..=10_000) => 5,
            Self::Runs(_) => 3,
        }
    }
}
