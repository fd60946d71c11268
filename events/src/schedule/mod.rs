//! Schedules: the decision which times of a cron expression start a run.
//!
//! [`ScheduleMachine`] decides and has no clock: the host passes the current time.
//!
//! Not here: the times of a cron expression ([`pirn_definition::times`]), timers and the start of runs (crate `pirn-actors`).

mod machine;

pub use machine::{Effect, Input, MAX_CAUGHT_UP, MAX_QUEUED, ScheduleMachine, ScheduleState, Skip};
