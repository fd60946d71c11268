//! Failures of requests in a uniform format: kind, retry delay, and a message without the key.

use std::error::Error as _;
use std::time::{Duration, SystemTime};

use pirn_conversation::model_call::{FailureKind, FinishReason, ModelFailure};
use pirn_definition::Millis;
use pirn_definition::error::RunError;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::key::Key;

/// Maximum length of the message in characters.
const LONGEST: usize = 400;

/// A failed request.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) cause: ModelFailure,
    message: String,
    finish: Option<FinishReason>,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            cause: ModelFailure::new(kind),
            message: message.into(),
            finish: None,
        }
    }

    /// Failure for a reply that violates the protocol.
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Malformed, message)
    }

    /// Returns this failure with another kind.
    pub(super) fn of_kind(mut self, kind: FailureKind) -> Self {
        self.cause.kind = kind;
        self
    }

    /// Adds the reason for which the reply ended.
    pub(super) fn with_finish(self, finish: FinishReason) -> Self {
        Self {
            finish: Some(finish),
            ..self
        }
    }

    /// Converts the failure to a `MODEL_ERROR`. The key is removed before the message is truncated, because a partial key would not
    /// be recognized.
    pub(super) fn into_error(self, key: &Key) -> RunError {
        let message = cut(&key.redact(&self.message));
        match self.finish {
            Some(finish) => self.cause.into_error_ended(finish, message),
            None => self.cause.into_error(message),
        }
    }
}

/// Failure of the connection. Addresses are omitted: they may contain secrets.
pub(super) fn of_transport(error: &reqwest::Error) -> Failure {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let because = if error.source().is_some() {
        format!(": {deepest}")
    } else {
        String::new()
    };
    let (kind, what) = if error.is_connect() {
        (FailureKind::Unreachable, "no connection to the provider")
    } else if error.is_timeout() {
        (FailureKind::Stalled, "the provider did not answer in time")
    } else if error.is_builder() {
        (FailureKind::Rejected, "the request cannot be sent")
    } else {
        (FailureKind::Dropped, "the connection ended before the reply did")
    };
    Failure::new(kind, format!("{what}{because}"))
}

/// Creates the failure for a response with a status other than 2xx.
pub(super) fn refused(status: StatusCode, body: &str, headers: &HeaderMap, received: SystemTime) -> Failure {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    let cause = ModelFailure {
        status: Some(status.as_u16()),
        retry_after: retry_after(headers, received).or_else(|| retry_delay(&body)),
        ..ModelFailure::new(kind_of(status.as_u16()))
    };
    Failure {
        cause,
        message: format!("HTTP {status}: {}", said(&body)),
        finish: None,
    }
}

fn kind_of(status: u16) -> FailureKind {
    match status {
        401 | 403 => FailureKind::Key,
        429 => FailureKind::RateLimited,
        408 | 500..=599 => FailureKind::Provider,
        _ => FailureKind::Rejected,
    }
}

/// Creates the failure for an error inside a reply that had started, by its code or by its numeric status.
pub(super) fn of_body(body: &Value) -> Failure {
    let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
    let named = |names: &[&str]| names.iter().find_map(|name| error.get(*name).and_then(Value::as_str));
    let by_word = |word: &str| {
        Some(match word.to_ascii_lowercase().as_str() {
            "authentication_error"
            | "permission_error"
            | "invalid_api_key"
            | "unauthenticated"
            | "permission_denied" => FailureKind::Key,
            "rate_limit_error" | "rate_limit_exceeded" | "resource_exhausted" => FailureKind::RateLimited,
            "invalid_request_error"
            | "not_found_error"
            | "invalid_argument"
            | "context_length_exceeded"
            | "badrequesterror"
            | "exceed_context_size_error" => FailureKind::Rejected,
            _ => return None,
        })
    };
    let number = error
        .get("code")
        .and_then(Value::as_u64)
        .and_then(|code| u16::try_from(code).ok());
    let by_number = number.filter(|code| (400..600).contains(code)).map(kind_of);
    let kind = named(&["type"])
        .and_then(by_word)
        .or_else(|| named(&["status"]).and_then(by_word))
        .or_else(|| named(&["code"]).and_then(by_word))
        .or(by_number);
    let mut failure = Failure::new(
        kind.unwrap_or(FailureKind::Provider),
        format!("the provider returned: {}", said(body)),
    );
    failure.cause.retry_after = retry_delay(body);
    failure
}

/// Returns the message in an error's body, in the location of any provider.
fn said(body: &Value) -> String {
    let pointers = ["/error/message", "/message", "/0/error/message", "/error"];
    let found = pointers.into_iter().find_map(|pointer| body.pointer(pointer)?.as_str());
    match (found, body) {
        (Some(text), _) => text.to_owned(),
        (None, Value::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    }
}

fn cut(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reads `retry-after-ms`, or `Retry-After` in seconds or as a date. A date is compared with the response's `Date` header, which is
/// of the same clock, else with the time of receipt.
fn retry_after(headers: &HeaderMap, received: SystemTime) -> Option<Millis> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let whole = |name: &str, scale: f64| {
        let number: f64 = text(name)?.parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some((number * scale).ceil() as Millis)
    };
    let date = |name: &str| -> Option<SystemTime> { httpdate::parse_http_date(text(name)?).ok() };
    whole("retry-after-ms", 1.0)
        .or_else(|| whole("retry-after", 1_000.0))
        .or_else(|| {
            let wait = date("retry-after")?.duration_since(date("date").unwrap_or(received));
            Some(wait.unwrap_or(Duration::ZERO).as_millis() as Millis)
        })
}

/// Reads Gemini's `RetryInfo`: `{error: {details: [{retryDelay: "13s"}]}}`.
fn retry_delay(body: &Value) -> Option<Millis> {
    let details = body.pointer("/error/details")?.as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail.get("retryDelay").and_then(Value::as_str))?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1_000.0).ceil() as Millis)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| {
                (
                    reqwest::header::HeaderName::from_static(name),
                    reqwest::header::HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn retry_after_is_parsed_in_every_form() {
        for (list, expected) in [
            (vec![("retry-after", "2")], Some(2_000)),
            (vec![("retry-after", " 0.5 ")], Some(500)),
            (vec![("retry-after", "9"), ("retry-after-ms", "40")], Some(40)),
            (
                vec![
                    ("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"),
                    ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ],
                Some(3_000),
            ),
            (
                vec![
                    ("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT"),
                    ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ],
                Some(0),
            ),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:49:42 GMT")], Some(7_000)),
            (
                vec![("retry-after", "Sun, 06 Nov 1994 08:49:42 GMT"), ("date", "yesterday")],
                Some(7_000),
            ),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT")], Some(0)),
            (vec![("retry-after", "soon")], None),
            (vec![("retry-after", "-3")], None),
            (vec![], None),
        ] {
            let received = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:35 GMT").expect("a date");
            assert_eq!(retry_after(&headers(&list), received), expected, "{list:?}");
        }
        let body = json!({"error": {"details": [{"@type": "x"}, {"retryDelay": "1.5s"}]}});
        assert_eq!(retry_delay(&body), Some(1_500));
    }

    #[test]
    fn a_status_code_determines_the_failure_kind() {
        for (status, kind) in [
            (401, FailureKind::Key),
            (403, FailureKind::Key),
            (404, FailureKind::Rejected),
            (408, FailureKind::Provider),
            (429, FailureKind::RateLimited),
            (500, FailureKind::Provider),
            (529, FailureKind::Provider),
            (302, FailureKind::Rejected),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let body = r#"{"error": {"message": "so it is"}}"#;
            let refused = refused(status, body, &HeaderMap::new(), SystemTime::UNIX_EPOCH);
            assert_eq!(refused.cause.kind, kind, "{status}");
            assert!(refused.message.ends_with("so it is"), "{}", refused.message);
        }
    }

    #[test]
    fn an_error_in_a_stream_determines_the_failure_kind() {
        for (body, kind) in [
            (json!({"error": {"message": "m"}}), FailureKind::Provider),
            (json!({"error": {"type": "overloaded_error"}}), FailureKind::Provider),
            (
                json!({"error": {"type": "BadRequestError", "code": 400}}),
                FailureKind::Rejected,
            ),
            (
                json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}),
                FailureKind::RateLimited,
            ),
            (
                json!({"error": {"code": 502, "message": "upstream"}}),
                FailureKind::Provider,
            ),
            (
                json!({"object": "error", "message": "m", "code": 400}),
                FailureKind::Rejected,
            ),
            (json!({"error": "m"}), FailureKind::Provider),
        ] {
            assert_eq!(of_body(&body).cause.kind, kind, "{body}");
        }
    }

    #[test]
    fn a_long_body_is_truncated_and_a_short_body_is_complete() {
        let long = "ä".repeat(1_000);
        assert_eq!(cut(&long).chars().count(), LONGEST + 3);
        assert_eq!(cut(" short\n"), "short");
        assert_eq!(said(&json!("plain")), "plain");
        assert_eq!(said(&json!({"error": "text"})), "text");
        assert_eq!(said(&json!({"odd": 1})), r#"{"odd":1}"#);
    }
}
