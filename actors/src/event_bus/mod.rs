//! The event bus of an arbiter: numbers the events of each run and delivers them to subscribers, waits and the trigger matcher.
//!
//! Each subscriber has a bounded buffer, and a full one never blocks the bus. Events that do not fit are dropped and counted; the
//! subscriber receives the count before its next event.
//!
//! If the trigger matcher panics, triggers stop firing. Runs then end as if they had no triggers.
//!
//! Not here: decisions which triggers fire, which are in `trigger_matcher`, and types of events, which are in `pirn-events`.

mod event_waiters;
mod listeners;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use pirn_core::run::{FollowUp, Message, ToSupervisor};
use pirn_core::thread::{Outcome, ThreadId};
use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, EventMask, RaisedEvent};

use self::event_waiters::EventWaiters;
use self::listeners::Listeners;
use crate::answer::Answer;
use crate::backlog::Backlog;
use crate::protocol::bus::{
    ArbiterSubscriptions, BusMsg, BusSender, EndedRun, Quiesce, ResumedEvents, Source, Subscriber,
};
use crate::protocol::mailbox::Receiver;
use crate::protocol::matcher::{EventBatch, MatcherMsg, MatcherSender};
use crate::protocol::supervisor::SupervisorMsg;

/// Maximum number of events in one message to the trigger matcher.
const TOGETHER: usize = 16;

pub(crate) struct EventBusActor {
    /// True if the engine's runs are durable.
    keeps_runs: bool,
    interest: Rc<ArbiterSubscriptions>,
    /// Counts the messages in the bus's mailbox.
    backlog: Rc<Backlog>,
    bus: BusSender,
    /// Sender to the trigger matcher; `None` after it has stopped.
    matcher: Option<MatcherSender>,
    /// Last sequence of each run with events.
    sequences: BTreeMap<Arc<str>, u64>,
    listeners: Listeners,
    waiters: EventWaiters,
    /// Events that triggers watch, collected for the next message to the matcher.
    watched: Vec<Arc<Event>>,
}

impl EventBusActor {
    pub(crate) fn new(
        keeps_runs: bool,
        (interest, backlog): (Rc<ArbiterSubscriptions>, Rc<Backlog>),
        bus: BusSender,
        matcher: MatcherSender,
        mail: Receiver<BusMsg>,
        context: &mut Context<Self>,
    ) -> Self {
        context.add_stream(mail);
        Self {
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

    /// Raises an event. Durable runs number all of their events; events of other runs are numbered here.
    fn raise(&mut self, sequence: Option<u64>, source: Source, raised: RaisedEvent) {
        // Looked up first, because `entry` needs a clone of the key.
        let last = match self.sequences.get_mut(&source.run_id) {
            Some(last) => last,
            None => self.sequences.entry(Arc::clone(&source.run_id)).or_insert(0),
        };
        *last = sequence.unwrap_or(*last + 1);
        let event = Arc::new(source.event(*last, raised));
        self.forward(&event);
        if self.waiters.wake(&event) {
            self.report_dropped(&event);
        }
        if self.interest.triggers().contains(event.raised.event_type) {
            self.watched.push(event);
            if self.watched.len() == TOGETHER {
                self.send_to_matcher();
            }
        }
    }

    /// Sends the collected events to the matcher.
    fn send_to_matcher(&mut self) {
        let events = match self.watched.len() {
            0 => return,
            // A single event leaves the vector, and thus its allocation, to the next events.
            1 => EventBatch::One(self.watched.remove(0)),
            _ => EventBatch::Many(std::mem::replace(&mut self.watched, Vec::with_capacity(TOGETHER))),
        };
        if let Some(matcher) = &self.matcher {
            matcher.do_send(MatcherMsg::Happened(events));
        }
    }

    /// Reports the events that were dropped from the buffers of WAIT nodes. Without a listener they stay counted for the next
    /// report: a full buffer drops an event for each new one.
    fn report_dropped(&mut self, event: &Event) {
        if !self.keeps_runs && !self.is_heard(&event.run_id, EventType::EventDropped) {
            return;
        }
        for dropped in self.waiters.dropped(&event.run_id) {
            let source = Source {
                run_id: Arc::clone(&event.run_id),
                workflow_id: Arc::clone(&event.workflow_id),
                thread_id: Arc::clone(&event.thread_id),
                timestamp: event.timestamp,
            };
            // The dropped event has the trigger depth of its cause, which bounds chains of triggers.
            self.follow_up(source, dropped.at_depth(event.raised.trigger_depth));
        }
    }

    fn forward(&mut self, event: &Arc<Event>) {
        self.listeners.forward(event, &self.interest);
    }

    /// Replays the events of a resumed run, to its private subscribers only.
    fn resumed(&mut self, resumed: ResumedEvents) {
        self.sequences.insert(Arc::clone(&resumed.run_id), resumed.sequence);
        for event in &resumed.events {
            self.listeners.hand_on_in_run(event);
        }
        self.waiters.resumed(&resumed.run_id, &resumed.events);
        if let Some(last) = resumed.events.last() {
            self.report_dropped(last);
            self.send_to_matcher();
        }
        if let Some(matcher) = &self.matcher {
            matcher.do_send(MatcherMsg::Resumed(Box::new(resumed)));
        }
    }

    /// Raises an event caused by a trigger. A durable run raises it itself: it becomes an input and thus is replayed in another
    /// process.
    fn follow_up(&mut self, source: Source, event: RaisedEvent) {
        if self.keeps_runs {
            let follow_up = FollowUp {
                // An id that names no thread counts as the main thread.
                thread: ThreadId::number(&source.run_id, &source.thread_id).unwrap_or_default(),
                event: event.clone(),
            };
            let told = Message::Supervisor(ToSupervisor::FollowUp(Box::new(follow_up)));
            if let Some(run) = self.interest.run(&source.run_id) {
                return run.do_send(SupervisorMsg::Tell(told));
            }
            // The run is gone, so the event cannot be recorded and is dropped.
        } else if !self.is_heard(&source.run_id, event.event_type) {
            return;
        } else if self.sequences.contains_key(&source.run_id) {
            // `close` removes the entry of a run; without it, raising would add one that nothing removes.
            return self.raise(None, source, event);
        }
        let run_id = &source.run_id;
        tracing::warn!(%run_id, ?event, "an event came after the end of its run");
    }

    fn token(&mut self, source: Source, raised: RaisedEvent) {
        // Pieces of replies have no number of their own, because a durable run does not record them.
        let sequence = self.last_sequence(&source.run_id);
        let event = Arc::new(source.event(sequence, raised));
        self.forward(&event);
    }

    fn subscribe(&mut self, subscriber: Subscriber) {
        self.listeners.add(subscriber, &self.interest);
    }

    /// Makes the matcher handle the run's events; repeats while that raises more events, at most `rounds` times.
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
        // Runs also if the matcher drops the answer, so the run is closed in any case.
        let close = Answer::new(move |_| bus.do_send(BusMsg::Close(ended)));
        // Trigger chains have a depth limit, so the number of rounds is finite.
        self.quiesce(run_id, u32::MAX, close);
    }

    fn last_sequence(&self, run_id: &Arc<str>) -> u64 {
        self.sequences.get(run_id).copied().unwrap_or_default()
    }

    /// Ends the subscriptions of a run after all of its events were delivered.
    fn close(&mut self, ended: &EndedRun) {
        // Dropping the sender ends the subscriber's stream.
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

    /// Stops waiting for the matcher: messages to it were dropped.
    fn matcher_gone(&mut self) {
        self.matcher = None;
        // From now on, runs build no events for triggers.
        self.interest.set_triggers(EventMask::NONE, EventMask::NONE);
    }

    fn stop(&mut self, done: Answer<()>, context: &mut Context<Self>) {
        self.listeners.clear();
        self.waiters.clear();
        context.stop();
        done.give(());
    }

    /// True if this type of event of the run has a listener.
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
                // `follow_up` numbers the event, or lets the run do it.
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
                // Without a matcher no firing is on its way. The run's machine lists those that it has received.
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
            // No event was raised during the round: the triggers are quiet.
            BusMsg::Quiesced(round) if self.last_sequence(&round.run_id) == round.sequence => round.answer.give(()),
            BusMsg::Quiesced(round) => self.quiesce(round.run_id, round.rounds, round.answer),
            BusMsg::RunEnded(ended) => self.run_ended(ended),
            BusMsg::Close(ended) => self.close(&ended),
            // The matcher stops first, because its last firings may raise events that the bus delivers.
            BusMsg::Stop(done) => match &self.matcher {
                Some(matcher) => matcher.do_send(MatcherMsg::Stop(done)),
                None => self.stop(done, context),
            },
            BusMsg::MatcherStopped(done) => self.stop(done, context),
            BusMsg::MatcherGone => self.matcher_gone(),
        }
        // Flushed after every message: a later Settle or Quiesce must reach the matcher behind these events.
        self.send_to_matcher();
        self.backlog.shrinks();
    }
}
