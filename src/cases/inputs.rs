//! Delivery of recorded inputs that the run did not request, each at its recorded position.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_actors::engine::{EngineShared, StartedRun};
use pirn_actors::events::{Deliver, Delivery, Undelivered};
use pirn_definition::Millis;
use pirn_events::event::Event;

use super::differences::quoted;
use super::graders::GradeFailure;
use crate::engine::durable::{EventPosition, EventPositions, OutsideInput, OutsideInputKind};
use crate::engine::virtual_host;

/// Subscriber to the events of a run that delivers recorded inputs to the run.
#[derive(Clone)]
pub(super) struct InputFeed {
    engine: Arc<EngineShared>,
    state: Arc<Mutex<FeedState>>,
}

struct FeedState {
    inputs: Vec<OutsideInput>,
    /// Indices of the inputs at each position that the run has not passed.
    waiting: BTreeMap<Option<EventPosition>, Vec<usize>>,
    positions: EventPositions,
    /// Why each input was not delivered; `None` once the run has received it.
    missing: Vec<Option<String>>,
}

impl InputFeed {
    pub(super) fn new(engine: &Arc<EngineShared>, inputs: Vec<OutsideInput>) -> Self {
        let mut waiting: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, input) in inputs.iter().enumerate() {
            waiting.entry(input.after.clone()).or_default().push(place);
        }
        let missing = inputs.iter().map(|input| Some(not_reached(input))).collect();
        let state = FeedState {
            inputs,
            waiting,
            positions: EventPositions::default(),
            missing,
        };
        Self {
            engine: Arc::clone(engine),
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the inputs that the run has not received.
    pub(super) fn missing(&self) -> Vec<GradeFailure> {
        let state = self.state();
        let numbered = state.inputs.iter().zip(&state.missing).enumerate();
        let missing = numbered.filter_map(|(place, (input, why))| {
            let (number, what, why) = (place + 1, described(&input.input), why.as_ref()?);
            Some(GradeFailure {
                grader: "input",
                message: format!("input {number} ({what}) was not delivered: {why}"),
            })
        });
        missing.collect()
    }

    /// Returns the inputs that are due after an event, with their delays, in the order of the recording.
    fn due(&self, event: &Event) -> Vec<(Millis, Vec<usize>)> {
        let mut state = self.state();
        // Inputs before the first event are due at the first one that arrives here.
        let mut places = state.waiting.remove(&None).unwrap_or_default();
        if let Some(position) = state.positions.of(&event.thread_id, &event.raised) {
            places.extend(state.waiting.remove(&Some(position)).unwrap_or_default());
        }
        let mut due: Vec<(Millis, Vec<usize>)> = Vec::new();
        for place in places {
            state.missing[place] = Some("the run ended before".to_owned());
            let after_ms = state.inputs[place].after_ms;
            match due.last_mut() {
                // One timer, because timers of one moment may fire in any order.
                Some((of_last, group)) if *of_last == after_ms => group.push(place),
                _ => due.push((after_ms, vec![place])),
            }
        }
        due
    }

    fn give(&self, run_id: &str, places: &[usize]) {
        // A run that has ended has no address any more.
        let Some(run) = self.engine.find(run_id) else { return };
        for place in places {
            let input = self.state().inputs[*place].input.clone();
            self.send(&run, *place, input);
        }
    }

    fn send(&self, run: &StartedRun, place: usize, input: OutsideInputKind) {
        match input {
            OutsideInputKind::Message(message) => {
                let state = Arc::clone(&self.state);
                run.say(Some(message.id), message.text, message.when, move |taken| {
                    let why = taken.err().map(|refused| refused.to_string());
                    state.lock().unwrap_or_else(PoisonError::into_inner).missing[place] = why;
                });
                return;
            }
            OutsideInputKind::Event(event) => run.raise(event),
            OutsideInputKind::Pin { section, value } => run.pin(section, value),
            OutsideInputKind::Cancel { reason } => run.cancel(reason),
        }
        self.state().missing[place] = None;
    }
}

impl Deliver for InputFeed {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        // This subscriber accepts every event, so none is dropped.
        let Delivery::Event(event) = delivery else {
            return Ok(());
        };
        for (after, places) in self.due(&event) {
            let (feed, run_id) = (self.clone(), Arc::clone(&event.run_id));
            let give = move || feed.give(&run_id, &places);
            match virtual_host().filter(|_| after > 0) {
                Some(host) => host.after(None, after, give).detach(),
                None => give(),
            }
        }
        Ok(())
    }

    // The inputs that wait now are reported as missing.
    fn end(&mut self, _missed: u64) {}

    fn another(&self) -> Box<dyn Deliver> {
        Box::new(self.clone())
    }
}

/// Describes an input in a few words.
fn described(input: &OutsideInputKind) -> String {
    match input {
        OutsideInputKind::Message(message) => format!("message {}", quoted(&(*message.text).into())),
        OutsideInputKind::Event(event) => {
            let name = event.event_name.as_deref().unwrap_or(event.event_type.as_str());
            format!("event `{name}`")
        }
        OutsideInputKind::Pin { section, .. } => format!("pinned `{}`", section.as_str()),
        OutsideInputKind::Cancel { .. } => "cancel".to_owned(),
    }
}

fn not_reached(input: &OutsideInput) -> String {
    let Some(position) = &input.after else {
        return "the run did not start".to_owned();
    };
    let node = position.node_id.as_ref().map(|id| format!(" of node `{id}`"));
    format!(
        "the run did not reach {} {}{} in thread {}",
        position.event_type.as_str(),
        position.number,
        node.unwrap_or_default(),
        position.thread_id
    )
}
