//! The workloads and their sizes.

/// A workload and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// W1: so many trivial nodes in a row.
    Chain(usize),
    /// W2: so many branches that do next to nothing, joined when all have ended.
    Fork(usize),
    /// W2 as a MAP: a list of so many items, each the same little work.
    Map(usize),
    /// W3: one branch that an event ends, and so many that sleep and are stopped for it.
    Any(usize),
    /// W4: a conversation of 10,000 messages forked to so many branches, each appends one.
    Talk(usize),
    /// W4 the other way round: so many messages forked to ten branches.
    History(usize),
    /// W6: 20,000 events into so many triggers, of which each event concerns one.
    Events(usize),
    /// W8: so many branches of 20 ms of computing.
    Cpu(usize),
    /// W10: so many runs at once, each ten waits of a millisecond.
    Runs(usize),
}

/// Messages of W4's conversation.
pub const MESSAGES: usize = 10_000;
/// Events of W6.
pub const EVENTS: usize = 20_000;
/// Waits of a W10 run.
pub const WAITS: usize = 10;

impl Workload {
    /// Everything, in the order of the table.
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

    /// Its name, for people.
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

    /// Number of rounds it is measured for.
    pub fn rounds(self) -> usize {
        match self {
            Self::Chain(_) | Self::Fork(8..=1_000) => 101,
            Self::Talk(_) | Self::History(_) | Self::Any(_) => 51,
            Self::Fork(_) | Self::Map(_) => 21,
            Self::Events(_) | Self::Cpu(_) | Self::Runs(..=10_000) => 11,
            Self::Runs(_) => 5,
        }
    }
}
