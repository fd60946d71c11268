//! Query parameters; unknown parameters are refused.

use axum::extract::{self, FromRequestParts, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use pirn_definition::definition::nearest;
use serde::de::DeserializeOwned;

use crate::http::problem::{Problem, ProblemCode};
use crate::runs::QUEUED;
use crate::runs::events::position::Position;
use crate::state::Service;
use pirn::store::RunStatus;
use pirn::{EventType, ThreadStatus};

/// Maximum number of entries per page of a list.
pub(super) const MAX_PAGE: usize = 1_000;

/// Returns the requested number of entries per page.
pub(super) fn page_limit(limit: Option<usize>, default: usize) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(default);
    if (1..=MAX_PAGE).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("limit must be a number from 1 to {MAX_PAGE}");
    Err(Problem::new(ProblemCode::InvalidRequest, detail))
}

/// The service, restricted to the runs of the request's sender. Fails if the request was not checked.
pub(super) struct Scoped(pub(super) Service);

impl FromRequestParts<Service> for Scoped {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Service) -> Result<Self, Problem> {
        let unchecked = || Problem::new(ProblemCode::Internal, "the request was not checked");
        parts.extensions.get().cloned().map(Self).ok_or_else(unchecked)
    }
}

/// Parameters of the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Service> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        match extract::Path::from_request_parts(parts, service).await {
            Ok(extract::Path(parameters)) => Ok(Self(parameters)),
            Err(error) => Err(Problem::new(ProblemCode::InvalidRequest, error.body_text())),
        }
    }
}

/// Parses the header `Last-Event-ID`: the last event that the client has read.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<Position>, Problem> {
    let value = headers.get("last-event-id");
    let read = value.map(|value| position(value.to_str().unwrap_or_default(), "Last-Event-ID"));
    read.transpose()
}

/// Parses a position in a run's events.
pub(super) fn position(text: &str, name: &str) -> Result<Position, Problem> {
    text.parse().map_err(|_| {
        let detail =
            format!("{name} must be the id of an event: its sequence, such as 6, or 6.2 for a piece of a reply");
        Problem::new(ProblemCode::InvalidRequest, detail)
    })
}

/// Parsed query parameters.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Service> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Service) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(error) => Err(Problem::new(
                ProblemCode::InvalidRequest,
                query_fault(&error.body_text()),
            )),
        }
    }
}

/// Rewrites an error of axum without the terms of serde and of Rust's number parsers.
fn query_fault(text: &str) -> String {
    let fault = text
        .strip_prefix("Failed to deserialize query string: ")
        .unwrap_or(text);
    let wrong_values = [
        ("invalid digit found in string", "must be a whole number"),
        (
            "cannot parse integer from empty string",
            "must be a whole number, and is empty",
        ),
        ("number too large to fit in target type", "is too large a number"),
        ("invalid float literal", "must be a number"),
        ("cannot parse float from empty string", "must be a number, and is empty"),
        ("provided string was not `true` or `false`", "must be true or false"),
    ];
    match fault.split_once(": ") {
        Some((name, why)) if why.starts_with("unknown field") => {
            format!(
                "there is no query parameter {name}; known: {}",
                expected(why).unwrap_or("none")
            )
        }
        Some((name, why)) if why.starts_with("unknown variant") => {
            format!(
                "the query parameter {name} must be {}",
                expected(why).unwrap_or("another value")
            )
        }
        Some((name, why)) => {
            let known = wrong_values.iter().find(|(text, _)| *text == why);
            format!("the query parameter {name} {}", known.map_or(why, |(_, must)| must))
        }
        None => format!("the query is invalid: {fault}"),
    }
}

/// Returns the names in a message of serde that ends with "expected one of ...".
fn expected(message: &str) -> Option<&str> {
    let (_, names) = message.split_once("expected ")?;
    Some(names.strip_prefix("one of ").unwrap_or(names))
}

/// Parses a list of event types, separated by commas.
pub(super) fn event_types(list: Option<&str>) -> Result<Vec<EventType>, Problem> {
    let words = list.into_iter().flat_map(|list| list.split(',')).map(str::trim);
    words.filter(|word| !word.is_empty()).map(event_type).collect()
}

fn event_type(word: &str) -> Result<EventType, Problem> {
    let mut all = EventType::ALL.iter().copied();
    all.find(|event_type| event_type.as_str().eq_ignore_ascii_case(word))
        .ok_or_else(|| {
            none_is(
                "event type",
                word,
                EventType::ALL.iter().map(|event_type| event_type.as_str()),
            )
        })
}

/// Parses the status of a run, for a list.
pub(super) fn run_status(word: &str) -> Result<String, Problem> {
    // Statuses of live runs, and statuses of stored runs.
    let live = [ThreadStatus::Running.as_str(), ThreadStatus::Paused.as_str(), QUEUED];
    let all = || live.into_iter().chain(RunStatus::ALL.map(RunStatus::as_str));
    let known = all().find(|status| status.eq_ignore_ascii_case(word));
    known
        .map(str::to_owned)
        .ok_or_else(|| none_is("status of a run", word, all()))
}

fn none_is<'a>(what: &str, word: &str, all: impl Iterator<Item = &'a str>) -> Problem {
    let near = nearest(word, all);
    let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Problem::new(ProblemCode::InvalidRequest, format!("there is no {what} {word}{hint}"))
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only the errors are read")]
    struct Known {
        limit: Option<u8>,
        all: Option<bool>,
        after: Option<String>,
        wait: Option<f64>,
        format: Option<Format>,
    }

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Format {
        Json,
        Svg,
    }

    #[test]
    fn errors_of_query_parameters_name_the_parameter_and_the_expected_value() {
        let fault = |query: &str| {
            let uri: Uri = format!("/v1/runs?{query}").parse().expect("a URI");
            query_fault(&Query::<Known>::try_from_uri(&uri).err().expect("an error").body_text())
        };
        assert_eq!(fault("limit=x"), "the query parameter limit must be a whole number");
        assert_eq!(
            fault("limit="),
            "the query parameter limit must be a whole number, and is empty"
        );
        assert_eq!(fault("limit=999"), "the query parameter limit is too large a number");
        assert_eq!(fault("all=1"), "the query parameter all must be true or false");
        assert_eq!(
            fault("limt=1"),
            "there is no query parameter limt; known: `limit`, `all`, `after`, `wait`, `format`"
        );
        assert_eq!(fault("wait=x"), "the query parameter wait must be a number");
        assert_eq!(
            fault("wait="),
            "the query parameter wait must be a number, and is empty"
        );
        assert_eq!(
            fault("format=png"),
            "the query parameter format must be `json` or `svg`"
        );
        assert_eq!(
            fault("limit=1&limit=2"),
            "the query is invalid: duplicate field `limit`"
        );
    }
}
