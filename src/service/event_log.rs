//! The events of one run that streams can still read: bounded, and it knows what it has lost.
//!
//! 1. Events stand in the order of their sequence; a sequence that is not there was lost, never reordered.
//! 2. A reader keeps nothing here but the sequence that it has read to, so no reader can hold up another, or the run.
//! 3. A log that is closed gets nothing more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use pirn_core::event::Event;
use tokio::sync::watch;

/// An event, and its JSON: written once for every reader.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) event: Arc<Event>,
    pub(super) json: Bytes,
}

#[derive(Debug)]
pub(super) struct EventLog {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    max_events: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Recorded>,
    bytes: usize,
    /// The last sequence that came, or is known to be lost.
    last: u64,
    /// So many events came and are no longer kept.
    gone: u64,
    is_closed: bool,
}

/// The events after a sequence.
#[derive(Debug)]
pub(super) struct Page {
    /// The next events, oldest first; empty where none has come yet.
    pub(super) events: Vec<Recorded>,
    /// The last sequence of the log.
    pub(super) last: u64,
    /// Nothing comes after the last.
    pub(super) is_closed: bool,
    /// The place after the last of these events.
    pub(super) next: u64,
}

impl EventLog {
    pub(super) fn new(max_events: usize, max_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            max_events,
            max_bytes,
        }
    }

    /// Takes the next event; the oldest go where it does not fit.
    pub(super) fn push(&self, event: Arc<Event>) {
        let json = Bytes::from(serde_json::to_vec(&*event).unwrap_or_default());
        let mut state = self.state();
        state.last = event.sequence;
        state.bytes += json.len();
        state.events.push_back(Recorded { event, json });
        while state.events.len() > self.max_events || state.bytes > self.max_bytes {
            let Some(oldest) = state.events.pop_front() else { break };
            state.bytes -= oldest.json.len();
            state.gone += 1;
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// So many events after the last were lost.
    pub(super) fn skip(&self, lost: u64) {
        self.state().last += lost;
        self.changed.send_replace(());
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.send_replace(());
    }

    /// At most `limit` events, from a place on; none: after a sequence. Pieces of one reply may share theirs.
    pub(super) fn after(&self, sequence: u64, place: Option<u64>, limit: usize) -> Page {
        let state = self.state();
        let first = match place {
            Some(place) => usize::try_from(place.saturating_sub(state.gone)).unwrap_or(usize::MAX),
            None => state
                .events
                .partition_point(|recorded| recorded.event.sequence <= sequence),
        };
        let first = first.min(state.events.len());
        let events: Vec<Recorded> = state.events.range(first..).take(limit).cloned().collect();
        Page {
            next: state.gone + (first + events.len()) as u64,
            events,
            last: state.last,
            is_closed: state.is_closed,
        }
    }

    /// The last sequence, and the time of the last event.
    pub(super) fn last(&self) -> (u64, Option<u64>) {
        let state = self.state();
        (state.last, state.events.back().map(|recorded| recorded.event.timestamp))
    }

    /// Bytes of JSON that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Told of every change.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every holder leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pirn_core::event::{EventType, RaisedEvent};
    use proptest::prelude::*;

    use super::*;

    fn event(sequence: u64) -> Arc<Event> {
        Arc::new(Event {
            sequence,
            timestamp: sequence,
            run_id: "r".into(),
            workflow_id: "w".into(),
            thread_id: "r.0".into(),
            raised: RaisedEvent::new(EventType::Custom, []),
        })
    }

    proptest! {
        #[test]
        fn a_reader_at_its_own_pace_gets_every_event_that_is_kept_once_and_in_order(
            steps in prop::collection::vec(prop_oneof![4 => Just(0_u64), 1 => 1..3_u64], 0..40),
            max in 1..12_usize,
            pace in 1..5_usize,
        ) {
            let log = EventLog::new(max, usize::MAX);
            let (mut last, mut kept) = (0, Vec::new());
            let (mut read_to, mut read) = (0, Vec::new());
            for lost in steps {
                if lost > 0 {
                    log.skip(lost);
                } else {
                    log.push(event(last + 1));
                    kept.push(last + 1);
                }
                last += lost.max(1);
                let page = log.after(read_to, None, pace);
                prop_assert_eq!(page.last, last);
                // The oracle: the youngest `max` of all that came, after what was read.
                let oldest = kept.len().saturating_sub(max);
                let expected: Vec<u64> = kept[oldest..].iter().copied().filter(|n| *n > read_to).take(pace).collect();
                let got: Vec<u64> = page.events.iter().map(|recorded| recorded.event.sequence).collect();
                prop_assert_eq!(&got, &expected);
                read_to = got.last().copied().unwrap_or(read_to);
                read.extend(got);
            }
            prop_assert!(read.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn events_that_share_a_sequence_are_each_read_once() {
        let log = EventLog::new(4, usize::MAX);
        let mut place = None;
        let mut read = Vec::new();
        for sequence in [1, 2, 2, 2, 3, 3, 4] {
            log.push(event(sequence));
            let page = log.after(read.last().copied().unwrap_or(0), place, 1);
            place = Some(page.next);
            read.extend(page.events.iter().map(|recorded| recorded.event.sequence));
        }
        assert_eq!(read, [1, 2, 2, 2, 3, 3, 4]);
        let page = log.after(0, Some(0), 9);
        assert_eq!(page.events.len(), 4, "those before are gone");
    }

    #[test]
    fn bytes_bound_a_log_too() {
        let log = EventLog::new(usize::MAX, 300);
        for sequence in 1..=100 {
            log.push(event(sequence));
        }
        assert!(log.bytes() <= 300);
        let page = log.after(0, None, 1_000);
        assert_eq!(page.events.last().map(|recorded| recorded.event.sequence), Some(100));
    }
}
