//! The `pirn` command as a user drives it: the built binary, its output, its exit codes.

#[cfg(unix)]
mod artifacts;
mod cases;
mod chaos;
mod command;
mod context;
#[cfg(feature = "javascript")]
mod control_sequences;
mod deploy;
mod docs;
#[cfg(unix)]
mod durable;
#[cfg(unix)]
mod durable_inputs;
#[cfg(unix)]
mod durable_waits;
mod encrypted;
#[cfg(unix)]
mod examples_of_help;
mod explore;
mod folder;
mod full_disk;
mod graph;
mod help;
mod hints;
mod init;
mod invalid_input;
mod killed;
#[cfg(unix)]
mod lazyfs;
mod mistakes;
#[cfg(feature = "providers")]
mod models;
#[cfg(all(unix, feature = "providers"))]
mod peers;
#[cfg(unix)]
mod picture;
#[cfg(feature = "providers")]
mod profiles;
mod run;
#[cfg(feature = "studio")]
mod run_page;
mod schema;
#[cfg(feature = "providers")]
mod secrets;
mod seeds;
#[cfg(unix)]
#[path = "../support/servers.rs"]
#[allow(dead_code, unreachable_pub)] // another crate's module, of which this one needs a part
mod servers;
mod skill;
mod streams;
mod stuck_scripts;
mod support_desk;
#[cfg(unix)]
mod terminal;
mod tools;
mod validate;
/// The provider on loopback that the scenarios use.
#[cfg(feature = "providers")]
#[allow(dead_code, unreachable_pub)] // another crate's module, of which this one needs a part
#[path = "../support/wire/mod.rs"]
mod wire;
