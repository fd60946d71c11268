//! A run's events as one stream reads them: from a position on, at the reader's pace, to the end.

use std::sync::Arc;
use std::time::Duration;

use pirn::Interaction;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use crate::http::problem::Problem;
use crate::memory::MemoryReservation;
use crate::runs::Run;
use crate::runs::events::event_log::{RecordedEvent, hold};
use crate::runs::events::position::Position;
use crate::state::Service;

/// Maximum number of events per read.
pub(crate) const PAGE: usize = 64;

/// Maximum bytes per read, unless the first event is larger.
pub(crate) const PAGE_BYTES: usize = 16 << 10;

/// An item for a reader.
#[derive(Debug)]
pub(crate) enum FeedItem {
    /// The next event.
    Event(RecordedEvent),
    /// This reader has lost `count` events after this position.
    Missed { after: Position, count: u64 },
    /// No item was sent for `keep_alive`: send a comment.
    Idle,
    /// No item follows.
    End,
}

/// A reader of one run's events.
pub(crate) struct Feed {
    run: Arc<Run>,
    service: Service,
    read_to: Position,
    has_ended: bool,
    changed: watch::Receiver<()>,
    keep_alive: Duration,
    /// Time of the last item that the reader was sent.
    touched_at: Instant,
    /// True if each event is converted before it is sent, so the log's bytes are not sent.
    is_rewritten: bool,
    /// Memory reserved for the events that are being sent.
    sends: Option<Arc<MemoryReservation>>,
    /// Permits of the run and of the service.
    permits: [OwnedSemaphorePermit; 2],
}

impl Feed {
    /// Opens a feed after a position.
    pub(crate) fn open(service: &Service, run: &Arc<Run>, after: Position) -> Result<Self, Problem> {
        Ok(Self {
            service: service.clone(),
            read_to: after,
            has_ended: false,
            changed: run.log.watch(),
            keep_alive: service.limits().keep_alive,
            touched_at: Instant::now(),
            is_rewritten: false,
            sends: None,
            permits: [run.streams.enter()?, service.streams().enter()?],
            run: Arc::clone(run),
        })
    }

    /// Returns a feed for converted events: their bytes, and so their memory, are not shared with other streams.
    pub(crate) fn rewritten(mut self) -> Self {
        self.is_rewritten = true;
        self
    }

    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the position of the last event that was read.
    pub(crate) fn read_to(&self) -> Position {
        self.read_to
    }

    /// Returns true if the events of these calls of client tools were read. The run may be ahead of this feed: a call that is open
    /// there must not end a stream that has not sent it.
    pub(crate) fn has_read_calls(&self, open: &[Interaction]) -> bool {
        let mut calls = open.iter().filter(|asked| asked.client_tool.is_some());
        calls.all(|asked| self.has_read(asked))
    }

    /// Returns true if the event of an open question was read.
    pub(crate) fn has_read(&self, asked: &Interaction) -> bool {
        let asked_at = self.run.questions.asked_at(&asked.id);
        asked_at.is_some_and(|asked_at| Position::of(asked_at.sequence) <= self.read_to)
    }

    /// True if the log is closed and every event was read.
    pub(crate) fn is_over(&self) -> bool {
        let page = self.run.log.after(self.read_to, 1, 0);
        page.is_closed && page.events.is_empty() && page.last <= self.read_to.sequence
    }

    /// Resets the timer for comments. Called by the writer, because the wire format may drop an item.
    pub(crate) fn touch(&mut self) {
        self.touched_at = Instant::now();
    }

    /// Returns the next available items; empty after the end. The caller must have sent the previous items: this releases
    /// their memory.
    pub(crate) async fn next(&mut self) -> Vec<FeedItem> {
        self.sends = None;
        if self.has_ended {
            return Vec::new();
        }
        let quiet_until = self.touched_at + self.keep_alive;
        if quiet_until <= Instant::now() {
            self.touch();
            return vec![FeedItem::Idle];
        }
        loop {
            self.changed.mark_unchanged();
            let page = self.run.log.after(self.read_to, PAGE, PAGE_BYTES);
            let mut items = Vec::with_capacity(page.events.len());
            // Read the event that precedes a piece first.
            let is_piece = |position: Position| u64::from(position.piece > 0);
            let next = page.events.first().map(RecordedEvent::position);
            let next = next.map_or(page.last.saturating_add(1), |next| next.sequence + is_piece(next));
            // A client may name any position, even one beyond the last event: no event follows it.
            if next > self.read_to.sequence.saturating_add(1) {
                self.read_archive(&mut items, next).await;
                if !items.is_empty() {
                    // The archive may have more events before those in the log.
                    return items;
                }
            }
            self.take(&mut items, page.events);
            let mut is_moved = false;
            if page.is_closed && page.is_all {
                self.read_up_to(&mut items, page.last);
                is_moved = self.moves().await;
                if !is_moved {
                    self.has_ended = true;
                    items.push(FeedItem::End);
                }
            }
            if !items.is_empty() {
                return items;
            }
            if is_moved || !page.is_all {
                continue;
            }
            match tokio::time::timeout_at(quiet_until, self.changed.changed()).await {
                // `changed` cannot fail: `self.run` holds the log, which owns the sender.
                Ok(_changed) => {}
                Err(_elapsed) => {
                    self.touch();
                    return vec![FeedItem::Idle];
                }
            }
        }
    }

    /// Continues with the run's next log, if the run has moved: to this process, or from it to another one that shares the store.
    /// Positions are those of the run, so every event is read once. Returns false if the run has no further log.
    async fn moves(&mut self) -> bool {
        let next = if self.run.is_followed {
            self.service.runs().find(self.run.id())
        } else if self.run.has_left() {
            // On an error the stream ends, and the client requests it again.
            self.service.follow_left(self.run.id()).await.ok().flatten()
        } else {
            None
        };
        let Some(next) = next else { return false };
        let Ok(permit) = next.streams.enter() else { return false };
        self.permits[0] = permit;
        self.changed = next.log.watch();
        self.run = next;
        true
    }

    /// Reads the events that the log has dropped and the archive has.
    async fn read_archive(&mut self, items: &mut Vec<FeedItem>, before: u64) {
        let limit = usize::try_from(before - self.read_to.sequence - 1)
            .unwrap_or(PAGE)
            .min(PAGE);
        let archive = self.service.archive();
        let mut events = match archive
            .page(self.run.id(), self.read_to.sequence, limit, PAGE_BYTES)
            .await
        {
            Ok(events) => events,
            Err(problem) => {
                tracing::warn!(
                    run_id = self.run.id(),
                    why = problem.detail(),
                    "reading archived events failed"
                );
                return;
            }
        };
        events.retain(|event| event.position().sequence < before);
        self.take(items, events);
    }

    /// Returns events to the reader; if the memory for sending is exhausted, reports them as missed.
    fn take(&mut self, items: &mut Vec<FeedItem>, events: Vec<RecordedEvent>) {
        let Some(last) = events.last().map(RecordedEvent::position) else {
            return;
        };
        let budget = self.service.stream_bytes();
        self.sends = if self.is_rewritten {
            budget
                .reserve(events.iter().map(RecordedEvent::len).sum())
                .map(Arc::new)
        } else {
            hold(&events, budget)
        };
        if self.sends.is_none() {
            return self.miss(items, last);
        }
        for recorded in events {
            self.read_before(items, recorded.position());
            self.read_to = recorded.position();
            items.push(FeedItem::Event(recorded));
        }
    }

    /// Reports all unread events up to `last`, inclusive, as missed.
    fn miss(&mut self, items: &mut Vec<FeedItem>, last: Position) {
        match last.piece {
            0 => self.read_up_to(items, last.sequence),
            piece => self.read_before(
                items,
                Position {
                    piece: piece + 1,
                    ..last
                },
            ),
        }
    }

    /// Reports all unread events before `next` as missed.
    fn read_before(&mut self, items: &mut Vec<FeedItem>, next: Position) {
        match next.piece.checked_sub(1) {
            None => self.read_up_to(items, next.sequence.saturating_sub(1)),
            Some(before) => {
                self.read_up_to(items, next.sequence);
                // Pieces below this number belong to an earlier process, and are not missed.
                let first = self.run.log.first_piece();
                let read = self.read_to.piece.max(first.saturating_sub(1));
                if before > read {
                    let after = Position {
                        piece: read,
                        ..self.read_to
                    };
                    self.read_to.piece = before;
                    items.push(FeedItem::Missed {
                        after,
                        count: before - read,
                    });
                }
            }
        }
    }

    /// Reports all unread events up to a sequence as missed.
    fn read_up_to(&mut self, items: &mut Vec<FeedItem>, sequence: u64) {
        if sequence > self.read_to.sequence {
            items.push(FeedItem::Missed {
                after: self.read_to,
                count: sequence - self.read_to.sequence,
            });
            self.read_to = Position::of(sequence);
        }
    }
}
