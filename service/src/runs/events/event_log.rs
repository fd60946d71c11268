//! Bounded log of one run's events, for streams; it counts the events that it has dropped.
//!
//! 1. Events are in the order of their positions; a missing sequence was lost, never reordered.
//! 2. The log stores no state for a reader: the reader has its position. So no reader can delay another, or the run.
//! 3. A closed log accepts no events.
//! 4. Events are retained as JSON, so the values of an ended run can be freed.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::memory::{Budget, MemoryReservation};
use crate::runs::events::json_text::short_json;
use crate::runs::events::pieces::{Piece, Pieces, cut};
use crate::runs::events::position::Position;

/// Estimated memory of an event in addition to its JSON.
const OVERHEAD: usize = 200;

/// Interval at which a stream that waits for memory checks for a reservation of another stream to share.
const LOOKS: Duration = Duration::from_millis(100);

/// An event as JSON, which is serialized once for all readers.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEvent(Arc<Record>);

#[derive(Debug)]
struct Record {
    position: Position,
    event_type: EventType,
    pieces: Box<[Piece]>,
    /// Reservation of the streams that send this event at present; they share one.
    held: Mutex<Weak<MemoryReservation>>,
}

impl RecordedEvent {
    pub(crate) fn position(&self) -> Position {
        self.0.position
    }

    pub(crate) fn event_type(&self) -> EventType {
        self.0.event_type
    }

    /// Returns its JSON, in pieces of at most [`MOST`](crate::runs::events::pieces::MOST) bytes.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.0.pieces
    }

    /// Returns the length of its JSON in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.pieces.iter().map(|piece| piece.bytes().len()).sum()
    }

    /// Returns the reservation of the streams that send this event at present.
    fn held(&self) -> Option<Arc<MemoryReservation>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Shares a reservation with other streams. If another stream has stored one first, that one is returned and this one is
    /// dropped.
    fn share(&self, reserved: MemoryReservation) -> Arc<MemoryReservation> {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.upgrade().unwrap_or_else(|| {
            let reserved = Arc::new(reserved);
            *held = Arc::downgrade(&reserved);
            reserved
        })
    }

    /// Parses the event from its JSON.
    pub(crate) fn read(&self) -> Option<ReadEvent> {
        let read = match &*self.0.pieces {
            [whole] => serde_json::from_slice(whole.bytes()),
            pieces => {
                let parts: Vec<&[u8]> = pieces.iter().map(|piece| &**piece.bytes()).collect();
                serde_json::from_slice(&parts.concat())
            }
        };
        let read = read.inspect_err(|error| tracing::error!(%error, "a stored event cannot be parsed"));
        Some(ReadEvent {
            position: self.0.position,
            event: read.ok()?,
        })
    }
}

/// Reserves the memory of events while a stream sends them; `None` if the budget is exhausted. Streams that send one event, which
/// may be large, share one reservation.
pub(crate) fn hold(events: &[RecordedEvent], budget: &Budget) -> Option<Arc<MemoryReservation>> {
    if let [one] = events {
        return one.held().or_else(|| Some(one.share(budget.reserve(one.len())?)));
    }
    budget.reserve(bytes_of(events)).map(Arc::new)
}

/// Reserves memory like [`hold`], but waits up to `at_most` for other streams to release theirs. `None` at once if the events
/// exceed the budget's limit.
pub(crate) async fn hold_within(
    events: &[RecordedEvent],
    budget: &Budget,
    at_most: Duration,
) -> Option<Arc<MemoryReservation>> {
    if let Some(held) = hold(events, budget) {
        return Some(held);
    }
    let until = Instant::now() + at_most;
    let mut waits = pin!(budget.wait(bytes_of(events)));
    while Instant::now() < until {
        match (timeout(LOOKS, &mut waits).await, events) {
            (Ok(reserved), [one]) => return reserved.map(|reserved| one.share(reserved)),
            (Ok(reserved), _) => return reserved.map(Arc::new),
            // Another stream may have reserved the event's memory in between.
            (Err(_), [one]) => {
                if let Some(held) = one.held() {
                    return Some(held);
                }
            }
            (Err(_), _) => {}
        }
    }
    None
}

fn bytes_of(events: &[RecordedEvent]) -> usize {
    events.iter().map(RecordedEvent::len).sum()
}

/// An event parsed from its JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadEvent {
    pub(crate) position: Position,
    pub(crate) event: Event,
}

/// The events of one run that streams can still read.
#[derive(Debug)]
pub(crate) struct EventLog {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    max_events: usize,
    max_bytes: usize,
    first_piece: u64,
    /// Memory of all logs of the service.
    total: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<RecordedEvent>,
    pieces: Pieces,
    /// The last sequence number that arrived or was counted as lost.
    last: u64,
    /// The position of the last event that was pushed.
    pushed: Position,
    last_at: Option<u64>,
    is_closed: bool,
}

impl State {
    fn bytes(&self) -> usize {
        self.pieces.bytes() + self.events.len() * OVERHEAD
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.events.pop_front() else {
            return false;
        };
        self.pieces.remove(oldest.pieces());
        true
    }
}

/// A page of events.
#[derive(Debug)]
pub(crate) struct Page {
    /// The next events, oldest first; empty if none has arrived yet.
    pub(crate) events: Vec<RecordedEvent>,
    /// The last sequence of the log.
    pub(crate) last: u64,
    /// True if no event can follow the last.
    pub(crate) is_closed: bool,
    /// True if the log has no event after these yet.
    pub(crate) is_all: bool,
}

impl EventLog {
    /// Creates an empty log. `first_piece` numbers the first piece of a reply after each event: 1 for a new run, and for a resumed
    /// run a number above those that earlier processes have used. So a client that reconnects with an older position receives every
    /// piece of the restarted reply. `total` counts the memory of all logs.
    pub(crate) fn new((max_events, max_bytes): (usize, usize), first_piece: u64, total: Arc<AtomicUsize>) -> Self {
        Self {
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            max_events,
            max_bytes,
            first_piece,
            total,
        }
    }

    pub(crate) fn first_piece(&self) -> u64 {
        self.first_piece
    }

    /// Appends an event; drops the oldest events if a limit is exceeded.
    pub(crate) fn push(&self, event: &Event) {
        self.take(event, &serde_json::to_vec(event).unwrap_or_default());
    }

    /// Appends an event if its JSON is short. Returns false, without appending it, if the JSON is long.
    pub(crate) fn push_short(&self, event: &Event) -> bool {
        let json = short_json(event);
        if let Some(json) = &json {
            self.take(event, json);
        }
        json.is_some()
    }

    fn take(&self, event: &Event, json: &[u8]) {
        // Cut outside of the lock: the rolling hash takes time proportional to the length of the text.
        let cut = cut(json);
        let mut state = self.state();
        let before = state.bytes();
        // An LLM_TOKEN of a durable run has the sequence of the event before it: number it as a piece after that event.
        let position = if event.sequence == state.pushed.sequence {
            Position {
                sequence: event.sequence,
                piece: (state.pushed.piece + 1).max(self.first_piece),
            }
        } else {
            Position::of(event.sequence)
        };
        state.pushed = position;
        (state.last, state.last_at) = (event.sequence, Some(event.timestamp));
        let recorded = RecordedEvent(Arc::new(Record {
            position,
            event_type: event.raised.event_type,
            pieces: state.pieces.add(&cut),
            held: Mutex::default(),
        }));
        state.events.push_back(recorded);
        while state.events.len() > self.max_events || state.bytes() > self.max_bytes {
            state.drop_oldest();
        }
        self.count(before, state.bytes());
        // Release the lock before the notification, so that woken readers do not wait for it.
        drop(state);
        self.changed.send_replace(());
    }

    /// Drops the oldest events until at least `bytes` are free.
    pub(crate) fn free(&self, bytes: usize) {
        let mut state = self.state();
        let before = state.bytes();
        while before - state.bytes() < bytes && state.drop_oldest() {}
        self.count(before, state.bytes());
    }

    fn count(&self, before: usize, now: usize) {
        self.total.fetch_add(now, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
    }

    /// Counts events after the last one as lost.
    pub(crate) fn skip(&self, lost: u64) {
        self.state().last += lost;
        self.changed.send_replace(());
    }

    /// Closes the log: no event follows.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.send_replace(());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Returns at most `limit` events after a position, and at most `bytes` unless the first event is larger.
    pub(crate) fn after(&self, position: Position, limit: usize, bytes: usize) -> Page {
        let state = self.state();
        let first = state.events.partition_point(|recorded| recorded.position() <= position);
        let mut events: Vec<RecordedEvent> = Vec::new();
        let mut taken = 0_usize;
        for recorded in state.events.range(first..).take(limit) {
            taken = taken.saturating_add(recorded.len());
            if taken > bytes && !events.is_empty() {
                break;
            }
            events.push(recorded.clone());
        }
        Page {
            is_all: first + events.len() == state.events.len(),
            events,
            last: state.last,
            is_closed: state.is_closed,
        }
    }

    /// Returns the last position, and the time of the last event.
    pub(crate) fn last(&self) -> (Position, Option<u64>) {
        let state = self.state();
        (state.pushed.max(Position::of(state.last)), state.last_at)
    }

    /// Returns the memory of its events.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes()
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.count(self.bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use pirn_events::event::RaisedEvent;
    use proptest::prelude::*;

    use super::*;

    fn event(sequence: u64) -> Event {
        Event {
            sequence,
            timestamp: sequence,
            run_id: "r".into(),
            workflow_id: "w".into(),
            thread_id: "r.0".into(),
            raised: RaisedEvent::new(EventType::Custom, []),
        }
    }

    proptest! {
        #[test]
        fn a_slow_reader_gets_every_retained_event_once_and_in_order(
            steps in prop::collection::vec(prop_oneof![4 => Just(0_u64), 1 => 1..3_u64], 0..40),
            max in 1..12_usize,
            pace in 1..5_usize,
        ) {
            let log = EventLog::new((max, usize::MAX), 1, Arc::default());
            let (mut last, mut kept) = (0, Vec::new());
            let (mut read_to, mut read) = (0, Vec::new());
            for lost in steps {
                if lost > 0 {
                    log.skip(lost);
                } else {
                    log.push(&event(last + 1));
                    kept.push(last + 1);
                }
                last += lost.max(1);
                let page = log.after(Position::of(read_to), pace, usize::MAX);
                prop_assert_eq!(page.last, last);
                // Oracle: the newest `max` events that were pushed, after the reader's position.
                let oldest = kept.len().saturating_sub(max);
                let expected: Vec<u64> = kept[oldest..].iter().copied().filter(|n| *n > read_to).take(pace).collect();
                let got: Vec<u64> = page.events.iter().map(|recorded| recorded.position().sequence).collect();
                prop_assert_eq!(&got, &expected);
                read_to = got.last().copied().unwrap_or(read_to);
                read.extend(got);
            }
            prop_assert!(read.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn events_with_one_sequence_number_have_distinct_positions() {
        let of = |first_piece| {
            let log = EventLog::new((usize::MAX, usize::MAX), first_piece, Arc::default());
            for sequence in [1, 2, 2, 2, 3, 3, 4] {
                log.push(&event(sequence));
            }
            let all = log.after(Position::START, usize::MAX, usize::MAX).events;
            for (index, recorded) in all.iter().enumerate() {
                let rest = log.after(recorded.position(), usize::MAX, usize::MAX).events;
                assert_eq!(rest.len(), all.len() - index - 1, "after {}", recorded.position());
            }
            all.iter()
                .map(|recorded| recorded.position().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1), ["1", "2", "2.1", "2.2", "3", "3.1", "4"]);
        assert_eq!(of(100), ["1", "2", "2.100", "2.101", "3", "3.100", "4"]);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_send_one_event_share_one_memory_reservation() {
        let log = EventLog::new((usize::MAX, usize::MAX), 1, Arc::default());
        (1..=3).for_each(|sequence| log.push(&event(sequence)));
        let events = log.after(Position::START, usize::MAX, usize::MAX).events;
        let [first, second, _] = &events[..] else {
            panic!("three")
        };
        let budget = Budget::new(first.len() * 3 / 2);
        let within = Duration::from_secs(30);
        let one = hold(std::slice::from_ref(first), &budget).expect("there is room");
        let same = hold(std::slice::from_ref(first), &budget).expect("it is shared");
        assert!(Arc::ptr_eq(&one, &same));
        assert!(hold(std::slice::from_ref(second), &budget).is_none());
        assert!(hold_within(&events, &budget, within).await.is_none(), "never so much");
        let began = Instant::now();
        assert!(
            hold_within(std::slice::from_ref(second), &budget, within)
                .await
                .is_none()
        );
        assert_eq!(began.elapsed(), within);
        let (waits, as_well) = ([second.clone()], [second.clone()]);
        let (other, another, ()) = tokio::join!(
            hold_within(&waits, &budget, within),
            hold_within(&as_well, &budget, within),
            async {
                tokio::time::sleep(within / 2).await;
                drop((one, same));
            }
        );
        let (other, another) = (other.expect("its turn"), another.expect("the same"));
        assert!(Arc::ptr_eq(&other, &another));
    }

    #[test]
    fn a_log_is_also_bounded_by_bytes() {
        let total = Arc::new(AtomicUsize::new(0));
        let log = EventLog::new((usize::MAX, 3_000), 1, Arc::clone(&total));
        for sequence in 1..=100 {
            log.push(&event(sequence));
        }
        assert!(log.bytes() <= 3_000);
        assert_eq!(total.load(Ordering::Relaxed), log.bytes());
        let page = log.after(Position::START, 1_000, usize::MAX);
        assert_eq!(page.events.last().map(RecordedEvent::position), Some(Position::of(100)));
        let two = page.events[0].len() * 2;
        assert_eq!(
            log.after(Position::START, 1_000, two).events.len(),
            2,
            "a page has a limit of bytes"
        );
        assert_eq!(
            log.after(Position::START, 1_000, 1).events.len(),
            1,
            "one event is a page, however long"
        );
        log.free(1_000);
        assert!(log.bytes() <= 2_000);
        drop(log);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_event_retained_as_bytes_round_trips() {
        let log = EventLog::new((9, usize::MAX), 1, Arc::default());
        let mut large = event(7);
        large.raised = RaisedEvent::new(
            EventType::NodeCompleted,
            [("output", serde_json::json!("a text ".repeat(9_000)))],
        );
        assert!(!log.push_short(&large), "long JSON is written elsewhere");
        log.push(&large);
        assert!(log.push_short(&event(8)));
        let events = log.after(Position::START, 9, usize::MAX).events;
        let read: Vec<_> = events
            .iter()
            .filter_map(RecordedEvent::read)
            .map(|read| read.event)
            .collect();
        assert_eq!(read, [large, event(8)]);
    }
}
