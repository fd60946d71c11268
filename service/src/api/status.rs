//! The stream of the changes of all runs.

use axum::http::HeaderMap;
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::query::{Scoped, last_event_id};
use crate::events::sse::{self, COMMENT, Frames};
use crate::http::problem::{Problem, ProblemCode};
use crate::memory::MemoryReservation;
use crate::runs::changes::Change;
use crate::state::Service;

/// Maximum number of changes that are sent at once.
const PAGE: usize = 64;

/// Streams the changes of all runs that this process has in memory.
///
/// `event: run` has an item of `GET /v1/runs`: first each run in memory, then a run each time that it starts, changes its status, or
/// gets or loses a question. A run that changes several times while a client does not read is sent once, with its latest state. A
/// client that reconnects with `Last-Event-ID` receives the runs that have changed since. If that id is of another process, the
/// first event is `reset`, and each run in memory follows: a client should list the runs again.
#[utoipa::path(
    get, operation_id = "streamStatus", path = "/v1/status", tag = "runs",
    responses(
        (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
        (status = 503, description = "Too many streams are open", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn stream(Scoped(service): Scoped, headers: HeaderMap) -> Result<Response, Problem> {
    let permit = service.streams().enter()?;
    let changes = service.runs().changes();
    // The id of a change is the epoch of its process and its number, in the format of an event's position.
    let named = last_event_id(&headers)?;
    let known = named.filter(|id| changes.has_reached(id.sequence, id.piece));
    let reader = ChangeReader {
        changed: changes.watch(),
        read_to: known.map_or(0, |id| id.piece),
        resets: named.is_some() && known.is_none(),
        sends: None,
        service: service.clone(),
        _permit: permit,
    };
    Ok(sse::pages(reader))
}

/// Reads changes at the pace of one client. Its memory is one page, however many changes happen.
struct ChangeReader {
    service: Service,
    changed: watch::Receiver<bool>,
    /// Number of the last change that was read.
    read_to: u64,
    /// True if the client must be notified first that its position is unknown.
    resets: bool,
    /// Memory reserved for the page that is being sent.
    sends: Option<MemoryReservation>,
    _permit: OwnedSemaphorePermit,
}

impl sse::Pages for ChangeReader {
    async fn next(&mut self) -> Result<Option<Frames>, Problem> {
        self.sends = None;
        loop {
            // Read before the changes: a change that happens in between is reported again, and not lost.
            let is_last = *self.changed.borrow_and_update();
            let (page, last) = self.service.runs().changes_after(self.read_to, PAGE);
            let mut text = String::new();
            if std::mem::take(&mut self.resets) {
                text.push_str("event: reset\ndata: {}\n\n");
            }
            if let Some(last) = last {
                self.read_to = last;
                text.extend(page.iter().filter_map(|change| self.frame(change)));
            }
            if !text.is_empty() {
                return self.reserved(&text).await.map(Some);
            }
            if last.is_some() {
                continue;
            }
            if is_last {
                return Ok(None);
            }
            match timeout(self.service.limits().keep_alive, self.changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_gone)) => return Ok(None),
                Err(_elapsed) => {
                    let mut comment = Frames::default();
                    comment.write(COMMENT);
                    return Ok(Some(comment));
                }
            }
        }
    }
}

impl ChangeReader {
    /// Returns the event of a change; `None` if its run was forgotten in between.
    fn frame(&self, change: &Change) -> Option<String> {
        let summary = match &change.left {
            Some(left) => (**left).clone(),
            None => self.service.runs().find(&change.run_id)?.summary(),
        };
        let summary = self.service.runs().shown(summary);
        let json = serde_json::to_string(&summary).ok()?;
        let (epoch, number) = (self.service.runs().changes().epoch(), change.number);
        Some(format!("id: {epoch}.{number}\nevent: run\ndata: {json}\n\n"))
    }

    /// Waits for the memory of a page. The wait is bounded: connections of clients that do not read are closed within `write_time`.
    async fn reserved(&mut self, text: &str) -> Result<Frames, Problem> {
        let budget = self.service.stream_bytes();
        let reserved = timeout(self.service.limits().write_time, budget.wait(text.len())).await;
        self.sends = reserved.ok().flatten();
        if self.sends.is_none() {
            let detail = "the streams in progress use all of their memory";
            return Err(Problem::new(ProblemCode::TooManyBytes, detail).retry_after(1));
        }
        let mut frames = Frames::default();
        frames.write(text.as_bytes());
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::sse::Pages;
    use crate::options::Options;
    use crate::runs::store::archive::RunSummary;
    use pirn::Engine;

    fn reader(service: &Service) -> ChangeReader {
        ChangeReader {
            changed: service.runs().changes().watch(),
            read_to: 0,
            resets: false,
            sends: None,
            service: service.clone(),
            _permit: service.streams().enter().expect("a free place"),
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_makes_nothing_grow_and_gets_the_latest_state() {
        let service = Service::new(Engine::builder().build().expect("an engine"), Options::default());
        let mut reader = reader(&service);
        for sequence in 0..10_000_u64 {
            for id in ["a", "b"] {
                service.runs().changes().leave(RunSummary {
                    run_id: id.to_owned(),
                    last_sequence: sequence,
                    ..RunSummary::default()
                });
            }
        }
        let mut page = reader.next().await.expect("memory").expect("a page");
        let mut text = Vec::new();
        while let Some(piece) = page.next().await {
            text.extend_from_slice(&piece);
        }
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(text.matches("event: run").count(), 2);
        assert_eq!(text.matches("\"lastSequence\":9999").count(), 2, "{text}");
        let free = service.stream_bytes().limit() - text.len();
        assert!(
            service.stream_bytes().reserve(free + 1).is_none(),
            "the page is reserved while it is sent"
        );
        service.runs().changes().close();
        assert!(reader.next().await.expect("memory").is_none());
        assert!(service.stream_bytes().reserve(free + 1).is_some());
    }
}
