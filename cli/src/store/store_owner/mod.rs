//! Inputs from other processes to the runs of a store: the listening side and the sending side.

mod request;
mod shared;
#[cfg(unix)]
mod socket;

use std::path::Path;

use futures::future::Either;
#[cfg(not(unix))]
use pirn::store::StoreError;
use pirn::{CommandOutcome, Engine};
use serde_json::Value;

use super::place::{Place, StoreArgs, engine_over};
use crate::output::failure::Failure;
use crate::output::terminal::say;
use crate::store::close;

pub(crate) use request::{ListedRuns, Request};

/// A listener for inputs of other processes; dropping it stops it.
pub(crate) enum Listening {
    #[cfg(unix)]
    Beside {
        _socket: socket::Socket,
    },
    Shared {
        _listener: shared::Listener,
    },
}

/// Starts a listener for inputs that other processes send to the runs of a store, until the returned value is dropped.
pub(crate) fn listen(place: &Place, engine: &Engine, is_quiet: bool) -> Option<Listening> {
    match place.file() {
        Some(file) => listen_beside(&file, engine, is_quiet),
        None => shared::Listener::start(engine).map(|listener| Listening::Shared { _listener: listener }),
    }
}

#[cfg(unix)]
fn listen_beside(store: &Path, engine: &Engine, is_quiet: bool) -> Option<Listening> {
    match socket::Socket::listen(store, engine) {
        Ok(socket) => Some(Listening::Beside { _socket: socket }),
        Err(error) => {
            tracing::warn!(%error, "cannot listen on the socket of the store");
            if !is_quiet {
                say(&format!(
                    "cannot listen on the socket of the store ({error}): pirn runs list, answer, say, emit, pause, pin, cancel and backup work only after this process has ended"
                ));
            }
            None
        }
    }
}

/// Listens on nothing: only Unix has the sockets that this uses.
#[cfg(not(unix))]
fn listen_beside(_: &Path, _: &Engine, _: bool) -> Option<Listening> {
    None
}

/// Sends an input to a run of a store: directly, or through the process that has the store open.
pub(crate) fn send_request(store: &StoreArgs, request: Request) -> Result<CommandOutcome, Failure> {
    match store.open_or(|file, held| socket::say(file, held, &request))? {
        Either::Left(store) => {
            let engine = engine_over(store)?;
            let told = request.send(&engine);
            close(&engine);
            told
        }
        Either::Right(told) => Ok(told),
    }
}

/// Lists runs of a store: directly, or through the process that has the store open.
pub(crate) fn list_runs(store: &StoreArgs, wanted: &ListedRuns) -> Result<Vec<Value>, Failure> {
    match store.open_or(|file, held| socket::list(file, held, wanted))? {
        Either::Left(store) => wanted.read(&*store),
        Either::Right(runs) => Ok(runs),
    }
}

/// No process listens: only Unix has the sockets that this uses.
#[cfg(not(unix))]
mod socket {
    use super::{CommandOutcome, Failure, ListedRuns, Path, Request, StoreError, Value};

    pub(super) fn list(_: &Path, _: &StoreError, _: &ListedRuns) -> Option<Result<Vec<Value>, Failure>> {
        None
    }

    pub(super) fn say(_: &Path, _: &StoreError, _: &Request) -> Option<Result<CommandOutcome, Failure>> {
        None
    }
}
