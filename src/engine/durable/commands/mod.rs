//! Operations on stored runs: resume, fork, migrate, and inputs for a run that this engine does not execute.

pub(super) mod doubts;
pub(super) mod dropped_events;
pub(super) mod end_unreadable;
pub(super) mod enqueue;
pub(super) mod fork;
pub(super) mod migrate;
pub(super) mod offline;
pub(super) mod resume;
pub(super) mod run_command;
pub(super) mod started_runs;
pub(super) mod work;
