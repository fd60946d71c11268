//! Calls of configured tools with real programs and requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::FutureExt;
use pirn_actors::host::{WorkClock, WorkTime};
use pirn_actors::ports::{ToolOutcome, Tools};
use pirn_core::thread::ToolResult;
use pirn_definition::message::ToolCall;
use serde_json::{Value, json};

use crate::{ToolRegistry, tools_of};

/// Real time, on the runtime of the caller.
struct RealTime(Instant);

#[allow(clippy::disallowed_methods)] // The tools are real programs, so is their time.
impl WorkTime for RealTime {
    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
    fn sleep(&self, after: u64) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(after)))
    }
}

/// A clock.
#[allow(clippy::disallowed_methods)]
pub(super) fn clock() -> WorkClock {
    WorkClock::new(std::sync::Arc::new(RealTime(Instant::now())))
}

/// Creates a registry of one tool `t` with the arguments `properties`, all optional.
#[track_caller]
pub(super) fn registry(properties: &Value, mut tool: Value) -> ToolRegistry {
    tool["name"] = json!("t");
    tool["description"] = json!("The tool under test");
    tool["inputSchema"] = json!({"type": "object", "properties": properties});
    let config = match tools_of(json!({ "tools": [tool] }), Path::new("")) {
        Ok(config) => config,
        Err(faults) => panic!("the test's tool has faults: {faults:?}"),
    };
    let mut registry = ToolRegistry::new();
    registry.configure(config);
    registry
}

/// Creates the call of `t` in a registry.
pub(super) fn calling(registry: &ToolRegistry, arguments: Value) -> impl Future<Output = ToolResult> + Send + use<> {
    let call = ToolCall {
        id: "1".to_owned(),
        name: "t".to_owned(),
        arguments,
    };
    registry
        .call(&["t".into()], call.into(), clock())
        .map(ToolOutcome::unasked)
}

/// Creates a runtime for programs and requests.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Calls `t` once.
#[track_caller]
pub(super) fn call(registry: &ToolRegistry, arguments: Value) -> Result<String, String> {
    let runtime = runtime();
    let result = runtime.block_on(async { calling(registry, arguments).await });
    if result.failed {
        Err(result.content)
    } else {
        Ok(result.content)
    }
}

/// A received request.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) line: String,
    pub(super) headers: Vec<String>,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn has(&self, header: &str) -> bool {
        self.headers.iter().any(|other| other.eq_ignore_ascii_case(header))
    }
}

/// Reads one request and sends the answer to it.
pub(super) fn serve(stream: &TcpStream, answer: impl FnOnce(&Seen) -> String) -> Seen {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let length = lines
        .iter()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).expect("a body");
    let seen = Seen {
        line: lines.remove(0),
        headers: lines,
        body: String::from_utf8(body).expect("UTF-8"),
    };
    // The write fails if the client has closed after reading enough.
    let _ = (&*stream).write_all(answer(&seen).as_bytes());
    seen
}

/// Returns a response that ends its connection.
pub(super) fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
