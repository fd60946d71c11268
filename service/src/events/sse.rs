//! Server-sent events: framing and streaming.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures::future::{BoxFuture, ready};
use futures::stream::once;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::events::feed::{Feed, FeedItem};
use crate::http::problem::Problem;
use crate::memory::MemoryReservation;
use crate::runs::events::event_log::RecordedEvent;
use crate::runs::events::pieces::MOST;
use crate::runs::events::position::Position;

/// A comment, as a keep-alive: clients ignore it.
pub(crate) const COMMENT: &[u8] = b":\n\n";

/// Text to send next: private bytes of this stream, and pieces shared with other streams.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    ready: VecDeque<Bytes>,
    own: Vec<u8>,
    /// Bytes that were taken since the other tasks of the thread had a turn.
    taken: usize,
}

impl Frames {
    /// Pieces shorter than this are copied: a connection accepts a limited number of pieces per write.
    const COPIED: usize = 1 << 10;

    /// Bytes after which the other tasks of the thread get a turn. A connection would otherwise fill its socket's buffer, which may
    /// have several MiB, and a request would wait for all connections that are ready.
    const TURN: usize = 64 << 10;

    pub(crate) fn write(&mut self, text: &[u8]) {
        self.own.extend_from_slice(text);
    }

    pub(crate) fn share(&mut self, piece: &Bytes) {
        if piece.len() <= Self::COPIED {
            return self.write(piece);
        }
        self.finish();
        self.ready.push_back(piece.clone());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.ready.is_empty()
    }

    fn finish(&mut self) {
        if !self.own.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.own).into());
        }
    }

    /// Returns the next piece to send: a connection buffers one or two of them.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.finish();
        let mut piece = self.ready.pop_front()?;
        if piece.len() > MOST {
            let rest = piece.split_off(MOST);
            self.ready.push_front(rest);
        }
        self.taken += piece.len();
        if self.taken >= Self::TURN {
            self.taken = 0;
            tokio::task::yield_now().await;
        }
        Some(piece)
    }
}

/// Writes items of a feed as text on the wire.
pub(crate) trait EventEncoder: Send + 'static {
    /// Writes the frames of one item; there may be none.
    fn write(&mut self, feed: &Feed, item: FeedItem, out: &mut Frames);

    /// Called after all items so far were written. Returning true ends the stream before the run ends.
    fn pauses<'a>(&'a mut self, _feed: &'a Feed, _out: &'a mut Frames) -> BoxFuture<'a, bool> {
        ready(false).boxed()
    }
}

/// A wire for a reader that has received everything up to a position: earlier items only update the wire's state.
pub(crate) struct After<W> {
    pub(crate) wire: W,
    pub(crate) read_to: Position,
}

impl<W: EventEncoder> EventEncoder for After<W> {
    fn write(&mut self, feed: &Feed, item: FeedItem, out: &mut Frames) {
        let was_read = match &item {
            FeedItem::Event(recorded) => recorded.position() <= self.read_to,
            FeedItem::Missed { after, .. } => *after < self.read_to,
            FeedItem::Idle | FeedItem::End => false,
        };
        if was_read {
            self.wire.write(feed, item, &mut Frames::default());
        } else {
            self.wire.write(feed, item, out);
        }
    }

    fn pauses<'a>(&'a mut self, feed: &'a Feed, out: &'a mut Frames) -> BoxFuture<'a, bool> {
        self.wire.pauses(feed, out)
    }
}

/// A value that is dropped with its stream, by completion or by a disconnect. [`ended`](Self::ended) is called on completion only.
pub(crate) trait OnStreamEnd: Send + 'static {
    fn ended(&mut self);
}

impl OnStreamEnd for () {
    fn ended(&mut self) {}
}

/// Streams a feed to its end. The feed is read again only after the previous items were sent, which is the back pressure.
pub(crate) fn response(feed: Feed, wire: impl EventEncoder, guard: impl OnStreamEnd) -> Response {
    let state = (feed, wire, guard, false, Frames::default());
    let chunks = stream::unfold(
        state,
        async |(mut feed, mut wire, mut guard, mut pauses, mut frames)| {
            loop {
                if let Some(chunk) = frames.next().await {
                    return Some((chunk, (feed, wire, guard, pauses, frames)));
                }
                let next = if pauses { Vec::new() } else { feed.next().await };
                if next.is_empty() {
                    // The stream is complete, so dropping the guard must not count as a disconnect.
                    guard.ended();
                    return None;
                }
                let has_ended = matches!(next.last(), Some(FeedItem::End));
                for item in next {
                    match item {
                        FeedItem::Idle => frames.write(COMMENT),
                        item => wire.write(&feed, item, &mut frames),
                    }
                }
                pauses = !has_ended && wire.pauses(&feed, &mut frames).await;
                // Only frames reset the timer for comments: an event that the wire format drops does not reach the client.
                if !frames.is_empty() {
                    feed.touch();
                }
            }
        },
    );
    sse_response(Body::from_stream(chunks.map(Ok::<_, Infallible>)))
}

/// Streams a feed to its end. If the run leaves this process, the response is aborted: the run has not ended, and the client can resume
/// the stream.
pub(crate) fn until_left(feed: Feed, wire: impl EventEncoder) -> Response {
    let has_left = Arc::new(AtomicBool::new(false));
    let wire = UntilLeft {
        wire,
        has_left: Arc::clone(&has_left),
    };
    let left = async move {
        if !has_left.load(Ordering::Relaxed) {
            return None;
        }
        // The error discards unsent bytes, even the headers: let the connection send them first.
        tokio::task::yield_now().await;
        Some(Err(io::Error::other("the run continues later, or in another process")))
    };
    response(feed, wire, ()).map(|body| {
        let sent = body.into_data_stream().map_err(io::Error::other);
        Body::from_stream(sent.chain(once(left).filter_map(ready)))
    })
}

/// A wire that writes no end for a run that has left this process.
struct UntilLeft<W> {
    wire: W,
    has_left: Arc<AtomicBool>,
}

impl<W: EventEncoder> EventEncoder for UntilLeft<W> {
    fn write(&mut self, feed: &Feed, item: FeedItem, out: &mut Frames) {
        if matches!(item, FeedItem::End) && feed.run().has_left() {
            return self.has_left.store(true, Ordering::Relaxed);
        }
        self.wire.write(feed, item, out);
    }

    fn pauses<'a>(&'a mut self, feed: &'a Feed, out: &'a mut Frames) -> BoxFuture<'a, bool> {
        self.wire.pauses(feed, out)
    }
}

/// A source of frames, page by page.
pub(crate) trait Pages: Send + 'static {
    /// Returns the next frames; `None` after the last.
    fn next(&mut self) -> impl Future<Output = Result<Option<Frames>, Problem>> + Send;
}

/// Streams pages. The next page is requested after the previous one was sent.
pub(crate) fn pages(pages: impl Pages) -> Response {
    let chunks = stream::unfold(Some((pages, Frames::default())), async |state| {
        let (mut pages, mut frames) = state?;
        loop {
            if let Some(chunk) = frames.next().await {
                return Some((Ok(chunk), Some((pages, frames))));
            }
            match pages.next().await {
                Ok(Some(next)) => frames = next,
                Ok(None) => return None,
                // Break the connection: the client reconnects with the last id that it read.
                Err(problem) => return Some((Err(io::Error::other(problem.detail().to_owned())), None)),
            }
        }
    });
    sse_response(Body::from_stream(chunks))
}

/// Returns a complete body in pieces, which the connection takes one at a time; the memory is released after the last piece.
pub(crate) fn sent_with(text: &Bytes, sends: MemoryReservation) -> Body {
    let mut frames = Frames::default();
    frames.share(text);
    let pieces = stream::unfold((frames, sends), async |(mut frames, sends)| {
        Some((Ok::<_, Infallible>(frames.next().await?), (frames, sends)))
    });
    Body::from_stream(pieces)
}

/// Returns a complete stream as one response.
pub(crate) fn buffered_response(frames: Frames) -> Response {
    sse_response(Body::from(frames.own))
}

fn sse_response(body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Disables buffering in proxies, which would delay events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Writes one event with JSON, which must not contain line breaks.
pub(crate) fn frame(out: &mut Frames, name: Option<&str>, id: Option<Position>, json: &[u8]) {
    head(out, name, id);
    out.write(json);
    out.write(b"\n\n");
}

/// Writes an event of a run with the bytes of its log.
pub(crate) fn event(out: &mut Frames, recorded: &RecordedEvent) {
    head(out, None, Some(recorded.position()));
    for piece in recorded.pieces() {
        out.share(piece.bytes());
    }
    out.write(b"\n\n");
}

fn head(out: &mut Frames, name: Option<&str>, id: Option<Position>) {
    if let Some(id) = id {
        out.write(format!("id: {id}\n").as_bytes());
    }
    if let Some(name) = name {
        out.write(format!("event: {name}\n").as_bytes());
    }
    out.write(b"data: ");
}

/// Writes the unnamed events that one event of a run is converted to. Only the last has the id, so a client that has not read all
/// of them receives all of them again.
pub(crate) fn all(out: &mut Frames, events: &[Value], id: Position) {
    if let Some((last, before)) = events.split_last() {
        for event in before {
            data(out, event);
        }
        frame(out, None, Some(id), last.to_string().as_bytes());
    }
}

/// Writes an event without a name and an id.
pub(crate) fn data(out: &mut Frames, json: &Value) {
    frame(out, None, None, json.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn a_stream_with_much_to_send_gives_other_tasks_their_turns() {
        let mut frames = Frames::default();
        frames.share(&Bytes::from(vec![b'x'; 16 << 20]));
        let (turns, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let other = tokio::spawn({
            let (turns, is_over) = (Arc::clone(&turns), Arc::clone(&is_over));
            async move {
                while !is_over.load(Ordering::Relaxed) {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut sent = 0;
        // The receiver never waits, as a socket with free memory does not.
        while let Some(piece) = frames.next().await {
            sent += piece.len();
        }
        is_over.store(true, Ordering::Relaxed);
        other.await.expect("ends");
        assert_eq!(sent, 16 << 20);
        assert!(turns.load(Ordering::Relaxed) >= 200, "{turns:?} turns");
    }
}
