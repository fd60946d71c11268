//! Answers, and the promises that each of them keeps.

use std::net::SocketAddr;

use pirn_service::ProblemCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::requests::{Asked, Call, MCP};

/// Maximum size of a problem, as docs/service.md states it.
const PROBLEM_BYTES: usize = 16 << 10;

/// Codes with status 503 that docs/service.md gives for a reached limit.
const BUSY: [&str; 5] = [
    "OVERLOADED",
    "TOO_MANY_STREAMS",
    "TOO_MANY_REPLAYS",
    "TOO_MANY_EXPLORATIONS",
    "TOO_MANY_SESSIONS",
];

/// An answer as it was read.
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) media_type: String,
    /// Empty for a stream, which is not read.
    pub(super) body: Vec<u8>,
}

/// Sends a request and reads its answer; of a stream, the head. Returns `None` if the service closes the connection without an answer.
pub(super) async fn exchange(address: SocketAddr, asked: &Asked) -> Option<Response> {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    // The service may answer and close the connection before it has read everything.
    let _ = stream.write_all(&asked.bytes).await;
    if asked.is_incomplete {
        let _ = stream.shutdown().await;
    }
    let mut read = Vec::new();
    let (head, mut body) = loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let body = read.split_off(end + 4);
            if read.starts_with(b"HTTP/1.1 100 ") {
                read = body;
                continue;
            }
            break (String::from_utf8_lossy(&read).into_owned(), body);
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let header = |name: &str| {
        let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find_map(|(own, value)| own.eq_ignore_ascii_case(name).then(|| value.trim().to_owned()))
    };
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let media_type = header("content-type").unwrap_or_default();
    if media_type.starts_with("text/event-stream") {
        return Some(Response {
            status,
            media_type,
            body: Vec::new(),
        });
    }
    let _ = stream.read_to_end(&mut body).await;
    if header("transfer-encoding").is_some() {
        body = joined(&body);
    }
    Some(Response {
        status,
        media_type,
        body,
    })
}

/// Joins the chunks of a body.
fn joined(mut chunked: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunked.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = std::str::from_utf8(&chunked[..end])
            .ok()
            .and_then(|size| usize::from_str_radix(size, 16).ok());
        let (Some(size @ 1..), rest) = (size, &chunked[end + 2..]) else {
            break;
        };
        let Some((chunk, rest)) = rest.split_at_checked(size) else {
            break;
        };
        body.extend_from_slice(chunk);
        chunked = rest.strip_prefix(b"\r\n").unwrap_or(rest);
    }
    body
}

/// Checks an answer; returns the reason if it breaks a promise.
pub(super) fn check(call: &Call, asked: &Asked, response: &Response) -> Result<(), String> {
    let Response {
        status,
        media_type,
        body,
    } = response;
    let text = String::from_utf8_lossy(body);
    let is_problem = media_type == "application/problem+json";
    if *status < 400 {
        if media_type == "application/json" && asked.method != "HEAD" {
            serde_json::from_slice::<Value>(body).map_err(|error| format!("the body is not JSON: {error}"))?;
        }
        let is_documented = call.method == asked.method && *status != 307 && *status != 308;
        let Some(responses) = call.responses.as_ref().filter(|_| is_documented) else {
            return Ok(());
        };
        let documented = responses.get(&status.to_string());
        let documented = documented.ok_or_else(|| format!("the document has no response {status}"))?;
        let kind = media_type.split(';').next().unwrap_or_default();
        let content = documented["content"].as_object();
        let has_kind = content.map_or(kind.is_empty(), |content| {
            content.keys().any(|own| own.split(';').next() == Some(kind))
        });
        return has_kind
            .then_some(())
            .ok_or_else(|| format!("the document has no content {media_type} for {status}"));
    }
    if asked.method == "HEAD" {
        return (*status < 500 || *status == 503)
            .then_some(())
            .ok_or_else(|| "a fault of the service".to_owned());
    }
    // The HTTP library refuses headers that exceed its buffer, and the MCP library what violates MCP.
    let is_of_library = !is_problem && (*status == 431 || (call.path == MCP && *status < 500));
    // The MCP library quotes a part of the request.
    let most = if is_of_library {
        asked.bytes.len() + 1_000
    } else {
        PROBLEM_BYTES
    };
    if body.len() > most {
        return Err(format!("an error of {} bytes", body.len()));
    }
    if is_of_library {
        return Ok(());
    }
    if !is_problem {
        return Err(format!("an error of the type {media_type}"));
    }
    let problem: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let code = problem["code"].as_str().unwrap_or_default();
    let known = ProblemCode::ALL.iter().find(|known| known.as_str() == code);
    let known = known.ok_or_else(|| format!("an unknown code {code}"))?;
    if known.status().as_u16() != *status || problem["status"] != *status {
        return Err(format!("another status than that of {code}"));
    }
    if *status >= 500 && !BUSY.contains(&code) {
        return Err("a fault of the service".to_owned());
    }
    let has_texts = problem["title"].is_string() && problem["detail"].as_str().is_some_and(|detail| !detail.is_empty());
    has_texts.then_some(()).ok_or_else(|| "no detail".to_owned())
}
