//! Errors as `application/problem+json` (RFC 9457), with a stable code and, for a body, the location of the error.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pirn::store::StoreError;
use pirn::{AnswerRefused, MessageRefused, ResumeError, RunError, RunErrorCode};
use serde::Serialize;
use utoipa::ToSchema;

macro_rules! problem_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal, $status:ident, $title:literal;)*) => {
        /// Stable code of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ProblemCode {
            $($(#[doc = $doc])* $name,)*
        }

        impl ProblemCode {
            /// Every code, in declaration order.
            pub const ALL: &'static [ProblemCode] = &[$(ProblemCode::$name,)*];

            /// The upper-case word used in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$name => $word,)* }
            }

            /// The HTTP status.
            pub fn status(self) -> StatusCode {
                match self { $(ProblemCode::$name => StatusCode::$status,)* }
            }

            /// A short title for people.
            pub fn title(self) -> &'static str {
                match self { $(ProblemCode::$name => $title,)* }
            }
        }
    };
}

problem_codes! {
    /// The body is not JSON.
    InvalidJson = "INVALID_JSON", BAD_REQUEST, "The body is not JSON";
    /// The query or a header has an invalid value.
    InvalidRequest = "INVALID_REQUEST", BAD_REQUEST, "The request is invalid";
    /// The request has no token, or a token that is not one of the service's.
    Unauthorized = "UNAUTHORIZED", UNAUTHORIZED, "A token is needed";
    /// The caller lacks a role, or its token names no tenant.
    Forbidden = "FORBIDDEN", FORBIDDEN, "The caller may not do this";
    /// The page that sent the request has an origin that is not allowed.
    WrongOrigin = "WRONG_ORIGIN", FORBIDDEN, "The origin is not allowed";
    /// The Studio may only read, and its request would change something.
    StudioReadOnly = "STUDIO_READ_ONLY", FORBIDDEN, "The page may only read";
    /// No route has this path.
    NotFound = "NOT_FOUND", NOT_FOUND, "There is no such path";
    /// No workflow has this id.
    UnknownWorkflow = "UNKNOWN_WORKFLOW", NOT_FOUND, "There is no such workflow";
    /// No run has this id, or it ended long ago.
    UnknownRun = "UNKNOWN_RUN", NOT_FOUND, "There is no such run";
    /// The events and steps of the run were dropped; its report is readable.
    EventsDropped = "EVENTS_DROPPED", GONE, "The events of the run were dropped";
    /// The run has made no model request with this id.
    UnknownRequest = "UNKNOWN_REQUEST", NOT_FOUND, "There is no such model request";
    /// The path does not support the method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", METHOD_NOT_ALLOWED, "The method is not allowed here";
    /// The body did not arrive in time.
    BodyTimeout = "BODY_TIMEOUT", REQUEST_TIMEOUT, "The body did not arrive in time";
    /// No run has saved anything in a session of this id.
    UnknownSession = "UNKNOWN_SESSION", NOT_FOUND, "There is no such session";
    /// The service has no store: it cannot fork, park or resume runs.
    NoStore = "NO_STORE", CONFLICT, "The service has no store";
    /// The run cannot be resumed from its stored state.
    NotResumed = "NOT_RESUMED", CONFLICT, "The run cannot be resumed";
    /// The run is in the store, and this service does not execute it.
    NotCarried = "NOT_CARRIED", CONFLICT, "No process executes the run";
    /// The queue of the session is full, or an earlier run of the session has no owner.
    SessionBusy = "SESSION_BUSY", CONFLICT, "The session is busy";
    /// The store cannot be read or written.
    StoreFailed = "STORE_FAILED", INTERNAL_SERVER_ERROR, "The store failed";
    /// The store does not answer a probe.
    StoreUnreachable = "STORE_UNREACHABLE", SERVICE_UNAVAILABLE, "The store does not answer";
    /// A run of an exploration calls a model or function that is not offline.
    NotOffline = "NOT_OFFLINE", CONFLICT, "The workflow is not offline";
    /// The orders of a workflow cannot be explored, or one of them exceeds a limit.
    NotExplored = "NOT_EXPLORED", CONFLICT, "The orders cannot be explored";
    /// The workflow has no order with these choices.
    NoSuchOrder = "NO_SUCH_ORDER", NOT_FOUND, "There is no such order";
    /// The run has ended.
    RunEnded = "RUN_ENDED", CONFLICT, "The run has ended";
    /// The question was answered or withdrawn, or has never existed.
    InteractionClosed = "INTERACTION_CLOSED", CONFLICT, "The question is closed";
    /// The main workflow of the run calls no model that could read a message.
    NoModelRequests = "NO_MODEL_REQUESTS", CONFLICT, "The run calls no model";
    /// An AG-UI thread has open interrupts that its next input does not answer.
    InterruptsOpen = "INTERRUPTS_OPEN", CONFLICT, "Interrupts wait for answers";
    /// Another run has this id.
    RunIdTaken = "RUN_ID_TAKEN", CONFLICT, "The run's id is taken";
    /// A request with this idempotency key is being handled.
    IdempotencyKeyInUse = "IDEMPOTENCY_KEY_IN_USE", CONFLICT, "A request with this key is in progress";
    /// The body exceeds the limit of the service.
    BodyTooLarge = "BODY_TOO_LARGE", PAYLOAD_TOO_LARGE, "The body is too large";
    /// The request's line and headers exceed the limit of the service.
    HeadersTooLarge = "HEADERS_TOO_LARGE", REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large";
    /// The body is not declared as JSON.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", UNSUPPORTED_MEDIA_TYPE, "The body must be JSON";
    /// The request names a host that this service is not.
    WrongHost = "WRONG_HOST", MISDIRECTED_REQUEST, "The host is not allowed";
    /// A field that the format does not define.
    UnknownField = "UNKNOWN_FIELD", UNPROCESSABLE_ENTITY, "A field is unknown";
    /// A required field is missing.
    MissingField = "MISSING_FIELD", UNPROCESSABLE_ENTITY, "A field is missing";
    /// A value has the wrong type, or is out of range.
    InvalidValue = "INVALID_VALUE", UNPROCESSABLE_ENTITY, "A value is invalid";
    /// The input does not match the workflow's `inputSchema`.
    InvalidInput = "INVALID_INPUT", UNPROCESSABLE_ENTITY, "The input does not match the workflow";
    /// The answer does not match the question's schema.
    InvalidAnswer = "INVALID_ANSWER", UNPROCESSABLE_ENTITY, "The answer does not match the question";
    /// An earlier request had this idempotency key and a different body.
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED", UNPROCESSABLE_ENTITY, "The key belongs to another request";
    /// An internal error of the service.
    Internal = "INTERNAL", INTERNAL_SERVER_ERROR, "Internal error";
    /// The engine's maximum number of runs is reached.
    Overloaded = "OVERLOADED", SERVICE_UNAVAILABLE, "Too many runs are in progress";
    /// The service's maximum number of streams is reached.
    TooManyStreams = "TOO_MANY_STREAMS", SERVICE_UNAVAILABLE, "Too many streams are open";
    /// The maximum numbers of concurrent replays and of waiting requests are reached.
    TooManyReplays = "TOO_MANY_REPLAYS", SERVICE_UNAVAILABLE, "Too many stored runs are being read";
    /// The maximum numbers of concurrent explorations and of waiting requests are reached.
    TooManyExplorations = "TOO_MANY_EXPLORATIONS", SERVICE_UNAVAILABLE, "Too many explorations are in progress";
    /// The memory limit for requests and inputs is reached.
    TooManyBytes = "TOO_MANY_BYTES", TOO_MANY_REQUESTS, "Too much memory is in use";
    /// Too many messages of people wait in the run.
    TooManyMessages = "TOO_MANY_MESSAGES", TOO_MANY_REQUESTS, "Too many messages wait";
    /// A limit of the caller's tenant is reached.
    TenantLimit = "TENANT_LIMIT", TOO_MANY_REQUESTS, "The tenant's limit is reached";
    /// The service's maximum number of MCP sessions is reached.
    TooManySessions = "TOO_MANY_SESSIONS", SERVICE_UNAVAILABLE, "Too many MCP sessions are open";
    /// The keys of the identity provider cannot be read.
    KeysUnavailable = "KEYS_UNAVAILABLE", SERVICE_UNAVAILABLE, "The token cannot be checked";
    /// The service that owns the run did not answer a request that may have had its effect.
    OwnerUnreachable = "OWNER_UNREACHABLE", BAD_GATEWAY, "The owner of the run does not answer";
    /// The store or the engine does not answer.
    NotReady = "NOT_READY", SERVICE_UNAVAILABLE, "The service is not ready";
    /// The service is being shut down.
    Draining = "DRAINING", SERVICE_UNAVAILABLE, "The service is shutting down";
}

/// The problem with a request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Problem {
    /// The code's title.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// A stable code.
    #[schema(value_type = String, example = "UNKNOWN_WORKFLOW")]
    code: &'static str,
    /// A message for people, one sentence.
    detail: String,
    /// JSON pointer to the location in the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    /// Line of the body, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// Column of that line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    /// Seconds after which the client may retry.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// Maximum size of a problem's message in JSON.
const MAX_DETAIL: usize = 8 << 10;

/// Maximum size of a problem's pointer in JSON.
const MAX_POINTER: usize = 4 << 10;

/// Returns the length of the longest start of a text that takes at most `limit` bytes in JSON; `None` if all of it does.
fn cut_at(text: &str, limit: usize) -> Option<usize> {
    let mut size = 0;
    let mut chars = text.char_indices();
    chars.find_map(|(place, char)| {
        // An escape has at most 6 bytes.
        let is_plain = !char.is_ascii_control() && char != '"' && char != '\\';
        size += if is_plain { char.len_utf8() } else { 6 };
        (size > limit).then_some(place)
    })
}

impl Problem {
    /// Creates a problem with a message, which is cut after 8 KiB: it may quote an id or a value of the request.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if let Some(end) = cut_at(&detail, MAX_DETAIL) {
            detail.truncate(end);
            detail.push_str("...");
        }
        Self {
            title: code.title(),
            status: code.status().as_u16(),
            code: code.as_str(),
            detail,
            pointer: None,
            line: None,
            column: None,
            retry_after: None,
        }
    }

    /// Sets the location of the problem in the body, as a JSON pointer. If the pointer has more than 4 KiB, the location is the
    /// innermost object or list around it with a shorter one.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        let mut pointer = pointer.into();
        if let Some(end) = cut_at(&pointer, MAX_POINTER) {
            // The part up to a slash is the pointer of a container.
            let container = pointer.as_bytes()[..=end].iter().rposition(|byte| *byte == b'/');
            pointer.truncate(container.unwrap_or_default());
        }
        self.pointer = Some(pointer);
        self
    }

    /// Sets the line and the column of the problem in the body, counted from 1.
    #[must_use]
    pub fn in_line(mut self, line: usize, column: usize) -> Self {
        (self.line, self.column) = (Some(line), Some(column));
        self
    }

    /// Sets the number of seconds after which the client may retry.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the message.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The metrics read this extension, to count refusals by code.
        response.extensions_mut().insert(ResponseProblemCode(self.code));
        response
    }
}

/// Extension of a response: the code of its problem, for logs and metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseProblemCode(pub(crate) &'static str);

pub(crate) fn unknown(id: &str) -> Problem {
    let detail = format!("there is no run {id}, or it ended long ago and was removed");
    Problem::new(ProblemCode::UnknownRun, detail)
}

pub(crate) fn id_taken(id: &str) -> Problem {
    Problem::new(ProblemCode::RunIdTaken, format!("run {id} exists already")).at("/runId")
}

/// Converts the error of resuming, steering or forking a stored run.
pub(crate) fn resume_problem(error: &ResumeError) -> Problem {
    let code = match error {
        ResumeError::NoStore => ProblemCode::NoStore,
        ResumeError::HasEnded { .. } => ProblemCode::RunEnded,
        ResumeError::SessionBusy { .. } => ProblemCode::SessionBusy,
        ResumeError::Store(StoreError::NoSuchRun { run }) => return unknown(run),
        ResumeError::Store(StoreError::RunExists { .. }) => ProblemCode::RunIdTaken,
        ResumeError::Store(_) => ProblemCode::StoreFailed,
        ResumeError::NotExecuted { .. } => ProblemCode::NotCarried,
        ResumeError::EventsDropped { .. } => ProblemCode::EventsDropped,
        ResumeError::NoSuchStep { .. } => ProblemCode::InvalidValue,
        ResumeError::NoSuchRequest { .. } => ProblemCode::UnknownRequest,
        ResumeError::Refused(error) => return start_problem(error),
        ResumeError::Answer(error) => return answer_problem(error),
        ResumeError::Message(error) => return message_problem(error),
        _other => ProblemCode::NotResumed,
    };
    Problem::new(code, error.to_string())
}

/// Converts the refusal of an answer.
pub(crate) fn answer_problem(refused: &AnswerRefused) -> Problem {
    match refused {
        AnswerRefused::Invalid { reason } => Problem::new(ProblemCode::InvalidAnswer, reason.clone()).at("/answer"),
        other => Problem::new(ProblemCode::InteractionClosed, other.to_string()),
    }
}

/// Converts the refusal of a person's message.
pub(crate) fn message_problem(refused: &MessageRefused) -> Problem {
    let detail = refused.to_string();
    match refused {
        MessageRefused::Ended => Problem::new(ProblemCode::RunEnded, detail),
        MessageRefused::NoModel => Problem::new(ProblemCode::NoModelRequests, detail),
        MessageRefused::Full { .. } => Problem::new(ProblemCode::TooManyMessages, detail).retry_after(1),
        MessageRefused::NotKept { .. } => Problem::new(ProblemCode::StoreFailed, detail),
        _invalid => Problem::new(ProblemCode::InvalidValue, detail).at("/message"),
    }
}

pub(crate) fn draining() -> Problem {
    Problem::new(
        ProblemCode::Draining,
        "the service is shutting down and starts no more runs",
    )
    .retry_after(5)
}

pub(crate) fn start_problem(error: &RunError) -> Problem {
    match error.code {
        RunErrorCode::Overloaded => Problem::new(ProblemCode::Overloaded, error.message.clone()).retry_after(1),
        RunErrorCode::SessionBusy => Problem::new(ProblemCode::SessionBusy, error.message.clone()).retry_after(1),
        RunErrorCode::Cancelled => draining(),
        RunErrorCode::RunIdTaken => Problem::new(ProblemCode::RunIdTaken, error.message.clone()).at("/runId"),
        RunErrorCode::InvalidInput => Problem::new(ProblemCode::InvalidInput, error.message.clone()),
        _other => Problem::new(ProblemCode::Internal, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_that_quotes_a_long_text_has_at_most_16_kib() {
        for text in ["x", "\u{0}", "\"", "\u{1f980}", "\u{7f}"] {
            let long = text.repeat(100_000);
            let pointer = format!("/input/{}/{long}/b", "a".repeat(4_000));
            let problem = Problem::new(ProblemCode::InvalidValue, long).at(pointer);
            let json = serde_json::to_string(&problem).expect("JSON");
            assert!(json.len() <= 16 << 10, "{}", json.len());
            assert!(problem.detail().starts_with(text) && problem.detail().ends_with("..."));
            assert!(problem.detail().len() > 1_000, "the start is shown");
            let container = format!("/input/{}", "a".repeat(4_000));
            assert_eq!(problem.pointer, Some(container));
        }
    }

    #[test]
    fn a_problem_with_short_texts_is_unchanged() {
        let (detail, pointer) = ("x".repeat(MAX_DETAIL), format!("/{}", "a".repeat(MAX_POINTER - 1)));
        let problem = Problem::new(ProblemCode::InvalidValue, &*detail).at(&*pointer);
        assert_eq!(
            (problem.detail(), problem.pointer.as_deref()),
            (&*detail, Some(&*pointer))
        );
        let longer = Problem::new(ProblemCode::InvalidValue, "").at(pointer + "a");
        assert_eq!(longer.pointer.as_deref(), Some(""));
    }
}
