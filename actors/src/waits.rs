//! WAIT nodes that wait for an event: by run, in the order in which they began.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::event::Event;
use pirn_core::thread::Outcome;

use crate::answer::Answer;
use crate::events::BusMsg;
use crate::run::RunShared;

/// Names a wait in its run.
pub(crate) type Ticket = u64;

/// Every wait under way.
#[derive(Default)]
pub(crate) struct Waits(BTreeMap<Arc<str>, BTreeMap<Ticket, Waiting>>);

struct Waiting {
    event: Arc<str>,
    answer: Answer<Outcome>,
}

impl Waits {
    pub(crate) fn begin(&mut self, run_id: Arc<str>, ticket: Ticket, event: Arc<str>, answer: Answer<Outcome>) {
        let waits = self.0.entry(run_id).or_default();
        waits.insert(ticket, Waiting { event, answer });
    }

    /// Answers those of the run that wait for this event.
    pub(crate) fn wake(&mut self, event: &Arc<Event>) {
        let Some(waits) = self.0.get_mut(&event.run_id) else {
            return;
        };
        let (word, name) = (event.raised.event_type.as_str(), event.raised.event_name.as_deref());
        let is_heard = |waiting: &Waiting| *waiting.event == *word || name == Some(&*waiting.event);
        if !waits.values().any(is_heard) {
            return;
        }
        let heard: Vec<Ticket> = waits
            .iter()
            .filter(|(_, waiting)| is_heard(waiting))
            .map(|(ticket, _)| *ticket)
            .collect();
        // The bus has every run wait; whoever looks at the event makes it JSON on its own thread.
        let output = event.shown_later();
        for ticket in heard {
            if let Some(waiting) = waits.remove(&ticket) {
                waiting.answer.give(Outcome::Event(output.clone()));
            }
        }
        self.forget_if_empty(&event.run_id);
    }

    /// The thread waits no longer: its time was up, or it was stopped.
    pub(crate) fn end(&mut self, run_id: &Arc<str>, ticket: Ticket) {
        if let Some(waits) = self.0.get_mut(run_id) {
            waits.remove(&ticket);
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

/// A thread's hold on its wait. Dropping it ends the wait.
pub(crate) struct WaitHandle {
    run: Rc<RunShared>,
    ticket: Ticket,
    is_over: bool,
}

impl WaitHandle {
    /// Has the bus answer when the event comes.
    pub(crate) fn begin(run: &Rc<RunShared>, event: Arc<str>, answer: Answer<Outcome>) -> Self {
        let ticket = run.next_wait.get();
        run.next_wait.set(ticket + 1);
        run.bus().do_send(BusMsg::Wait {
            run_id: Arc::clone(&run.run_id),
            ticket,
            event,
            answer,
        });
        Self {
            run: Rc::clone(run),
            ticket,
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
            self.run.bus().do_send(BusMsg::WaitEnded {
                run_id: Arc::clone(&self.run.run_id),
                ticket: self.ticket,
            });
        }
    }
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
        let mut waits = Waits::default();
        let run: Arc<str> = "r".into();
        let heard: Vec<Receiver<bool>> = ["go", "stay", "CUSTOM", "go"]
            .into_iter()
            .zip(0..)
            .map(|(event, ticket)| {
                let (answer, heard) = answer();
                waits.begin(Arc::clone(&run), ticket, event.into(), answer);
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
        let mut waits = Waits::default();
        let run: Arc<str> = "r".into();
        for ticket in 0..2 {
            waits.begin(Arc::clone(&run), ticket, "go".into(), answer().0);
        }
        waits.end(&run, 0);
        assert_eq!(waits.0[&run].keys().collect::<Vec<_>>(), [&1], "M37");
        waits.end(&run, 1);
        waits.end(&run, 1);
        assert!(waits.0.is_empty(), "M37");
    }
}
