//! The `pirn` command as a user drives it: the built binary, its output, its exit codes.

mod command;
mod context;
mod definitions;
mod documentation;
mod folder;
mod mistakes;
mod output;
mod providers;
mod real_model;
mod run;
#[cfg(feature = "studio")]
mod run_page;
#[cfg(unix)]
#[path = "../support/servers.rs"]
#[allow(dead_code, unreachable_pub)] // another crate's module, of which this one needs a part
mod servers;
mod simulation;
mod store;
mod stuck_scripts;
mod support_desk;
mod tools;
/// The provider on loopback that the scenarios use.
#[cfg(feature = "providers")]
#[allow(dead_code, unreachable_pub)] // another crate's module, of which this one needs a part
#[path = "../support/wire/mod.rs"]
mod wire;
