//! Effects without an outcome. They are performed again if the process terminates before their outcomes arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_definition::Millis;

use super::record::ReplayStep;
use crate::run::ThreadNo;
use crate::run::data::effect::{DetachedStart, Effect};
use crate::run::data::message::{Message, Timer, ToSupervisor, ToThread};
use crate::run::data::report::RunReport;
use crate::run::data::session::SessionLeft;
use crate::run::data::trigger::{CallNo, TriggerCall};
use crate::thread::{self, EffectId, FiringId, Input};

/// The effects of a run that have no outcome yet.
#[derive(Clone, Debug, Default)]
pub struct OpenEffects {
    /// Effects of threads, each with the time of its request.
    pub threads: BTreeMap<(ThreadNo, EffectId), (Millis, thread::Effect)>,
    /// Timers with their deadlines.
    pub timers: BTreeMap<Timer, Millis>,
    /// Runs that triggers started.
    pub runs: BTreeMap<FiringId, DetachedStart>,
    /// Calls of triggers.
    pub calls: BTreeMap<CallNo, Arc<TriggerCall>>,
    /// Threads that wait for the firings that hold them, with the awaited effect.
    pub awaits_triggers: BTreeSet<(ThreadNo, EffectId)>,
    /// Threads that wait for their first step, if the host picks the order.
    pub begins: BTreeSet<ThreadNo>,
    /// True if the run waits for its turn in its session.
    pub awaits_session: bool,
    /// Update of the session, if the run has ended its turn.
    pub left: Option<Option<Box<SessionLeft>>>,
    /// True if the run requested [`crate::run::ToSupervisor::TriggersQuiet`].
    pub quiesces: bool,
    /// Number of events that the run has raised.
    pub events: u64,
    /// Outcome, if there is one.
    pub report: Option<Arc<RunReport>>,
    /// True if the run has settled.
    pub is_settled: bool,
}

impl OpenEffects {
    /// Applies one element of a replay.
    pub fn saw(&mut self, replayed: &ReplayStep<'_>) {
        match replayed {
            ReplayStep::Input(input) => self.received(&input.message),
            // The time of the step fixes the deadlines of its timers.
            ReplayStep::Effects(at, effects) => effects.iter().for_each(|effect| self.did(*at, effect)),
        }
    }

    /// Returns the effects to perform again at this time. The deadlines of timers do not move.
    pub fn effects(&self, now: Millis) -> Vec<Effect> {
        let timers = self.timers.iter().map(|(timer, due)| Effect::SetTimer {
            timer: *timer,
            after_ms: due.saturating_sub(now),
        });
        let begins = self.begins.iter().map(|thread| Effect::Begin { thread: *thread });
        let threads = self.threads.iter().map(|((thread, _), (since, effect))| {
            let mut effect = effect.clone();
            // The delay counts from the request, not from the recovery.
            if let thread::Effect::Timer { after_ms, .. } = &mut effect {
                *after_ms = since.saturating_add(*after_ms).saturating_sub(now);
            }
            Effect::Thread {
                thread: *thread,
                effect,
            }
        });
        let awaits = self
            .awaits_triggers
            .iter()
            .map(|(thread, effect)| Effect::AwaitTriggers {
                thread: *thread,
                effect: *effect,
            });
        let runs = self
            .runs
            .values()
            .map(|start| Effect::StartRun(Box::new(start.clone())));
        let calls = self.calls.iter().map(|(call, what)| Effect::CallTrigger {
            call: *call,
            what: Arc::clone(what),
        });
        let quiesces = self.quiesces.then_some(Effect::QuiesceTriggers);
        let awaits_session = self.awaits_session.then_some(Effect::AwaitSession);
        let left = self.left.iter().cloned().map(Effect::LeaveSession);
        let report = self.report.iter().map(|report| Effect::Report(Arc::clone(report)));
        let settled = self.is_settled.then_some(Effect::Settled);
        // The update of the session precedes the outcome, and no effect follows `Settled`.
        let run = quiesces.into_iter().chain(left).chain(report).chain(settled);
        // First, as in the first execution: the main thread takes no step before its turn.
        awaits_session
            .into_iter()
            .chain(timers)
            .chain(begins)
            .chain(threads)
            .chain(awaits)
            .chain(runs)
            .chain(calls)
            .chain(run)
            .collect()
    }

    fn did(&mut self, at: Millis, effect: &Effect) {
        match effect {
            Effect::Begin { thread } => {
                self.begins.insert(*thread);
            }
            Effect::Thread { thread, effect } => {
                if let Some(id) = awaited(effect) {
                    self.threads.insert((*thread, id), (at, effect.clone()));
                }
            }
            Effect::Drop { thread, effect } => self.remove_effect(*thread, *effect),
            Effect::AwaitTriggers { thread, effect } => {
                self.awaits_triggers.insert((*thread, *effect));
            }
            Effect::ThreadEnded { thread } => {
                // A thread that panicked has dropped none of its effects. Its end cancels all of them.
                self.threads.retain(|(of, _), _| of != thread);
                self.awaits_triggers.retain(|(of, _)| of != thread);
                self.begins.remove(thread);
            }
            // Only counted: a recovery does not publish these events again.
            Effect::Emit { .. } => self.events += 1,
            Effect::EmitAll { events, .. } => self.events += events.len() as u64,
            Effect::SetTimer { timer, after_ms } => {
                self.timers.insert(*timer, at.saturating_add(*after_ms));
            }
            Effect::StopTimer { timer } => {
                self.timers.remove(timer);
            }
            Effect::StartRun(start) => {
                self.runs.insert(start.firing, (**start).clone());
            }
            Effect::CallTrigger { call, what } => {
                self.calls.insert(*call, Arc::clone(what));
            }
            Effect::QuiesceTriggers => self.quiesces = true,
            Effect::AwaitSession => self.awaits_session = true,
            Effect::LeaveSession(left) => self.left = Some(left.clone()),
            Effect::Report(report) => self.report = Some(Arc::clone(report)),
            Effect::Settled => self.is_settled = true,
        }
    }

    fn received(&mut self, message: &Message) {
        match message {
            Message::Thread(thread, ToThread::Input(Input::Answer { effect, .. })) => {
                self.remove_effect(*thread, *effect);
            }
            // The host answers `Begin` with this input.
            Message::Thread(thread, ToThread::Input(Input::Start)) => {
                self.begins.remove(thread);
            }
            Message::Supervisor(ToSupervisor::Elapsed(timer)) => {
                self.timers.remove(timer);
            }
            Message::Supervisor(ToSupervisor::DetachedEnded { firing, .. }) => {
                self.runs.remove(firing);
            }
            Message::Supervisor(ToSupervisor::TriggerCalled { call, .. }) => {
                self.calls.remove(call);
            }
            Message::Supervisor(ToSupervisor::TriggersQuiet) => self.quiesces = false,
            Message::Supervisor(ToSupervisor::Session(_)) => self.awaits_session = false,
            // Other inputs are no answers to effects.
            Message::Supervisor(_) | Message::Thread(..) | Message::Conversation(..) => {}
        }
    }

    fn remove_effect(&mut self, thread: ThreadNo, effect: EffectId) {
        // The ids of a thread's effects are unique, so the effect is in at most one of the two.
        self.threads.remove(&(thread, effect));
        self.awaits_triggers.remove(&(thread, effect));
    }
}

/// Returns the id of an effect whose outcome is awaited; `None` for one that is not performed outside.
pub(in crate::run) fn awaited(effect: &thread::Effect) -> Option<EffectId> {
    match effect {
        thread::Effect::Function { id, .. }
        | thread::Effect::Script { id, .. }
        | thread::Effect::ScriptStep { id, .. }
        | thread::Effect::Model { id, .. }
        | thread::Effect::Tool { id, .. }
        | thread::Effect::Ask { id, .. }
        | thread::Effect::Evaluate { id, .. }
        | thread::Effect::Timer { id, .. }
        | thread::Effect::WaitEvent { id, .. } => Some(*id),
        thread::Effect::Conversation { .. }
        | thread::Effect::Fork { .. }
        | thread::Effect::Map { .. }
        | thread::Effect::Child { .. }
        | thread::Effect::SetGlobal { .. }
        | thread::Effect::Pin { .. }
        | thread::Effect::Emit(_)
        | thread::Effect::RaiseAndAwaitTriggers { .. }
        | thread::Effect::Applied { .. }
        | thread::Effect::Drop { .. }
        | thread::Effect::Ended(_) => None,
    }
}
