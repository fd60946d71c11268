//! The messages of an arbiter's event bus, and the shared record of which event types have listeners.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Weak;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use foldhash::fast::FixedState;
use pirn_core::run::TriggerProgress;
use pirn_core::thread::Outcome;
use pirn_definition::definition::TriggerDefinition;
use pirn_events::event::{Event, EventMask, RaisedEvent, TakenEvents, WaitNo};

use super::events::Deliver;
use super::mailbox::{PutOff, Sender};
use super::supervisor::{SupervisorHandle, SupervisorMsg};
use crate::answer::Answer;

/// A handle to the event bus of an arbiter.
pub(crate) type BusSender = Sender<BusMsg>;

/// A map keyed by run id. Its iteration order must not affect behaviour.
pub(crate) type ByRun<T> = HashMap<Arc<str>, T, FixedState>;

/// A message to the event bus.
pub(crate) enum BusMsg {
    Raise {
        /// A consequence of an earlier event of the run. Discarded if the run is closed already.
        follows: bool,
        /// Position among the run's events. None: the next free one.
        sequence: Option<u64>,
        source: Source,
        raised: RaisedEvent,
    },
    /// A batch of external events, in order.
    RaiseAll {
        /// Sequence of the first event, as for [`Self::Raise`].
        first: Option<u64>,
        source: Source,
        raised: Vec<RaisedEvent>,
    },
    /// Answered when the triggers of all events raised so far have acted, because the run then has the firings that hold the
    /// thread.
    Settle {
        run_id: Arc<str>,
        answer: Answer<Outcome>,
    },
    /// A run continues after an earlier process stopped executing it.
    Resumed(Box<ResumedEvents>),
    /// A piece of a model's reply. Delivery is best effort, so it shares the sequence of the event before it.
    Token {
        source: Source,
        raised: RaisedEvent,
    },
    /// Retains CUSTOM events of these names from now on, for a WAIT node that starts later.
    Keep {
        run_id: Arc<str>,
        words: Vec<Arc<str>>,
    },
    Wait {
        run_id: Arc<str>,
        waiter: WaitNo,
        event: Arc<str>,
        /// CUSTOM events that the thread has consumed already.
        taken: TakenEvents,
        answer: Answer<Outcome>,
    },
    WaitEnded {
        run_id: Arc<str>,
        waiter: WaitNo,
    },
    /// Sent only by [`ArbiterSubscriptions::subscribe`], which updates the interest first.
    Subscribe(Subscriber),
    /// Answered when the triggers of the run's events have acted, and those of the events they raised, for at most `rounds`
    /// further rounds.
    Quiesce {
        run_id: Arc<str>,
        rounds: u32,
        answer: Answer<()>,
    },
    /// The run raises no more events. Events of its triggers still precede [`Self::Close`].
    RunEnded(EndedRun),
    /// The triggers of an ended run are quiet, so its subscribers have received everything.
    Close(EndedRun),
    /// The matcher has handled every earlier message.
    Quiesced(Quiesce),
    /// Handles all earlier messages and their consequences, stops the matcher and the bus, then answers.
    Stop(Answer<()>),
    /// The matcher has stopped.
    MatcherStopped(Answer<()>),
    /// The matcher stopped or panicked, and will answer nothing.
    MatcherGone,
}

/// A run that has ended. Distinguishes it from a later run with the same id.
#[derive(Clone)]
pub(crate) struct EndedRun {
    pub(crate) run_id: Arc<str>,
    /// Interest of the run's private subscribers; `None` if it never had any.
    pub(crate) interest: Option<Arc<RunInterest>>,
}

/// The runs of one id that the bus tracks: an ended run and its successor may overlap.
#[derive(Default)]
struct RunGenerations {
    /// Number of tracked runs.
    known: u32,
    /// Number of tracked runs that have ended.
    ended: u32,
    /// The run that was tracked last.
    last: Option<Arc<SupervisorHandle>>,
    /// `None` for almost every run. Boxed, because each waiting run has an entry.
    successors: Option<Box<Successors>>,
}

/// Runs of one id that start once the bus has handled the ends of their predecessors.
#[derive(Default)]
struct Successors(Vec<Arc<SupervisorHandle>>);

/// The events that a run had raised in earlier processes.
pub(crate) struct ResumedEvents {
    pub(crate) run_id: Arc<str>,
    /// Number of events.
    pub(crate) sequence: u64,
    /// The last of them: all events that a reconnecting subscriber can request.
    pub(crate) events: Vec<Arc<Event>>,
    /// The trigger matcher's actions on them.
    pub(crate) triggers: TriggerProgress,
}

/// A round trip through the matcher that detects whether a run's triggers are quiet.
pub(crate) struct Quiesce {
    pub(crate) run_id: Arc<str>,
    /// Last sequence of the run at the start of the round.
    pub(crate) sequence: u64,
    /// Number of rounds that may follow.
    pub(crate) rounds: u32,
    /// Answered when the triggers are quiet; dropped if the matcher is gone.
    pub(crate) answer: Answer<()>,
}

/// Origin and time of an event.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) run_id: Arc<str>,
    pub(crate) workflow_id: Arc<str>,
    pub(crate) thread_id: Arc<str>,
    pub(crate) timestamp: u64,
}

impl Source {
    pub(crate) fn event(self, sequence: u64, raised: RaisedEvent) -> Event {
        Event {
            sequence,
            timestamp: self.timestamp,
            run_id: self.run_id,
            workflow_id: self.workflow_id,
            thread_id: self.thread_id,
            raised,
        }
    }
}

/// The run of a private subscriber.
#[derive(Clone)]
pub(crate) struct OfRun {
    pub(crate) run_id: Arc<str>,
    pub(crate) interest: Arc<RunInterest>,
}

/// A subscriber to the events of an arbiter, or of one run there.
pub(crate) struct Subscriber {
    /// Run whose events are delivered; `None` for every run of the arbiter.
    pub(crate) of_run: Option<OfRun>,
    pub(crate) mask: EventMask,
    /// Sequence number after which events are delivered.
    pub(crate) after: u64,
    pub(crate) deliver: Box<dyn Deliver>,
}

/// A limit for a run's triggers. The matcher applies it before the next event, ahead of all queued messages.
pub(crate) enum TriggerLimit {
    /// Maximum number of firings on events that triggers caused.
    AtMost(u64),
    /// The run is waiting for its triggers to finish: from now on they may cause only a bounded number of further firings.
    Ending,
}

/// The event types that a run's private subscribers listen to. The bus writes it and the run reads it before building an event;
/// both are on one thread, so relaxed ordering suffices.
#[derive(Debug, Default)]
pub(crate) struct RunInterest {
    /// The bits of an [`EventMask`].
    // Atomic only because messages that contain the interest must be `Send`.
    subscribers: AtomicU64,
    /// Subscribers whose message has not reached the bus yet.
    coming: AtomicU32,
}

impl RunInterest {
    pub(crate) fn mask(&self) -> EventMask {
        EventMask::from_bits(self.subscribers.load(Ordering::Relaxed))
    }

    /// Counts a subscriber whose message is about to be sent to the bus.
    fn comes(&self, mask: EventMask) {
        // From here until the bus has the subscriber, `left` does not narrow the mask.
        self.coming.fetch_add(1, Ordering::Relaxed);
        self.subscribers.fetch_or(mask.bits(), Ordering::Relaxed);
    }

    /// The bus has added a subscriber; `all` is the union of its masks for the run.
    pub(crate) fn subscribed(&self, all: EventMask) {
        self.coming.fetch_sub(1, Ordering::Relaxed);
        self.left(all);
    }

    /// A subscriber was removed; `all` is the union of the remaining masks.
    pub(crate) fn left(&self, all: EventMask) {
        // While a subscriber is on its way to the bus, the mask may only grow: `all` does not include it yet.
        if self.coming.load(Ordering::Relaxed) == 0 {
            self.subscribers.store(all.bits(), Ordering::Relaxed);
        }
    }
}

/// The event types with subscribers to all runs or with triggers, and the limits and waits of runs that concern their triggers.
/// Runs read it before building an event, so that events without listeners cost nothing.
pub(crate) struct ArbiterSubscriptions {
    /// Types of the subscribers that the bus has.
    subscribers: Cell<EventMask>,
    /// Number and types of the subscribers whose message has not reached the bus yet.
    coming: Cell<(u32, EventMask)>,
    triggers: Cell<EventMask>,
    holding: Cell<EventMask>,
    lives: RefCell<ByRun<RunGenerations>>,
    /// Runs with too many events waiting for a trigger's text, each with the turns that it postponed.
    behind: RefCell<ByRun<Vec<Weak<dyn PutOff>>>>,
    /// Limits in the order of the calls, until the matcher takes them.
    trigger_limits: RefCell<Vec<(Arc<str>, TriggerLimit)>>,
    /// Own triggers of runs, until the matcher takes them.
    own_triggers: RefCell<Vec<(Arc<str>, WorkflowTriggers)>>,
}

/// The triggers of workflows that watch events.
pub(crate) type WorkflowTriggers = Vec<(Arc<str>, Vec<Arc<TriggerDefinition>>)>;

impl ArbiterSubscriptions {
    pub(crate) fn new() -> Self {
        Self {
            subscribers: Cell::new(EventMask::NONE),
            coming: Cell::new((0, EventMask::NONE)),
            triggers: Cell::new(EventMask::NONE),
            holding: Cell::new(EventMask::NONE),
            lives: RefCell::default(),
            behind: RefCell::default(),
            trigger_limits: RefCell::default(),
            own_triggers: RefCell::default(),
        }
    }

    /// Blocks the run's turns until the matcher has worked off the events that wait for a trigger's text.
    pub(crate) fn falls_behind(&self, run_id: &Arc<str>) {
        // An empty list is enough to block the run.
        self.behind.borrow_mut().entry(Arc::clone(run_id)).or_default();
    }

    /// True if the run's turns are blocked. The turn is then queued, and granted by [`Self::caught_up`].
    pub(crate) fn holds_turn(&self, run_id: &Arc<str>, run: impl FnOnce() -> Option<Weak<dyn PutOff>>) -> bool {
        // Called for each turn of each run. The list is empty unless triggers raise events faster than the bus processes them.
        !self.behind.borrow().is_empty() && self.queue_turn(run_id, run)
    }

    #[cold]
    fn queue_turn(&self, run_id: &Arc<str>, run: impl FnOnce() -> Option<Weak<dyn PutOff>>) -> bool {
        let mut behind = self.behind.borrow_mut();
        let Some(waiting) = behind.get_mut(run_id) else {
            return false;
        };
        // `run` returns none if the turn is in the list already.
        waiting.extend(run());
        true
    }

    /// Unblocks a run. Returns its postponed turns.
    pub(crate) fn caught_up(&self, run_id: &Arc<str>) -> Vec<Weak<dyn PutOff>> {
        self.behind.borrow_mut().remove(run_id).unwrap_or_default()
    }

    /// Unblocks every run, because the matcher is gone.
    pub(crate) fn all_caught_up(&self) -> Vec<Weak<dyn PutOff>> {
        self.behind.take().into_values().flatten().collect()
    }

    /// Counts a run of which the bus is about to receive its first message.
    pub(crate) fn opens(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>) {
        let mut all = self.lives.borrow_mut();
        let lives = all.entry(Arc::clone(run_id)).or_default();
        lives.known += 1;
        lives.last = Some(Arc::clone(run));
    }

    /// Returns the run of this id whose events the bus and the matcher of this arbiter receive; `None` after it has left its engine.
    pub(crate) fn run(&self, run_id: &Arc<str>) -> Option<Arc<SupervisorHandle>> {
        // Not found by its id in the engine: that may be a later run, which was resumed on this or another arbiter and matches the
        // events of its journal itself.
        let lives = self.lives.borrow();
        lives.get(run_id)?.last.clone().filter(|run| !run.has_left())
    }

    /// Counts a run of which the bus is about to receive the end.
    pub(crate) fn ends(&self, run_id: &Arc<str>) {
        if let Some(lives) = self.lives.borrow_mut().get_mut(run_id) {
            // The entry stays until `closed`, so that a run with this id waits for it.
            lives.ended += 1;
        }
    }

    /// True if the bus has yet to handle the end of an earlier run with this id. [`SupervisorMsg::Begin`] is then sent later.
    pub(crate) fn holds_start(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>) -> bool {
        match self.lives.borrow_mut().get_mut(run_id) {
            Some(lives) if lives.ended > 0 => {
                lives.successors.get_or_insert_default().0.push(Arc::clone(run));
                true
            }
            Some(_) | None => false,
        }
    }

    /// True if every tracked run of this id has ended.
    pub(crate) fn have_all_ended(&self, run_id: &Arc<str>) -> bool {
        self.lives
            .borrow()
            .get(run_id)
            .is_none_or(|lives| lives.ended >= lives.known)
    }

    /// Removes a run whose end the bus has handled. Returns true if no other run of this id is tracked.
    pub(crate) fn closed(&self, run_id: &Arc<str>) -> bool {
        let mut all = self.lives.borrow_mut();
        let Some(lives) = all.get_mut(run_id) else { return true };
        // No underflow: `opens` and `ends` have counted each run that is closed.
        lives.known -= 1;
        lives.ended -= 1;
        // A start earlier would lose its waits and subscribers, which the bus removes by id.
        if lives.ended == 0 {
            for run in lives.successors.take().into_iter().flat_map(|successors| successors.0) {
                run.do_send(SupervisorMsg::Begin);
            }
        }
        let is_last = lives.known == 0;
        if is_last {
            all.remove(run_id);
        }
        is_last
    }

    /// Limits the triggers of a run. The caller must later report the run's end to the bus, which removes the limit.
    pub(crate) fn limit_triggers(&self, run_id: &Arc<str>, limit: TriggerLimit) {
        self.trigger_limits.borrow_mut().push((Arc::clone(run_id), limit));
    }

    /// Removes and returns the limits set since the last call.
    pub(crate) fn take_trigger_limits(&self) -> Vec<(Arc<str>, TriggerLimit)> {
        std::mem::take(&mut *self.trigger_limits.borrow_mut())
    }

    /// Sets the own triggers of a run, see [`pirn_events::trigger::TriggerMachine::set_own`]. The caller must later report the run's end
    /// to the bus, which removes them.
    pub(crate) fn own_triggers(&self, run_id: &Arc<str>, workflows: WorkflowTriggers) {
        // Extended before the matcher has the triggers: otherwise the run's next events would not be built.
        for trigger in workflows.iter().flat_map(|(_, triggers)| triggers) {
            for watched in trigger.watches() {
                let mask = EventMask::of(watched);
                let holding = if trigger.holds_the_thread(watched) {
                    mask
                } else {
                    EventMask::NONE
                };
                self.set_triggers(self.triggers.get().union(mask), self.holding.get().union(holding));
            }
        }
        self.own_triggers.borrow_mut().push((Arc::clone(run_id), workflows));
    }

    /// Removes and returns the own triggers set since the last call.
    pub(crate) fn take_own_triggers(&self) -> Vec<(Arc<str>, WorkflowTriggers)> {
        std::mem::take(&mut *self.own_triggers.borrow_mut())
    }

    /// Types with a subscriber to all runs, or with a trigger.
    pub(crate) fn listening(&self) -> EventMask {
        // A subscriber that the bus does not have yet receives events too, if they are raised after `subscribe`.
        let subscribers = self.subscribers.get().union(self.coming.get().1);
        subscribers.union(self.triggers.get())
    }

    /// Types watched by triggers that hold the thread.
    pub(crate) fn holding(&self) -> EventMask {
        self.holding.get()
    }

    /// Types watched by triggers.
    pub(crate) fn triggers(&self) -> EventMask {
        self.triggers.get()
    }

    pub(crate) fn set_triggers(&self, watched: EventMask, holding: EventMask) {
        self.triggers.set(watched);
        self.holding.set(holding);
    }

    /// Registers a subscriber with the bus. It receives every event raised after this call.
    pub(crate) fn subscribe(&self, bus: &BusSender, subscriber: Subscriber) {
        // The mask is extended before the message is sent: otherwise events raised in between would not be built.
        if let Some(of_run) = &subscriber.of_run {
            of_run.interest.comes(subscriber.mask);
        } else {
            let (count, mask) = self.coming.get();
            self.coming.set((count + 1, mask.union(subscriber.mask)));
        }
        bus.do_send(BusMsg::Subscribe(subscriber));
    }

    /// The bus has added a subscriber to all runs.
    pub(crate) fn subscribed(&self) {
        let (count, mask) = self.coming.get();
        let left = count.saturating_sub(1);
        // With none left on the way, the bus's own mask contains all types.
        self.coming.set((left, if left == 0 { EventMask::NONE } else { mask }));
    }

    pub(crate) fn set_subscribers(&self, mask: EventMask) {
        self.subscribers.set(mask);
    }
}

/// A thread's wait for an event. Dropping it ends the wait.
pub(crate) struct WaitHandle {
    bus: BusSender,
    run_id: Arc<str>,
    waiter: WaitNo,
    is_over: bool,
}

impl WaitHandle {
    /// Starts a wait; `answer` receives the event.
    pub(crate) fn begin(
        bus: &BusSender,
        run_id: &Arc<str>,
        waiter: WaitNo,
        (event, taken): (Arc<str>, TakenEvents),
        answer: Answer<Outcome>,
    ) -> Self {
        bus.do_send(BusMsg::Wait {
            run_id: Arc::clone(run_id),
            waiter,
            event,
            taken,
            answer,
        });
        Self {
            bus: bus.clone(),
            run_id: Arc::clone(run_id),
            waiter,
            is_over: false,
        }
    }

    /// Marks the wait as answered, so that dropping it sends no message: the bus has removed the wait already.
    pub(crate) fn answered(mut self) {
        self.is_over = true;
    }
}

impl Drop for WaitHandle {
    fn drop(&mut self) {
        if !self.is_over {
            self.bus.do_send(BusMsg::WaitEnded {
                run_id: Arc::clone(&self.run_id),
                waiter: self.waiter,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use actix::Addr;
    use actix::dev::channel::channel;
    use pirn_sync::completion;

    use super::*;
    use crate::mailbox::RunActor;

    fn supervisor() -> Arc<SupervisorHandle> {
        let (mail, _mailbox) = channel::<RunActor>(1);
        let ends = (completion().1, completion().1);
        Arc::new(SupervisorHandle::new(Addr::new(mail).recipient(), None, ends))
    }

    #[test]
    fn a_run_starts_after_the_bus_has_closed_the_earlier_run_with_its_id() {
        let interest = ArbiterSubscriptions::new();
        let (run, other) = (Arc::from("r"), Arc::from("other"));
        let (first, second) = (supervisor(), supervisor());
        assert!(!interest.holds_start(&run, &first));
        interest.opens(&run, &first);
        assert!(!interest.have_all_ended(&run));
        interest.ends(&run);
        assert!(interest.have_all_ended(&run));
        assert!(!interest.holds_start(&other, &second), "of another id");
        assert!(interest.holds_start(&run, &second));
        assert!(!second.is_sent_to());
        assert!(interest.closed(&run));
        assert!(second.is_sent_to(), "it receives its start");
        assert!(interest.lives.borrow().is_empty());
        assert!(!interest.holds_start(&run, &first));
    }

    #[test]
    fn the_end_of_a_run_does_not_close_a_later_run_with_its_id_on_the_bus() {
        let interest = ArbiterSubscriptions::new();
        let run = Arc::from("r");
        let (first, second) = (supervisor(), supervisor());
        interest.opens(&run, &first);
        interest.opens(&run, &second);
        interest.ends(&run);
        assert!(!interest.have_all_ended(&run));
        assert!(!interest.closed(&run), "another one is registered");
        interest.ends(&run);
        assert!(interest.closed(&run));
    }

    #[test]
    fn a_run_that_has_left_its_engine_is_not_found() {
        let interest = ArbiterSubscriptions::new();
        let (run, first, second) = (Arc::from("r"), supervisor(), supervisor());
        assert!(interest.run(&run).is_none());
        interest.opens(&run, &first);
        assert!(interest.run(&run).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        first.leaves();
        assert!(interest.run(&run).is_none());
        interest.ends(&run);
        assert!(interest.closed(&run));
        interest.opens(&run, &second);
        assert!(interest.run(&run).is_some_and(|found| Arc::ptr_eq(&found, &second)));
    }
}
