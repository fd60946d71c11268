//! Providers of models as the command uses them: profiles, keys, checks, faulty peers.
//!
//! Not here: protocols of providers, which are in `tests/models`.

#[cfg(feature = "providers")]
mod models;
#[cfg(all(unix, feature = "providers"))]
mod peers;
#[cfg(feature = "providers")]
mod profiles;
#[cfg(feature = "providers")]
mod secrets;
