//! Requests about a run that another process executes: the service of that process answers them, if it has an address.
//!
//! The owner has the pieces of replies, and can continue the streams of front ends. It checks the token of the caller again. Without
//! an answer of the owner, this service answers from the journal in the store.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use futures::stream;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::body::{JsonBody, arrived};
use crate::http::access::only_reads;
use crate::http::problem::{Problem, ProblemCode};
use crate::memory::MemoryReservation;
use crate::state::Service;
use pirn::store::RunFilter;
use pirn_models::error_chain::with_causes;

/// Marks a forwarded request. Its receiver answers it, so that outdated claims cannot send a request in a circle.
const FORWARDED: HeaderName = HeaderName::from_static("pirn-forwarded");

/// Maximum time until the owner's answer starts. A paused process accepts connections and answers nothing.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Number of the owner's comments that may be missing before a stream is interrupted: its machine may have lost power.
const MISSED_COMMENTS: u32 = 3;

/// Media types of the answers that are passed on.
const EVENT_STREAM: &str = "text/event-stream";
const PROBLEM: &str = "application/problem+json";

/// Headers that concern one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request that can be forwarded.
pub(super) struct Forwardable {
    method: Method,
    /// Path and query, without the prefix of a router that contains the service's routes: the owner's address contains its prefix.
    path: String,
    pub(super) headers: HeaderMap,
    body: Bytes,
    /// Memory reserved for the body.
    _memory: Option<MemoryReservation>,
}

impl FromRequestParts<Service> for Forwardable {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Service) -> Result<Self, Problem> {
        Ok(Self::of(parts))
    }
}

/// A JSON body with its request, which can be forwarded.
pub(super) struct ForwardableJson<T>(pub(super) Forwardable, pub(super) JsonBody<T>);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Service> for ForwardableJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let (parts, mut body) = request.into_parts();
        let mut forwardable = Forwardable::of(&parts);
        // Otherwise the bytes are not needed after they are parsed.
        if service.is_shared() && !forwardable.was_forwarded() {
            let (bytes, memory) = arrived(body, service).await?;
            forwardable = Forwardable {
                body: bytes.into(),
                _memory: Some(memory),
                ..forwardable
            };
            body = Body::from(forwardable.body.clone());
        }
        let parsed = JsonBody::from_request(Request::from_parts(parts, body), service).await?;
        Ok(Self(forwardable, parsed))
    }
}

impl Forwardable {
    fn of(parts: &Parts) -> Self {
        Self {
            method: parts.method.clone(),
            path: parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            headers: parts.headers.clone(),
            body: Bytes::new(),
            _memory: None,
        }
    }

    /// True if another service has forwarded the request to this one.
    pub(super) fn was_forwarded(&self) -> bool {
        self.headers.contains_key(FORWARDED)
    }

    /// Forwards the request to the service of the process that owns a run, and returns its answer. Returns `None` if this service must
    /// answer: no other process owns the run, or the owner has no service, refuses the request or does not answer.
    pub(super) async fn to_owner(&self, service: &Service, run: &str) -> Result<Option<Response>, Problem> {
        if self.was_forwarded() || service.runs().find(run).is_some() {
            return Ok(None);
        }
        let Some(claims) = service.engine().store().and_then(|store| store.claims()) else {
            return Ok(None);
        };
        let address = claims.owner_address(&service.scope().run_id(run)).await;
        let address = address.unwrap_or_else(|error| {
            tracing::debug!(run_id = run, %error, "the owner of the run cannot be read");
            None
        });
        match address.as_deref().zip(service.forwarder()) {
            Some((address, client)) => self.send(service, client, address).await,
            None => Ok(None),
        }
    }

    /// Forwards the request to the owner of the youngest unfinished run that fits the filter and that `is_asked` accepts, like
    /// [`Self::to_owner`].
    pub(super) async fn to_owner_of_youngest(
        &self,
        service: &Service,
        filter: RunFilter,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Option<Response>, Problem> {
        if self.was_forwarded() || !service.is_shared() {
            return Ok(None);
        }
        let filter = RunFilter { live: true, ..filter };
        match service.youngest_stored(filter, is_asked).await? {
            Some(run) => self.to_owner(service, &run.id).await,
            None => Ok(None),
        }
    }

    async fn send(
        &self,
        service: &Service,
        client: &reqwest::Client,
        address: &str,
    ) -> Result<Option<Response>, Problem> {
        let permit = service.streams().enter()?;
        let url = format!("{}{}", address.trim_end_matches('/'), self.path);
        let request = client.request(self.method.clone(), url);
        let request = request.headers(request_headers(&self.headers)).body(self.body.clone());
        let (why, is_unsent) = match timeout(ANSWER_TIME, request.send()).await {
            Ok(Ok(answer)) => match self.answer_of(&answer) {
                AnswerOf::Owner => return Ok(Some(relayed(service, answer, permit))),
                AnswerOf::Refusal => (format!("it answers {}", answer.status()), true),
                AnswerOf::Other => (format!("the answer {} is not from Pirn", answer.status()), false),
            },
            Ok(Err(error)) => {
                let is_unsent = error.is_connect();
                // The client receives the message, and must not learn the address.
                (with_causes(&error.without_url()), is_unsent)
            }
            Err(_elapsed) => (format!("no answer within {} s", ANSWER_TIME.as_secs()), false),
        };
        tracing::warn!(
            address,
            why,
            "forwarding a request to the service that owns the run failed"
        );
        // A request that changes something may have had its effect: this service must not execute it again.
        if is_unsent || only_reads(&self.method) {
            return Ok(None);
        }
        let detail = format!("the service that owns the run did not answer ({why}): it may have received the request");
        Err(Problem::new(ProblemCode::OwnerUnreachable, detail).retry_after(1))
    }

    /// Classifies the answer at the owner's address.
    fn answer_of(&self, answer: &reqwest::Response) -> AnswerOf {
        match answer.status() {
            // This service accepted the token and the headers. The owner refuses them, or the host in its address.
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => AnswerOf::Refusal,
            // An owner with too many streams, or another path than that of its URL. This service can read for the caller.
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::NOT_FOUND if only_reads(&self.method) => AnswerOf::Refusal,
            StatusCode::NO_CONTENT => AnswerOf::Owner,
            // Every other answer of the routes that are forwarded is a stream or a problem. A proxy in front of an owner that is down
            // answers otherwise, and so does a server that has the address of a former owner.
            status => {
                let kind = answer.headers().get(header::CONTENT_TYPE);
                let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
                let expected = if status == StatusCode::OK {
                    EVENT_STREAM
                } else {
                    PROBLEM
                };
                if kind.split(';').next().is_some_and(|kind| kind.trim() == expected) {
                    AnswerOf::Owner
                } else {
                    AnswerOf::Other
                }
            }
        }
    }
}

/// Sender and meaning of an answer.
enum AnswerOf {
    /// The owner's answer to the caller.
    Owner,
    /// The owner has not executed the request.
    Refusal,
    /// Another server has answered. A proxy may have sent the request to the owner before.
    Other,
}

/// Returns the headers of a caller for the owner.
fn request_headers(headers: &HeaderMap) -> HeaderMap {
    let mut forwarded = end_to_end(headers);
    // `Origin` was checked by this service; the owner may allow other origins.
    for name in [header::HOST, header::CONTENT_LENGTH, header::ORIGIN] {
        forwarded.remove(name);
    }
    forwarded.insert(FORWARDED, HeaderValue::from_static("1"));
    forwarded
}

/// Returns the headers of the owner's answer for the caller.
fn response_headers(headers: &HeaderMap) -> HeaderMap {
    let mut answered = end_to_end(headers);
    // The CORS layer of this service adds these headers.
    answered.remove(header::VARY);
    let of_cors = |name: &&HeaderName| name.as_str().starts_with("access-control-");
    let of_cors: Vec<HeaderName> = answered.keys().filter(of_cors).cloned().collect();
    for name in of_cors {
        answered.remove(name);
    }
    answered
}

/// Returns the headers without those that concern the connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter();
    let named = named.filter_map(|names| names.to_str().ok());
    let named: Vec<&str> = named.flat_map(|names| names.split(',')).map(str::trim).collect();
    let is_forwarded = |name: &HeaderName| {
        let is = |other: &&str| other.eq_ignore_ascii_case(name.as_str());
        !HOP_BY_HOP.iter().any(is) && !named.iter().any(is)
    };
    let forwarded = headers.iter().filter(|(name, _)| is_forwarded(name));
    forwarded.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Streams the owner's answer. If the owner or this service stops, the response is aborted, and the caller can request the rest.
fn relayed(service: &Service, answer: reqwest::Response, permit: impl Send + 'static) -> Response {
    let (status, headers) = (answer.status(), response_headers(answer.headers()));
    let (stopped, at_most) = (service.stopped().clone(), service.limits().keep_alive * MISSED_COMMENTS);
    let chunks = stream::unfold((Some(answer), permit), move |(answer, permit)| {
        let stopped = stopped.clone();
        async move {
            let mut answer = answer?;
            let chunk = tokio::select! {
                chunk = timeout(at_most, answer.chunk()) => chunk.map_err(io::Error::other),
                () = stopped.cancelled() => Err(io::Error::other("the service is shutting down")),
            };
            match chunk.and_then(|chunk| chunk.map_err(io::Error::other)) {
                Ok(chunk) => chunk.map(|chunk| (Ok(chunk), (Some(answer), permit))),
                Err(error) => Some((Err(error), (None, permit))),
            }
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let headers = headers.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        headers.collect()
    }

    #[test]
    fn a_forwarded_request_has_the_headers_of_the_caller_without_those_of_its_connection() {
        let sent = map(&[
            ("authorization", "Bearer s3cret"),
            ("last-event-id", "6.2"),
            ("accept", "text/event-stream"),
            ("content-type", "application/json"),
            ("host", "svc-b:7474"),
            ("origin", "http://svc-b:7474"),
            ("content-length", "17"),
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
        ]);
        let expected = map(&[
            ("authorization", "Bearer s3cret"),
            ("last-event-id", "6.2"),
            ("accept", "text/event-stream"),
            ("content-type", "application/json"),
            ("pirn-forwarded", "1"),
        ]);
        assert_eq!(request_headers(&sent), expected);
    }

    #[test]
    fn a_forwarded_answer_has_the_headers_of_the_owner_without_those_of_its_connection_and_of_cors() {
        let sent = map(&[
            ("content-type", "text/event-stream"),
            ("cache-control", "no-store"),
            ("x-vercel-ai-ui-message-stream", "v1"),
            ("retry-after", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("vary", "origin"),
            ("access-control-expose-headers", "location"),
        ]);
        let expected = map(&[
            ("content-type", "text/event-stream"),
            ("cache-control", "no-store"),
            ("x-vercel-ai-ui-message-stream", "v1"),
            ("retry-after", "1"),
        ]);
        assert_eq!(response_headers(&sent), expected);
    }
}
