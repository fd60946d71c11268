//! Stored runs from a user's view: killed, resumed, encrypted, on a full disk or without power.
//!
//! Not here: engines without the command, which are in `tests/durable`.

#[cfg(unix)]
mod artifacts;
#[cfg(unix)]
mod durable;
#[cfg(unix)]
pub(crate) mod durable_inputs;
#[cfg(unix)]
mod durable_waits;
mod encrypted;
mod full_disk;
mod killed;
#[cfg(unix)]
mod lazyfs;
