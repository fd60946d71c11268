//! Reason that a run waits while nothing in it executes.

use std::collections::{BTreeMap, BTreeSet};

use super::open_effects::{OpenEffects, awaited};
use crate::run::ThreadNo;
use crate::run::data::effect::Effect;
use crate::run::data::message::{Message, ToSupervisor, ToThread};
use crate::run::data::trigger::CallNo;
use crate::thread::{self, EffectId, FiringId, Input};

/// Reason that a run waits. If there are several, the first variant in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// A person's answer.
    Interaction,
    /// An event.
    Event,
    /// A timer.
    Timer,
}

/// Effects without an outcome.
#[derive(Clone, Debug, Default)]
pub struct PendingWaits {
    /// Effects with the reason that each waits; `None` while it executes.
    open: BTreeMap<Place, Option<WaitReason>>,
    /// Firings whose runs have left the process without an end.
    left: BTreeSet<FiringId>,
    /// True if the run has requested `TriggersQuiet`.
    quiesces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Session,
    Begin(ThreadNo),
    Thread(ThreadNo, EffectId),
    Firing(FiringId),
    TriggerCall(CallNo),
}

impl PendingWaits {
    /// Creates the waits of a resumed run.
    pub fn of(open: &OpenEffects) -> Self {
        let mut waits = Self {
            quiesces: open.quiesces,
            ..Self::default()
        };
        // Timers of the run (`open.timers`) are time limits, not reasons to wait.
        for ((thread, effect), (_, wanted)) in &open.threads {
            waits.open(Place::Thread(*thread, *effect), awaited_by(wanted));
        }
        // `None`, here and below: the host is still working on these, so the run must not be parked.
        let awaits = open.awaits_triggers.iter();
        let awaits = awaits.map(|(thread, effect)| Place::Thread(*thread, *effect));
        let begins = open.begins.iter().map(|thread| Place::Begin(*thread));
        let runs = open.runs.keys().map(|firing| Place::Firing(*firing));
        let calls = open.calls.keys().map(|call| Place::TriggerCall(*call));
        let session = open.awaits_session.then_some(Place::Session);
        for place in awaits.chain(begins).chain(runs).chain(calls).chain(session) {
            waits.open(place, None);
        }
        waits
    }

    /// Returns the reason that the run waits; `None` if an effect executes or none is open.
    pub fn waits_for(&self) -> Option<WaitReason> {
        let mut first = None;
        for awaited in self.open.values() {
            // One effect that executes is enough: the run does not wait.
            let awaited = (*awaited)?;
            first = Some(first.map_or(awaited, |first: WaitReason| first.min(awaited)));
        }
        first
    }

    /// Returns true if the run waits only for runs that it has started and that have left the process.
    pub fn is_only_for_left_runs(&self) -> bool {
        self.open.is_empty() && !self.left.is_empty() && !self.quiesces
    }

    /// Returns true if the run waits only for its turn in its session.
    pub fn is_only_for_session(&self) -> bool {
        self.open.len() == 1 && self.open.contains_key(&Place::Session)
    }

    /// Updates the waits with an effect of the run.
    pub fn did(&mut self, effect: &Effect) {
        match effect {
            Effect::Begin { thread } => self.open(Place::Begin(*thread), None),
            Effect::AwaitSession => self.open(Place::Session, None),
            Effect::Thread { thread, effect } => {
                if let Some(id) = awaited(effect) {
                    self.open(Place::Thread(*thread, id), awaited_by(effect));
                }
            }
            Effect::AwaitTriggers { thread, effect } => self.open(Place::Thread(*thread, *effect), None),
            Effect::StartRun(start) => self.open(Place::Firing(start.firing), None),
            Effect::CallTrigger { call, .. } => self.open(Place::TriggerCall(*call), None),
            Effect::Drop { thread, effect } => self.close(Place::Thread(*thread, *effect)),
            // A thread that panicked has dropped none of its effects.
            Effect::ThreadEnded { thread } => self.open.retain(|place, _| match place {
                Place::Begin(of) | Place::Thread(of, _) => of != thread,
                Place::Session | Place::Firing(_) | Place::TriggerCall(_) => true,
            }),
            Effect::QuiesceTriggers => self.quiesces = true,
            // Without an outcome, or, as time limits, no work of a thread.
            Effect::LeaveSession(_)
            | Effect::Emit { .. }
            | Effect::EmitAll { .. }
            | Effect::SetTimer { .. }
            | Effect::StopTimer { .. }
            | Effect::Report(_)
            | Effect::Settled => {}
        }
    }

    /// Updates the waits with an input of the run.
    pub fn received(&mut self, message: &Message) {
        match message {
            Message::Thread(thread, ToThread::Input(Input::Answer { effect, .. })) => {
                self.close(Place::Thread(*thread, *effect));
            }
            Message::Thread(thread, ToThread::Input(Input::Start)) => self.close(Place::Begin(*thread)),
            Message::Supervisor(ToSupervisor::DetachedEnded { firing, .. }) => {
                self.close(Place::Firing(*firing));
                self.left.remove(firing);
            }
            Message::Supervisor(ToSupervisor::TriggersQuiet) => self.quiesces = false,
            Message::Supervisor(ToSupervisor::TriggerCalled { call, .. }) => self.close(Place::TriggerCall(*call)),
            Message::Supervisor(ToSupervisor::Session(_)) => self.close(Place::Session),
            // Other inputs are no answers to these effects.
            Message::Supervisor(_) | Message::Thread(..) | Message::Conversation(..) => {}
        }
    }

    /// Notes that a run that this run has started has left the process without an end: it does not execute here.
    pub fn started_run_left(&mut self, firing: FiringId) {
        self.close(Place::Firing(firing));
        self.left.insert(firing);
    }

    fn open(&mut self, place: Place, awaited: Option<WaitReason>) {
        self.open.insert(place, awaited);
    }

    fn close(&mut self, place: Place) {
        self.open.remove(&place);
    }
}

fn awaited_by(effect: &thread::Effect) -> Option<WaitReason> {
    match effect {
        thread::Effect::Ask { .. } => Some(WaitReason::Interaction),
        thread::Effect::WaitEvent { .. } => Some(WaitReason::Event),
        thread::Effect::Timer { .. } => Some(WaitReason::Timer),
        // Includes effects that are added later: a run that wrongly counts as busy is only parked later.
        _ => None,
    }
}
