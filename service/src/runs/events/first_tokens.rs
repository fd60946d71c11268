//! Times of the first pieces of replies, from the events that a run in memory retains. A journal contains no pieces.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::runs::events::event_log::{EventLog, RecordedEvent};
use crate::runs::events::position::Position;
use pirn::{EventType, RequestSummary};

/// Number of events that are read at once.
const PAGE: usize = 1_000;

/// Maximum size of the events that are read at once.
const PAGE_BYTES: usize = 1 << 20;

/// Sets `first_token_ms` of the requests whose first piece is in the log.
pub(crate) fn set(log: &EventLog, requests: &mut [RequestSummary]) {
    let mut pieces: BTreeMap<Arc<str>, Vec<u64>> = requests
        .iter()
        .map(|request| (Arc::clone(&request.thread_id), Vec::new()))
        .collect();
    let mut after = Position::START;
    loop {
        let page = log.after(after, PAGE, PAGE_BYTES);
        let Some(last) = page.events.last() else { break };
        after = last.position();
        let is_piece = |event: &&RecordedEvent| event.event_type() == EventType::LlmToken;
        for read in page.events.iter().filter(is_piece).filter_map(RecordedEvent::read) {
            if let Some(times) = pieces.get_mut(&read.event.thread_id) {
                times.push(read.event.timestamp);
            }
        }
    }
    for request in requests {
        let times = pieces.get(&request.thread_id).map_or(&[][..], Vec::as_slice);
        // The pieces of a thread arrive in the order of its requests, which do not overlap.
        let first = times.get(times.partition_point(|at| *at < request.at));
        let until = request
            .duration_ms
            .map_or(u64::MAX, |duration| request.at.saturating_add(duration));
        let first = first.filter(|at| **at <= until);
        request.first_token_ms = first.map(|at| at - request.at);
    }
}
