//! The event bus actor: numbers what happened, run by run, and hands it to who listens (SPEC section 5).
//!
//! A subscriber is a bounded buffer. A full one never holds the bus up: what does not fit is counted, and the
//! subscriber is told how many it missed before the next event it gets.
//!
//! Where the trigger matcher is gone, no trigger fires any more: nobody waits for one, and runs end as without triggers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use pirn_core::event::{Event, EventMask, EventType, RaisedEvent};
use pirn_core::thread::Outcome;

use crate::answer::Answer;
use crate::inbox::MatcherAddr;
use crate::line::BusMail;
use crate::triggers::MatcherMsg;
use crate::waits::{Ticket, Waits};

/// Who listens to what, read by every run before it builds an event.
#[derive(Debug, Default)]
pub struct Interest {
    subscribers: AtomicU64,
    triggers: AtomicU64,
    holding: AtomicU64,
    /// Whether anybody ever asked for the events of one run.
    in_one_run: AtomicBool,
}

impl Interest {
    /// Types that a subscriber or a trigger listens to.
    pub fn listening(&self) -> EventMask {
        EventMask::from_bits(self.subscribers.load(Ordering::Relaxed) | self.triggers.load(Ordering::Relaxed))
    }
    /// Types watched by triggers that hold the thread.
    pub fn holding(&self) -> EventMask {
        EventMask::from_bits(self.holding.load(Ordering::Relaxed))
    }
    pub(crate) fn triggers(&self) -> EventMask {
        EventMask::from_bits(self.triggers.load(Ordering::Relaxed))
    }
    /// Before the bus is asked: a run that ends from then on is closed there, so its subscriber sees the end.
    pub(crate) fn set_in_one_run(&self) {
        self.in_one_run.store(true, Ordering::SeqCst);
    }
    pub(crate) fn is_in_one_run(&self) -> bool {
        self.in_one_run.load(Ordering::SeqCst)
    }
    pub(crate) fn set_subscribers(&self, mask: EventMask) {
        self.subscribers.store(mask.bits(), Ordering::Relaxed);
    }
    pub(crate) fn set_triggers(&self, interest: EventMask, holding: EventMask) {
        self.triggers.store(interest.bits(), Ordering::Relaxed);
        self.holding.store(holding.bits(), Ordering::Relaxed);
    }
}

/// What a subscriber gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// An event.
    Event(Arc<Event>),
    /// So many events did not fit the buffer.
    Missed(u64),
}

/// Where a subscriber takes its deliveries. Must not block.
pub trait Deliver: Send + 'static {
    /// Takes one, or gives it back because the buffer is full.
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered>;

    /// Nothing more comes, and so many events at the end did not fit the buffer.
    fn end(&mut self, missed: u64);
}

/// Why a delivery was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// The buffer is full.
    Full,
    /// Nobody reads it any more.
    Gone,
}

/// What a subscriber wants to see.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only this run's events.
    pub run_id: Option<String>,
    /// Only these types; empty: all.
    pub types: Vec<EventType>,
}

impl EventFilter {
    fn mask(&self) -> EventMask {
        if self.types.is_empty() {
            return EventMask::ALL;
        }
        self.types
            .iter()
            .fold(EventMask::NONE, |mask, kind| mask.union(EventMask::of(*kind)))
    }
}

/// Where and when an event was raised.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) run_id: Arc<str>,
    pub(crate) workflow_id: Arc<str>,
    pub(crate) thread_id: Arc<str>,
    pub(crate) timestamp: u64,
}

impl Source {
    pub(crate) fn event(&self, sequence: u64, raised: RaisedEvent) -> Event {
        Event {
            sequence,
            timestamp: self.timestamp,
            run_id: Arc::clone(&self.run_id),
            workflow_id: Arc::clone(&self.workflow_id),
            thread_id: Arc::clone(&self.thread_id),
            raised,
        }
    }

    /// Makes another event this one. Its texts mostly are the same, and to count who shares them takes longer than to see that.
    pub(crate) fn replace(&self, event: &mut Event, sequence: u64, raised: RaisedEvent) {
        event.sequence = sequence;
        event.timestamp = self.timestamp;
        for (own, text) in [
            (&mut event.run_id, &self.run_id),
            (&mut event.workflow_id, &self.workflow_id),
            (&mut event.thread_id, &self.thread_id),
        ] {
            if !Arc::ptr_eq(own, text) {
                *own = Arc::clone(text);
            }
        }
        event.raised = raised;
    }
}

/// A message to the bus.
pub(crate) enum BusMsg {
    Raise {
        /// It follows from an event of its run: where the run is closed, it comes too late to have a place there.
        follows: bool,
        source: Source,
        raised: RaisedEvent,
    },
    /// Events that came together, in their order.
    RaiseAll {
        source: Source,
        raised: Vec<RaisedEvent>,
    },
    Settle {
        run_id: Arc<str>,
        thread_id: Arc<str>,
        answer: Answer<Outcome>,
    },
    Wait {
        run_id: Arc<str>,
        ticket: Ticket,
        event: Arc<str>,
        answer: Answer<Outcome>,
    },
    WaitEnded {
        run_id: Arc<str>,
        ticket: Ticket,
    },
    Subscribe {
        filter: EventFilter,
        deliver: Box<dyn Deliver>,
        ready: Box<dyn FnOnce() + Send>,
    },
    /// Answered when the triggers of what a run has raised so far have acted, and those of what they said, at most so
    /// many links of that.
    HearOut {
        run_id: Arc<str>,
        links: u32,
        answer: Answer<()>,
    },
    /// The matcher has handled everything that came before.
    HeardOut {
        run_id: Arc<str>,
        links: u32,
        answer: Answer<()>,
    },
    /// A run raises no more. What its triggers still have to say of what it raised comes before it is closed.
    RunEnded {
        run_id: Arc<str>,
    },
    /// The matcher has handled everything the run raised: its subscribers have seen everything.
    Close {
        run_id: Arc<str>,
    },
    /// Everything sent before is to be handled, what follows from it too; then the bus and the matcher stop.
    Stop(Box<dyn FnOnce() + Send>),
    /// The matcher has stopped.
    MatcherStopped(Box<dyn FnOnce() + Send>),
    /// The matcher is gone, whyever: it answers nothing more.
    MatcherGone,
}

struct Subscriber {
    filter: EventFilter,
    mask: EventMask,
    deliver: Box<dyn Deliver>,
    missed: u64,
}

pub(crate) struct EventBusActor {
    interest: Arc<Interest>,
    /// None once it is gone.
    matcher: Option<MatcherAddr>,
    sequences: BTreeMap<Arc<str>, u64>,
    /// Runs that raise no more: whether the matcher got nothing of them since it was last asked.
    ending: BTreeMap<Arc<str>, bool>,
    /// Runs whose triggers are heard out, likewise.
    hearing: BTreeMap<Arc<str>, bool>,
    subscribers: Vec<Subscriber>,
    waits: Waits,
}

impl EventBusActor {
    pub(crate) fn new(
        interest: Arc<Interest>,
        matcher: MatcherAddr,
        mail: BusMail,
        context: &mut Context<Self>,
    ) -> Self {
        context.add_stream(mail);
        Self {
            interest,
            matcher: Some(matcher),
            sequences: BTreeMap::new(),
            ending: BTreeMap::new(),
            hearing: BTreeMap::new(),
            subscribers: Vec::new(),
            waits: Waits::default(),
        }
    }

    /// The number before the next so many of a run.
    fn take_numbers(&mut self, run_id: &Arc<str>, count: u64) -> u64 {
        let last = match self.sequences.get_mut(run_id) {
            Some(last) => last,
            None => self.sequences.entry(Arc::clone(run_id)).or_insert(0),
        };
        let before = *last;
        *last += count;
        before
    }

    fn raise(&mut self, source: &Source, sequence: u64, raised: RaisedEvent) {
        let event_type = raised.event_type;
        let is_watched = self.interest.triggers().contains(event_type);
        let event = match self.matcher.as_ref().filter(|_| is_watched) {
            Some(matcher) => matcher.share(source, sequence, raised),
            None => Arc::new(source.event(sequence, raised)),
        };
        let before = self.subscribers.len();
        self.subscribers.retain_mut(|subscriber| subscriber.take(&event));
        if self.subscribers.len() != before {
            self.publish_interest();
        }
        self.waits.wake(&event);
        if let Some(matcher) = self.matcher.as_ref().filter(|_| is_watched) {
            for asked in [&mut self.ending, &mut self.hearing] {
                if let Some(is_quiet) = asked.get_mut(&event.run_id) {
                    *is_quiet = false;
                }
            }
            matcher.happened(event);
        }
    }

    fn hear_out(&mut self, run_id: Arc<str>, links: u32, answer: Answer<()>) {
        let Some(matcher) = self.matcher.as_ref().filter(|_| links > 0) else {
            return answer.give(());
        };
        self.hearing.insert(Arc::clone(&run_id), true);
        matcher.do_send(MatcherMsg::HearOut {
            run_id,
            links: links - 1,
            answer,
        });
    }

    /// The run raises no more: its triggers are asked for the last time.
    fn ask_for_the_last(&mut self, run_id: Arc<str>) {
        let Some(matcher) = &self.matcher else {
            return self.close(&run_id);
        };
        self.ending.insert(Arc::clone(&run_id), true);
        matcher.do_send(MatcherMsg::RunEnded { run_id });
    }

    /// Everybody has seen all of the run.
    fn close(&mut self, run_id: &Arc<str>) {
        self.ending.remove(run_id);
        if let Some(matcher) = &self.matcher {
            matcher.do_send(MatcherMsg::Forget {
                run_id: Arc::clone(run_id),
            });
        }
        self.sequences.remove(run_id);
        self.waits.end_all(run_id);
        // A subscriber of this run alone has seen everything: dropping its end says so.
        self.subscribers
            .retain(|subscriber| subscriber.filter.run_id.as_deref() != Some(&**run_id));
        self.publish_interest();
    }

    /// What waits for the matcher's word waits no longer.
    fn matcher_gone(&mut self) {
        self.matcher = None;
        self.interest.set_triggers(EventMask::NONE, EventMask::NONE);
        for run_id in std::mem::take(&mut self.ending).into_keys() {
            self.close(&run_id);
        }
    }

    fn stop(&mut self, done: Box<dyn FnOnce() + Send>, context: &mut Context<Self>) {
        self.subscribers.clear();
        self.waits.clear();
        context.stop();
        done();
    }

    fn publish_interest(&self) {
        let mask = self
            .subscribers
            .iter()
            .fold(EventMask::NONE, |mask, subscriber| mask.union(subscriber.mask));
        self.interest.set_subscribers(mask);
    }
}

impl Subscriber {
    /// Hands an event on; whether the subscriber still reads.
    fn take(&mut self, event: &Arc<Event>) -> bool {
        let wanted = self.mask.contains(event.raised.event_type)
            && self.filter.run_id.as_ref().is_none_or(|run| **run == *event.run_id);
        if !wanted {
            return true;
        }
        if self.missed > 0 {
            match self.deliver.deliver(Delivery::Missed(self.missed)) {
                Ok(()) => self.missed = 0,
                Err(Undelivered::Full) => {
                    self.missed += 1;
                    return true;
                }
                Err(Undelivered::Gone) => return false,
            }
        }
        match self.deliver.deliver(Delivery::Event(Arc::clone(event))) {
            Ok(()) => true,
            Err(Undelivered::Full) => {
                self.missed += 1;
                true
            }
            Err(Undelivered::Gone) => false,
        }
    }
}

impl Drop for Subscriber {
    /// What was missed at the end is said at the end.
    fn drop(&mut self) {
        if self.missed > 0 {
            self.deliver.end(self.missed);
        }
    }
}

impl Actor for EventBusActor {
    type Context = Context<Self>;
}

impl StreamHandler<BusMsg> for EventBusActor {
    fn handle(&mut self, message: BusMsg, context: &mut Context<Self>) {
        match message {
            BusMsg::Raise {
                follows: true,
                source: Source { run_id, .. },
                raised,
            } if !self.sequences.contains_key(&run_id) => {
                tracing::warn!(%run_id, ?raised, "an event came after the end of its run");
            }
            BusMsg::Raise {
                follows: _,
                source,
                raised,
            } => {
                let before = self.take_numbers(&source.run_id, 1);
                self.raise(&source, before + 1, raised);
            }
            BusMsg::RaiseAll { source, raised } => {
                let before = self.take_numbers(&source.run_id, raised.len() as u64);
                for (sequence, raised) in (before + 1..).zip(raised) {
                    self.raise(&source, sequence, raised);
                }
            }
            BusMsg::Settle {
                run_id,
                thread_id,
                answer,
            } => match &self.matcher {
                Some(matcher) => matcher.do_send(MatcherMsg::Settle {
                    run_id,
                    thread_id,
                    answer,
                }),
                None => answer.give(Outcome::Held(Vec::new())),
            },
            BusMsg::Wait {
                run_id,
                ticket,
                event,
                answer,
            } => self.waits.begin(run_id, ticket, event, answer),
            BusMsg::WaitEnded { run_id, ticket } => self.waits.end(&run_id, ticket),
            BusMsg::Subscribe { filter, deliver, ready } => {
                let mask = filter.mask();
                self.subscribers.push(Subscriber {
                    filter,
                    mask,
                    deliver,
                    missed: 0,
                });
                self.publish_interest();
                ready();
            }
            BusMsg::HearOut { run_id, links, answer } => self.hear_out(run_id, links, answer),
            BusMsg::HeardOut { run_id, links, answer } => match self.hearing.remove(&run_id) {
                // What was said meanwhile set off more.
                Some(false) => self.hear_out(run_id, links, answer),
                Some(true) | None => answer.give(()),
            },
            BusMsg::RunEnded { run_id } => {
                self.waits.end_all(&run_id);
                self.ask_for_the_last(run_id);
            }
            // What the matcher said of the run set off more: it is asked again. A chain of triggers has an end.
            BusMsg::Close { run_id } if self.ending.get(&run_id) == Some(&false) => self.ask_for_the_last(run_id),
            BusMsg::Close { run_id } => self.close(&run_id),
            BusMsg::Stop(done) => match &self.matcher {
                Some(matcher) => matcher.do_send(MatcherMsg::Stop(done)),
                None => self.stop(done, context),
            },
            BusMsg::MatcherStopped(done) => self.stop(done, context),
            BusMsg::MatcherGone => self.matcher_gone(),
        }
    }
}
