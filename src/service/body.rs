//! JSON bodies: limited in size and time, and every fault with its place.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use super::problem::{Problem, ProblemCode};
use super::state::Service;
use crate::store::ContentHash;

/// A body that was read, and what tells it from others. No body is an empty object.
pub(super) struct JsonBody<T> {
    pub(super) value: T,
    pub(super) fingerprint: ContentHash,
}

impl<T: DeserializeOwned> FromRequest<Service> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let limits = service.limits();
        let is_json = is_json(&request);
        let body = read(request.into_body(), limits.body_bytes);
        let bytes = tokio::time::timeout(limits.body_time, body).await.map_err(|_| {
            let detail = format!("the body did not arrive within {} s", limits.body_time.as_secs());
            Problem::new(ProblemCode::BodyTimeout, detail)
        })??;
        if !bytes.is_empty() && !is_json {
            // A page of another origin can send a body of another type without asking first.
            let detail = "the body must be sent with Content-Type: application/json";
            return Err(Problem::new(ProblemCode::UnsupportedMediaType, detail));
        }
        Ok(Self {
            value: parse(&bytes)?,
            // What is JSON is UTF-8.
            fingerprint: ContentHash::of(&String::from_utf8_lossy(&bytes)),
        })
    }
}

fn is_json(request: &Request) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE);
    let essence = value
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| {
        let essence = essence.trim();
        essence.eq_ignore_ascii_case("application/json") || essence.to_ascii_lowercase().ends_with("+json")
    })
}

async fn read(body: Body, limit: usize) -> Result<Vec<u8>, Problem> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body has more than {limit} bytes");
            Err(Problem::new(ProblemCode::BodyTooLarge, detail))
        }
        Err(error) => Err(Problem::new(
            ProblemCode::InvalidRequest,
            format!("the body broke off: {error}"),
        )),
    }
}

/// Reads JSON; a fault says where.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value: T = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        let error = error.into_inner();
        fault(&error).at(pointer).in_line(error.line(), error.column())
    })?;
    deserializer
        .end()
        .map_err(|error| fault(&error).in_line(error.line(), error.column()))?;
    Ok(value)
}

fn fault(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    // The place stands in fields of its own.
    let sentence = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(sentence, _)| sentence);
    let code = if !error.is_data() {
        ProblemCode::InvalidJson
    } else if sentence.starts_with("unknown field") {
        ProblemCode::UnknownField
    } else if sentence.starts_with("missing field") {
        ProblemCode::MissingField
    } else {
        ProblemCode::InvalidValue
    };
    Problem::new(code, sentence)
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                pointer.push('/');
                pointer.push_str(&index.to_string());
            }
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}
