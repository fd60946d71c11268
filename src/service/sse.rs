//! Server-sent events: how a stream is written.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, stream};
use serde_json::Value;

use super::feed::{Fed, Feed};
use super::position::Position;

/// A comment: it keeps the connection, and readers pass over it.
const COMMENT: &[u8] = b":\n\n";

/// Writes items of a feed as text on the wire.
pub(super) trait Wire: Send + 'static {
    /// Writes what one thing becomes, which may be nothing.
    fn write(&mut self, feed: &Feed, item: Fed, out: &mut Vec<u8>);

    /// Called when all that has happened so far is written. True: the stream ends here, before the run.
    fn pauses<'a>(&'a mut self, _feed: &'a Feed, _out: &'a mut Vec<u8>) -> BoxFuture<'a, bool> {
        ready(false).boxed()
    }
}

/// A wire whose reader has read everything up to a position of it: that is written for the wire's own sake and not sent.
pub(super) struct After<W> {
    pub(super) wire: W,
    pub(super) read_to: Position,
}

impl<W: Wire> Wire for After<W> {
    fn write(&mut self, feed: &Feed, item: Fed, out: &mut Vec<u8>) {
        let was_read = match &item {
            Fed::Event(recorded) => recorded.position <= self.read_to,
            Fed::Missed { after, .. } => *after < self.read_to,
            Fed::Idle | Fed::End => false,
        };
        if was_read {
            self.wire.write(feed, item, &mut Vec::new());
        } else {
            self.wire.write(feed, item, out);
        }
    }

    fn pauses<'a>(&'a mut self, feed: &'a Feed, out: &'a mut Vec<u8>) -> BoxFuture<'a, bool> {
        self.wire.pauses(feed, out)
    }
}

/// A value that is dropped with a stream, whoever ends it; told when the stream came to its end.
pub(super) trait Guard: Send + 'static {
    fn ended(&mut self);
}

impl Guard for () {
    fn ended(&mut self) {}
}

/// A stream from a feed to its end.
pub(super) fn response(feed: Feed, wire: impl Wire, guard: impl Guard) -> Response {
    let state = (feed, wire, guard, false);
    let frames = stream::unfold(state, async |(mut feed, mut wire, mut guard, pauses)| {
        loop {
            let next = if pauses { Vec::new() } else { feed.next().await };
            if next.is_empty() {
                guard.ended();
                return None;
            }
            let has_ended = matches!(next.last(), Some(Fed::End));
            let mut out = Vec::new();
            for item in next {
                match item {
                    Fed::Idle => out.extend_from_slice(COMMENT),
                    item => wire.write(&feed, item, &mut out),
                }
            }
            let pauses = !has_ended && wire.pauses(&feed, &mut out).await;
            if !out.is_empty() {
                feed.spoke();
                let chunk: Result<Bytes, Infallible> = Ok(out.into());
                return Some((chunk, (feed, wire, guard, pauses)));
            }
        }
    });
    streamed(Body::from_stream(frames))
}

/// A stream that is there already.
pub(super) fn whole(frames: Vec<u8>) -> Response {
    streamed(Body::from(frames))
}

fn streamed(body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A proxy that buffers would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// One event with JSON, which has no line breaks.
pub(super) fn frame(out: &mut Vec<u8>, name: Option<&str>, id: Option<Position>, json: &[u8]) {
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    if let Some(name) = name {
        out.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(json);
    out.extend_from_slice(b"\n\n");
}

/// The events without names that one event of a run becomes. The last has the id: a client that has not read all of them gets all
/// of them again.
pub(super) fn all(out: &mut Vec<u8>, events: &[Value], id: Position) {
    if let Some((last, before)) = events.split_last() {
        before.iter().for_each(|event| data(out, event));
        frame(out, None, Some(id), last.to_string().as_bytes());
    }
}

/// An event without a name and id.
pub(super) fn data(out: &mut Vec<u8>, json: &Value) {
    frame(out, None, None, json.to_string().as_bytes());
}
