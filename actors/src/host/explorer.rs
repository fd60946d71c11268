//! Choosing what happens next.
//!
//! 1. What waits for the world outside the actors (a model, a tool, a function, a script, a text that is not evaluated
//!    inline, a person's answer, a timer, the first step of a branch) is held; of a question each answer that it may get.
//!    Everything else runs first come, first served, until nothing is left but what is held; then the chooser picks one of it.
//! 2. Work takes any time at all. A WAIT and the pause before a retry do too, but for this: a time limit that is sure
//!    to pass before them passes before them. Of two timers one is sure to pass first if it was set at the same moment
//!    for a shorter time, or set before and for no longer a time. [`Choosing::keeps_time`] holds WAITs to that among
//!    themselves too.
//! 3. A time limit passes when nothing else can happen, unless [`Choosing::timeouts`] makes it a choice like any other.
//! 4. A state is what every thread has heard, in its order, what all of them see, and what is held. From equal states
//!    the same can happen, whatever the order was that led there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::Millis;
use pirn_core::thread::Interaction;
use serde_json::Value;

use super::virtual_clock::{Ready, TaskState};
use crate::host::chance::{mix, named_seed};
use crate::host::observation::{AwaitKind, Label, Observation};
use crate::host::timers::TimerKey;

/// Picks what happens next.
pub trait Chooser {
    /// The index of one of `options`, which has one at least; none stops the host there. `state` is equal for equal
    /// states (with the odds of 64 bits).
    fn choose(&mut self, options: &[Pending], state: u64) -> Option<usize>;
}

/// Says which answers a question may get.
pub type PossibleAnswers = Rc<dyn Fn(&Interaction) -> Vec<Value>>;

/// A chooser, and what it may choose.
pub struct Choosing {
    /// The chooser.
    pub chooser: Box<dyn Chooser>,
    /// True if time limits may pass while something else could still happen.
    pub timeouts: bool,
    /// True if WAITs end in the order of their lengths.
    pub keeps_time: bool,
    /// The answers that a question may get.
    pub answers: PossibleAnswers,
}

/// Something that may happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The thread's way from the main one, by path ids: `a`, `a/left`; empty for the main thread.
    pub thread: Arc<str>,
    /// True if it happens in a fork's branch.
    pub is_branch: bool,
    /// The node; empty for a thread's first step.
    pub node: Arc<str>,
    /// Its kind.
    pub what: AwaitKind,
    /// Of an answer, the answer, as JSON.
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

/// The things that are held, and what is known of who asked for them.
pub(super) struct Choices {
    choosing: RefCell<Choosing>,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    threads: BTreeMap<(Arc<str>, u32), Thread>,
    shared: BTreeMap<(Arc<str>, String), u64>,
    held: Vec<Held>,
    /// Rises when something ends that takes any time: what is set later is set at an unknown distance.
    moment: u64,
}

struct Thread {
    path: Arc<str>,
    is_branch: bool,
    /// Tells it from every other thread of its run, in every order.
    identity: u64,
    heard: u64,
}

struct Held {
    pending: Pending,
    /// The identity of its thread, the same in every order.
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

/// The chooser's answer.
pub(super) enum Next {
    /// This happens, at this time at the earliest.
    Run(Ready, Millis),
    /// Nothing is held.
    Nothing,
    /// The chooser wants no more.
    Stop,
}

impl Choices {
    pub(super) fn new(choosing: Choosing) -> Self {
        Self {
            choosing: RefCell::new(choosing),
            known: RefCell::new(Known::default()),
        }
    }

    /// Takes note. What is no longer held by it is returned, to be woken.
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
                let heard = digest(&without_thread_numbers(&text, &run));
                if let Some(thread) = known.threads.get_mut(&(run, thread)) {
                    thread.heard = mix(thread.heard ^ heard);
                }
            }
            Observation::Shared { run, name, text } => {
                let text = digest(&without_thread_numbers(&text, &run));
                known.shared.insert((run, name), text);
            }
            Observation::Ended { run, thread } => return known.released(&(run, thread)),
        }
        None
    }

    /// Holds a task until it is chosen.
    pub(super) fn hold_task(&self, label: Option<Label<'_>>, task: &Arc<TaskState>) {
        let mut known = self.known.borrow_mut();
        let (pending, identity) = known.pending(label, AwaitKind::Function);
        known.held.push(Held {
            pending,
            identity,
            item: Item::Task(Arc::clone(task)),
        });
    }

    /// The answers that a question may get.
    pub(super) fn answers_to(&self, question: &Interaction) -> Vec<Value> {
        let answers = Rc::clone(&self.choosing.borrow().answers);
        answers(question)
    }

    /// Holds an answer until it is chosen.
    pub(super) fn hold_answer(&self, label: Label<'_>, answer: String, task: &Arc<TaskState>) {
        let mut known = self.known.borrow_mut();
        let (mut pending, identity) = known.pending(Some(label), AwaitKind::Answer);
        pending.answer = Some(answer.into());
        known.held.push(Held {
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
        known.held.push(Held {
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
        let is_it = |held: &Held| matches!(&held.item, Item::Timer { key: other, .. } if *other == key);
        self.known.borrow_mut().held.retain(|held| !is_it(held));
    }

    /// Nothing happens by itself any more: what does?
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
        let index = offered.get(choice).copied().unwrap_or(offered[0]);
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
                is_branch: is_branch || parent.is_branch,
                identity: mix(mix(parent.identity ^ mix(effect)) ^ digest(name)),
                // What it starts with is what its parent has by now.
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

    /// The first step of a thread, where it is held.
    fn released(&mut self, thread: &(Arc<str>, u32)) -> Option<Arc<TaskState>> {
        let identity = self.threads.get(thread)?.identity;
        let is_it = |held: &Held| held.pending.what == AwaitKind::Start && held.identity == identity;
        let place = self.held.iter().position(is_it)?;
        match self.held.remove(place).item {
            Item::Task(task) => Some(task),
            Item::Timer { .. } => None,
        }
    }

    /// The choice that a label names, and the identity of its thread. Without a label it is one of this kind, of nobody.
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

    /// The things that may be chosen, by their places among what is held.
    fn offered(&self, choosing: &Choosing) -> Vec<usize> {
        let is_limit = |held: &Held| held.pending.what == AwaitKind::Limit;
        let has_first = |held: &Held, blocks: &dyn Fn(&Held) -> bool| {
            !self.held.iter().any(|other| blocks(other) && is_before(other, held))
        };
        let free = |held: &Held| !is_limit(held) && has_first(held, &|other| is_limit(other) || choosing.keeps_time);
        let limit = |held: &Held| is_limit(held) && has_first(held, &|_| true);
        let places = |wanted: &dyn Fn(&Held) -> bool| -> Vec<usize> {
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

    /// Equal for equal states.
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
                let left = if *moment == self.moment {
                    due.saturating_sub(now)
                } else {
                    u64::MAX
                };
                part = mix(part ^ mix(*length) ^ left);
                for other in self.held.iter().filter(|other| is_before(other, held)) {
                    part = part.wrapping_add(mix(other.identity ^ digest(&other.pending.node)));
                }
            }
            parts.push(part);
        }
        // Numbers and places depend on the order; what they stand for does not.
        parts.sort_unstable();
        parts
            .into_iter()
            .fold(0, |state, part| mix(state ^ part).wrapping_add(1))
    }
}

/// True if one timer is sure to pass before another.
fn is_before(one: &Held, other: &Held) -> bool {
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
        (Item::Task(_), _) | (_, Item::Task(_)) => false,
    }
}

/// The text with the numbers of the run's threads left out: they follow the order of starting, and mean no more.
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
