//! A model provider on loopback with the faults that a test chooses, or a proxy for a real one. The server records its
//! requests, and every body is checked against the pair rule and the message order of its provider.

mod pairs;
mod rules;

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

pub use pairs::check_pairs;
pub use rules::{check_anthropic, check_gemini};

/// The answer to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A whole reply.
    Whole {
        /// HTTP status.
        status: u16,
        /// More headers, name and value.
        headers: Vec<(String, String)>,
        /// Sent as `application/json`.
        body: String,
    },
    /// A streamed reply, piece by piece.
    Stream {
        /// Sent unchanged, one chunk each.
        pieces: Vec<String>,
        /// The end of the stream after the pieces.
        end: End,
    },
    /// The connection is closed without a reply.
    HangUp,
    /// Forwards the request to this server and returns its reply.
    Forward(SocketAddr),
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The stream ends as HTTP defines.
    Finished,
    /// The connection is closed in the middle of the reply.
    Cut,
    /// Sends nothing more until the client disconnects, which [`Server::client_left`] reports.
    Stall,
    /// Sends comments until the client disconnects, which [`Server::client_left`] reports.
    Comments,
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct Request {
    /// Path and query.
    pub path: String,
    /// Lower-case names.
    pub headers: BTreeMap<String, String>,
    /// The JSON body.
    pub body: Value,
}

impl Request {
    /// Checks the body against the rules of the provider that the path belongs to.
    fn check_order(&self) -> Result<(), String> {
        let path = self.path.split('?').next().unwrap_or_default();
        if path.ends_with("/messages") {
            check_anthropic(&self.body)
        } else if path.ends_with("enerateContent") {
            check_gemini(&self.body)
        } else {
            Ok(())
        }
    }
}

/// A server that runs until the process ends.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    left: Receiver<()>,
}

type Decide = dyn Fn(&Request) -> Answer + Send + Sync;

struct Shared {
    answers: Mutex<VecDeque<Answer>>,
    /// Answers the requests after the last of `answers`.
    otherwise: Box<Decide>,
    requests: Mutex<Vec<Request>>,
}

impl Server {
    /// Gives these answers, one per request; then closes every connection.
    ///
    /// # Panics
    /// Panics if loopback has no port left.
    pub fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::start(answers.into_iter().collect(), |_| Answer::HangUp)
    }

    /// Forwards every request to `upstream`.
    ///
    /// # Panics
    /// As [`Server::answering`].
    pub fn before(upstream: SocketAddr) -> Self {
        Self::start(VecDeque::new(), move |_| Answer::Forward(upstream))
    }

    /// Answers each request, one after another, with the result of `decide`.
    ///
    /// # Panics
    /// As [`Server::answering`].
    pub fn deciding(decide: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(VecDeque::new(), decide)
    }

    fn start(answers: VecDeque<Answer>, otherwise: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port on loopback");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            answers: Mutex::new(answers),
            otherwise: Box::new(otherwise),
            requests: Mutex::new(Vec::new()),
        });
        let (leaves, left) = channel();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, leaves) = (Arc::clone(&serving), leaves.clone());
                // Some tests disconnect in the middle of a reply, so an error of the socket is ignored.
                std::thread::spawn(move || serve(&shared, stream, &leaves).unwrap_or(()));
            }
        });
        Self { address, shared, left }
    }

    /// `http://127.0.0.1:PORT` and a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far, after a check of every body.
    ///
    /// # Panics
    /// Panics if a body breaks a rule.
    #[track_caller]
    pub fn requests(&self) -> Vec<Request> {
        let requests = lock(&self.shared.requests).clone();
        for request in &requests {
            let checked = check_pairs(&request.body).and_then(|()| request.check_order());
            if let Err(broken) = checked {
                panic!("{broken}: {:#}", request.body);
            }
        }
        requests
    }

    /// Waits until a client has left a stalled reply; false if none does.
    pub fn client_left(&self) -> bool {
        self.left.recv_timeout(Duration::from_secs(20)).is_ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &Shared, mut stream: TcpStream, leaves: &Sender<()>) -> std::io::Result<()> {
    let (head, request) = read(&mut stream)?;
    lock(&shared.requests).push(request.clone());
    let answer = lock(&shared.answers).pop_front();
    match answer.unwrap_or_else(|| (shared.otherwise)(&request)) {
        Answer::HangUp => Ok(()),
        Answer::Whole { status, headers, body } => {
            let more = lines(headers.iter().map(|(name, value)| format!("{name}: {value}")));
            write!(
                stream,
                "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nConnection: close\r\n{more}Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        }
        Answer::Stream { pieces, end } => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes())?;
            for piece in pieces {
                write!(stream, "{:x}\r\n{piece}\r\n", piece.len())?;
                stream.flush()?;
            }
            match end {
                End::Finished => stream.write_all(b"0\r\n\r\n"),
                End::Cut => Ok(()),
                End::Stall => {
                    // Ends when the client closes its side.
                    let _rest = stream.read_to_end(&mut Vec::new());
                    leaves.send(()).unwrap_or(());
                    Ok(())
                }
                End::Comments => {
                    while stream.write_all(b"4\r\n: \n\n\r\n").is_ok() {}
                    leaves.send(()).unwrap_or(());
                    Ok(())
                }
            }
        }
        Answer::Forward(upstream) => {
            let mut up = TcpStream::connect(upstream)?;
            write!(
                up,
                "{}Connection: close\r\n\r\n{}",
                without_connection(head),
                request.body
            )?;
            // One request per connection, even if upstream offers keep-alive: the next request must not wait for this connection.
            let mut reply = BufReader::new(up);
            let head = without_connection(read_head(&mut reply)?);
            write!(stream, "{head}Connection: close\r\n\r\n")?;
            std::io::copy(&mut reply, &mut stream).map(|_| ())
        }
    }
}

fn without_connection(head: Vec<String>) -> String {
    let is_kept = |line: &String| !line.to_ascii_lowercase().starts_with("connection:");
    lines(head.into_iter().filter(is_kept))
}

/// The lines before the empty line.
fn read_head(reader: &mut impl BufRead) -> std::io::Result<Vec<String>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(head);
        }
        head.push(line.to_owned());
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.flat_map(|line| [line, "\r\n".to_owned()]).collect()
}

/// The lines of the head, and the request.
fn read(stream: &mut TcpStream) -> std::io::Result<(Vec<String>, Request)> {
    let mut reader = BufReader::new(stream);
    let mut head = read_head(&mut reader)?;
    let headers: BTreeMap<String, String> = head
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let path = head
        .first()
        .and_then(|line| line.split(' ').nth(1))
        .unwrap_or_default()
        .to_owned();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    // The body is serialized again, so its length may differ from the one received.
    let length = format!("content-length: {}", body.to_string().len());
    for line in &mut head {
        if line.to_ascii_lowercase().starts_with("content-length:") {
            line.clone_from(&length);
        }
    }
    let request = Request { path, headers, body };
    Ok((head, request))
}

impl Answer {
    /// A refusal: `Answer::error(429, "slow down")`.
    pub fn error(status: u16, message: &str) -> Self {
        Self::Whole {
            status,
            headers: Vec::new(),
            body: json!({"error": {"message": message}}).to_string(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Self::Whole { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// A good streamed reply of OpenAI's protocol, in these pieces.
    pub fn saying(pieces: &[&str]) -> Self {
        let mut events: Vec<String> = pieces.iter().map(|piece| delta(&json!({"content": piece}))).collect();
        events.extend(done("stop"));
        Self::Stream {
            pieces: events,
            end: End::Finished,
        }
    }

    /// Tool calls in OpenAI's protocol, by name and written arguments; ids are `c0`, `c1`, ...
    pub fn calling(calls: &[(&str, &str)]) -> Self {
        let call = |(place, (name, arguments)): (usize, &(&str, &str))| {
            let (head, tail) = arguments.split_at(arguments.len() / 2);
            let first = json!({"index": place, "id": format!("c{place}"), "type": "function", "function": {"name": name, "arguments": head}});
            let second = json!({"index": place, "function": {"arguments": tail}});
            [
                delta(&json!({ "tool_calls": [first] })),
                delta(&json!({ "tool_calls": [second] })),
            ]
        };
        let mut events: Vec<String> = calls.iter().enumerate().flat_map(call).collect();
        events.extend(done("tool_calls"));
        Self::Stream {
            pieces: events,
            end: End::Finished,
        }
    }

    /// The first pieces of a reply of OpenAI's protocol, then `end`.
    pub fn breaking_off(pieces: &[&str], end: End) -> Self {
        Self::Stream {
            pieces: pieces.iter().map(|piece| delta(&json!({"content": piece}))).collect(),
            end,
        }
    }
}

/// A server-sent event with a delta of OpenAI's protocol.
pub fn delta(delta: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
}

/// Finish reason, usage (7 in, 3 out), end.
fn done(reason: &str) -> [String; 3] {
    let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}});
    [
        format!("data: {finish}\n\n"),
        format!("data: {usage}\n\n"),
        "data: [DONE]\n\n".to_owned(),
    ]
}
