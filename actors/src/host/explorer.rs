//! A host for state exploration: a chooser decides what happens next.
//!
//! 1. Steps that depend on the outside are held: models, tools, functions, scripts, texts evaluated on other threads, answers of
//!    persons (one step for each possible answer), timers, and the first step of a branch. So are events on their way to a WAIT, and
//!    actions of triggers on their way to the run, because their thread continues meanwhile. All else runs in FIFO order. When only
//!    held steps remain, the chooser picks one.
//! 2. Work may take any amount of time, and so may a WAIT and the pause before a retry. Exception: a time limit that is certain
//!    to expire before them does so. One of two timers is certain to expire first if both were set at one moment and it is
//!    shorter, or if it was set earlier and is not longer. [`ChooserOptions::keeps_time`] applies this to WAITs among themselves too.
//! 3. A time limit expires only when nothing else can happen, unless [`ChooserOptions::timeouts`] makes it an ordinary choice.
//! 4. A state consists of the inputs of every thread in order, the shared values, and the held steps. Equal states have equal
//!    futures, whatever order led to them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::thread::Interaction;
use pirn_definition::Millis;
use serde_json::Value;

use super::virtual_clock::ready::{Ready, TaskState};
use crate::host::chance::{mix, named_seed};
use crate::host::observation::{AwaitKind, Label, Observation};
use crate::host::timers::TimerKey;

/// Decides which step happens next.
pub trait Chooser {
    /// Returns the index of one of `options`, which is never empty; none stops the host. `state` is a 64-bit hash, equal for
    /// equal states.
    fn choose(&mut self, options: &[Pending], state: u64) -> Option<usize>;
}

/// Returns the possible answers to a question.
pub type PossibleAnswers = Rc<dyn Fn(&Interaction) -> Vec<Value>>;

/// A chooser and its options.
pub struct ChooserOptions {
    /// The chooser.
    pub chooser: Box<dyn Chooser>,
    /// True if a time limit may expire while something else can still happen.
    pub timeouts: bool,
    /// True if WAITs end in the order of their durations.
    pub keeps_time: bool,
    /// The possible answers to a question.
    pub answers: PossibleAnswers,
}

/// A step that may happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Path of the thread from the main thread, as path ids: `a`, `a/left`. Empty for the main thread.
    pub thread: Arc<str>,
    /// True for a step in a fork's branch.
    pub is_branch: bool,
    /// Id of the node, or of the trigger. Empty for a thread's first step.
    pub node: Arc<str>,
    /// Kind of the step.
    pub what: AwaitKind,
    /// The answer as JSON, for a step that answers a question.
    pub answer: Option<Arc<str>>,
}

impl std::fmt::Display for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [&*self.thread, &*self.node];
        let place: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        match (self.what, place.is_empty()) {
            (AwaitKind::Start, false) => f.write_str(&place.join("/")),
            (what, true) => f.write_str(what.as_str()),
            (what, false) => write!(f, "{} {}", place.join("/"), what.as_str()),
        }?;
        self.answer.iter().try_for_each(|answer| write!(f, " {answer}"))
    }
}

/// The held steps, and the threads that they belong to.
pub(super) struct Choices {
    choosing: RefCell<ChooserOptions>,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    threads: BTreeMap<(Arc<str>, u32), Thread>,
    shared: BTreeMap<(Arc<str>, String), u64>,
    held: Vec<HeldStep>,
    /// Number of completed work steps. Work takes any amount of time, so timers set at different moments have no fixed distance.
    moment: u64,
}

struct Thread {
    path: Arc<str>,
    is_branch: bool,
    /// Distinguishes the thread from every other thread of its run; equal in every order.
    identity: u64,
    heard: u64,
}

struct HeldStep {
    pending: Pending,
    /// Identity of its thread, equal in every order.
    identity: u64,
    item: Item,
}

enum Item {
    Task(Arc<TaskState>),
    Timer {
        key: TimerKey,
        due: Millis,
        length: Millis,
        moment: u64,
    },
}

/// The next step.
pub(super) enum Next {
    /// Execute this step, not before this time.
    Run(Ready, Millis),
    /// There is no step to execute.
    Nothing,
    /// The chooser stopped the exploration.
    Stop,
}

impl Choices {
    pub(super) fn new(choosing: ChooserOptions) -> Self {
        Self {
            choosing: RefCell::new(choosing),
            known: RefCell::new(Known::default()),
        }
    }

    /// Processes an observation. Returns a task that is now released and must be woken.
    pub(super) fn note(&self, observation: Observation) -> Option<Arc<TaskState>> {
        let mut known = self.known.borrow_mut();
        match observation {
            Observation::Spawned {
                run,
                thread,
                parent,
                name,
                is_branch,
            } => known.spawned(run, thread, parent, &name, is_branch),
            Observation::Delivered { run, thread, text } => {
                // Digests, because inputs may be long and only their equality matters.
                let heard = digest(&without_thread_numbers(&text, &run));
                if let Some(thread) = known.threads.get_mut(&(run, thread)) {
                    // Chained, so that the order of a thread's inputs is part of the state.
                    thread.heard = mix(thread.heard ^ heard);
                }
            }
            Observation::Shared { run, name, text } => {
                let text = digest(&without_thread_numbers(&text, &run));
                known.shared.insert((run, name), text);
            }
            // A branch that was cancelled before its first step would otherwise stay an option.
            Observation::Ended { run, thread } => return known.released(&(run, thread)),
        }
        None
    }

    /// Holds a task until it is chosen.
    pub(super) fn hold_task(&self, label: Option<Label<'_>>, task: &Arc<TaskState>) {
        let mut known = self.known.borrow_mut();
        let (pending, identity) = known.pending(label, AwaitKind::Function);
        known.held.push(HeldStep {
            pending,
            identity,
            item: Item::Task(Arc::clone(task)),
        });
    }

    /// Returns the possible answers to a question.
    pub(super) fn answers_to(&self, question: &Interaction) -> Vec<Value> {
        // Cloned, so that the callback runs without a borrow of `choosing`.
        let answers = Rc::clone(&self.choosing.borrow().answers);
        answers(question)
    }

    /// Holds an answer until it is chosen.
    pub(super) fn hold_answer(&self, label: Label<'_>, answer: String, task: &Arc<TaskState>) {
        let mut known = self.known.borrow_mut();
        let (mut pending, identity) = known.pending(Some(label), AwaitKind::Answer);
        pending.answer = Some(answer.into());
        known.held.push(HeldStep {
            pending,
            identity,
            item: Item::Task(Arc::clone(task)),
        });
    }

    /// Holds a timer that was set at `now`.
    pub(super) fn hold_timer(&self, label: Option<Label<'_>>, key: TimerKey, now: Millis, length: Millis) {
        let mut known = self.known.borrow_mut();
        let (pending, identity) = known.pending(label, AwaitKind::Limit);
        let moment = known.moment;
        known.held.push(HeldStep {
            pending,
            identity,
            item: Item::Timer {
                key,
                due: now.saturating_add(length),
                length,
                moment,
            },
        });
    }

    pub(super) fn forget_timer(&self, key: TimerKey) {
        let is_it = |held: &HeldStep| matches!(&held.item, Item::Timer { key: other, .. } if *other == key);
        self.known.borrow_mut().held.retain(|held| !is_it(held));
    }

    /// Returns the next step, once all others have run.
    pub(super) fn next(&self, now: Millis) -> Next {
        let mut known = self.known.borrow_mut();
        let mut choosing = self.choosing.borrow_mut();
        known.held.retain(|held| match &held.item {
            Item::Task(task) => !task.is_ended() && !task.is_aborted(),
            Item::Timer { .. } => true,
        });
        let offered = known.offered(&choosing);
        if offered.is_empty() {
            return Next::Nothing;
        }
        let options: Vec<Pending> = offered.iter().map(|index| known.held[*index].pending.clone()).collect();
        let Some(choice) = choosing.chooser.choose(&options, known.state(now)) else {
            return Next::Stop;
        };
        // An index out of range is a fault of the chooser; the first option keeps the exploration deterministic.
        let index = offered.get(choice).copied().unwrap_or(offered[0]);
        // `swap_remove` would make the order of the options depend on earlier choices.
        let held = known.held.remove(index);
        match held.item {
            Item::Task(task) => {
                known.moment += 1;
                Next::Run(Ready::Task(task), now)
            }
            Item::Timer { key, due, .. } => Next::Run(Ready::Timer(key), due),
        }
    }
}

impl Known {
    fn spawned(&mut self, run: Arc<str>, thread: u32, parent: Option<(u32, u64)>, name: &Arc<str>, is_branch: bool) {
        let from = parent.and_then(|(parent, effect)| Some((self.threads.get(&(Arc::clone(&run), parent))?, effect)));
        let spawned = match from {
            Some((parent, effect)) => Thread {
                path: if parent.path.is_empty() {
                    Arc::clone(name)
                } else {
                    format!("{}/{name}", parent.path).into()
                },
                // A sub-workflow called by a branch is part of the branch.
                is_branch: is_branch || parent.is_branch,
                // Derived from the effect of the parent, because thread numbers depend on the order of starts.
                identity: mix(mix(parent.identity ^ mix(effect)) ^ digest(name)),
                // The thread starts with the state of its parent at this moment.
                heard: parent.heard,
            },
            None => Thread {
                path: if thread == 0 { "".into() } else { Arc::clone(name) },
                is_branch,
                identity: mix(digest(name) ^ u64::from(thread)),
                heard: 0,
            },
        };
        self.threads.insert((run, thread), spawned);
    }

    /// Removes a thread's first step, if it is held.
    fn released(&mut self, thread: &(Arc<str>, u32)) -> Option<Arc<TaskState>> {
        let identity = self.threads.get(thread)?.identity;
        let is_it = |held: &HeldStep| held.pending.what == AwaitKind::Start && held.identity == identity;
        let place = self.held.iter().position(is_it)?;
        match self.held.remove(place).item {
            Item::Task(task) => Some(task),
            // A first step is always a task.
            Item::Timer { .. } => None,
        }
    }

    /// Returns the step of a label, with the identity of its thread. Without a label, returns a step of kind `otherwise` without
    /// a thread.
    fn pending(&self, label: Option<Label<'_>>, otherwise: AwaitKind) -> (Pending, u64) {
        let asks = label.and_then(|label| {
            let thread = self.threads.get(&(Arc::clone(label.run), label.thread))?;
            let pending = Pending {
                thread: Arc::clone(&thread.path),
                is_branch: thread.is_branch,
                node: label.node.into(),
                what: label.awaits,
                answer: None,
            };
            Some((pending, thread.identity))
        });
        asks.unwrap_or_else(|| {
            let pending = Pending {
                thread: "".into(),
                is_branch: false,
                node: "".into(),
                what: otherwise,
                answer: None,
            };
            (pending, 0)
        })
    }

    /// Returns the indexes of the held steps that may be chosen.
    fn offered(&self, choosing: &ChooserOptions) -> Vec<usize> {
        let is_limit = |held: &HeldStep| held.pending.what == AwaitKind::Limit;
        let has_first = |held: &HeldStep, blocks: &dyn Fn(&HeldStep) -> bool| {
            !self.held.iter().any(|other| blocks(other) && is_before(other, held))
        };
        let free =
            |held: &HeldStep| !is_limit(held) && has_first(held, &|other| is_limit(other) || choosing.keeps_time);
        let limit = |held: &HeldStep| is_limit(held) && has_first(held, &|_| true);
        let places = |wanted: &dyn Fn(&HeldStep) -> bool| -> Vec<usize> {
            (0..self.held.len())
                .filter(|place| wanted(&self.held[*place]))
                .collect()
        };
        let mut offered = places(&free);
        if offered.is_empty() || choosing.timeouts {
            offered.extend(places(&limit));
        }
        offered
    }

    /// Hash of the current state.
    fn state(&self, now: Millis) -> u64 {
        let mut parts: Vec<u64> = Vec::new();
        for thread in self.threads.values() {
            parts.push(mix(thread.identity ^ mix(thread.heard)));
        }
        for ((_, name), value) in &self.shared {
            parts.push(mix(digest(name) ^ mix(*value)));
        }
        for held in &self.held {
            let answer = held.pending.answer.as_deref().map_or(0, digest);
            let mut part = mix(held.identity ^ digest(&held.pending.node) ^ (held.pending.what as u64) ^ answer);
            if let Item::Timer {
                due, length, moment, ..
            } = &held.item
            {
                // Work takes any amount of time, so a timer of an earlier moment has no fixed distance from the present.
                let left = if *moment == self.moment {
                    due.saturating_sub(now)
                } else {
                    u64::MAX
                };
                part = mix(part ^ mix(*length) ^ left);
                // The order of timers restricts later choices, so it is part of the state. The sum ignores the order of `held`.
                for other in self.held.iter().filter(|other| is_before(other, held)) {
                    part = part.wrapping_add(mix(other.identity ^ digest(&other.pending.node)));
                }
            }
            parts.push(part);
        }
        // Sorted, because thread numbers and positions depend on the order of starts and are not part of the state.
        parts.sort_unstable();
        // `mix` maps 0 to 0; the addition makes the number of parts count.
        parts
            .into_iter()
            .fold(0, |state, part| mix(state ^ part).wrapping_add(1))
    }
}

/// True if one timer is certain to expire before another.
fn is_before(one: &HeldStep, other: &HeldStep) -> bool {
    match (&one.item, &other.item) {
        (
            Item::Timer {
                key: one_key,
                due: one_due,
                length: one_length,
                moment: one_moment,
            },
            Item::Timer {
                key: other_key,
                due: other_due,
                length: other_length,
                moment: other_moment,
            },
        ) => {
            if one_moment == other_moment {
                one_due < other_due
            } else {
                one_key.sequence < other_key.sequence && one_length <= other_length
            }
        }
        // A task takes any amount of time, so its order with a timer is never certain.
        (Item::Task(_), _) | (_, Item::Task(_)) => false,
    }
}

/// Returns the text without the numbers of the run's threads, which depend on the order of starts.
fn without_thread_numbers(text: &str, run: &str) -> String {
    let mut parts = text.split(run);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest.push_str(part.strip_prefix('.').map_or(part, |number| {
            number.trim_start_matches(|letter: char| letter.is_ascii_digit())
        }));
    }
    rest
}

fn digest(text: &str) -> u64 {
    named_seed(0, text)
}
