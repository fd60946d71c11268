//! The events of one run that streams can still read: bounded, and it knows what it has lost.
//!
//! 1. Events are in the order of their positions; a sequence that is not there was lost, never reordered.
//! 2. A reader keeps nothing here but the position that it has read to, so no reader can hold up another, or the run.
//! 3. A log that is closed gets nothing more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use pirn_core::event::Event;
use tokio::sync::watch;

use super::position::Position;

/// An event, and its JSON: written once for every reader.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) position: Position,
    pub(super) event: Arc<Event>,
    pub(super) json: Bytes,
}

#[derive(Debug)]
pub(super) struct EventLog {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    max_events: usize,
    max_bytes: usize,
    first_piece: u64,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Recorded>,
    bytes: usize,
    /// The last sequence that came, or is known to be lost.
    last: u64,
    /// The position of the last event that came.
    pushed: Position,
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
}

impl EventLog {
    /// `first_piece` numbers the first piece of a reply after each event: 1, or for a run that an earlier process had begun more
    /// than that process has numbered. So a client that comes back from there gets every piece of the reply that starts anew.
    pub(super) fn new(max_events: usize, max_bytes: usize, first_piece: u64) -> Self {
        Self {
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            max_events,
            max_bytes,
            first_piece,
        }
    }

    pub(super) fn first_piece(&self) -> u64 {
        self.first_piece
    }

    /// Takes the next event; the oldest go where it does not fit.
    pub(super) fn push(&self, event: Arc<Event>) {
        let json = Bytes::from(serde_json::to_vec(&*event).unwrap_or_default());
        let mut state = self.state();
        let position = if event.sequence == state.pushed.sequence {
            Position {
                sequence: event.sequence,
                piece: (state.pushed.piece + 1).max(self.first_piece),
            }
        } else {
            Position::of(event.sequence)
        };
        state.pushed = position;
        state.last = event.sequence;
        state.bytes += json.len();
        state.events.push_back(Recorded { position, event, json });
        while state.events.len() > self.max_events || state.bytes > self.max_bytes {
            let Some(oldest) = state.events.pop_front() else { break };
            state.bytes -= oldest.json.len();
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

    /// At most `limit` events after a position.
    pub(super) fn after(&self, position: Position, limit: usize) -> Page {
        let state = self.state();
        let first = state.events.partition_point(|recorded| recorded.position <= position);
        Page {
            events: state.events.range(first..).take(limit).cloned().collect(),
            last: state.last,
            is_closed: state.is_closed,
        }
    }

    /// The last position, and the time of the last event.
    pub(super) fn last(&self) -> (Position, Option<u64>) {
        let state = self.state();
        let last = state.pushed.max(Position::of(state.last));
        (last, state.events.back().map(|recorded| recorded.event.timestamp))
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
            let log = EventLog::new(max, usize::MAX, 1);
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
                let page = log.after(Position::of(read_to), pace);
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
    fn events_that_share_a_sequence_have_positions_of_their_own() {
        let of = |first_piece| {
            let log = EventLog::new(usize::MAX, usize::MAX, first_piece);
            for sequence in [1, 2, 2, 2, 3, 3, 4] {
                log.push(event(sequence));
            }
            let all = log.after(Position::START, usize::MAX).events;
            for (index, recorded) in all.iter().enumerate() {
                let rest = log.after(recorded.position, usize::MAX).events;
                assert_eq!(rest.len(), all.len() - index - 1, "after {}", recorded.position);
            }
            all.iter()
                .map(|recorded| recorded.position.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1), ["1", "2", "2.1", "2.2", "3", "3.1", "4"]);
        assert_eq!(of(100), ["1", "2", "2.100", "2.101", "3", "3.100", "4"]);
    }

    #[test]
    fn bytes_bound_a_log_too() {
        let log = EventLog::new(usize::MAX, 300, 1);
        for sequence in 1..=100 {
            log.push(event(sequence));
        }
        assert!(log.bytes() <= 300);
        let page = log.after(Position::START, 1_000);
        assert_eq!(page.events.last().map(|recorded| recorded.event.sequence), Some(100));
    }
}
