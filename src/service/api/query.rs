//! Query parameters: unknown ones are refused.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use pirn_core::definition::nearest;
use serde::de::DeserializeOwned;

use super::super::problem::{Problem, ProblemCode};
use super::super::state::Service;
use crate::EventType;

/// Parameters that were read.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Service> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Service) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(error) => Err(Problem::new(ProblemCode::InvalidRequest, error.body_text())),
        }
    }
}

/// Types of events, separated by commas.
pub(super) fn event_types(list: Option<&str>) -> Result<Vec<EventType>, Problem> {
    let words = list.into_iter().flat_map(|list| list.split(',')).map(str::trim);
    words.filter(|word| !word.is_empty()).map(event_type).collect()
}

fn event_type(word: &str) -> Result<EventType, Problem> {
    let all = || EventType::ALL.iter().copied();
    all()
        .find(|event_type| event_type.as_str().eq_ignore_ascii_case(word))
        .ok_or_else(|| {
            let near = nearest(word, all().map(EventType::as_str));
            let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            Problem::new(
                ProblemCode::InvalidRequest,
                format!("there is no event type {word}{hint}"),
            )
        })
}
