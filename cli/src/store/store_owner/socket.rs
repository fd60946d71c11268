//! Unix socket next to a store file, through which other processes of this user steer the runs of the process that has the store
//! open.
//!
//! The protocol is one line of JSON in each direction: a [`Request`], and `{"ok": WHERE}`, `{"runs": [RUN]}` or
//! `{"refused": {"exit", "code", "message", "help"?}}`. The answer is sent after the effect of the request is durable. The socket's path is
//! `STORE.sock`, with mode `0600`. The process removes its socket when it ends; the next process that opens the store replaces the
//! socket of a killed one.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use pirn::store::StoreError;
use pirn::{CommandOutcome, Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::{ListedRuns, Request};
use crate::output::failure::Failure;
use crate::store::socket_of;

/// Maximum length of a request, in bytes.
const MAX_REQUEST: u64 = 4 << 20;

/// Time limit for reading a client's request and for writing the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time limit of a client for each part of the answer. Longer than `PATIENCE`, for which a silent client delays the others.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The answer to a request.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reply {
    Ok(CommandOutcome),
    Runs(Vec<Value>),
    Refused {
        exit: u8,
        code: String,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        help: Option<String>,
    },
}

/// A listening socket, closed on drop.
pub(crate) struct Socket {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Socket {
    /// Listens for requests to the runs of an engine, on a socket next to this store file.
    pub(super) fn listen(store: &Path, engine: &Engine) -> io::Result<Self> {
        let path = socket_of(store);
        let listener = bind(&path)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (engine, over) = (engine.clone(), Arc::clone(&is_over));
        let thread = Builder::new()
            .name("pirn-socket".to_owned())
            .spawn(move || serve(&listener, &engine, &over))?;
        Ok(Self {
            path,
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // The connection wakes the thread, which checks `is_over` after each `accept`. If connecting fails, the thread ends with
        // the process.
        let woken = UnixStream::connect(&self.path);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // A panic in it has been printed.
            thread.join().unwrap_or(());
        }
        fs::remove_file(&self.path).unwrap_or(());
    }
}

/// Binds the socket in a folder that only this user may enter, so that no other user can connect before its permissions are set.
/// Then renames the socket to its path, replacing a stale one. A file at that path that is not a socket is left alone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let why = format!("{} exists and is not a socket", path.display());
        return Err(io::Error::new(ErrorKind::AlreadyExists, why));
    }
    let folder = path.with_file_name(format!(".{}.sock", std::process::id()));
    // A folder of a killed process that had this process id.
    fs::remove_dir_all(&folder).unwrap_or(());
    DirBuilder::new().mode(0o700).create(&folder)?;
    let made = folder.join("s");
    let bound = UnixListener::bind(&made).and_then(|listener| {
        fs::set_permissions(&made, Permissions::from_mode(0o600))?;
        fs::rename(&made, path)?;
        Ok(listener)
    });
    fs::remove_dir_all(&folder).unwrap_or(());
    bound
}

fn serve(listener: &UnixListener, engine: &Engine, is_over: &AtomicBool) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        match stream.and_then(|stream| one(stream, engine)) {
            Ok(()) => {}
            // The client has disconnected: no answer can be sent.
            Err(error) => tracing::debug!(%error, "a connection to the socket of the store failed"),
        }
    }
}

fn one(stream: UnixStream, engine: &Engine) -> io::Result<()> {
    // Connections are served one at a time, so a silent client must not block the others.
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(&stream).take(MAX_REQUEST).read_line(&mut line)?;
    match serde_json::from_str::<Request>(&line) {
        Ok(request) if request.is_long() => {
            let engine = engine.clone();
            let work = move || reply(&stream, request.send(&engine));
            // The client has disconnected if the reply fails.
            Builder::new().name("pirn-backup".to_owned()).spawn(work).map(drop)
        }
        Ok(Request::List(wanted)) => {
            let none = || Failure::failed("NO_STORE", "the process has no store");
            let runs = engine.store().ok_or_else(none).and_then(|store| wanted.read(&**store));
            write(&stream, &runs.map_or_else(Reply::of_failure, Reply::Runs))
        }
        Ok(request) => reply(&stream, request.send(engine)),
        Err(error) => reply(&stream, Err(Failure::usage("INVALID_REQUEST", error.to_string()))),
    }
}

impl Reply {
    fn of_failure(failure: Failure) -> Self {
        let (exit, code, message, help) = failure.into_told();
        Self::Refused {
            exit,
            code,
            message,
            help,
        }
    }

    fn failure(self) -> Failure {
        match self {
            Self::Refused {
                exit,
                code,
                message,
                help,
            } => {
                let failure = Failure::told(exit, code, message);
                match help {
                    Some(help) => failure.with_help(help),
                    None => failure,
                }
            }
            Self::Ok(_) | Self::Runs(_) => {
                Failure::failed("STORE_ERROR", "the process that holds the store is of another version")
            }
        }
    }
}

fn reply(stream: &UnixStream, told: Result<CommandOutcome, Failure>) -> io::Result<()> {
    write(stream, &told.map_or_else(Reply::of_failure, Reply::Ok))
}

fn write(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Sends the request to the process that holds this store; `None` if no process listens, or it ended before it read the request.
pub(super) fn say(store: &Path, held: &StoreError, request: &Request) -> Option<Result<CommandOutcome, Failure>> {
    if request.is_long() {
        // The answer may take any time, so a process that hangs is detected by a short request before.
        let one = ListedRuns {
            limit: Some(1),
            ..ListedRuns::default()
        };
        if let Err(failure) = list(store, held, &one)? {
            return Some(Err(failure));
        }
    }
    Some(match exchange(store, request)? {
        Ok(Reply::Ok(told)) => Ok(told),
        Ok(other) => Err(other.failure()),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(Failure::failed("STORE_LIMIT", error.to_string())),
        Err(error) => Err(Failure::failed(
            "STORE_ERROR",
            format!(
                "{} did not answer: {error}; the input may have been stored, or takes effect when that process continues",
                holder(held)
            ),
        )
        .with_help("if that process hangs, end it; then check the run: pirn runs show ID")),
    })
}

/// Lists runs through the process that holds this store; `None` if no process listens, or it ended before it read the request.
pub(super) fn list(store: &Path, held: &StoreError, wanted: &ListedRuns) -> Option<Result<Vec<Value>, Failure>> {
    Some(match exchange(store, &Request::List(wanted.clone()))? {
        Ok(Reply::Runs(runs)) => Ok(runs),
        Ok(other) => Err(other.failure()),
        Err(error) => Err(
            Failure::failed("STORE_ERROR", format!("{} did not answer: {error}", holder(held)))
                .with_help("if that process hangs, end it; then repeat the command"),
        ),
    })
}

/// Names the process that holds the store.
fn holder(held: &StoreError) -> String {
    match held {
        StoreError::Held { pid: Some(pid), .. } => format!("process {pid}, which holds the store,"),
        _ => "the process that holds the store".to_owned(),
    }
}

fn exchange(store: &Path, request: &Request) -> Option<io::Result<Reply>> {
    let stream = UnixStream::connect(socket_of(store)).ok()?;
    match answer_to(request, &stream) {
        // The process closed the connection before it read the whole request, which therefore had no effect.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => None,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let why = format!("no answer for {} s", ANSWER_LIMIT.as_secs());
            Some(Err(io::Error::new(ErrorKind::TimedOut, why)))
        }
        answered => Some(answered),
    }
}

fn answer_to(request: &Request, mut stream: &UnixStream) -> io::Result<Reply> {
    let limit = (!request.is_long()).then_some(ANSWER_LIMIT);
    stream.set_read_timeout(limit)?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    // The holder would close the connection before it has read the request.
    if line.len() as u64 > MAX_REQUEST {
        let why = format!("a request to the process that holds the store has at most {MAX_REQUEST} bytes");
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    stream.write_all(line.as_bytes())?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    Ok(serde_json::from_str(&reply)?)
}
