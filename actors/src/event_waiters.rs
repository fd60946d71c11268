//! WAIT nodes that wait for an event: by run, in the order in which they began.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::event::Event;
use pirn_core::thread::Outcome;

use crate::answer::Answer;
use crate::protocol::bus::WaiterId;

/// Every wait under way.
#[derive(Default)]
pub(crate) struct EventWaiters(BTreeMap<Arc<str>, BTreeMap<WaiterId, Waiting>>);

struct Waiting {
    event: Arc<str>,
    answer: Answer<Outcome>,
}

impl EventWaiters {
    pub(crate) fn begin(&mut self, run_id: Arc<str>, waiter: WaiterId, event: Arc<str>, answer: Answer<Outcome>) {
        let waits = self.0.entry(run_id).or_default();
        waits.insert(waiter, Waiting { event, answer });
    }

    /// Answers those of the run that wait for this event.
    pub(crate) fn wake(&mut self, event: &Arc<Event>) {
        let Some(waits) = self.0.get_mut(&event.run_id) else {
            return;
        };
        if !waits.values().any(|waiting| is_heard(&waiting.event, event)) {
            return;
        }
        let heard: Vec<WaiterId> = waits
            .iter()
            .filter(|(_, waiting)| is_heard(&waiting.event, event))
            .map(|(waiter, _)| *waiter)
            .collect();
        // The bus has every run wait; whoever looks at the event makes it JSON on its own thread.
        let output = event.shown_later();
        for waiter in heard {
            if let Some(waiting) = waits.remove(&waiter) {
                waiting.answer.give(Outcome::Event(output.clone()));
            }
        }
        self.forget_if_empty(&event.run_id);
    }

    /// The thread waits no longer: its time was up, or it was stopped.
    pub(crate) fn end(&mut self, run_id: &Arc<str>, waiter: WaiterId) {
        if let Some(waits) = self.0.get_mut(run_id) {
            waits.remove(&waiter);
            self.forget_if_empty(run_id);
        }
    }

    /// The run raises no more.
    pub(crate) fn end_all(&mut self, run_id: &Arc<str>) {
        self.0.remove(run_id);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn forget_if_empty(&mut self, run_id: &Arc<str>) {
        if self.0.get(run_id).is_some_and(BTreeMap::is_empty) {
            self.0.remove(run_id);
        }
    }
}

/// True if an event is the one that is waited for, by its type or its name.
pub(crate) fn is_heard(wanted: &str, event: &Event) -> bool {
    *wanted == *event.raised.event_type.as_str() || event.raised.event_name.as_deref() == Some(wanted)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use pirn_core::event::{EventType, RaisedEvent};

    use super::*;

    /// An answer that tells whether it was given.
    fn answer() -> (Answer<Outcome>, Receiver<bool>) {
        let (told, heard) = channel();
        let answer = Answer::new(move |result: Result<Outcome, _>| told.send(result.is_ok()).unwrap_or(()));
        (answer, heard)
    }

    fn event(run: &str, name: &str) -> Arc<Event> {
        Arc::new(Event {
            sequence: 1,
            timestamp: 0,
            run_id: run.into(),
            workflow_id: "w".into(),
            thread_id: "t".into(),
            raised: RaisedEvent {
                event_name: Some(name.into()),
                ..RaisedEvent::new(EventType::Custom, [])
            },
        })
    }

    #[test]
    fn m38_one_event_ends_every_wait_for_it_and_no_other() {
        let mut waits = EventWaiters::default();
        let run: Arc<str> = "r".into();
        let heard: Vec<Receiver<bool>> = ["go", "stay", "CUSTOM", "go"]
            .into_iter()
            .zip(0..)
            .map(|(event, waiter)| {
                let (answer, heard) = answer();
                waits.begin(Arc::clone(&run), waiter, event.into(), answer);
                heard
            })
            .collect();
        waits.wake(&event("other", "go"));
        assert!(
            heard.iter().all(|heard| heard.try_recv().is_err()),
            "M38: another run's"
        );
        waits.wake(&event("r", "go"));
        let told: Vec<Option<bool>> = heard.iter().map(|heard| heard.try_recv().ok()).collect();
        assert_eq!(told, [Some(true), None, Some(true), Some(true)], "M38");
        waits.wake(&event("r", "stay"));
        assert!(waits.0.is_empty(), "nothing is left of a run that waits for nothing");
    }

    #[test]
    fn m37_nothing_is_left_of_a_wait_that_ran_out() {
        let mut waits = EventWaiters::default();
        let run: Arc<str> = "r".into();
        for waiter in 0..2 {
            waits.begin(Arc::clone(&run), waiter, "go".into(), answer().0);
        }
        waits.end(&run, 0);
        assert_eq!(waits.0[&run].keys().collect::<Vec<_>>(), [&1], "M37");
        waits.end(&run, 1);
        waits.end(&run, 1);
        assert!(waits.0.is_empty(), "M37");
    }
}
