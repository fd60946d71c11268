//! The process that holds a store, and what others ask of its runs.

#[cfg(unix)]
mod socket;
mod told;

use std::path::Path;

use pirn::Engine;

use crate::failure::Failure;
use crate::store::{StoreArgs, close, file};
use crate::terminal::say;

pub(crate) use told::{Request, Told};

/// The socket that a process listens on.
#[cfg(unix)]
pub(crate) type Listening = socket::Socket;

/// Other systems have no such socket.
#[cfg(not(unix))]
pub(crate) struct Listening;

/// Listens beside a store for what other processes tell its runs, until what is given back is dropped.
#[cfg(unix)]
pub(crate) fn listen(store: &Path, engine: &Engine, is_quiet: bool) -> Option<Listening> {
    match socket::Socket::listen(store, engine) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "no socket beside the store");
            if !is_quiet {
                say(&format!(
                    "no socket beside the store ({error}): pirn runs answer, emit and cancel work when this process has ended"
                ));
            }
            None
        }
    }
}

/// Nobody can be listened to.
#[cfg(not(unix))]
pub(crate) fn listen(_: &Path, _: &Engine, _: bool) -> Option<Listening> {
    None
}

/// Tells a run of a store something, by the process that holds the store where one does.
pub(crate) fn tell(store: &StoreArgs, request: Request) -> Result<Told, Failure> {
    match store.look() {
        Ok(engine) => {
            let told = request.tell(&engine);
            close(&engine);
            told
        }
        Err(failure) if failure.code() == "STORE_HELD" => {
            tell_holder(&file(&store.store), &request).unwrap_or(Err(failure))
        }
        Err(failure) => Err(failure),
    }
}

#[cfg(unix)]
fn tell_holder(store: &Path, request: &Request) -> Option<Result<Told, Failure>> {
    socket::say(store, request)
}

#[cfg(not(unix))]
fn tell_holder(_: &Path, _: &Request) -> Option<Result<Told, Failure>> {
    None
}
