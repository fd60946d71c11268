//! The plan for each run, derived from the seed and the run's number alone.

use super::workload::WORKLOADS;

/// A small generator (splitmix64): the plans must not depend on a library's version.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        Self(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to `below`, exclusive.
    pub(super) fn below(&mut self, below: u64) -> u64 {
        self.next() % below.max(1)
    }
}

/// An action of a host thread on a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meddling {
    Nothing,
    Cancel,
    CancelTwice,
    PauseAndResume,
    PauseAndCancel,
    Emit,
    Pin,
    /// Queries the run's status, which must be answered.
    AskStatus,
}

impl Meddling {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "left alone",
            Self::Cancel => "cancelled",
            Self::CancelTwice => "cancelled by two threads",
            Self::PauseAndResume => "paused and resumed",
            Self::PauseAndCancel => "paused and cancelled",
            Self::Emit => "sent an event",
            Self::Pin => "pinned context",
            Self::AskStatus => "asked for status",
        }
    }

    /// True if the run may end CANCELLED by it.
    pub(super) fn cancels(self) -> bool {
        matches!(self, Self::Cancel | Self::CancelTwice | Self::PauseAndCancel)
    }
}

/// Plan of a run: engine, workload, and the actions on it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) engine: usize,
    pub(super) workload: usize,
    pub(super) meddling: Meddling,
    /// Adds a subscriber with a buffer for all events.
    pub(super) witness: bool,
    /// Capacity of a subscriber that reads only after the run has ended.
    pub(super) slow: Option<usize>,
    /// Adds a subscriber that is dropped at once.
    pub(super) leaver: bool,
}

impl Plan {
    pub(super) fn of(seed: u64, number: u64, engines: usize) -> Self {
        let mut dice = Dice::new(seed, number);
        let meddling = match dice.below(16) {
            0..=5 => Meddling::Nothing,
            6..=8 => Meddling::Cancel,
            9 => Meddling::CancelTwice,
            10..=11 => Meddling::PauseAndResume,
            12 => Meddling::PauseAndCancel,
            13 => Meddling::Emit,
            14 => Meddling::Pin,
            _ => Meddling::AskStatus,
        };
        let witness = dice.below(4) == 0;
        Self {
            engine: dice.below(engines as u64) as usize,
            workload: dice.below(WORKLOADS.len() as u64) as usize,
            meddling,
            witness,
            slow: (witness && dice.below(2) == 0).then(|| 1 + dice.below(4) as usize),
            leaver: dice.below(8) == 0,
        }
    }
}
