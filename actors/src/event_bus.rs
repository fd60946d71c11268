//! The event bus of an arbiter: numbers what happened there, run by run, and hands it to whoever listens.
//!
//! A subscriber is a bounded buffer. A full one never holds the bus up: what does not fit is counted, and the
//! subscriber is told how many it missed before the next event it gets.
//!
//! Once the trigger matcher is gone, no trigger fires any more: nobody waits for one, and runs end as without triggers.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use pirn_core::event::{Event, EventMask, EventType, RaisedEvent};
use pirn_core::run::{FollowUp, Message, ToSupervisor};
use pirn_core::thread::{Outcome, ThreadId};

use crate::answer::Answer;
use crate::backlog::Backlog;
use crate::event_waiters::EventWaiters;
use crate::listeners::Listeners;
use crate::protocol::bus::{BusMsg, BusSender, EndedRun, Interest, Quiesce, ResumedEvents, Source, Subscriber};
use crate::protocol::engine::EngineHandle;
use crate::protocol::mailbox::Receiver;
use crate::protocol::matcher::{Happened, MatcherMsg, MatcherSender};
use crate::protocol::supervisor::SupervisorMsg;

/// The most events that the trigger matcher is told of in one message.
const TOGETHER: usize = 16;

pub(crate) struct EventBusActor {
    engine: Arc<dyn EngineHandle>,
    /// True if the engine's runs are durable.
    keeps_runs: bool,
    interest: Rc<Interest>,
    /// Of its own mailbox.
    backlog: Rc<Backlog>,
    bus: BusSender,
    /// None once it is gone.
    matcher: Option<MatcherSender>,
    /// The last sequence of each run that raised something.
    sequences: BTreeMap<Arc<str>, u64>,
    listeners: Listeners,
    waiters: EventWaiters,
    /// Raised, and watched by triggers: the matcher is told of them next.
    watched: Vec<Arc<Event>>,
}

impl EventBusActor {
    pub(crate) fn new(
        (engine, keeps_runs): (Arc<dyn EngineHandle>, bool),
        (interest, backlog): (Rc<Interest>, Rc<Backlog>),
        bus: BusSender,
        matcher: MatcherSender,
        mail: Receiver<BusMsg>,
        context: &mut Context<Self>,
    ) -> Self {
        context.add_stream(mail);
        Self {
            engine,
            keeps_runs,
            interest,
            backlog,
            bus,
            matcher: Some(matcher),
            sequences: BTreeMap::new(),
            listeners: Listeners::default(),
            waiters: EventWaiters::default(),
            watched: Vec::new(),
        }
    }

    /// A run that is kept numbers its events itself, all of them; the others' are numbered here, with what follows from them.
    fn raise(&mut self, sequence: Option<u64>, source: Source, raised: RaisedEvent) {
        let last = match self.sequences.get_mut(&source.run_id) {
            Some(last) => last,
            None => self.sequences.entry(Arc::clone(&source.run_id)).or_insert(0),
        };
        *last = sequence.unwrap_or(*last + 1);
        let event = Arc::new(source.event(*last, raised));
        self.hand_on(&event);
        let dropped = self.waiters.wake(&event);
        self.say_dropped(dropped, &event);
        if self.interest.triggers().contains(event.raised.event_type) {
            self.watched.push(event);
            if self.watched.len() == TOGETHER {
                self.have_matched();
            }
        }
    }

    /// Tells the matcher of the events that were raised since this was last done.
    fn have_matched(&mut self) {
        let events = match self.watched.len() {
            0 => return,
            1 => Happened::One(self.watched.remove(0)),
            _ => Happened::Many(std::mem::replace(&mut self.watched, Vec::with_capacity(TOGETHER))),
        };
        if let Some(matcher) = &self.matcher {
            matcher.do_send(MatcherMsg::Happened(events));
        }
    }

    /// Says which events are no longer kept for WAIT nodes, where somebody listens.
    fn say_dropped(&mut self, dropped: Vec<RaisedEvent>, event: &Event) {
        for dropped in dropped {
            if self.keeps_runs || self.is_heard(&event.run_id, dropped.event_type) {
                let source = Source {
                    run_id: Arc::clone(&event.run_id),
                    workflow_id: Arc::clone(&event.workflow_id),
                    thread_id: Arc::clone(&event.thread_id),
                    timestamp: event.timestamp,
                };
                // It is as deep in a chain of triggers as what it follows from.
                self.follow_up(source, dropped.at_depth(event.raised.trigger_depth));
            }
        }
    }

    fn hand_on(&mut self, event: &Arc<Event>) {
        self.listeners.hand_on(event, &self.interest);
    }

    /// Only who comes back to this run hears its events once more.
    fn resumed(&mut self, resumed: ResumedEvents) {
        self.sequences.insert(Arc::clone(&resumed.run_id), resumed.sequence);
        for event in &resumed.events {
            self.listeners.hand_on_in_run(event);
        }
        self.waiters.resumed(&resumed.run_id, &resumed.events);
        if let Some(last) = resumed.events.last() {
            let dropped = self.waiters.dropped(&resumed.run_id);
            self.say_dropped(dropped, last);
            self.have_matched();
        }
        if let Some(matcher) = &self.matcher {
            matcher.do_send(MatcherMsg::Resumed(Box::new(resumed)));
        }
    }

    /// An event that follows from another, because of a trigger. Where runs are kept it is for the run to raise it: it is one
    /// of the events that the run raises again in another process.
    fn follow_up(&mut self, source: Source, event: RaisedEvent) {
        if self.keeps_runs {
            let follow_up = FollowUp {
                thread: ThreadId::number(&source.run_id, &source.thread_id).unwrap_or_default(),
                event: event.clone(),
            };
            let told = Message::Supervisor(ToSupervisor::FollowUp(Box::new(follow_up)));
            if self.engine.tell_run(&source.run_id, SupervisorMsg::Tell(told)).is_ok() {
                return;
            }
            // Of a run that is not there to keep it nothing more is told.
        } else if !self.is_heard(&source.run_id, event.event_type) {
            return;
        } else if self.sequences.contains_key(&source.run_id) {
            return self.raise(None, source, event);
        }
        let run_id = &source.run_id;
        tracing::warn!(%run_id, ?event, "an event came after the end of its run");
    }

    fn token(&mut self, source: Source, raised: RaisedEvent) {
        let sequence = self.last_sequence(&source.run_id);
        let event = Arc::new(source.event(sequence, raised));
        self.hand_on(&event);
    }

    fn subscribe(&mut self, subscriber: Subscriber) {
        self.listeners.add(subscriber, &self.interest);
    }

    /// Has the matcher handle what the run has raised; as often as that raises more, or `rounds` times.
    fn quiesce(&self, run_id: Arc<str>, rounds: u32, answer: Answer<()>) {
        match &self.matcher {
            Some(matcher) if rounds > 0 => matcher.do_send(MatcherMsg::Quiesce(Quiesce {
                sequence: self.last_sequence(&run_id),
                run_id,
                rounds: rounds - 1,
                answer,
            })),
            Some(_) | None => answer.give(()),
        }
    }

    fn run_ended(&mut self, ended: EndedRun) {
        let run_id = Arc::clone(&ended.run_id);
        if self.interest.have_all_ended(&run_id) {
            self.waiters.end_all(&run_id);
        }
        let bus = self.bus.clone();
        // Also where the matcher is gone before it could answer.
        let close = Answer::new(move |_| bus.do_send(BusMsg::Close(ended)));
        // A chain of triggers has an end, so the rounds do.
        self.quiesce(run_id, u32::MAX, close);
    }

    fn last_sequence(&self, run_id: &Arc<str>) -> u64 {
        self.sequences.get(run_id).copied().unwrap_or_default()
    }

    /// Everybody has seen all of the run.
    fn close(&mut self, ended: &EndedRun) {
        // A subscriber of this run alone has seen everything: dropping its end says so.
        self.listeners.close(ended);
        let run_id = &ended.run_id;
        if !self.interest.closed(run_id) {
            return;
        }
        if let Some(matcher) = &self.matcher {
            let run_id = Arc::clone(run_id);
            matcher.do_send(MatcherMsg::Forget { run_id });
        }
        self.sequences.remove(run_id);
        self.waiters.end_all(run_id);
    }

    /// Nothing waits for the matcher's word any longer: what had been sent there is dropped.
    fn matcher_gone(&mut self) {
        self.matcher = None;
        self.interest.set_triggers(EventMask::NONE, EventMask::NONE);
    }

    fn stop(&mut self, done: Answer<()>, context: &mut Context<Self>) {
        self.listeners.clear();
        self.waiters.clear();
        context.stop();
        done.give(());
    }

    /// True if anybody listens to this type of events of the run.
    fn is_heard(&self, run_id: &Arc<str>, event_type: EventType) -> bool {
        self.interest.triggers().contains(event_type) || self.listeners.want(run_id, event_type)
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
                sequence: _,
                source,
                raised,
            } => self.follow_up(source, raised),
            BusMsg::Raise {
                follows: false,
                sequence,
                source,
                raised,
            } => self.raise(sequence, source, raised),
            BusMsg::RaiseAll { first, source, raised } => {
                for (place, raised) in (0..).zip(raised) {
                    self.raise(first.map(|first| first + place), source.clone(), raised);
                }
            }
            BusMsg::Resumed(resumed) => self.resumed(*resumed),
            BusMsg::Token { source, raised } => self.token(source, raised),
            BusMsg::Settle { run_id, answer } => match &self.matcher {
                Some(matcher) => matcher.do_send(MatcherMsg::Settle { run_id, answer }),
                None => answer.give(Outcome::HeldByFiring(Vec::new())),
            },
            BusMsg::Wait {
                run_id,
                waiter,
                event,
                taken,
                answer,
            } => self.waiters.begin(&run_id, waiter, (&event, &taken), answer),
            BusMsg::Keep { run_id, words } => self.waiters.keep(&run_id, &words),
            BusMsg::WaitEnded { run_id, waiter } => self.waiters.end(&run_id, waiter),
            BusMsg::Subscribe(subscriber) => self.subscribe(subscriber),
            BusMsg::Quiesce { run_id, rounds, answer } => self.quiesce(run_id, rounds, answer),
            BusMsg::Quiesced(round) if self.last_sequence(&round.run_id) == round.sequence => round.answer.give(()),
            BusMsg::Quiesced(round) => self.quiesce(round.run_id, round.rounds, round.answer),
            BusMsg::RunEnded(ended) => self.run_ended(ended),
            BusMsg::Close(ended) => self.close(&ended),
            BusMsg::Stop(done) => match &self.matcher {
                Some(matcher) => matcher.do_send(MatcherMsg::Stop(done)),
                None => self.stop(done, context),
            },
            BusMsg::MatcherStopped(done) => self.stop(done, context),
            BusMsg::MatcherGone => self.matcher_gone(),
        }
        self.have_matched();
        self.backlog.shrinks();
    }
}
