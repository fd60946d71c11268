//! JSON bodies with limits on size and time; every error contains its location.

use axum::body::Body;
use axum::body::HttpBody as _;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use http_body_util::BodyExt;
use pirn_definition::definition::{JsonError, JsonErrorKind, json_from_slice};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::problem::{Problem, ProblemCode};
use crate::memory::{Budget, MemoryReservation};
use crate::runs::events::json_text::SHORT;
use crate::state::Service;
use pirn::store::ContentHash;

/// Maximum nesting of lists and objects.
const MOST_LEVELS: usize = 128;

/// A parsed body with a fingerprint of its bytes. An absent body is parsed as an empty object.
pub(super) struct JsonBody<T> {
    pub(super) value: T,
    pub(super) fingerprint: ContentHash,
    /// Memory reserved for the value.
    pub(super) memory: MemoryReservation,
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Service> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let is_json = is_json(&request);
        let (bytes, memory) = arrived(request.into_body(), service).await?;
        if !bytes.is_empty() && !is_json {
            // Require the header: without it, a page of another origin could send the request without a CORS preflight.
            let detail = "the body must be sent with Content-Type: application/json";
            return Err(Problem::new(ProblemCode::UnsupportedMediaType, detail));
        }
        if bytes.len() <= SHORT {
            return Self::parse(bytes, memory, service.inputs());
        }
        let inputs = service.inputs().clone();
        // Parse on a blocking thread: a large body would delay other requests of this worker thread.
        let parsed = tokio::task::spawn_blocking(move || Self::parse(bytes, memory, &inputs)).await;
        parsed.map_err(|error| Problem::new(ProblemCode::Internal, format!("reading the body failed: {error}")))?
    }
}

impl<T: DeserializeOwned> JsonBody<T> {
    fn parse(bytes: Vec<u8>, mut memory: MemoryReservation, inputs: &Budget) -> Result<Self, Problem> {
        let needed = parsed_bytes(&bytes);
        // Peak memory: the bytes, the JSON tree, and the typed value that is built from the tree exist together.
        let most = 2 * needed + bytes.len();
        if !memory.grow_to(most) {
            return Err(no_room(most, inputs));
        }
        let value = parse(&bytes)?;
        // Valid JSON is valid UTF-8, so nothing is replaced.
        let fingerprint = ContentHash::of(&String::from_utf8_lossy(&bytes));
        drop(bytes);
        memory.shrink_to(needed);
        Ok(Self {
            value,
            fingerprint,
            memory,
        })
    }
}

/// Reads a body within its time limit.
pub(super) async fn arrived(body: Body, service: &Service) -> Result<(Vec<u8>, MemoryReservation), Problem> {
    let limits = service.limits();
    let body = read(body, limits.body_bytes, service.inputs());
    tokio::time::timeout(limits.body_time, body).await.map_err(|_| {
        let detail = format!("the body did not arrive within {} s", limits.body_time.as_secs());
        Problem::new(ProblemCode::BodyTimeout, detail)
    })?
}

/// Reads a body that is parsed by another component, and reserves the memory of its values.
#[cfg(feature = "mcp")]
pub(super) async fn received(body: Body, service: &Service) -> Result<(Vec<u8>, MemoryReservation), Problem> {
    let (bytes, mut memory) = arrived(body, service).await?;
    let needed = parsed_bytes(&bytes) + bytes.len();
    if !memory.grow_to(needed) {
        return Err(no_room(needed, service.inputs()));
    }
    Ok((bytes, memory))
}

/// Returns the problem for a body that needs more memory than is free.
fn no_room(needed: usize, inputs: &Budget) -> Problem {
    if needed > inputs.limit() {
        let detail = format!(
            "the body's values need {} MiB of memory, more than the {} MiB for all inputs",
            needed.div_ceil(1 << 20),
            inputs.limit() >> 20
        );
        return Problem::new(ProblemCode::BodyTooLarge, detail);
    }
    let detail = format!(
        "the bodies and inputs in memory use all of {} MiB",
        inputs.limit() >> 20
    );
    Problem::new(ProblemCode::TooManyBytes, detail).retry_after(1)
}

/// Estimates the memory of a JSON text's values after parsing, from above. The values of nested lists with one number each take
/// some hundred times the memory of their text.
fn parsed_bytes(text: &[u8]) -> usize {
    /// A value in its container. The factor 2 covers the spare capacity of a list that grows.
    const VALUE: usize = 2 * size_of::<Value>();
    /// Minimum capacity of a non-empty list or object, and its allocation.
    const LEAST: usize = 4 * size_of::<Value>() + 32;
    /// A field: its name's slot and allocation, its hash, its slot in the index.
    const FIELD: usize = 2 * (size_of::<String>() + 8) + 48;
    /// Allocation of a string.
    const TEXT: usize = 16;
    let (mut bytes, mut depth) = (VALUE, 0_usize);
    let mut places = 0..text.len();
    while let Some(place) = places.next() {
        bytes += match text[place] {
            b'"' => {
                let start = place;
                let mut last = place;
                while let Some(next) = places.next() {
                    last = next;
                    match text[next] {
                        b'"' => break,
                        // An escaped quote does not end the string.
                        b'\\' => drop(places.next()),
                        _ => {}
                    }
                }
                last - start + TEXT
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > MOST_LEVELS {
                    // The parser stops at this depth, so the rest needs no memory.
                    return bytes;
                }
                // An empty list or object has no allocation.
                let is_empty = text[place + 1..].trim_ascii_start().first() == Some(&(text[place] + 2));
                if is_empty { 0 } else { LEAST + VALUE }
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                0
            }
            b',' => VALUE,
            b':' => FIELD,
            _ => 0,
        };
    }
    bytes
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

/// Reads a body. Memory is reserved as data arrives: an announced length alone reserves nothing.
async fn read(body: Body, limit: usize, inputs: &Budget) -> Result<(Vec<u8>, MemoryReservation), Problem> {
    let too_large = || {
        let detail = format!("the body has more than {limit} bytes");
        Problem::new(ProblemCode::BodyTooLarge, detail)
    };
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    let mut memory = inputs.reserve(0).ok_or_else(|| no_room(0, inputs))?;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Problem::new(ProblemCode::InvalidRequest, format!("the body ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > limit {
            return Err(too_large());
        }
        // The factor 2 covers the spare capacity of a vector that grows.
        if !memory.grow_to(2 * length) {
            return Err(no_room(2 * length, inputs));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, memory))
}

/// Parses JSON; an error contains its location.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    json_from_slice(bytes).map_err(|error| refusal(&error))
}

fn refusal(error: &JsonError) -> Problem {
    let code = match error.kind() {
        JsonErrorKind::Syntax => ProblemCode::InvalidJson,
        JsonErrorKind::UnknownField => ProblemCode::UnknownField,
        JsonErrorKind::MissingField => ProblemCode::MissingField,
        JsonErrorKind::Invalid => ProblemCode::InvalidValue,
    };
    let mut problem = Problem::new(code, error.sentence("the body"));
    if let Some(pointer) = error.pointer() {
        problem = problem.at(pointer);
    }
    match error.place() {
        Some((line, column)) => problem.in_line(line as usize, column as usize),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_values_is_estimated_before_parsing() {
        let list = format!("[{}[1]]", "[1],".repeat(10_000));
        let value = size_of::<Value>();
        let lists = 10_001 * (4 * value + value);
        assert!(parsed_bytes(list.as_bytes()) >= lists);
        assert!(parsed_bytes(list.as_bytes()) < 3 * lists);
        let text = format!("{{\"a\": \"{}\\\"[[[[\"}}", "x".repeat(100_000));
        assert!((100_000..104_000).contains(&parsed_bytes(text.as_bytes())));
        let deep = "[".repeat(1_000_000);
        assert!(parsed_bytes(deep.as_bytes()) < 1 << 20, "no parser reads on");
        for broken in ["", "\"", "\"\\", "{", "[1", "}"] {
            assert!(parsed_bytes(broken.as_bytes()) >= value);
        }
    }
}
