//! WAIT nodes that wait for an event: carries the [`EventWaits`] of each run.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::event::{Event, EventWaits, RaisedEvent, TakenEvents, WaitNo};
use pirn_core::thread::Outcome;

use crate::answer::Answer;

/// Every wait under way, and the events that are kept for those to come, by run.
#[derive(Default)]
pub(crate) struct EventWaiters(BTreeMap<Arc<str>, RunWaiters>);

#[derive(Default)]
struct RunWaiters {
    waits: EventWaits,
    answers: BTreeMap<WaitNo, Answer<Outcome>>,
}

impl EventWaiters {
    /// CUSTOM events of the run that these words name are kept from now on.
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

    /// Answers those of the run that wait for this event. What [`Self::dropped`] gives of the run then.
    pub(crate) fn wake(&mut self, event: &Arc<Event>) -> Vec<RaisedEvent> {
        let Some(run) = self.0.get_mut(&event.run_id) else {
            return Vec::new();
        };
        let ended = run.waits.happened(event);
        for waiter in &ended {
            if let Some(answer) = run.answers.remove(waiter) {
                answer.give(heard(event));
            }
        }
        let dropped = run.waits.dropped();
        if !ended.is_empty() {
            self.forget_if_empty(&event.run_id);
        }
        dropped
    }

    /// EVENT_DROPPED for what is no longer kept of the run's events.
    pub(crate) fn dropped(&mut self, run_id: &Arc<str>) -> Vec<RaisedEvent> {
        self.0.get_mut(run_id).map_or_else(Vec::new, |run| run.waits.dropped())
    }

    /// Takes in the events of a run that goes on.
    pub(crate) fn resumed(&mut self, run_id: &Arc<str>, events: &[Arc<Event>]) {
        if let Some(run) = self.0.get_mut(run_id) {
            run.waits.resumed(events);
        }
    }

    /// The thread waits no longer: its time was up, or it was stopped.
    pub(crate) fn end(&mut self, run_id: &Arc<str>, waiter: WaitNo) {
        if let Some(run) = self.0.get_mut(run_id) {
            run.waits.end(waiter);
            run.answers.remove(&waiter);
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
        if self.0.get(run_id).is_some_and(|run| run.waits.is_empty()) {
            self.0.remove(run_id);
        }
    }
}

/// Whoever looks at the event makes it JSON on its own thread: the bus has every run wait.
fn heard(event: &Arc<Event>) -> Outcome {
    Outcome::Event {
        sequence: event.sequence,
        event: event.shown_later(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use pirn_core::event::RaisedEvent;

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
            raised: RaisedEvent::custom(name, []),
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
    fn m37_nothing_is_left_of_a_wait_that_ran_out() {
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
