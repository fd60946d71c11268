//! State machine of a schedule: decides which of the schedule's times start a run, and when.
//!
//! | input | effect |
//! |---|---|
//! | Begin | starts the runs under way again, without counting them, and cancels those that `cancelPrevious` replaced; times since the last handled one are missed: `catchUp` decides which start; sets the next timer |
//! | Elapsed | handles the times that are due: the last one by `overlap`, earlier ones as missed; sets the next timer |
//! | Elapsed of another generation | ignored |
//! | Begin or Elapsed more than a day before the last handled time | a clock was wrong: the schedule continues from now |
//! | Ended | the run of that time has ended: the first queued time starts |
//! | Seen | if another process has handled later times, its state replaces the own one: this process was suspended or disabled, or its clock is behind |
//! | Found | another process has started the run of a time that this one skipped: it counts like one of this process |
//! | Disable | invalidates the timer and clears the queue |
//! | Begin of a disabled schedule | restores the runs under way; they start again when the schedule is enabled |
//! | Enable | continues from now; times that passed while the schedule was disabled are ignored |
//!
//! | policy, if a time is due while a run is under way | effect |
//! |---|---|
//! | `skip` | the time is skipped |
//! | `queue` | the time is queued; it is skipped if [`MAX_QUEUED`] times are queued |
//! | `cancelPrevious` | the runs under way are cancelled, and the time starts its run |
//! | `allow` | the time starts its run |
//!
//! Missed times that start run one after another, unless the policy is `allow`. Invariants:
//!
//! - a time starts at most one run;
//! - times start in order;
//! - with `skip` and `queue`, one run executes at a time;
//! - at most `maxTriggers` runs start.
//!
//! A cancelled run stays in the state until it has ended: a process may terminate after it has persisted the state and before it has
//! cancelled the run.
//!
//! The invariants hold across processes if the `Keep` effects are persisted. A step that starts
//! runs also emits a `Keep` with the runs under way, and the next process emits `Start` for those again. The host must therefore
//! resume the existing run of a time instead of starting a second one.

use std::collections::{BTreeSet, VecDeque};

use pirn_definition::Millis;
use pirn_definition::definition::{CatchUp, Overlap};
use pirn_definition::times::Times;
use serde::{Deserialize, Serialize};

/// Maximum number of queued times.
pub const MAX_QUEUED: usize = 100;

/// Maximum number of missed times that start: the latest ones.
pub const MAX_CAUGHT_UP: usize = 1_000;

/// Maximum time by which the clock of another process may be ahead of the own one, in milliseconds. Otherwise a process with a wrong clock
/// would stop the schedule in all processes.
const MAX_AHEAD: Millis = 60_000;

/// Time in milliseconds by which the last handled time may be in the future. A later one was handled by a clock that was wrong, and would
/// silence the schedule until then.
const WRONG_CLOCK: Millis = 24 * 60 * 60_000;

/// A message to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Starts the schedule, from the state that earlier processes persisted, if there is one.
    Begin(Option<ScheduleState>),
    /// A timer has expired.
    Elapsed {
        /// Identifies the timer.
        generation: u32,
    },
    /// The run of this time has ended or could not start.
    Ended {
        /// The time of the run.
        due: Millis,
    },
    /// The state that the processes of a shared store persisted last. The host reads it before [`Input::Elapsed`] and [`Input::Enable`].
    Seen(ScheduleState),
    /// Another process has started the run of this time, which was skipped here.
    Found {
        /// The time of the run.
        due: Millis,
    },
    /// Stops starting runs.
    Disable,
    /// Starts runs again.
    Enable,
}

/// An action that the host must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Set a timer, which replaces the earlier one.
    SetTimer {
        /// Identifies the timer.
        generation: u32,
        /// Expiry in milliseconds since 1970.
        at: Millis,
    },
    /// Start the run of this time.
    Start {
        /// The time of the run.
        due: Millis,
    },
    /// Cancel the run of this time.
    Cancel {
        /// The time of the run.
        due: Millis,
    },
    /// Report that a time starts no run.
    Skipped {
        /// The skipped time.
        due: Millis,
        /// Reason for the skip.
        why: Skip,
    },
    /// Persist this state for the next process.
    Keep(ScheduleState),
}

/// State of a schedule that outlives its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleState {
    /// Last handled time, in milliseconds since 1970. All earlier times are handled too.
    pub last: Millis,
    /// Number of started runs.
    #[serde(default)]
    pub started: u64,
    /// Times of the runs under way, also of cancelled ones that have not ended yet: the latest [`MAX_CAUGHT_UP`].
    #[serde(default)]
    pub running: Vec<Millis>,
}

/// Reason why a time starts no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The run of an earlier time is under way.
    Overlaps,
    /// The queue is full.
    QueueFull,
    /// No process ran at that time, and `catchUp` excludes it.
    Missed,
    /// `maxTriggers` is reached, or the schedule was disabled while the time was queued.
    Stopped,
}

/// State machine of a schedule; the module documentation lists its transitions.
#[derive(Debug)]
pub struct ScheduleMachine {
    times: Times,
    overlap: Overlap,
    catch_up: CatchUp,
    jitter_ms: Millis,
    seed: u64,
    /// Maximum number of runs that start.
    most: u64,
    /// Number of started runs.
    started: u64,
    /// The last time that was handled or queued.
    last: Millis,
    /// The last time of the state of another process, whose count includes the runs of all times until then.
    counted_to: Millis,
    /// The state in the last [`Effect::Keep`].
    kept: Option<ScheduleState>,
    running: BTreeSet<Millis>,
    /// Times in `running` of cancelled runs.
    cancelled: BTreeSet<Millis>,
    /// `running` is the state of an earlier process, and the runs have not been started again yet.
    is_unasked: bool,
    queued: VecDeque<Millis>,
    generation: u32,
    is_enabled: bool,
}

impl ScheduleMachine {
    /// Creates a schedule; [`Input::Begin`] starts it. `most`: maximum number of runs; `None` or 0: unlimited. `seed`: seed of
    /// the delays up to `jitter_ms`.
    pub fn new(
        times: Times,
        (overlap, catch_up): (Overlap, CatchUp),
        (jitter_ms, seed): (Millis, u64),
        most: Option<u64>,
    ) -> Self {
        Self {
            times,
            overlap,
            catch_up,
            jitter_ms,
            seed,
            most: most.filter(|most| *most > 0).unwrap_or(u64::MAX),
            started: 0,
            last: 0,
            counted_to: 0,
            kept: None,
            running: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            is_unasked: false,
            queued: VecDeque::new(),
            generation: 0,
            is_enabled: true,
        }
    }

    /// Returns this schedule as disabled: it starts nothing before [`Input::Enable`].
    #[must_use]
    pub fn disabled(self) -> Self {
        Self {
            is_enabled: false,
            ..self
        }
    }

    /// Handles one input and appends the effects to `out`.
    pub fn step(&mut self, now: Millis, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Begin(kept) => {
                self.last = kept.as_ref().map_or(now, |kept| kept.last);
                let ScheduleState { started, running, .. } = kept.unwrap_or_default();
                self.started = started;
                self.running = running.into_iter().collect();
                self.forget_future(now);
                if !self.is_enabled {
                    self.is_unasked = true;
                    return;
                }
                self.ask_again(&BTreeSet::new(), out);
                let missed = self.passed(now);
                self.catch_up(missed, out);
                self.handled(out);
                self.arm(out);
            }
            Input::Elapsed { generation } if generation == self.generation && self.is_enabled => {
                self.forget_future(now);
                let mut passed = self.passed(now);
                let due = passed.pop_back();
                self.catch_up(passed, out);
                if let Some(due) = due {
                    self.due(due, out);
                }
                self.handled(out);
                self.arm(out);
            }
            Input::Elapsed { .. } => {}
            Input::Ended { due } => {
                if self.running.remove(&due) {
                    self.cancelled.remove(&due);
                    self.start_queued(out);
                    self.handled(out);
                }
            }
            Input::Seen(seen) => {
                if seen.last <= self.last || seen.last > now.saturating_add(MAX_AHEAD) {
                    return;
                }
                let handled = self.handled_to();
                self.last = seen.last;
                self.counted_to = seen.last;
                self.started = self.started.max(seen.started);
                let known = self.running.clone();
                // This process has received the ends of the other runs.
                self.running
                    .extend(seen.running.into_iter().filter(|due| *due > handled));
                self.queued.clear();
                if !self.is_enabled {
                    self.is_unasked = true;
                    return;
                }
                self.ask_again(&known, out);
                if self.overlap == Overlap::Queue {
                    // Later times are in the queue of the other process, so this one has not missed them.
                    for due in self.passed(now) {
                        self.due(due, out);
                    }
                }
                self.handled(out);
            }
            Input::Found { due } => {
                if self.running.insert(due) {
                    self.started += u64::from(due > self.counted_to);
                    self.handled(out);
                }
            }
            Input::Disable => {
                self.is_enabled = false;
                let why = Skip::Stopped;
                out.extend(self.queued.drain(..).map(|due| Effect::Skipped { due, why }));
                self.handled(out);
            }
            Input::Enable if self.is_enabled => {}
            Input::Enable => {
                self.is_enabled = true;
                if std::mem::take(&mut self.is_unasked) {
                    self.ask_again(&BTreeSet::new(), out);
                }
                self.last = self.last.max(now);
                self.handled(out);
                self.arm(out);
            }
        }
    }

    /// Continues from now if a clock that was wrong has handled a time far in the future.
    fn forget_future(&mut self, now: Millis) {
        if self.last > now.saturating_add(WRONG_CLOCK) {
            self.last = now;
        }
    }

    /// Starts the unfinished runs of other and earlier processes again, except the known ones.
    fn ask_again(&mut self, known: &BTreeSet<Millis>, out: &mut Vec<Effect>) {
        if self.overlap == Overlap::CancelPrevious
            && let Some(last) = self.running.last().copied()
        {
            // The process may have terminated before it cancelled them.
            self.cancel_before(last, out);
        }
        let under_way = self
            .running
            .difference(&self.cancelled)
            .filter(|due| !known.contains(due));
        out.extend(under_way.map(|due| Effect::Start { due: *due }));
    }

    /// Cancels the runs of earlier times.
    fn cancel_before(&mut self, due: Millis, out: &mut Vec<Effect>) {
        for due in self.running.range(..due).copied() {
            if self.cancelled.insert(due) {
                out.push(Effect::Cancel { due });
            }
        }
    }

    /// True if a run is under way that was not cancelled.
    fn is_busy(&self) -> bool {
        self.cancelled.len() < self.running.len()
    }

    /// Returns the times that have passed since the last one, with their delays; at most the latest [`MAX_CAUGHT_UP`] and one.
    fn passed(&mut self, now: Millis) -> VecDeque<Millis> {
        let begins = self.last;
        let mut passed = VecDeque::new();
        while let Some(due) = self.times.after(self.last).filter(|due| self.at(*due) <= now) {
            self.last = due;
            passed.push_back(due);
            if passed.len() > MAX_CAUGHT_UP {
                return self.latest(begins, now);
            }
        }
        passed
    }

    /// Like [`Self::passed`], but searches backwards from now: after a long pause a forward search would visit every passed time.
    fn latest(&mut self, begins: Millis, now: Millis) -> VecDeque<Millis> {
        let mut passed = VecDeque::new();
        let mut before = now.saturating_add(1);
        while let Some(due) = self.times.before(before).filter(|due| *due > begins) {
            before = due;
            if self.at(due) <= now {
                passed.push_front(due);
                if passed.len() > MAX_CAUGHT_UP {
                    break;
                }
            } else {
                // The delay of this time is not over, so this time and all later ones are not due yet.
                passed.clear();
            }
        }
        self.last = passed.back().copied().unwrap_or(self.last);
        passed
    }

    fn catch_up(&mut self, mut missed: VecDeque<Millis>, out: &mut Vec<Effect>) {
        let starts = match self.catch_up {
            CatchUp::None => 0,
            CatchUp::Last => 1,
            CatchUp::All => MAX_CAUGHT_UP,
        };
        let passed_over = missed.len().saturating_sub(starts);
        let skipped = missed.drain(..passed_over);
        out.extend(skipped.map(|due| Effect::Skipped { due, why: Skip::Missed }));
        for due in missed {
            match self.overlap {
                Overlap::Skip | Overlap::Queue | Overlap::CancelPrevious if self.queued.len() >= MAX_CAUGHT_UP => {
                    let why = Skip::QueueFull;
                    out.push(Effect::Skipped { due, why });
                }
                Overlap::Allow => self.start(due, out),
                Overlap::Skip | Overlap::Queue | Overlap::CancelPrevious => self.queued.push_back(due),
            }
        }
        self.start_queued(out);
    }

    fn due(&mut self, due: Millis, out: &mut Vec<Effect>) {
        let is_free = !self.is_busy() && self.queued.is_empty();
        let skipped = |why| Effect::Skipped { due, why };
        match self.overlap {
            Overlap::Skip if !is_free => out.push(skipped(Skip::Overlaps)),
            Overlap::Queue if !is_free && self.queued.len() >= MAX_QUEUED => out.push(skipped(Skip::QueueFull)),
            Overlap::Queue if !is_free => self.queued.push_back(due),
            // The last run would be cancelled without a next one.
            Overlap::CancelPrevious if self.started >= self.most => out.push(skipped(Skip::Stopped)),
            Overlap::CancelPrevious => {
                out.extend(self.queued.drain(..).map(|due| Effect::Skipped {
                    due,
                    why: Skip::Overlaps,
                }));
                self.cancel_before(due, out);
                self.start(due, out);
            }
            Overlap::Skip | Overlap::Queue | Overlap::Allow => self.start(due, out),
        }
    }

    fn start_queued(&mut self, out: &mut Vec<Effect>) {
        if !self.is_busy()
            && let Some(due) = self.queued.pop_front()
        {
            self.start(due, out);
        }
    }

    fn start(&mut self, due: Millis, out: &mut Vec<Effect>) {
        if self.started >= self.most {
            let why = Skip::Stopped;
            return out.push(Effect::Skipped { due, why });
        }
        self.started += 1;
        self.running.insert(due);
        out.push(Effect::Start { due });
    }

    /// Emits the state to persist. Queued times are not handled: a later process handles them again.
    fn handled(&mut self, out: &mut Vec<Effect>) {
        let running = self.running.iter().rev().take(MAX_CAUGHT_UP).rev();
        let kept = ScheduleState {
            last: self.handled_to(),
            started: self.started,
            running: running.copied().collect(),
        };
        if self.kept.as_ref() != Some(&kept) {
            self.kept = Some(kept.clone());
            out.push(Effect::Keep(kept));
        }
    }

    /// Returns the last time that was handled, not queued.
    fn handled_to(&self) -> Millis {
        self.queued.front().map_or(self.last, |due| due - 1)
    }

    fn arm(&mut self, out: &mut Vec<Effect>) {
        self.generation += 1;
        if self.started < self.most
            && let Some(due) = self.times.after(self.last)
        {
            out.push(Effect::SetTimer {
                generation: self.generation,
                at: self.at(due),
            });
        }
    }

    /// Returns the start of the run of a time: the time and its jitter, which is computed from the seed, so every process agrees.
    fn at(&self, due: Millis) -> Millis {
        let draw = mix(self.seed ^ mix(due));
        due.saturating_add(self.jitter_ms.checked_add(1).map_or(draw, |many| draw % many))
    }
}

/// The finalizer of `SplitMix64`: every bit of the number is in every bit of the result.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(all(test, feature = "schedule"))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const MINUTE: Millis = 60_000;

    fn machine(overlap: Overlap, catch_up: CatchUp, jitter_ms: Millis, most: Option<u64>) -> ScheduleMachine {
        let times = Times::read("* * * * *", "UTC").expect("times");
        ScheduleMachine::new(times, (overlap, catch_up), (jitter_ms, 7), most)
    }

    /// One or more processes in sequence. `takes` is the duration of each run, by the minute of its time.
    struct World {
        started: Vec<(Millis, Millis)>,
        cancelled: Vec<Millis>,
        skipped: Vec<Millis>,
        kept: Option<ScheduleState>,
    }

    impl World {
        /// Runs a machine from `from` to `until`, with its timers and the ends of its runs.
        fn live(&mut self, mut machine: ScheduleMachine, (from, until): (Millis, Millis), takes: &[Millis]) {
            let (mut now, mut timer, mut ends) = (from, None, BTreeMap::new());
            let mut next = Some(Input::Begin(self.kept.clone()));
            while let Some(input) = next.take() {
                let mut out = Vec::new();
                machine.step(now, input, &mut out);
                for effect in out {
                    match effect {
                        Effect::SetTimer { generation, at } => timer = Some((at.max(now), generation)),
                        Effect::Start { due } => {
                            let begun = self.started.iter().find(|(begun, _)| *begun == due);
                            // A run that an earlier process started continues.
                            let at = begun.map_or(now, |(_, at)| *at);
                            if begun.is_none() {
                                self.started.push((due, now));
                            }
                            let takes = takes[(due / MINUTE) as usize % takes.len()];
                            assert_eq!(ends.insert(((at + takes).max(now), due), due), None);
                        }
                        Effect::Cancel { due } => {
                            self.cancelled.push(due);
                            ends.retain(|_, run| *run != due);
                            ends.insert((now, due), due);
                        }
                        Effect::Skipped { due, .. } => self.skipped.push(due),
                        Effect::Keep(kept) => self.kept = Some(kept),
                    }
                }
                let end = ends.first_key_value().map(|((at, due), _)| (*at, *due));
                let (at, input) = match (end, timer) {
                    (Some((at, due)), timer) if timer.is_none_or(|(due, _)| at <= due) => (at, Input::Ended { due }),
                    (_, Some((at, generation))) => (at, Input::Elapsed { generation }),
                    (_, None) => break,
                };
                if at >= until {
                    break;
                }
                match input {
                    Input::Ended { due } => drop(ends.remove(&(at, due))),
                    Input::Elapsed { .. } => timer = None,
                    Input::Begin(_) | Input::Seen(_) | Input::Found { .. } | Input::Disable | Input::Enable => {}
                }
                now = at;
                next = Some(input);
            }
        }
    }

    /// The oracle: applies the policy minute by minute, and returns the minutes that start a run, with the start of each.
    fn by_rule(overlap: Overlap, minutes: Millis, takes: &[Millis]) -> Vec<(Millis, Millis)> {
        let mut started: Vec<(Millis, Millis)> = Vec::new();
        let takes = |due: Millis| takes[(due / MINUTE) as usize % takes.len()];
        for due in (1..minutes).map(|minute| minute * MINUTE) {
            let free_at = started
                .iter()
                .map(|(due, at)| at + takes(*due))
                .max()
                .unwrap_or_default();
            match overlap {
                Overlap::Skip if free_at > due => {}
                Overlap::Queue => started.push((due, due.max(free_at))),
                Overlap::Skip | Overlap::CancelPrevious | Overlap::Allow => started.push((due, due)),
            }
        }
        started
    }

    fn overlap() -> impl Strategy<Value = Overlap> {
        prop::sample::select(&[Overlap::Skip, Overlap::Queue, Overlap::CancelPrevious, Overlap::Allow][..])
    }

    proptest! {
        #[test]
        fn runs_start_every_minute_by_the_overlap_rule(
            overlap in overlap(),
            takes in prop::collection::vec(1..200_000_u64, 1..5),
        ) {
            let mut world = World { started: Vec::new(), cancelled: Vec::new(), skipped: Vec::new(), kept: None };
            world.live(machine(overlap, CatchUp::Last, 0, None), (0, 30 * MINUTE), &takes);
            let until = |started: Vec<(Millis, Millis)>| -> Vec<(Millis, Millis)> {
                started.into_iter().filter(|(_, at)| *at < 30 * MINUTE).collect()
            };
            prop_assert_eq!(&world.started, &until(by_rule(overlap, 30, &takes)));
            if overlap == Overlap::CancelPrevious {
                let late = world.started.windows(2).filter(|two| {
                    let (due, at) = two[0];
                    at + takes[(due / MINUTE) as usize % takes.len()] > two[1].1
                });
                prop_assert_eq!(&world.cancelled, &late.map(|two| two[0].0).collect::<Vec<_>>());
            }
        }

        #[test]
        fn after_a_restart_no_due_time_starts_twice_and_missed_times_follow_catch_up(
            overlap in overlap(),
            catch_up in prop::sample::select(&[CatchUp::None, CatchUp::Last, CatchUp::All][..]),
            lives in prop::collection::vec((0..300_000_u64, 1..600_000_u64), 1..5),
            takes in prop::collection::vec(1..90_000_u64, 1..4),
            jitter_ms in 0..30_000_u64,
            most in prop::option::of(1..6_u64),
        ) {
            let mut world = World { started: Vec::new(), cancelled: Vec::new(), skipped: Vec::new(), kept: None };
            let mut now = MINUTE;
            for (pause, life) in lives {
                let (from, before) = (now + pause, world.started.len());
                let missed_from = world.kept.as_ref().map(|kept| kept.last);
                world.live(machine(overlap, catch_up, jitter_ms, most), (from, from + life), &takes);
                now = from + life;
                if let Some(missed_from) = missed_from {
                    let missed: Vec<Millis> = (missed_from + 1..from).filter(|at| at % MINUTE == 0).collect();
                    let made_good = world.started[before..].iter().filter(|(due, _)| *due + jitter_ms < from).count();
                    match catch_up {
                        CatchUp::None => prop_assert_eq!(made_good, 0),
                        CatchUp::Last => prop_assert!(made_good <= 1),
                        CatchUp::All => prop_assert!(made_good <= missed.len()),
                    }
                }
            }
            let dues: Vec<Millis> = world.started.iter().map(|(due, _)| *due).collect();
            prop_assert!(dues.windows(2).all(|two| two[0] < two[1]), "in order, none twice: {:?}", dues);
            for (due, at) in &world.started {
                prop_assert!(at >= due, "never early");
            }
            prop_assert!(world.started.len() as u64 <= most.unwrap_or(u64::MAX), "no more than maxTriggers");
            if matches!(overlap, Overlap::Skip | Overlap::Queue) {
                for two in world.started.windows(2) {
                    let (due, at) = two[0];
                    let ends = at + takes[(due / MINUTE) as usize % takes.len()];
                    prop_assert!(ends <= two[1].1, "two at a time: {:?}", two);
                }
            }
            let handled: BTreeSet<Millis> = dues.iter().chain(&world.skipped).copied().collect();
            let all = (2 * MINUTE..=world.kept.unwrap_or_default().last).filter(|at| at % MINUTE == 0 && catch_up == CatchUp::All && overlap == Overlap::Allow);
            for due in all.filter(|due| dues.first().is_some_and(|first| first <= due)) {
                prop_assert!(handled.contains(&due), "{} is lost", due);
            }
        }
    }

    #[test]
    fn at_most_max_triggers_runs_start() {
        let mut world = World {
            started: Vec::new(),
            cancelled: Vec::new(),
            skipped: Vec::new(),
            kept: None,
        };
        world.live(
            machine(Overlap::Allow, CatchUp::All, 0, Some(3)),
            (0, 99 * MINUTE),
            &[1],
        );
        assert_eq!(world.started.len(), 3);
    }

    #[test]
    fn a_run_is_cancelled_if_the_process_terminated_before_it_cancelled_the_run() {
        let first = || machine(Overlap::CancelPrevious, CatchUp::Last, 0, None);
        let (mut old, mut out) = (first(), Vec::new());
        old.step(0, Input::Begin(None), &mut out);
        old.step(MINUTE, Input::Elapsed { generation: 1 }, &mut out);
        out.clear();
        old.step(2 * MINUTE, Input::Elapsed { generation: 2 }, &mut out);
        let [
            Effect::Cancel { due: MINUTE },
            Effect::Start { .. },
            Effect::Keep(kept),
            ..,
        ] = &out[..]
        else {
            panic!("{out:?}");
        };
        // The state is persisted, and the process terminates before the other effects.
        let (mut next, mut out) = (first(), Vec::new());
        next.step(2 * MINUTE + 1, Input::Begin(Some(kept.clone())), &mut out);
        let start = Effect::Start { due: 2 * MINUTE };
        assert_eq!(out[..2], [Effect::Cancel { due: MINUTE }, start], "{out:?}");
        out.clear();
        next.step(2 * MINUTE + 2, Input::Ended { due: MINUTE }, &mut out);
        let kept = Effect::Keep(ScheduleState {
            running: vec![2 * MINUTE],
            ..kept.clone()
        });
        assert_eq!(out, [kept], "the state has a cancelled run until it has ended");
        out.clear();
        next.step(3 * MINUTE, Input::Elapsed { generation: 1 }, &mut out);
        assert_eq!(out[0], Effect::Cancel { due: 2 * MINUTE });
        assert_eq!(out[1], Effect::Start { due: 3 * MINUTE });
    }

    #[test]
    fn the_last_run_within_the_limit_is_not_cancelled() {
        for policies in [CatchUp::Last, CatchUp::All] {
            let mut machine = machine(Overlap::CancelPrevious, policies, 0, Some(1));
            let mut out = Vec::new();
            machine.step(0, Input::Begin(None), &mut out);
            out.clear();
            // The process was paused: two times are due at once.
            machine.step(2 * MINUTE, Input::Elapsed { generation: 1 }, &mut out);
            let why = Skip::Stopped;
            let skipped = Effect::Skipped { due: 2 * MINUTE, why };
            assert_eq!(out[..2], [Effect::Start { due: MINUTE }, skipped]);
        }
    }

    #[test]
    fn a_schedule_that_starts_disabled_tracks_the_runs_in_progress() {
        let mut machine = machine(Overlap::Skip, CatchUp::Last, 0, None).disabled();
        let mut out = Vec::new();
        let kept = ScheduleState {
            last: MINUTE,
            started: 1,
            running: vec![MINUTE],
        };
        machine.step(MINUTE + 1, Input::Begin(Some(kept)), &mut out);
        assert_eq!(out, [], "nothing starts before it is enabled");
        machine.step(2 * MINUTE + 1, Input::Enable, &mut out);
        let kept = Effect::Keep(ScheduleState {
            last: 2 * MINUTE + 1,
            started: 1,
            running: vec![MINUTE],
        });
        let timer = Effect::SetTimer {
            generation: 1,
            at: 3 * MINUTE,
        };
        assert_eq!(out, [Effect::Start { due: MINUTE }, kept, timer]);
        out.clear();
        machine.step(3 * MINUTE, Input::Elapsed { generation: 1 }, &mut out);
        let why = Skip::Overlaps;
        assert_eq!(out.first(), Some(&Effect::Skipped { due: 3 * MINUTE, why }));
        machine.step(3 * MINUTE + 1, Input::Ended { due: MINUTE }, &mut out);
        out.clear();
        machine.step(4 * MINUTE, Input::Elapsed { generation: 2 }, &mut out);
        assert_eq!(out.first(), Some(&Effect::Start { due: 4 * MINUTE }));
    }

    #[test]
    fn a_skipped_time_whose_run_another_process_started_counts_for_the_overlap_and_for_the_limit() {
        let mut machine = machine(Overlap::Skip, CatchUp::Last, 0, Some(2));
        let mut out = Vec::new();
        machine.step(0, Input::Begin(None), &mut out);
        machine.step(MINUTE, Input::Elapsed { generation: 1 }, &mut out);
        machine.step(2 * MINUTE, Input::Elapsed { generation: 2 }, &mut out);
        machine.step(2 * MINUTE + 1, Input::Ended { due: MINUTE }, &mut out);
        machine.step(2 * MINUTE + 2, Input::Found { due: 2 * MINUTE }, &mut out);
        let (started, why) = (2, Skip::Overlaps);
        let running = vec![2 * MINUTE];
        let last = 2 * MINUTE;
        assert_eq!(
            out.last(),
            Some(&Effect::Keep(ScheduleState { last, started, running }))
        );
        out.clear();
        machine.step(3 * MINUTE, Input::Elapsed { generation: 3 }, &mut out);
        assert_eq!(out.first(), Some(&Effect::Skipped { due: 3 * MINUTE, why }));
        assert!(
            !out.iter().any(|effect| matches!(effect, Effect::SetTimer { .. })),
            "the limit is reached: {out:?}"
        );
    }

    /// Returns what a machine does that was suspended from the first to the fifth minute, when another process has persisted `seen`.
    fn suspended(overlap: Overlap, seen: ScheduleState) -> Vec<Effect> {
        let mut machine = machine(overlap, CatchUp::Last, 0, None);
        let mut out = Vec::new();
        machine.step(0, Input::Begin(None), &mut out);
        machine.step(MINUTE, Input::Elapsed { generation: 1 }, &mut out);
        out.clear();
        machine.step(5 * MINUTE, Input::Seen(seen), &mut out);
        machine.step(5 * MINUTE, Input::Ended { due: MINUTE }, &mut out);
        machine.step(5 * MINUTE, Input::Elapsed { generation: 2 }, &mut out);
        out.retain(|effect| !matches!(effect, Effect::SetTimer { .. }));
        out
    }

    #[test]
    fn a_process_that_was_suspended_continues_from_the_state_of_the_others() {
        let seen = |last: Millis| ScheduleState {
            last,
            started: 2,
            running: vec![3 * MINUTE],
        };
        let start = Effect::Start { due: 3 * MINUTE };
        let kept = |last: Millis, running: &[Millis]| {
            Effect::Keep(ScheduleState {
                running: running.to_vec(),
                ..seen(last)
            })
        };
        let kept = |last: Millis| [kept(last, &[MINUTE, 3 * MINUTE]), kept(last, &[3 * MINUTE])];
        // The other process has skipped the minutes after the third one.
        let [both, one] = kept(5 * MINUTE);
        let skips = suspended(Overlap::Skip, seen(5 * MINUTE));
        assert_eq!(skips, [start.clone(), both.clone(), one.clone()]);
        // It will start each of them, and had to cancel the first run.
        let cancels = suspended(Overlap::CancelPrevious, seen(5 * MINUTE));
        let cancel = Effect::Cancel { due: MINUTE };
        assert_eq!(cancels, [cancel, start.clone(), both, one]);
        // It has queued the fourth and the fifth.
        let [both, one] = kept(4 * MINUTE - 1);
        let queues = suspended(Overlap::Queue, seen(4 * MINUTE - 1));
        assert_eq!(queues, [start, both, one]);
        // All processes were suspended, or the clock of the other one is wrong.
        for last in [MINUTE, 5 * MINUTE + MAX_AHEAD + 1] {
            let missed = suspended(Overlap::Allow, seen(last));
            let starts = [4, 5].map(|minute| Effect::Start { due: minute * MINUTE });
            assert!(starts.iter().all(|start| missed.contains(start)), "{missed:?}");
        }
    }

    #[test]
    fn a_clock_that_was_wrong_once_does_not_silence_a_schedule() {
        let began = |out: &[Effect]| out.contains(&Effect::Start { due: 6 * MINUTE });
        let future = 5 * MINUTE + WRONG_CLOCK;
        for (last, starts) in [(future, false), (future + 1, true)] {
            let kept = ScheduleState {
                last,
                ..ScheduleState::default()
            };
            let mut resumed = machine(Overlap::Skip, CatchUp::Last, 0, None);
            let mut out = Vec::new();
            resumed.step(5 * MINUTE, Input::Begin(Some(kept)), &mut out);
            resumed.step(6 * MINUTE, Input::Elapsed { generation: 1 }, &mut out);
            assert_eq!(began(&out), starts, "{out:?}");
        }
        // The clock of a process is wrong, and is corrected.
        let mut corrected = machine(Overlap::Skip, CatchUp::None, 0, None);
        let mut out = Vec::new();
        corrected.step(5 * MINUTE, Input::Begin(None), &mut out);
        let wrong = future + 2 * MINUTE;
        corrected.step(wrong, Input::Elapsed { generation: 1 }, &mut out);
        corrected.step(wrong, Input::Ended { due: wrong }, &mut out);
        corrected.step(5 * MINUTE, Input::Elapsed { generation: 2 }, &mut out);
        corrected.step(6 * MINUTE, Input::Elapsed { generation: 3 }, &mut out);
        assert!(began(&out), "{out:?}");
    }

    #[test]
    fn a_run_of_another_process_is_counted_once() {
        let mut machine = machine(Overlap::Skip, CatchUp::Last, 0, Some(3));
        let mut out = Vec::new();
        machine.step(0, Input::Begin(None), &mut out);
        machine.step(MINUTE, Input::Elapsed { generation: 1 }, &mut out);
        machine.step(2 * MINUTE, Input::Elapsed { generation: 2 }, &mut out);
        // The other process has started the run of the second minute, which this one has skipped, and has handled the third one.
        let seen = ScheduleState {
            last: 3 * MINUTE,
            started: 2,
            running: vec![2 * MINUTE],
        };
        machine.step(3 * MINUTE, Input::Seen(seen), &mut out);
        machine.step(3 * MINUTE, Input::Found { due: 2 * MINUTE }, &mut out);
        machine.step(3 * MINUTE, Input::Ended { due: MINUTE }, &mut out);
        machine.step(3 * MINUTE, Input::Ended { due: 2 * MINUTE }, &mut out);
        out.clear();
        machine.step(4 * MINUTE, Input::Elapsed { generation: 3 }, &mut out);
        assert_eq!(out[0], Effect::Start { due: 4 * MINUTE });
    }

    #[test]
    fn a_schedule_that_was_disabled_counts_the_runs_that_other_processes_started() {
        let mut machine = machine(Overlap::Allow, CatchUp::Last, 0, Some(3)).disabled();
        let mut out = Vec::new();
        machine.step(0, Input::Begin(None), &mut out);
        let seen = ScheduleState {
            last: 2 * MINUTE,
            started: 2,
            running: vec![2 * MINUTE],
        };
        machine.step(2 * MINUTE + 1, Input::Seen(seen), &mut out);
        assert_eq!(out, [], "nothing starts before it is enabled");
        machine.step(2 * MINUTE + 1, Input::Enable, &mut out);
        assert_eq!(out[0], Effect::Start { due: 2 * MINUTE });
        out.clear();
        machine.step(3 * MINUTE, Input::Elapsed { generation: 1 }, &mut out);
        assert_eq!(out[0], Effect::Start { due: 3 * MINUTE });
        let is_timer = |effect: &Effect| matches!(effect, Effect::SetTimer { .. });
        assert!(!out.iter().any(is_timer), "the limit is reached: {out:?}");
    }

    /// Lets workers of one store live from `from` to `until`, and returns the times of the runs in the order of their starts. Each run takes
    /// a minute.
    fn workers(mut machines: Vec<ScheduleMachine>, (from, until): (Millis, Millis)) -> Vec<Millis> {
        let (mut kept, mut started, mut ends) = (None, Vec::new(), BTreeMap::new());
        let mut timers = vec![None; machines.len()];
        let mut tracked = vec![BTreeSet::new(); machines.len()];
        let mut inputs: VecDeque<(usize, Input)> = (0..machines.len()).map(|at| (at, Input::Begin(None))).collect();
        let mut now = from;
        while now < until {
            while let Some((at, input)) = inputs.pop_front() {
                let mut out = Vec::new();
                if let (Input::Elapsed { .. }, Some(seen)) = (&input, &kept) {
                    machines[at].step(now, Input::Seen(ScheduleState::clone(seen)), &mut out);
                }
                machines[at].step(now, input, &mut out);
                for effect in out {
                    match effect {
                        Effect::SetTimer { generation, at: due } => timers[at] = Some((due.max(now), generation)),
                        Effect::Start { due } => {
                            // The run of a time has one id in all processes.
                            let end = *ends.entry(due).or_insert_with(|| {
                                started.push(due);
                                now + MINUTE
                            });
                            if end > now {
                                tracked[at].insert(due);
                            } else {
                                inputs.push_back((at, Input::Ended { due }));
                            }
                        }
                        Effect::Keep(state) => kept = Some(state),
                        Effect::Skipped { due, why } => panic!("{due} is skipped: {why:?}"),
                        Effect::Cancel { due } => panic!("{due} is cancelled"),
                    }
                }
            }
            let timer = timers.iter().flatten().map(|(at, _)| *at).min();
            let end = ends.values().copied().filter(|end| *end > now).min();
            let Some(next) = timer.into_iter().chain(end).min() else {
                break;
            };
            now = next;
            for (at, timer) in timers.iter_mut().enumerate() {
                for due in tracked[at].iter().copied().filter(|due| ends[due] <= now) {
                    inputs.push_back((at, Input::Ended { due }));
                }
                tracked[at].retain(|due| ends[due] > now);
                if let Some((_, generation)) = timer.take_if(|(due, _)| *due <= now) {
                    inputs.push_back((at, Input::Elapsed { generation }));
                }
            }
        }
        started
    }

    /// Returns a schedule in Berlin, where the clocks are changed at 01:00 UTC on 29 March and on 25 October 2026.
    fn in_berlin(cron: &str, overlap: Overlap) -> ScheduleMachine {
        let times = Times::read(cron, "Europe/Berlin").expect("times");
        ScheduleMachine::new(times, (overlap, CatchUp::Last), (0, 7), None)
    }

    const OVERLAPS: [Overlap; 4] = [Overlap::Skip, Overlap::Queue, Overlap::CancelPrevious, Overlap::Allow];

    /// Midnight before the clocks are set forward and back, UTC.
    const CLOCK_CHANGES: [Millis; 2] = [1_774_742_400 * 1_000, 1_792_886_400 * 1_000];

    #[test]
    fn several_workers_start_one_run_at_each_time_while_clocks_are_changed() {
        const HALF_HOUR: Millis = 30 * MINUTE;
        let [forward, back] = CLOCK_CHANGES;
        for (day, cron, half_hours) in [
            // 02:30 does not exist: the run starts at 03:00.
            (forward, "30 * * * *", &[1, 2, 3, 5, 7][..]),
            (back, "30 * * * *", &[1, 5, 7]),
            (forward, "30 2 * * *", &[2]),
            // The first one of two.
            (back, "30 2 * * *", &[1]),
        ] {
            for overlap in OVERLAPS {
                let window = (day, day + 8 * HALF_HOUR);
                for count in [1, 3] {
                    let started = workers((0..count).map(|_| in_berlin(cron, overlap)).collect(), window);
                    let at: Vec<Millis> = started.iter().map(|due| (due - day) / HALF_HOUR).collect();
                    assert_eq!(at, half_hours, "{count} workers, {cron}, {overlap:?}");
                }
            }
        }
    }

    #[test]
    fn workers_with_different_times_of_one_schedule_start_one_run_at_each_time() {
        let [day, _] = CLOCK_CHANGES;
        for overlap in OVERLAPS {
            let machines = vec![in_berlin("*/10 * * * *", overlap), in_berlin("*/15 * * * *", overlap)];
            let started = workers(machines, (day, day + 60 * MINUTE + 1));
            let minutes: Vec<Millis> = started.iter().map(|due| (due - day) / MINUTE).collect();
            assert_eq!(minutes, [10, 15, 20, 30, 40, 45, 50, 60], "{overlap:?}");
        }
    }

    #[test]
    fn a_stale_timer_or_unknown_run_end_has_no_effect() {
        let mut machine = machine(Overlap::Skip, CatchUp::Last, 0, None);
        let mut out = Vec::new();
        machine.step(0, Input::Begin(None), &mut out);
        out.clear();
        machine.step(MINUTE, Input::Elapsed { generation: 0 }, &mut out);
        machine.step(MINUTE, Input::Ended { due: 7 }, &mut out);
        assert_eq!(out, []);
    }
}
