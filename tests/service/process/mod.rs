//! The `pirn serve` process: sockets, shutdown, load, bounded memory, documented commands and recipes.
//!
//! Not here: `command`, which starts the process for all tests.

#[cfg(target_os = "linux")]
mod bounds;
mod documented_commands;
mod drain;
mod load;
#[cfg(target_os = "linux")]
mod recipes;
#[cfg(unix)]
mod sockets;
