//! The bus's way to the trigger matcher, which lives on the same thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::Addr;
use pirn_core::event::{Event, EventData, RaisedEvent};

use crate::events::Source;
use crate::triggers::{MatcherMsg, TriggerMatcherActor};

/// For how many events there are places that were another's before.
const SPARE: usize = 256;

/// Events that the bus has left for the matcher.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Rc<RefCell<Lying>>);

#[derive(Default)]
struct Lying {
    events: Vec<Arc<Event>>,
    /// Places of events that nobody has any more.
    spare: Vec<Arc<Event>>,
}

impl Inbox {
    /// What lies there; `room` takes its place.
    pub(crate) fn take(&self, room: Vec<Arc<Event>>) -> Vec<Arc<Event>> {
        std::mem::replace(&mut self.0.borrow_mut().events, room)
    }

    fn share(&self, source: &Source, sequence: u64, raised: RaisedEvent) -> Arc<Event> {
        let spare = self.0.borrow_mut().spare.pop();
        if let Some(mut place) = spare
            && let Some(own) = Arc::get_mut(&mut place)
        {
            source.replace(own, sequence, raised);
            return place;
        }
        Arc::new(source.event(sequence, raised))
    }

    /// These have been handled. Where nobody else has one its place is used again, and what it said is dropped.
    pub(crate) fn done_with(&self, events: &mut Vec<Arc<Event>>) {
        for mut event in events.drain(..) {
            let Some(own) = Arc::get_mut(&mut event) else {
                continue;
            };
            // Whatever this drops is the host's; it may ask for the next event meanwhile.
            own.raised.data = EventData::from([]);
            let spare = &mut self.0.borrow_mut().spare;
            if spare.len() < SPARE {
                spare.push(event);
            }
        }
    }
}

/// The bus's way to the matcher. They live on one thread: events lie in an inbox, and one message announces as many as
/// come before it is handled.
pub(crate) struct MatcherAddr {
    address: Addr<TriggerMatcherActor>,
    inbox: Inbox,
}

impl MatcherAddr {
    pub(crate) fn new(address: Addr<TriggerMatcherActor>, inbox: Inbox) -> Self {
        Self { address, inbox }
    }

    pub(crate) fn do_send(&self, message: MatcherMsg) {
        self.address.do_send(message);
    }

    /// An event that [`MatcherAddr::happened`] is to be told.
    pub(crate) fn share(&self, source: &Source, sequence: u64, raised: RaisedEvent) -> Arc<Event> {
        self.inbox.share(source, sequence, raised)
    }

    pub(crate) fn happened(&self, event: Arc<Event>) {
        let mut lying = self.inbox.0.borrow_mut();
        if lying.events.is_empty() {
            self.address.do_send(MatcherMsg::Happened);
        }
        lying.events.push(event);
    }
}

#[cfg(test)]
mod tests {
    use pirn_core::event::{EventType, Field, RaisedEvent};
    use pirn_core::thread::Output;
    use serde_json::json;

    use super::*;

    fn source(run: &str) -> Source {
        Source {
            run_id: run.into(),
            workflow_id: "w".into(),
            thread_id: format!("{run}.0").into(),
            timestamp: 5,
        }
    }

    fn raised(output: &Output) -> RaisedEvent {
        RaisedEvent::of(EventType::Custom, [("output", Field::from(output))])
    }

    #[test]
    fn the_place_of_an_event_is_anothers_only_when_nobody_has_it_and_keeps_nothing_of_it() {
        let inbox = Inbox::default();
        let output = Output::from(json!([1]));
        let one = source("one");
        let share = |source: &Source, number| inbox.share(source, number, raised(&output));
        let mut events: Vec<Arc<Event>> = (1..=3).map(|number| share(&one, number)).collect();
        let kept = Arc::clone(&events[1]);
        let places: Vec<*const Event> = events.iter().map(Arc::as_ptr).collect();
        assert_eq!(Arc::strong_count(output.value()), 4);
        inbox.done_with(&mut events);
        assert_eq!(Arc::strong_count(output.value()), 2, "what the others said is gone");
        let other = source("other");
        let next = [share(&one, 4), share(&other, 5), share(&other, 6)];
        assert_eq!([Arc::as_ptr(&next[0]), Arc::as_ptr(&next[1])], [places[2], places[0]]);
        let expected = [(&one, 4), (&other, 5), (&other, 6)];
        assert!(
            next.iter()
                .zip(expected)
                .all(|(shared, (source, number))| **shared == source.event(number, raised(&output)))
        );
        assert_eq!(*kept, one.event(2, raised(&output)));
    }
}
