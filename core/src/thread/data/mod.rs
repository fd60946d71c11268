//! Data of a thread: its inputs and effects, its variables, outputs and history, and the state of its current node.
//!
//! The files import each other without cycles, and nothing outside of this folder except `crate::status`.
//!
//! Not here: functions that change a thread (`machine.rs`, `step.rs`, `nodes/`).

pub(super) mod effect;
pub(super) mod entries;
pub(super) mod history;
pub(super) mod id;
pub(super) mod loops;
pub(super) mod pending;
pub(super) mod question;
pub(super) mod records;
pub(super) mod script_state;
pub(super) mod seed;
pub(super) mod stages;
pub(super) mod state;
pub(super) mod usage;
