//! Schedules: the times of a cron expression in a time zone, and the decision which of them starts a run.
//!
//! [`ScheduleMachine`] decides and has no clock: the host passes the current time. The feature `schedule` parses cron expressions
//! and time zones; without it [`Times`] cannot be created.
//!
//! Not here: timers and the start of runs (crate `pirn-actors`).

mod machine;
#[cfg(not(feature = "schedule"))]
mod no_times;
#[cfg(feature = "schedule")]
mod times;

pub use machine::{Effect, Input, MAX_CAUGHT_UP, MAX_QUEUED, ScheduleMachine, ScheduleState, Skip};
#[cfg(not(feature = "schedule"))]
pub use no_times::Times;
#[cfg(feature = "schedule")]
pub use times::Times;

/// Reason why a schedule is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimesFault {
    /// The cron expression cannot be parsed, or never matches; with the reason.
    Cron(String),
    /// The time zone does not exist; with the most similar name.
    Zone(Option<&'static str>),
    /// This build cannot parse cron expressions: the feature `schedule` is disabled.
    NotBuilt,
}

impl std::fmt::Display for TimesFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cron(why) => write!(f, "the cron expression cannot be used: {why}"),
            Self::Zone(Some(near)) => write!(f, "unknown time zone; did you mean `{near}`?"),
            Self::Zone(None) => f.write_str("unknown time zone"),
            Self::NotBuilt => f.write_str("this build has no schedules: they are the feature `schedule`"),
        }
    }
}

impl std::error::Error for TimesFault {}
