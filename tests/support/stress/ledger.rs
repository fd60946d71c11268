//! Counters of a load test: starts, outcomes, events and violated invariants.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A violated invariant, in a sentence.
pub type Violation = String;

/// Counters of the rounds so far.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Rounds that are over.
    pub rounds: u64,
    /// Starts requested.
    pub asked: u64,
    /// Runs admitted.
    pub started: u64,
    /// Starts refused, by code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Runs ended, by status.
    pub ended: BTreeMap<String, u64>,
    /// Actions of host threads on runs, by word.
    pub meddled: BTreeMap<&'static str, u64>,
    /// Events received by subscribers with a large buffer.
    pub heard: u64,
    /// Events received by subscribers with a small buffer.
    pub heard_slowly: u64,
    /// Events reported as missed to subscribers with a small buffer.
    pub missed: u64,
    /// Resident memory after the warm-up, KiB.
    pub first_kib: Option<u64>,
    /// Resident memory now, KiB.
    pub resident_kib: Option<u64>,
    /// Time since the start of the first round.
    pub elapsed: Duration,
    /// The violated invariants.
    pub violations: Vec<Violation>,
}

impl Ledger {
    /// Records a violated invariant.
    pub fn violate(&mut self, what: impl Into<Violation>) {
        self.violations.push(what.into());
    }

    pub(super) fn count_action(&mut self, word: &'static str) {
        *self.meddled.entry(word).or_default() += 1;
    }

    /// Adds what another thread counted.
    pub(super) fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.started += other.started;
        self.heard += other.heard;
        self.heard_slowly += other.heard_slowly;
        self.missed += other.missed;
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        for (status, count) in other.ended {
            *self.ended.entry(status).or_default() += count;
        }
        for (word, count) in other.meddled {
            *self.meddled.entry(word).or_default() += count;
        }
        self.violations.extend(other.violations);
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let mut row = |word: &str, value: &dyn fmt::Display| writeln!(f, "{word:<28} {value:>12}");
        row("rounds", &self.rounds)?;
        row("seconds", &format!("{seconds:.1}"))?;
        row("starts asked for", &self.asked)?;
        row("runs admitted", &self.started)?;
        for (code, count) in &self.refused {
            row(&format!("refused {code}"), count)?;
        }
        for (status, count) in &self.ended {
            row(&format!("ended {status}"), count)?;
        }
        for (word, count) in &self.meddled {
            row(word, count)?;
        }
        row("events heard", &self.heard)?;
        row("events heard by slow ones", &self.heard_slowly)?;
        row("events they missed", &self.missed)?;
        if let (Some(first), Some(now)) = (self.first_kib, self.resident_kib) {
            row("KiB after the warm-up", &first)?;
            row("KiB at the end", &now)?;
        }
        row("violations", &self.violations.len())?;
        for violation in self.violations.iter().take(20) {
            writeln!(f, "  ! {violation}")?;
        }
        Ok(())
    }
}
