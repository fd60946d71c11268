//! Workflow files: their types, loader, compiler, validation and static analysis, and the front end of scripts.
//!
//! This crate never meets a run: its results depend on the text of the files alone. `pirn-core` executes what it compiles.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! analysis
//!   ↓
//! graph
//!   ↓
//! times
//!   ↓
//! definition
//!   ↓
//! message  script
//!   ↓
//! event_type  value
//!   ↓
//! error
//! ```
//!
//! Reading order:
//! 1. `definition`: the types of a workflow file, and `load`, which reads it.
//! 2. `graph`: `compile_loaded` turns loaded definitions into graphs and reports every fault.
//! 3. `analysis`: warnings about graphs that cannot work as intended.
//! 4. `script`: expressions and templates, their scope, and those that need no JavaScript.

pub mod analysis;
pub mod definition;
pub mod error;
pub mod event_type;
pub mod graph;
pub mod message;
pub mod script;
pub mod times;
pub mod value;

/// Milliseconds since an origin that the host chooses.
pub type Millis = u64;
