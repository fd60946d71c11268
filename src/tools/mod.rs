//! Tools by name: from Rust functions, and from a config file as programs and HTTP requests (docs/tools.md).
//!
//! The tools themselves are in the crate `pirn-tools`. Here they are read from a file.
#![cfg_attr(feature = "tools", doc = include_str!("../../docs/tools.md"))]

#[cfg(feature = "tools")]
mod file;

#[cfg(feature = "tools")]
pub use file::{ToolsError, load_tools};
pub use pirn_tools::*;
