//! Sends one request and reads its reply in pieces, within time limits.

use std::future::Future;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::{Either, select};
use pirn_actors::host::WorkClock;
use pirn_actors::ports::ModelCall;
use pirn_conversation::model_call::FailureKind;
use pirn_core::thread::ModelReply;
use pirn_definition::Millis;
use pirn_definition::error::RunError;
use reqwest::{Client, RequestBuilder, Response, Url};
use serde_json::Value;

use super::failure::{Failure, of_transport, refused};
use super::frames::Frames;
use super::key::Key;
use super::protocol::Protocol;
use super::reply_builder::{ReplyBuilder, spending};
use crate::policy::Timeouts;

/// Maximum bytes of a reply without streaming, or of one frame.
const LONGEST: usize = 64 << 20;

/// Maximum bytes of a stream, including frames without content.
const LONGEST_STREAM: usize = 256 << 20;

/// Creates a client that follows no redirects, so that keys are sent only to the endpoint.
pub(super) fn client(endpoint: &Url, timeouts: Timeouts) -> Result<Client, String> {
    let mut client = Client::builder()
        .user_agent(concat!("pirn/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true);
    if let Some(connect) = timeouts.connect {
        client = client.connect_timeout(Duration::from_millis(connect));
    }
    if is_near(endpoint) {
        client = client.no_proxy();
    }
    client.build().map_err(|error| error.to_string())
}

/// Returns whether the endpoint is on this machine: then no proxy is used.
fn is_near(endpoint: &Url) -> bool {
    match endpoint.host_str().map(|host| host.trim_matches(['[', ']'])) {
        Some("localhost") => true,
        Some(host) => host
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback()),
        None => false,
    }
}

/// A request in progress.
pub(super) struct Exchange<'a> {
    pub(super) protocol: Protocol,
    pub(super) model: &'a str,
    pub(super) streams: bool,
    pub(super) timeouts: Timeouts,
    pub(super) call: &'a ModelCall,
    pub(super) key: &'a Key,
}

impl Exchange<'_> {
    /// Sends the request and receives the reply. A reply that breaks off costs the usage reported up to then.
    pub(super) async fn run(&self, request: RequestBuilder) -> Result<ModelReply, RunError> {
        let mut builder = ReplyBuilder::default();
        let taken = self.take(request, &mut builder).await;
        let spent = builder.reported();
        let reply = match taken {
            Ok(()) => {
                self.hand_on(&mut builder, true);
                builder.reply(self.protocol.name(), self.model, self.key)
            }
            Err(failure) => Err(failure),
        };
        reply.map_err(|mut failure| {
            failure.cause = spending(failure.cause, spent);
            failure.into_error(self.key)
        })
    }

    async fn take(&self, request: RequestBuilder, builder: &mut ReplyBuilder) -> Result<(), Failure> {
        let mut wait = Wait::new(&self.call.clock, self.timeouts.first_token);
        let mut answer = wait.or(request.send()).await?.map_err(|error| of_transport(&error))?;
        let status = answer.status();
        if !status.is_success() {
            let headers = answer.headers().clone();
            let body = self.body(answer, &wait).await.unwrap_or_default();
            #[allow(clippy::disallowed_methods)] // A date in `Retry-After` is one of the real world.
            let received = SystemTime::now();
            return Err(refused(status, &String::from_utf8_lossy(&body), &headers, received));
        }
        let kind = answer
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        if kind.starts_with("text/html") {
            return Err(Failure::malformed(format!("the reply is {kind:?}, not JSON")));
        }
        // Some servers do not stream, even if requested.
        let is_whole = !self.streams || (kind.starts_with("application/json") && self.protocol != Protocol::Ollama);
        if is_whole {
            let body = self.body(answer, &wait).await?;
            let body: Value = serde_json::from_slice(&body)
                .map_err(|error| Failure::malformed(format!("the reply is not JSON: {error}")))?;
            self.protocol.parse_response(&body, builder)?;
            self.hand_on(builder, false);
            return builder.is_too_long().map_or(Ok(()), Err);
        }
        let mut frames = Frames::new(self.protocol.framing());
        let mut received = 0_usize;
        while !builder.is_over() {
            let bytes = match wait.or(answer.chunk()).await {
                Ok(Ok(bytes)) => bytes,
                // The finish reason has arrived: later data is not part of the reply.
                Ok(Err(_)) | Err(_) if builder.is_finished() => break,
                Ok(Err(error)) => return Err(of_transport(&error)),
                Err(stalled) => return Err(stalled),
            };
            let is_end = bytes.is_none();
            received = received.saturating_add(bytes.as_deref().map_or(0, <[u8]>::len));
            if received > LONGEST_STREAM {
                return Err(Failure::malformed(format!(
                    "the reply is longer than {LONGEST_STREAM} bytes"
                )));
            }
            let new = match bytes {
                Some(bytes) => frames.take(&bytes),
                None => frames.end(),
            };
            let has_data = frames.has_new_data();
            // A provider that sends only comments has stalled, although the connection is alive.
            if !new.is_empty() || (wait.has_begun && has_data) {
                wait.begun(self.timeouts.idle);
            } else if !is_end && wait.is_over() {
                // Bytes that are always ready would never let the timer be polled.
                if builder.is_finished() {
                    break;
                }
                return Err(wait.stalled());
            }
            for frame in new {
                // Bytes after the end are ignored, whether or not they arrived in the packet of the end.
                if builder.is_over() {
                    break;
                }
                self.protocol.parse_chunk(&frame, builder)?;
            }
            self.hand_on(builder, false);
            // Checked after the preceding frames, because one of them may end the reply.
            if frames.is_malformed() && !builder.is_over() {
                return Err(Failure::malformed(
                    "the reply does not follow the protocol: it is not UTF-8",
                ));
            }
            if let Some(too_long) = builder.is_too_long() {
                return Err(too_long);
            }
            if frames.waiting() > LONGEST {
                return Err(Failure::malformed(format!(
                    "a piece of the reply is longer than {LONGEST} bytes"
                )));
            }
            if is_end {
                break;
            }
        }
        Ok(())
    }

    fn hand_on(&self, builder: &mut ReplyBuilder, is_end: bool) {
        if let Some(text) = builder.take_new_text(self.key, is_end) {
            self.call.tokens.put(text);
        }
    }

    async fn body(&self, mut answer: Response, wait: &Wait<'_>) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(bytes) = wait.or(answer.chunk()).await?.map_err(|error| of_transport(&error))? {
            body.extend_from_slice(&bytes);
            if body.len() > LONGEST {
                return Err(Failure::malformed(format!("the reply is longer than {LONGEST} bytes")));
            }
        }
        Ok(body)
    }
}

/// The time limit of the next piece.
struct Wait<'a> {
    clock: &'a WorkClock,
    has_begun: bool,
    limit: Option<Millis>,
    until: Option<Millis>,
}

impl<'a> Wait<'a> {
    fn new(clock: &'a WorkClock, limit: Option<Millis>) -> Self {
        let until = limit.map(|limit| clock.now().saturating_add(limit));
        Self {
            clock,
            has_begun: false,
            limit,
            until,
        }
    }

    /// Sets the limit until the next piece, after one has arrived.
    fn begun(&mut self, limit: Option<Millis>) {
        *self = Self {
            has_begun: true,
            ..Self::new(self.clock, limit)
        };
    }

    /// Returns the output of `next`, or an error if it exceeds the time limit.
    async fn or<F: Future + Send>(&self, next: F) -> Result<F::Output, Failure> {
        let Some(until) = self.until else {
            return Ok(next.await);
        };
        let left = until.saturating_sub(self.clock.now());
        match select(next.boxed(), self.clock.sleep(left)).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(((), _)) => Err(self.stalled()),
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| self.clock.now() >= until)
    }

    fn stalled(&self) -> Failure {
        let what = if self.has_begun { "next" } else { "first" };
        let limit = self.limit.unwrap_or_default();
        Failure::new(FailureKind::Stalled, format!("no {what} token within {limit} ms"))
    }
}
