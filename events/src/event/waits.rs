//! Waits of a run for events: decides which event ends which wait.
//!
//! | input | effect |
//! |---|---|
//! | `keep` | CUSTOM events with these names are retained from now on |
//! | `happened` | ends every wait for the event; retains the event if its name, or `CUSTOM`, is retained |
//! | `begin` | the first retained event that the thread has not taken ends the wait at once; else the wait is open |
//! | `end` | closes the wait |
//!
//! A word is the name of CUSTOM events, or `CUSTOM` for all of them. Retained events can end waits that start later; events of
//! any other type end only waits that are already open. Invariants:
//!
//! - one event ends every wait for it;
//! - a thread takes each event at most once, and the events of a word in order;
//! - at most [`MAX_KEPT_EVENTS`] events are retained for each word, and each dropped one is counted once in
//!   [`EventWaits::dropped`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pirn_definition::event_type::{EventType, is_kept};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Event, RaisedEvent};

/// Maximum number of retained events for each word; the oldest is dropped.
pub const MAX_KEPT_EVENTS: usize = 1_000;

/// Events that a thread has taken: for each word, the sequence of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenEvents(BTreeMap<Arc<str>, u64>);

impl TakenEvents {
    /// Records that a wait for this word has taken the event with this sequence.
    pub fn take(&mut self, word: &Arc<str>, sequence: u64) {
        if is_kept(word) {
            self.0.insert(Arc::clone(word), sequence);
        }
    }

    /// Returns the sequence of the last event that a wait for this word has taken; 0 without one.
    pub fn last(&self, word: &str) -> u64 {
        self.0.get(word).copied().unwrap_or_default()
    }

    /// Makes the last event of a word available again: `before` is what [`TakenEvents::last`] returned before it was taken.
    pub fn give_back(&mut self, word: &Arc<str>, before: u64) {
        if before == 0 {
            self.0.remove(word);
        } else {
            self.0.insert(Arc::clone(word), before);
        }
    }

    /// Returns true if this thread must not take the event of this sequence for a word.
    pub fn is_taken(&self, word: &str, sequence: u64) -> bool {
        is_kept(word) && sequence <= self.up_to(word)
    }

    /// Returns the sequence up to which every event of a word has been taken.
    fn up_to(&self, word: &str) -> u64 {
        self.last(word).max(self.last(EventType::Custom.as_str()))
    }

    fn has(&self, event: &Event) -> bool {
        event.sequence <= self.up_to(event.raised.event_name.as_deref().unwrap_or_default())
    }
}

/// True if a word names an event, by its type or its name.
pub fn is_named(word: &str, event: &Event) -> bool {
    let raised = &event.raised;
    *word == *raised.event_type.as_str()
        || (raised.event_type == EventType::Custom && raised.event_name.as_deref() == Some(word))
}

/// Returns the event that ends a wait for `word` which was open when its process ended: the first of that name among `later`, the
/// events that the run raised after the wait began.
///
/// Returns `None` for a word with retained events ([`is_kept`]): [`EventWaits`] finds those when the wait is registered
/// again, and a second answer would be a duplicate.
pub fn missed_event<'a>(word: &str, later: &'a [Arc<Event>]) -> Option<&'a Arc<Event>> {
    if is_kept(word) {
        return None;
    }
    later.iter().find(|event| is_named(word, event))
}

/// Number of a wait in its run.
pub type WaitNo = u64;

/// Waits and retained events of a run; the module documentation lists its inputs.
#[derive(Debug)]
pub struct EventWaits {
    most: usize,
    kept: BTreeMap<Arc<str>, EventBuffer>,
    waiting: BTreeMap<WaitNo, Arc<str>>,
    /// Index of `waiting` by word: an event visits only the waits that it ends.
    by_word: BTreeMap<Arc<str>, BTreeSet<WaitNo>>,
    /// Words with dropped events that [`Self::dropped`] has not reported.
    untold: BTreeSet<Arc<str>>,
    /// Number of waits that events were matched against.
    #[cfg(test)]
    visits: usize,
}

#[derive(Debug, Default)]
struct EventBuffer {
    events: VecDeque<Arc<Event>>,
    /// Number of dropped events that are not reported.
    dropped: u64,
    up_to: u64,
}

impl Default for EventWaits {
    fn default() -> Self {
        Self::keeping(MAX_KEPT_EVENTS)
    }
}

impl EventWaits {
    fn keeping(most: usize) -> Self {
        Self {
            most,
            kept: BTreeMap::new(),
            waiting: BTreeMap::new(),
            by_word: BTreeMap::new(),
            untold: BTreeSet::new(),
            #[cfg(test)]
            visits: 0,
        }
    }

    /// Retains the CUSTOM events with these names from now on; other words are ignored.
    pub fn keep<'a>(&mut self, words: impl IntoIterator<Item = &'a Arc<str>>) {
        for word in words.into_iter().filter(|word| is_kept(word)) {
            self.kept.entry(Arc::clone(word)).or_default();
        }
    }

    /// Handles an event of the run. Returns the waits that it ends.
    pub fn happened(&mut self, event: &Arc<Event>) -> Vec<WaitNo> {
        if event.raised.event_type == EventType::Custom && !self.kept.is_empty() {
            let name = event.raised.event_name.as_deref();
            for word in [Some(EventType::Custom.as_str()), name].into_iter().flatten() {
                self.put(word, event);
            }
        }
        if self.by_word.is_empty() {
            return Vec::new();
        }
        let mut ended = Vec::new();
        if let Some(waits) = self.by_word.remove(event.raised.event_type.as_str()) {
            ended.extend(waits);
        }
        if event.raised.event_type == EventType::Custom
            && let Some(name) = event.raised.event_name.as_deref()
            && let Some(waits) = self.by_word.remove(name)
        {
            ended.extend(waits);
            // The waits of both words end in the order in which they began.
            ended.sort_unstable();
        }
        #[cfg(test)]
        {
            self.visits += ended.len();
        }
        for wait in &ended {
            self.waiting.remove(wait);
        }
        ended
    }

    fn put(&mut self, word: &str, event: &Arc<Event>) {
        let Some(kept) = self.kept.get_mut(word) else { return };
        // A CUSTOM event with the name CUSTOM is retained once, not twice.
        if kept.events.back().is_some_and(|last| last.sequence == event.sequence) {
            return;
        }
        kept.events.push_back(Arc::clone(event));
        if kept.events.len() > self.most
            && let Some(oldest) = kept.events.pop_front()
        {
            kept.dropped += 1;
            kept.up_to = oldest.sequence;
            // A word with unreported drops is in `untold` already.
            if kept.dropped == 1 {
                self.untold.insert(word.into());
            }
        }
    }

    /// Starts a wait for a word, for a thread that has taken these events. Returns the event that ends the wait at once, if any.
    pub fn begin(&mut self, wait: WaitNo, word: &Arc<str>, taken: &TakenEvents) -> Option<Arc<Event>> {
        let first = self.kept.get(word).and_then(|kept| {
            // Events are in the order of their sequences, so those that this word has taken come first.
            let up_to = taken.up_to(word);
            let from = kept.events.partition_point(|event| event.sequence <= up_to);
            kept.events.range(from..).find(|event| !taken.has(event)).cloned()
        });
        if first.is_none() {
            self.end(wait);
            self.waiting.insert(wait, Arc::clone(word));
            self.by_word.entry(Arc::clone(word)).or_default().insert(wait);
        }
        first
    }

    /// Closes a wait after its timeout, or after its thread was stopped.
    pub fn end(&mut self, wait: WaitNo) {
        let Some(word) = self.waiting.remove(&wait) else { return };
        if let Some(waits) = self.by_word.get_mut(&word) {
            waits.remove(&wait);
            if waits.is_empty() {
                self.by_word.remove(&word);
            }
        }
    }

    /// True if events were dropped that [`Self::dropped`] has not reported.
    pub fn has_dropped(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Returns an EVENT_DROPPED for each word with events dropped since the last call.
    pub fn dropped(&mut self) -> Vec<RaisedEvent> {
        if self.untold.is_empty() {
            return Vec::new();
        }
        let untold = std::mem::take(&mut self.untold);
        let told = untold.into_iter().filter_map(|word| {
            let kept = self.kept.get_mut(&word)?;
            let count = std::mem::take(&mut kept.dropped);
            let fields = [
                ("name", json!(word)),
                ("dropped", json!(count)),
                ("upTo", json!(kept.up_to)),
            ];
            (count > 0).then(|| RaisedEvent::new(EventType::EventDropped, fields))
        });
        told.collect()
    }

    /// Restores the events of a resumed run. Drops that its EVENT_DROPPED events report are not reported again.
    pub fn resumed(&mut self, events: &[Arc<Event>]) {
        for event in events {
            self.happened(event);
        }
        for event in events
            .iter()
            .filter(|event| event.raised.event_type == EventType::EventDropped)
        {
            let data = &event.raised.fields;
            let (name, told) = (data["name"].as_str(), data["dropped"].as_u64());
            if let Some(kept) = name.and_then(|name| self.kept.get_mut(name)) {
                kept.dropped = kept.dropped.saturating_sub(told.unwrap_or_default());
            }
        }
    }

    /// True if no word is retained and no wait is open.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: [&str; 4] = ["go", "stay", "CUSTOM", "NODE_STARTED"];

    #[derive(Clone, Debug)]
    enum Happens {
        Event(EventType, &'static str),
        Wait { thread: usize, word: &'static str },
        Stopped { thread: usize },
    }

    fn happens(words: &'static [&'static str]) -> impl Strategy<Value = Happens> {
        let types = prop_oneof![9 => Just(EventType::Custom), 1 => Just(EventType::NodeStarted)];
        prop_oneof![
            3 => (types, prop::sample::select(&["go", "stay", "other"][..])).prop_map(|(kind, name)| Happens::Event(kind, name)),
            3 => (0..3_usize, prop::sample::select(words)).prop_map(|(thread, word)| Happens::Wait { thread, word }),
            1 => (0..3_usize).prop_map(|thread| Happens::Stopped { thread }),
        ]
    }

    fn event(sequence: u64, event_type: EventType, name: &str) -> Arc<Event> {
        let raised = match event_type {
            EventType::Custom => RaisedEvent::custom(name, []),
            other => RaisedEvent::new(other, []),
        };
        Arc::new(Event {
            sequence,
            timestamp: 0,
            run_id: "r".into(),
            workflow_id: "w".into(),
            thread_id: "r.0".into(),
            raised,
        })
    }

    /// Oracle: every event, and the events that each thread has taken.
    #[derive(Default)]
    struct Oracle {
        events: Vec<Arc<Event>>,
        taken: [BTreeSet<u64>; 3],
    }

    impl Oracle {
        /// Returns the first of the last `most` events of a word that the thread has not taken.
        fn first(&self, thread: usize, word: &str, most: usize) -> Option<u64> {
            if word == "NODE_STARTED" {
                return None;
            }
            let named: Vec<u64> = self
                .events
                .iter()
                .filter(|event| is_named(word, event))
                .map(|event| event.sequence)
                .collect();
            let kept = &named[named.len().saturating_sub(most)..];
            kept.iter()
                .copied()
                .find(|sequence| !self.taken[thread].contains(sequence))
        }
    }

    /// Applies the steps to the machine and the oracle, and compares the reported drops of each word.
    fn play(most: usize, steps: Vec<Happens>) -> Result<(), TestCaseError> {
        let mut waits = EventWaits::keeping(most);
        waits.keep(&WORDS.map(Arc::from));
        let mut oracle = Oracle::default();
        let mut taken: [TakenEvents; 3] = Default::default();
        let mut open: [Option<&'static str>; 3] = [None; 3];
        let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Happens::Event(event_type, name) => {
                    let event = event(oracle.events.len() as u64 + 1, event_type, name);
                    let ended = waits.happened(&event);
                    let expected: Vec<WaitNo> = (0..3)
                        .filter(|thread| open[*thread as usize].is_some_and(|word| is_named(word, &event)))
                        .collect();
                    prop_assert_eq!(&ended, &expected, "one event ends every wait for it, and no other");
                    for thread in ended {
                        let word = open[thread as usize].take().unwrap_or_default();
                        taken[thread as usize].take(&word.into(), event.sequence);
                        oracle.taken[thread as usize].insert(event.sequence);
                    }
                    oracle.events.push(event);
                }
                Happens::Wait { thread, word } if open[thread].is_none() => {
                    let first = waits.begin(thread as u64, &word.into(), &taken[thread]);
                    let first = first.map(|event| event.sequence);
                    prop_assert_eq!(first, oracle.first(thread, word, most));
                    match first {
                        Some(sequence) => {
                            taken[thread].take(&word.into(), sequence);
                            prop_assert!(oracle.taken[thread].insert(sequence), "taken twice");
                        }
                        None => open[thread] = Some(word),
                    }
                }
                Happens::Wait { .. } => {}
                Happens::Stopped { thread } => {
                    waits.end(thread as u64);
                    open[thread] = None;
                }
            }
            for told in waits.dropped() {
                *dropped.entry(told.fields["name"].to_string()).or_default() +=
                    told.fields["dropped"].as_u64().unwrap_or_default();
            }
        }
        for word in ["go", "stay", "CUSTOM"] {
            let named = oracle.events.iter().filter(|event| is_named(word, event)).count();
            let told = dropped.get(&json!(word).to_string()).copied().unwrap_or_default();
            prop_assert_eq!(
                told,
                named.saturating_sub(most) as u64,
                "each dropped event is reported once"
            );
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_wait_takes_the_first_event_not_yet_taken_by_its_thread(
            steps in prop::collection::vec(happens(&WORDS), 0..60),
        ) {
            play(60, steps)?;
        }

        #[test]
        fn the_oldest_event_of_a_name_is_dropped_and_reported_over_the_limit(
            most in 1..4_usize,
            steps in prop::collection::vec(happens(&WORDS[..2]), 0..60),
        ) {
            play(most, steps)?;
        }
    }

    #[test]
    fn dropped_events_reported_before_a_resume_are_not_reported_again() {
        let mut events: Vec<Arc<Event>> = (1..=5)
            .map(|sequence| event(sequence, EventType::Custom, "go"))
            .collect();
        let mut first = EventWaits::keeping(2);
        first.keep(&[Arc::from("go")]);
        events.iter().take(4).for_each(|event| drop(first.happened(event)));
        let told = first.dropped().remove(0);
        assert_eq!((&told.fields["dropped"], &told.fields["upTo"]), (&json!(2), &json!(2)));
        events.push(Arc::new(Event {
            raised: told,
            sequence: 6,
            ..(*events[0]).clone()
        }));
        let mut again = EventWaits::keeping(2);
        again.keep(&[Arc::from("go")]);
        again.resumed(&events);
        let told = again.dropped();
        assert_eq!(
            (told.len(), &told[0].fields["dropped"], &told[0].fields["upTo"]),
            (1, &json!(1), &json!(3))
        );
        let mut all = events.clone();
        all.push(Arc::new(Event {
            raised: told[0].clone(),
            sequence: 7,
            ..(*events[0]).clone()
        }));
        let mut third = EventWaits::keeping(2);
        third.keep(&[Arc::from("go")]);
        third.resumed(&all);
        assert_eq!(third.dropped(), []);
        let first = again.begin(0, &"go".into(), &TakenEvents::default());
        assert_eq!(first.map(|event| event.sequence), Some(4));
    }

    #[test]
    fn an_event_without_a_wait_for_its_name_is_not_stored() {
        let mut waits = EventWaits::default();
        waits.happened(&event(1, EventType::Custom, "go"));
        waits.keep(&[Arc::from("NODE_STARTED")]);
        assert!(waits.is_empty());
        assert_eq!(waits.begin(0, &"go".into(), &TakenEvents::default()), None);
        assert!(!waits.is_empty());
        waits.end(0);
        assert!(waits.is_empty());
        waits.keep(&[Arc::from("go")]);
        assert!(!waits.is_empty());
    }

    #[test]
    fn a_wait_open_at_a_crash_ends_with_the_first_later_event_of_a_built_in_type() {
        let later = [
            event(3, EventType::NodeStarted, ""),
            event(4, EventType::Custom, "go"),
            event(5, EventType::NodeStarted, ""),
        ];
        assert_eq!(
            missed_event("NODE_STARTED", &later).map(|event| event.sequence),
            Some(3)
        );
        assert_eq!(missed_event("NODE_FAILED", &later), None);
        assert_eq!(
            missed_event("go", &later),
            None,
            "EventWaits finds it when the wait is registered again"
        );
    }

    #[test]
    fn an_event_visits_only_the_waits_that_it_ends() {
        let mut waits = EventWaits::default();
        for wait in 0..10_000 {
            let word = format!("answer-{wait}");
            assert_eq!(waits.begin(wait, &word.as_str().into(), &TakenEvents::default()), None);
        }
        for wait in 0..10_000 {
            waits.happened(&event(2 * wait + 1, EventType::NodeStarted, ""));
            let name = format!("answer-{wait}");
            assert_eq!(waits.happened(&event(2 * wait + 2, EventType::Custom, &name)), [wait]);
        }
        assert_eq!(waits.visits, 10_000, "one wait for 20,000 events each");
        assert!(waits.is_empty() && waits.by_word.is_empty());
    }

    #[test]
    fn a_wait_name_is_an_event_type_or_a_custom_event_name() {
        assert!(is_kept("go") && is_kept("CUSTOM"));
        assert!(
            EventType::ALL
                .iter()
                .all(|known| *known == EventType::Custom || !is_kept(known.as_str()))
        );
    }
}
