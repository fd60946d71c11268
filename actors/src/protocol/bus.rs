//! The messages of an arbiter's event bus, and how the arbiter's runs know what anybody listens to.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Weak;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use foldhash::fast::FixedState;
use pirn_core::event::{Event, EventMask, RaisedEvent, TakenEvents, WaitNo};
use pirn_core::run::TriggersActed;
use pirn_core::thread::Outcome;

use super::events::Deliver;
use super::mailbox::{PutOff, Sender};
use super::supervisor::{SupervisorHandle, SupervisorMsg};
use crate::answer::Answer;

/// A handle to the event bus of an arbiter.
pub(crate) type BusSender = Sender<BusMsg>;

/// Something of each run. Nothing depends on the order in which it is walked.
pub(crate) type ByRun<T> = HashMap<Arc<str>, T, FixedState>;

/// A message to the event bus.
pub(crate) enum BusMsg {
    Raise {
        /// It follows from an event of its run: where the run is closed, it comes too late to have a place there.
        follows: bool,
        /// Its place among the run's events; none: after those that the bus knows of.
        sequence: Option<u64>,
        source: Source,
        raised: RaisedEvent,
    },
    /// Events that came together, in their order.
    RaiseAll {
        /// As for [`Self::Raise`], of the first.
        first: Option<u64>,
        source: Source,
        raised: Vec<RaisedEvent>,
    },
    /// Answered for a thread when the triggers of what was raised so far have acted: its run knows which firings hold it.
    Settle {
        run_id: Arc<str>,
        answer: Answer<Outcome>,
    },
    /// A run goes on, after a process of it ended.
    Resumed(Box<ResumedEvents>),
    /// A piece of a model's reply, which nobody is promised: it takes the number of the event before it.
    Token {
        source: Source,
        raised: RaisedEvent,
    },
    /// The CUSTOM events of a run that these words name are kept from now on, for whoever will wait for them.
    Keep {
        run_id: Arc<str>,
        words: Vec<Arc<str>>,
    },
    Wait {
        run_id: Arc<str>,
        waiter: WaitNo,
        event: Arc<str>,
        /// The CUSTOM events that the thread has taken before.
        taken: TakenEvents,
        answer: Answer<Outcome>,
    },
    WaitEnded {
        run_id: Arc<str>,
        waiter: WaitNo,
    },
    /// Sent by [`Interest::subscribe`] alone.
    Subscribe(Subscriber),
    /// Answered when the triggers of what a run has raised so far have acted, and those of what they raised, at most so
    /// many rounds of that.
    Quiesce {
        run_id: Arc<str>,
        rounds: u32,
        answer: Answer<()>,
    },
    /// A run raises no more. What its triggers still raise comes before it is closed.
    RunEnded(EndedRun),
    /// The triggers of a run that has ended are quiet: its subscribers have seen everything.
    Close(EndedRun),
    /// The matcher has handled everything that came before.
    Quiesced(Quiesce),
    /// Everything sent before is to be handled, what follows from it too; then the matcher and the bus stop, and it is
    /// answered.
    Stop(Answer<()>),
    /// The matcher has stopped.
    MatcherStopped(Answer<()>),
    /// The matcher is gone, whyever: it answers nothing more.
    MatcherGone,
}

/// A run that has ended, told from a later one of its id.
#[derive(Clone)]
pub(crate) struct EndedRun {
    pub(crate) run_id: Arc<str>,
    /// None: it has had no subscribers of its own.
    pub(crate) interest: Option<Arc<RunInterest>>,
}

/// The runs of one id that the bus knows of: one, or a later one too.
#[derive(Default)]
struct Lives {
    /// Number of them.
    known: u32,
    /// Number of those that have ended.
    ended: u32,
    /// Runs of the id that begin when the bus has handled the ends of those before.
    waiting: Vec<Arc<SupervisorHandle>>,
}

/// The events that a run had raised when its process ended.
pub(crate) struct ResumedEvents {
    pub(crate) run_id: Arc<str>,
    /// Number of events.
    pub(crate) sequence: u64,
    /// The last of them: all that somebody may want to hear once more.
    pub(crate) events: Vec<Arc<Event>>,
    /// The trigger matcher's actions on them.
    pub(crate) triggers: TriggersActed,
}

/// A round through the matcher, to find out whether a run's triggers are quiet.
pub(crate) struct Quiesce {
    pub(crate) run_id: Arc<str>,
    /// The run's last sequence when the round began.
    pub(crate) sequence: u64,
    /// Number of rounds that may follow.
    pub(crate) rounds: u32,
    /// Given when they are, or lost where the matcher is.
    pub(crate) answer: Answer<()>,
}

/// The place and time that an event was raised at.
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

/// The run that a subscriber listens to.
#[derive(Clone)]
pub(crate) struct OfRun {
    pub(crate) run_id: Arc<str>,
    pub(crate) interest: Arc<RunInterest>,
}

/// A subscriber to the events of an arbiter, or of one run there.
pub(crate) struct Subscriber {
    /// None: all runs.
    pub(crate) of_run: Option<OfRun>,
    pub(crate) mask: EventMask,
    /// Only events after the one with this sequence.
    pub(crate) after: u64,
    pub(crate) deliver: Box<dyn Deliver>,
}

/// A limit that a run sets to its triggers: the matcher hears it before the next event, however many of them wait.
pub(crate) enum TriggerLimit {
    /// They fire at most so often for what triggers cause.
    AtMost(u64),
    /// The run is over but for what they still do: they set off no more than a bounded number of others from now on.
    Ending,
}

/// The event types that the subscribers of one run listen to: set by the bus, read by the run before it builds an event. Both are on
/// one thread.
#[derive(Debug, Default)]
pub(crate) struct RunInterest {
    /// The bits of an [`EventMask`].
    subscribers: AtomicU64,
    /// Subscribers that the bus has not heard of yet.
    coming: AtomicU32,
}

impl RunInterest {
    pub(crate) fn mask(&self) -> EventMask {
        EventMask::from_bits(self.subscribers.load(Ordering::Relaxed))
    }

    /// The bus is about to hear of a subscriber.
    fn comes(&self, mask: EventMask) {
        self.coming.fetch_add(1, Ordering::Relaxed);
        self.subscribers.fetch_or(mask.bits(), Ordering::Relaxed);
    }

    /// The bus has heard of a subscriber; all that it has of the run listen to these types.
    pub(crate) fn subscribed(&self, all: EventMask) {
        self.coming.fetch_sub(1, Ordering::Relaxed);
        self.left(all);
    }

    /// A subscriber has left; those that stay listen to these types.
    pub(crate) fn left(&self, all: EventMask) {
        if self.coming.load(Ordering::Relaxed) == 0 {
            self.subscribers.store(all.bits(), Ordering::Relaxed);
        }
    }
}

/// The event types that subscribers to all runs of an arbiter and its triggers listen to, read by its runs before they build an event; and what its runs say of
/// their triggers.
pub(crate) struct Interest {
    /// Of the subscribers to all runs that the bus has.
    subscribers: Cell<EventMask>,
    /// Of those that it has not heard of yet, and how many these are.
    coming: Cell<(u32, EventMask)>,
    triggers: Cell<EventMask>,
    holding: Cell<EventMask>,
    lives: RefCell<ByRun<Lives>>,
    /// Runs of whose events too many wait for the text of a trigger, and those of them that have more to do.
    behind: RefCell<ByRun<Vec<Weak<dyn PutOff>>>>,
    /// In the order said; until the matcher hears it.
    trigger_limits: RefCell<Vec<(Arc<str>, TriggerLimit)>>,
}

impl Interest {
    pub(crate) fn new() -> Self {
        Self {
            subscribers: Cell::new(EventMask::NONE),
            coming: Cell::new((0, EventMask::NONE)),
            triggers: Cell::new(EventMask::NONE),
            holding: Cell::new(EventMask::NONE),
            lives: RefCell::default(),
            behind: RefCell::default(),
            trigger_limits: RefCell::default(),
        }
    }

    /// Too many events of a run wait for the text of a trigger: it has no turn before the matcher has caught up.
    pub(crate) fn falls_behind(&self, run_id: &Arc<str>) {
        self.behind.borrow_mut().entry(Arc::clone(run_id)).or_default();
    }

    /// True if the matcher is behind with the events of this run, which has its turn when that is over.
    pub(crate) fn holds_turn(&self, run_id: &Arc<str>, run: impl FnOnce() -> Option<Weak<dyn PutOff>>) -> bool {
        let mut behind = self.behind.borrow_mut();
        if behind.is_empty() {
            return false;
        }
        let Some(waiting) = behind.get_mut(run_id) else {
            return false;
        };
        waiting.extend(run());
        true
    }

    /// The matcher has caught up with a run: what of it waits for a turn.
    pub(crate) fn caught_up(&self, run_id: &Arc<str>) -> Vec<Weak<dyn PutOff>> {
        self.behind.borrow_mut().remove(run_id).unwrap_or_default()
    }

    /// The matcher is gone: no run waits for it.
    pub(crate) fn all_caught_up(&self) -> Vec<Weak<dyn PutOff>> {
        self.behind.take().into_values().flatten().collect()
    }

    /// The bus is about to hear of a run for the first time.
    pub(crate) fn opens(&self, run_id: &Arc<str>) {
        self.lives.borrow_mut().entry(Arc::clone(run_id)).or_default().known += 1;
    }

    /// The bus is about to hear of a run's end.
    pub(crate) fn ends(&self, run_id: &Arc<str>) {
        if let Some(lives) = self.lives.borrow_mut().get_mut(run_id) {
            lives.ended += 1;
        }
    }

    /// True if the bus has still to handle the end of an earlier run of this id: `run` is told to begin when it has.
    pub(crate) fn holds_start(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>) -> bool {
        match self.lives.borrow_mut().get_mut(run_id) {
            Some(lives) if lives.ended > 0 => {
                lives.waiting.push(Arc::clone(run));
                true
            }
            Some(_) | None => false,
        }
    }

    /// True if all runs of this id that the bus knows of have ended.
    pub(crate) fn have_all_ended(&self, run_id: &Arc<str>) -> bool {
        self.lives
            .borrow()
            .get(run_id)
            .is_none_or(|lives| lives.ended >= lives.known)
    }

    /// The bus has handled the end of a run. True if it knows of no other of this id.
    pub(crate) fn closed(&self, run_id: &Arc<str>) -> bool {
        let mut all = self.lives.borrow_mut();
        let Some(lives) = all.get_mut(run_id) else { return true };
        lives.known -= 1;
        lives.ended -= 1;
        if lives.ended == 0 {
            for run in std::mem::take(&mut lives.waiting) {
                run.do_send(SupervisorMsg::Begin);
            }
        }
        let is_last = lives.known == 0;
        if is_last {
            all.remove(run_id);
        }
        is_last
    }

    /// Has the triggers of a run limited. The bus must hear of the run's end.
    pub(crate) fn limit_triggers(&self, run_id: &Arc<str>, limit: TriggerLimit) {
        self.trigger_limits.borrow_mut().push((Arc::clone(run_id), limit));
    }

    /// The limits that were set since this was last asked.
    pub(crate) fn take_trigger_limits(&self) -> Vec<(Arc<str>, TriggerLimit)> {
        std::mem::take(&mut *self.trigger_limits.borrow_mut())
    }

    /// Types that a subscriber to all runs or a trigger listens to.
    pub(crate) fn listening(&self) -> EventMask {
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

    /// Tells the bus of a subscriber, which hears whatever is raised from now on.
    pub(crate) fn subscribe(&self, bus: &BusSender, subscriber: Subscriber) {
        if let Some(of_run) = &subscriber.of_run {
            of_run.interest.comes(subscriber.mask);
        } else {
            let (count, mask) = self.coming.get();
            self.coming.set((count + 1, mask.union(subscriber.mask)));
        }
        bus.do_send(BusMsg::Subscribe(subscriber));
    }

    /// The bus has heard of a subscriber to all runs.
    pub(crate) fn subscribed(&self) {
        let (count, mask) = self.coming.get();
        let left = count.saturating_sub(1);
        self.coming.set((left, if left == 0 { EventMask::NONE } else { mask }));
    }

    pub(crate) fn set_subscribers(&self, mask: EventMask) {
        self.subscribers.set(mask);
    }
}

/// A thread's hold on its wait for an event. Dropping it ends the wait.
pub(crate) struct WaitHandle {
    bus: BusSender,
    run_id: Arc<str>,
    waiter: WaitNo,
    is_over: bool,
}

impl WaitHandle {
    /// Has the bus answer when the event comes.
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

    /// The bus has answered, and forgotten the wait: it need not be woken to hear that it is over.
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
    fn a_run_begins_when_the_bus_has_closed_the_one_before_of_its_id() {
        let interest = Interest::new();
        let (run, other) = (Arc::from("r"), Arc::from("other"));
        let (first, second) = (supervisor(), supervisor());
        assert!(!interest.holds_start(&run, &first));
        interest.opens(&run);
        assert!(!interest.have_all_ended(&run));
        interest.ends(&run);
        assert!(interest.have_all_ended(&run));
        assert!(!interest.holds_start(&other, &second), "of another id");
        assert!(interest.holds_start(&run, &second));
        assert!(!second.is_told());
        assert!(interest.closed(&run));
        assert!(second.is_told(), "it is told to begin");
        assert!(interest.lives.borrow().is_empty());
        assert!(!interest.holds_start(&run, &first));
    }

    #[test]
    fn the_end_of_a_run_leaves_a_later_one_of_its_id_on_the_bus() {
        let interest = Interest::new();
        let run = Arc::from("r");
        interest.opens(&run);
        interest.opens(&run);
        interest.ends(&run);
        assert!(!interest.have_all_ended(&run));
        assert!(!interest.closed(&run), "another is known");
        interest.ends(&run);
        assert!(interest.closed(&run));
    }
}
