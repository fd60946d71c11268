//! The faults of a seed. Each is drawn from the seed and the identity of its call, so that the absence of one fault does not change others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use pirn_actors::host::Chance;
use pirn_actors::ports::{AskedCall, ModelCall};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_definition::Millis;
use pirn_definition::error::RunError;
use serde::Serialize;

use crate::faults::{End, Fate, FaultSource};

/// Maximum number of injected faults that are listed for a run.
const MAX_LISTED: usize = 20;

/// Milliseconds after which a call of a hanging tool fails.
const HANGS: Millis = 3_600_000;

/// Longest delay of a late reply, in milliseconds.
const LATEST: Millis = 60_000;

/// Longest downtime after a kill, in milliseconds.
const LONGEST_DOWNTIME: Millis = 24 * 3_600_000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A model call fails, after the retries of its profile.
    ModelError,
    /// A reply arrives up to a minute late.
    LateReply,
    /// A reply ends in its middle, with finish reason `length`.
    TruncatedReply,
    /// A tool call fails.
    ToolError,
    /// A tool call has no result for an hour, and then fails.
    HangingTool,
    /// The process is killed at a commit, and another one resumes the run.
    Kill,
    /// Up to a day passes on the wall clock while a killed process is down.
    ClockJump,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::ModelError,
        Self::LateReply,
        Self::TruncatedReply,
        Self::ToolError,
        Self::HangingTool,
        Self::Kill,
        Self::ClockJump,
    ];

    /// Returns the word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ModelError => "model-error",
            Self::LateReply => "late-reply",
            Self::TruncatedReply => "truncated-reply",
            Self::ToolError => "tool-error",
            Self::HangingTool => "hanging-tool",
            Self::Kill => "kill",
            Self::ClockJump => "clock-jump",
        }
    }

    /// Probability of the fault for one call.
    fn rate(self) -> f64 {
        match self {
            Self::ModelError | Self::ToolError => 0.15,
            Self::LateReply => 0.3,
            Self::TruncatedReply | Self::HangingTool => 0.1,
            // Drawn for a run and not for a call.
            Self::Kill | Self::ClockJump => 1.0,
        }
    }
}

/// A fault that a run has received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InjectedFault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Call or commit that received it, and its effect.
    pub text: String,
}

/// Point of a kill at a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillPoint {
    /// The commit has no effect.
    Before,
    /// The commit takes effect, and its result is lost.
    After,
}

/// The faults of one run.
pub(super) struct FaultPlan {
    seed: u64,
    kinds: BTreeSet<FaultKind>,
    kills: BTreeMap<u64, KillPoint>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of calls by name.
    calls: BTreeMap<String, u64>,
    injected: Vec<InjectedFault>,
    counts: BTreeMap<FaultKind, u64>,
}

impl FaultPlan {
    /// Returns the plan of a seed with these kinds, for a run that makes this number of commits without faults.
    pub(super) fn new(seed: u64, kinds: BTreeSet<FaultKind>, commits: u64) -> Self {
        let mut kills = BTreeMap::new();
        // The clock jumps while a killed process is down.
        let is_killed = kinds.contains(&FaultKind::Kill) || kinds.contains(&FaultKind::ClockJump);
        if is_killed && commits > 0 {
            let chance = chance_of(seed, "kills");
            for _ in 0..=chance.below(2) {
                let commit = chance.next() % commits;
                let point = match chance.below(2) {
                    0 => KillPoint::Before,
                    _ => KillPoint::After,
                };
                kills.insert(commit, point);
            }
        }
        Self {
            seed,
            kinds,
            kills,
            state: Mutex::default(),
        }
    }

    /// Returns a plan without faults.
    pub(super) fn none() -> Self {
        Self::new(0, BTreeSet::new(), 0)
    }

    /// Returns the kinds of faults that a seed draws from `allowed`: about half of them, at least one.
    pub(super) fn kinds_of(seed: u64, allowed: &BTreeSet<FaultKind>) -> BTreeSet<FaultKind> {
        let chance = chance_of(seed, "kinds");
        let drawn = |kind: &&FaultKind| chance.below(2) == 0 && allowed.contains(kind);
        // Every kind is drawn, so that `allowed` does not change the choice of the others.
        let mut kinds: BTreeSet<FaultKind> = FaultKind::ALL.iter().filter(drawn).copied().collect();
        if kinds.is_empty() {
            kinds.extend(allowed.iter().nth(chance.below(allowed.len())));
        }
        kinds
    }

    pub(super) fn kinds(&self) -> &BTreeSet<FaultKind> {
        &self.kinds
    }

    /// Returns the injected faults, and their number by kind.
    pub(super) fn injected(&self) -> (Vec<InjectedFault>, BTreeMap<FaultKind, u64>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.injected.clone(), state.counts.clone())
    }

    /// Returns the kill at a commit; the first commit has number 0.
    pub(super) fn kill_at(&self, commit: u64) -> Option<KillPoint> {
        let point = *self.kills.get(&commit)?;
        let word = match point {
            KillPoint::Before => "before",
            KillPoint::After => "after",
        };
        self.note(FaultKind::Kill, format!("the process is killed {word} commit {commit}"));
        Some(point)
    }

    /// Returns the milliseconds between a kill and the next process.
    pub(super) fn downtime(&self, kill: u64) -> Millis {
        if !self.kinds.contains(&FaultKind::ClockJump) {
            return 0;
        }
        let ms = chance_of(self.seed, &format!("downtime {kill}")).next() % LONGEST_DOWNTIME;
        self.note(
            FaultKind::ClockJump,
            format!("{ms} ms pass before the next process starts"),
        );
        ms
    }

    /// Draws the fault of the next model call of a node.
    fn model_fate(&self, node: &str, thread: &str) -> Fate<RunError> {
        let (chance, call) = self.next_call("model call", node, thread);
        let is_hit = self.hits(&chance);
        // Every number is drawn whatever the kinds are, so that they do not change the other faults.
        let late = 1 + chance.next() % LATEST;
        let failures = [
            FailureKind::RateLimited,
            FailureKind::Provider,
            FailureKind::Dropped,
            FailureKind::Stalled,
        ];
        let failure = failures[chance.below(failures.len())];
        let late_ms = if is_hit(FaultKind::LateReply) {
            self.note(FaultKind::LateReply, format!("{call} is {late} ms late"));
            late
        } else {
            0
        };
        let end = if is_hit(FaultKind::ModelError) {
            self.note(FaultKind::ModelError, format!("{call} fails: {}", failure.as_str()));
            End::Fails {
                after_ms: None,
                failure: ModelFailure::new(failure).into_error("an injected fault"),
            }
        } else if is_hit(FaultKind::TruncatedReply) {
            self.note(FaultKind::TruncatedReply, format!("the reply to {call} is truncated"));
            End::Truncated
        } else {
            End::Good
        };
        Fate { late_ms, end }
    }

    /// Draws the fault of the next call of a tool.
    fn tool_fate(&self, tool: &str, thread: &str) -> Fate<String> {
        let (chance, call) = self.next_call("tool call", tool, thread);
        let is_hit = self.hits(&chance);
        let after_ms = if is_hit(FaultKind::ToolError) {
            self.note(FaultKind::ToolError, format!("{call} fails"));
            None
        } else if is_hit(FaultKind::HangingTool) {
            self.note(FaultKind::HangingTool, format!("{call} has no result for {HANGS} ms"));
            Some(HANGS)
        } else {
            return Fate::good();
        };
        let failure = "an injected fault: the tool failed".to_owned();
        Fate {
            late_ms: 0,
            end: End::Fails { after_ms, failure },
        }
    }

    /// Returns the random numbers of the next call with this name, and a description of the call.
    fn next_call(&self, what: &str, name: &str, thread: &str) -> (Chance, String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.calls.entry(format!("{what} {name} {thread}")).or_default();
        *number += 1;
        let call = format!("{what} {number} of `{name}` in thread {thread}");
        (chance_of(self.seed, &call), call)
    }

    /// Draws one number for each kind, and returns whether a kind hits the call.
    fn hits(&self, chance: &Chance) -> impl Fn(FaultKind) -> bool + use<> {
        let hit: BTreeSet<FaultKind> = FaultKind::ALL
            .into_iter()
            .filter(|kind| {
                // 53 bits: the resolution of a double between 0 and 1.
                let drawn = (chance.next() >> 11) as f64 / (1_u64 << 53) as f64;
                drawn < kind.rate() && self.kinds.contains(kind)
            })
            .collect();
        move |kind| hit.contains(&kind)
    }

    fn note(&self, kind: FaultKind, text: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.counts.entry(kind).or_default() += 1;
        if state.injected.len() < MAX_LISTED {
            state.injected.push(InjectedFault { kind, text });
        }
    }
}

impl FaultSource for FaultPlan {
    fn model_call(&self, _: &str, call: &ModelCall) -> Fate<RunError> {
        let node = call.context.node_id.as_deref().unwrap_or_default();
        self.model_fate(node, &call.context.thread_id)
    }

    fn tool_call(&self, asked: &AskedCall) -> Fate<String> {
        let thread = asked.caller.as_ref().map(|caller| &*caller.thread_id);
        self.tool_fate(&asked.call.name, thread.unwrap_or_default())
    }
}

/// Returns the random numbers that belong to a name.
fn chance_of(seed: u64, name: &str) -> Chance {
    // FNV-1a, which is equal on every machine.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Chance::new(hash ^ Chance::new(seed).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_equal_faults_and_the_absence_of_a_kind_changes_no_other_kind() {
        let all: BTreeSet<FaultKind> = FaultKind::ALL.into();
        let texts = |kinds: &BTreeSet<FaultKind>, seed: u64| {
            let plan = FaultPlan::new(seed, kinds.clone(), 10);
            for _ in 0..50 {
                let _ = plan.model_fate("ask", "r.0");
                let _ = plan.tool_fate("search", "r.0");
            }
            let (_, counts) = plan.injected();
            counts
        };
        let mut hits = 0;
        for seed in 0..20 {
            let whole = texts(&all, seed);
            assert_eq!(whole, texts(&all, seed));
            let without: BTreeSet<FaultKind> = all
                .iter()
                .copied()
                .filter(|kind| *kind != FaultKind::ToolError)
                .collect();
            let fewer = texts(&without, seed);
            assert_eq!(
                fewer.get(&FaultKind::LateReply),
                whole.get(&FaultKind::LateReply),
                "seed {seed}"
            );
            assert_eq!(fewer.get(&FaultKind::ToolError), None);
            hits += whole.get(&FaultKind::ToolError).copied().unwrap_or_default();
        }
        assert!(hits > 50, "{hits}");
    }

    #[test]
    fn every_seed_has_a_fault_of_the_allowed_kinds() {
        for kind in FaultKind::ALL {
            let allowed = BTreeSet::from([kind]);
            for seed in 0..50 {
                assert_eq!(FaultPlan::kinds_of(seed, &allowed), allowed, "seed {seed}");
            }
        }
    }
}
