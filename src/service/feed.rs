//! A run's events as one stream reads them: from a sequence on, at the reader's own pace, to the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::event_log::{Recorded, hold};
use super::memory::Reserved;
use super::position::Position;
use super::problem::Problem;
use super::runs::Run;
use super::state::Service;

/// Events that are read at once.
pub(super) const PAGE: usize = 64;

/// Bytes that are read at once, unless one event has more.
pub(super) const PAGE_BYTES: usize = 16 << 10;

/// An item for a reader.
#[derive(Debug)]
pub(super) enum Fed {
    /// The next event.
    Event(Recorded),
    /// This reader has lost `count` events after this position.
    Missed { after: Position, count: u64 },
    /// No item was sent for the keep-alive interval.
    Idle,
    /// No item follows.
    End,
}

/// A place in a run's events.
pub(super) struct Feed {
    run: Arc<Run>,
    service: Service,
    read_to: Position,
    has_ended: bool,
    changed: watch::Receiver<()>,
    keep_alive: Duration,
    /// Time of the last item that the reader was sent.
    spoke_at: Instant,
    /// Each event becomes another text: it is not sent as the log has it.
    is_rewritten: bool,
    /// Memory reserved for the events that are being sent.
    sends: Option<Arc<Reserved>>,
    _places: [OwnedSemaphorePermit; 2],
}

impl Feed {
    /// Opens one after a position.
    pub(super) fn open(service: &Service, run: &Arc<Run>, after: Position) -> Result<Self, Problem> {
        Ok(Self {
            service: service.clone(),
            read_to: after,
            has_ended: false,
            changed: run.log.watch(),
            keep_alive: service.limits().keep_alive,
            spoke_at: Instant::now(),
            is_rewritten: false,
            sends: None,
            _places: [run.streams.enter()?, service.streams().enter()?],
            run: Arc::clone(run),
        })
    }

    /// Returns a feed whose events are converted before they are sent, so their memory is not shared with other streams.
    pub(super) fn rewritten(mut self) -> Self {
        self.is_rewritten = true;
        self
    }

    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    /// The position of the last event that was read.
    pub(super) fn read_to(&self) -> Position {
        self.read_to
    }

    /// True once everything has been read.
    pub(super) fn is_over(&self) -> bool {
        let page = self.run.log.after(self.read_to, 1, 0);
        page.is_closed && page.events.is_empty() && page.last <= self.read_to.sequence
    }

    /// Resets the keep-alive timer. Called by the writer, because an item may be dropped by the wire format.
    pub(super) fn spoke(&mut self) {
        self.spoke_at = Instant::now();
    }

    /// Returns the next available items; empty after the end. The caller must have sent the previous items, whose memory is
    /// released here.
    pub(super) async fn next(&mut self) -> Vec<Fed> {
        self.sends = None;
        if self.has_ended {
            return Vec::new();
        }
        let quiet_until = self.spoke_at + self.keep_alive;
        if quiet_until <= Instant::now() {
            self.spoke();
            return vec![Fed::Idle];
        }
        loop {
            self.changed.mark_unchanged();
            let page = self.run.log.after(self.read_to, PAGE, PAGE_BYTES);
            let mut fed = Vec::with_capacity(page.events.len());
            // The event before a piece is to be read too.
            let is_piece = |position: Position| u64::from(position.piece > 0);
            let next = page.events.first().map(Recorded::position);
            let next = next.map_or(page.last.saturating_add(1), |next| next.sequence + is_piece(next));
            // A client may name any position: nothing comes after the last one.
            if next > self.read_to.sequence.saturating_add(1) {
                self.read_archive(&mut fed, next).await;
                if !fed.is_empty() {
                    // There may be more of it, before what the log has.
                    return fed;
                }
            }
            self.take(&mut fed, page.events);
            if page.is_closed && page.is_all {
                self.read_up_to(&mut fed, page.last);
                self.has_ended = true;
                fed.push(Fed::End);
            }
            if !fed.is_empty() {
                return fed;
            }
            if !page.is_all {
                continue;
            }
            match tokio::time::timeout_at(quiet_until, self.changed.changed()).await {
                // `changed` cannot fail: `self.run` holds the log, which owns the sender.
                Ok(_changed) => {}
                Err(_elapsed) => {
                    self.spoke();
                    return vec![Fed::Idle];
                }
            }
        }
    }

    /// Reads the events that the log has dropped and the archive has.
    async fn read_archive(&mut self, fed: &mut Vec<Fed>, before: u64) {
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
                    "the archive gives no events"
                );
                return;
            }
        };
        events.retain(|event| event.position().sequence < before);
        self.take(fed, events);
    }

    /// Takes events to be sent; they are missed where the memory of what streams send is in use.
    fn take(&mut self, fed: &mut Vec<Fed>, events: Vec<Recorded>) {
        let Some(last) = events.last().map(Recorded::position) else {
            return;
        };
        let budget = self.service.stream_bytes();
        self.sends = if self.is_rewritten {
            budget.reserve(events.iter().map(Recorded::len).sum()).map(Arc::new)
        } else {
            hold(&events, budget)
        };
        if self.sends.is_none() {
            return self.miss(fed, last);
        }
        for recorded in events {
            self.read_before(fed, recorded.position());
            self.read_to = recorded.position();
            fed.push(Fed::Event(recorded));
        }
    }

    /// Everything up to an event is missed, and it too.
    fn miss(&mut self, fed: &mut Vec<Fed>, last: Position) {
        match last.piece {
            0 => self.read_up_to(fed, last.sequence),
            piece => self.read_before(
                fed,
                Position {
                    piece: piece + 1,
                    ..last
                },
            ),
        }
    }

    /// Everything before the next event that was not read is missed.
    fn read_before(&mut self, fed: &mut Vec<Fed>, next: Position) {
        match next.piece.checked_sub(1) {
            None => self.read_up_to(fed, next.sequence.saturating_sub(1)),
            Some(before) => {
                self.read_up_to(fed, next.sequence);
                // An earlier process may have numbered the pieces before the first one of this.
                let first = self.run.log.first_piece();
                let read = self.read_to.piece.max(first.saturating_sub(1));
                if before > read {
                    let after = Position {
                        piece: read,
                        ..self.read_to
                    };
                    self.read_to.piece = before;
                    fed.push(Fed::Missed {
                        after,
                        count: before - read,
                    });
                }
            }
        }
    }

    /// Every event up to a sequence that was not read is missed.
    fn read_up_to(&mut self, fed: &mut Vec<Fed>, sequence: u64) {
        if sequence > self.read_to.sequence {
            fed.push(Fed::Missed {
                after: self.read_to,
                count: sequence - self.read_to.sequence,
            });
            self.read_to = Position::of(sequence);
        }
    }
}
