//! The client library's errors in our words: what kind, when to come back, and a sentence without the key in it.

use std::error::Error as _;
use std::time::{Duration, SystemTime};

use genai::{BoxError, webc};
use pirn_core::Millis;
use pirn_core::error::RunError;
use pirn_core::model_call::{FailureKind, ModelFailure};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::key::Key;

/// The longest sentence, characters.
const LONGEST: usize = 400;

/// The `MODEL_ERROR` of a failed request.
pub(super) fn error_of(error: &genai::Error, key: &Key) -> RunError {
    let (failure, message) = classify(error);
    // Cut only after the key is gone: half a key is a key.
    failure.into_error(cut(&key.redact(&message)))
}

fn classify(error: &genai::Error) -> (ModelFailure, String) {
    use genai::Error as E;
    match error {
        E::HttpError {
            status, body, headers, ..
        } => refused(*status, body, headers),
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => of_call(webc_error),
        E::WebStream { error, .. } => of_stream(error),
        E::ChatResponse { body, .. } => (said_in_stream(body), format!("the provider says: {}", said(body))),
        E::StreamParse { .. }
        | E::SerdeJson(_)
        | E::JsonValueExt(_)
        | E::InvalidJsonResponseElement { .. }
        | E::NoChatResponse { .. } => (
            ModelFailure::new(FailureKind::Malformed),
            format!("the reply is not what the protocol says: {error}"),
        ),
        // Its text holds the whole request.
        E::ChatResponseGeneration { cause, .. } => (
            ModelFailure::new(FailureKind::Malformed),
            format!("the reply is not what the protocol says: {cause}"),
        ),
        other => (
            ModelFailure::new(FailureKind::Rejected),
            format!("the request can not be sent: {other}"),
        ),
    }
}

fn of_call(error: &webc::Error) -> (ModelFailure, String) {
    match error {
        webc::Error::ResponseFailedStatus { status, body, headers } => refused(*status, body, headers),
        webc::Error::Reqwest(error) => of_transport(error),
        webc::Error::ResponseFailedNotJson { content_type, .. } => (
            ModelFailure::new(FailureKind::Malformed),
            format!("the reply is {content_type:?}, not JSON"),
        ),
        webc::Error::ResponseFailedInvalidJson { cause, .. } => (
            ModelFailure::new(FailureKind::Malformed),
            format!("the reply is not JSON: {cause}"),
        ),
        webc::Error::JsonValueExt(error) => (
            ModelFailure::new(FailureKind::Malformed),
            format!("the reply is not what the protocol says: {error}"),
        ),
    }
}

fn of_stream(error: &BoxError) -> (ModelFailure, String) {
    if let Some(error) = error.downcast_ref::<genai::Error>() {
        return classify(error);
    }
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return of_transport(error);
    }
    if error.is::<std::string::FromUtf8Error>() || error.is::<std::str::Utf8Error>() {
        let message = "the reply is not what the protocol says: it is not UTF-8";
        return (ModelFailure::new(FailureKind::Malformed), message.to_owned());
    }
    let message = format!("the connection ended before the reply did: {error}");
    (ModelFailure::new(FailureKind::Dropped), message)
}

/// Addresses are left out: they may hold what is nobody's business.
fn of_transport(error: &reqwest::Error) -> (ModelFailure, String) {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let because = if error.source().is_some() {
        format!(": {deepest}")
    } else {
        String::new()
    };
    if error.is_connect() {
        let message = format!("no connection to the provider{because}");
        (ModelFailure::new(FailureKind::Unreachable), message)
    } else if error.is_timeout() {
        let message = format!("the provider did not answer in time{because}");
        (ModelFailure::new(FailureKind::Stalled), message)
    } else if error.is_builder() {
        let message = format!("the request can not be sent{because}");
        (ModelFailure::new(FailureKind::Rejected), message)
    } else {
        let message = format!("the connection ended before the reply did{because}");
        (ModelFailure::new(FailureKind::Dropped), message)
    }
}

/// An answer that is not 2xx.
fn refused(status: StatusCode, body: &str, headers: &HeaderMap) -> (ModelFailure, String) {
    let kind = match status.as_u16() {
        401 | 403 => FailureKind::Key,
        429 => FailureKind::RateLimited,
        408 | 500..=599 => FailureKind::Provider,
        _ => FailureKind::Rejected,
    };
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    let failure = ModelFailure {
        status: Some(status.as_u16()),
        retry_after: retry_after(headers).or_else(|| retry_delay(&body)),
        ..ModelFailure::new(kind)
    };
    (failure, format!("HTTP {status}: {}", said(&body)))
}

/// An error that comes inside a reply that had begun well.
fn said_in_stream(body: &Value) -> ModelFailure {
    let error = body.get("error").unwrap_or(body);
    let word = ["type", "status", "code"]
        .into_iter()
        .find_map(|name| error.get(name).and_then(Value::as_str));
    let kind = match word.unwrap_or_default().to_ascii_lowercase().as_str() {
        "authentication_error" | "permission_error" | "invalid_api_key" | "unauthenticated" | "permission_denied" => {
            FailureKind::Key
        }
        "rate_limit_error" | "rate_limit_exceeded" | "resource_exhausted" => FailureKind::RateLimited,
        "invalid_request_error" | "not_found_error" | "invalid_argument" => FailureKind::Rejected,
        _ => FailureKind::Provider,
    };
    ModelFailure::new(kind)
}

/// The sentence in an error's body, wherever this provider puts it.
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

/// `retry-after-ms`, or `Retry-After` in seconds or as a date; a date is measured from the answer's own `Date`, so no
/// clock of ours is asked.
fn retry_after(headers: &HeaderMap) -> Option<Millis> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let whole = |name: &str, scale: f64| {
        let number: f64 = text(name)?.parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some((number * scale).ceil() as Millis)
    };
    let date = |name: &str| -> Option<SystemTime> { httpdate::parse_http_date(text(name)?).ok() };
    whole("retry-after-ms", 1.0)
        .or_else(|| whole("retry-after", 1_000.0))
        .or_else(|| {
            let wait = date("retry-after")?.duration_since(date("date")?);
            Some(wait.unwrap_or(Duration::ZERO).as_millis() as Millis)
        })
}

/// Gemini's `RetryInfo`: `{error: {details: [{retryDelay: "13s"}]}}`.
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
    fn retry_after_is_read_in_every_form() {
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
            (vec![("retry-after", "soon")], None),
            (vec![("retry-after", "-3")], None),
            (vec![], None),
        ] {
            assert_eq!(retry_after(&headers(&list)), expected, "{list:?}");
        }
        let body = json!({"error": {"details": [{"@type": "x"}, {"retryDelay": "1.5s"}]}});
        assert_eq!(retry_delay(&body), Some(1_500));
    }

    #[test]
    fn a_status_says_what_kind_it_is() {
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
            let (failure, message) = refused(status, body, &HeaderMap::new());
            assert_eq!(failure.kind, kind, "{status}");
            assert!(message.ends_with("so it is"), "{message}");
        }
    }

    #[test]
    fn a_long_body_is_cut_and_a_short_one_is_whole() {
        let long = "ä".repeat(1_000);
        assert_eq!(cut(&long).chars().count(), LONGEST + 3);
        assert_eq!(cut(" short\n"), "short");
        assert_eq!(said(&json!("plain")), "plain");
        assert_eq!(said(&json!({"error": "text"})), "text");
        assert_eq!(said(&json!({"odd": 1})), r#"{"odd":1}"#);
    }
}
