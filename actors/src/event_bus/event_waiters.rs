//! WAIT nodes that wait for an event: drives the [`EventWaits`] of each run.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::thread::Outcome;
use pirn_events::event::{Event, EventWaits, RaisedEvent, TakenEvents, WaitNo};

use crate::answer::Answer;

/// Open waits, and events retained for later waits, by run.
#[derive(Default)]
pub(crate) struct EventWaiters(BTreeMap<Arc<str>, RunWaiters>);

#[derive(Default)]
struct RunWaiters {
    waits: EventWaits,
    answers: BTreeMap<WaitNo, Answer<Outcome>>,
}

impl EventWaiters {
    /// Retains CUSTOM events of these names for later waits.
    pub(crate) fn keep(&mut self, run_id: &Arc<str>, words: &[Arc<str>]) {
        self.0.entry(Arc::clone(run_id)).or_default().waits.keep(words);
        self.forget_if_empty(run_id);
    }

    pub(crate) fn begin(
        &mut self,
        run_id: &Arc<str>,
        waiter: WaitNo,
        (word, taken): (&Arc<str>, &TakenEvents),
        answer: Answer<Outcome>,
    ) {
        let run = self.0.entry(Arc::clone(run_id)).or_default();
        match run.waits.begin(waiter, word, taken) {
            Some(event) => answer.give(heard(&event)),
            None => drop(run.answers.insert(waiter, answer)),
        }
        self.forget_if_empty(run_id);
    }

    /// Answers the waits for this event. Returns true if [`Self::dropped`] has events to report.
    pub(crate) fn wake(&mut self, event: &Arc<Event>) -> bool {
        let Some(run) = self.0.get_mut(&event.run_id) else {
            return false;
        };
        let ended = run.waits.happened(event);
        for waiter in &ended {
            if let Some(answer) = run.answers.remove(waiter) {
                answer.give(heard(event));
            }
        }
        let has_dropped = run.waits.has_dropped();
        // Only an ended wait can empty the entry; for all other events the lookup is saved.
        if !ended.is_empty() {
            self.forget_if_empty(&event.run_id);
        }
        has_dropped
    }

    /// Returns an EVENT_DROPPED for each word with events dropped since the last call.
    pub(crate) fn dropped(&mut self, run_id: &Arc<str>) -> Vec<RaisedEvent> {
        self.0.get_mut(run_id).map_or_else(Vec::new, |run| run.waits.dropped())
    }

    /// Adds the earlier events of a resumed run.
    pub(crate) fn resumed(&mut self, run_id: &Arc<str>, events: &[Arc<Event>]) {
        if let Some(run) = self.0.get_mut(run_id) {
            run.waits.resumed(events);
        }
    }

    /// Removes a wait that timed out or was cancelled.
    pub(crate) fn end(&mut self, run_id: &Arc<str>, waiter: WaitNo) {
        if let Some(run) = self.0.get_mut(run_id) {
            run.waits.end(waiter);
            run.answers.remove(&waiter);
            self.forget_if_empty(run_id);
        }
    }

    /// Removes the waits and events of an ended run.
    pub(crate) fn end_all(&mut self, run_id: &Arc<str>) {
        self.0.remove(run_id);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn forget_if_empty(&mut self, run_id: &Arc<str>) {
        if self.0.get(run_id).is_some_and(|run| run.waits.is_empty()) {
            self.0.remove(run_id);
        }
    }
}

/// The conversion to JSON is deferred to the receiving thread, because time spent on the bus delays every run.
fn heard(event: &Arc<Event>) -> Outcome {
    Outcome::Event {
        sequence: event.sequence,
        event: event.lazy_json(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use pirn_events::event::RaisedEvent;

    use super::*;

    /// An answer, and a receiver of whether it was given.
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
            raised: RaisedEvent::custom(name, []),
        })
    }

    #[test]
    fn m38_an_event_ends_exactly_the_waits_for_it() {
        let mut waits = EventWaiters::default();
        let run: Arc<str> = "r".into();
        let heard: Vec<Receiver<bool>> = ["go", "stay", "CUSTOM", "go"]
            .into_iter()
            .zip(0..)
            .map(|(event, waiter)| {
                let (answer, heard) = answer();
                waits.begin(&run, waiter, (&event.into(), &TakenEvents::default()), answer);
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
    fn m37_a_timed_out_wait_is_removed() {
        let mut waits = EventWaiters::default();
        let run: Arc<str> = "r".into();
        for waiter in 0..2 {
            waits.begin(&run, waiter, (&"go".into(), &TakenEvents::default()), answer().0);
        }
        waits.end(&run, 0);
        assert_eq!(waits.0[&run].answers.keys().collect::<Vec<_>>(), [&1], "M37");
        waits.end(&run, 1);
        waits.end(&run, 1);
        assert!(waits.0.is_empty(), "M37");
    }
}
