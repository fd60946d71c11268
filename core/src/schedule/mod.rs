//! Schedules: the times of a cron expression in a time zone, and the decision which of them starts a run.
//!
//! [`ScheduleMachine`] decides and knows no clock: whoever carries it says what time it is. Reading cron expressions and time
//! zones is the feature `schedule`; without it there are no [`Times`].

mod machine;
#[cfg(not(feature = "schedule"))]
mod no_times;
#[cfg(feature = "schedule")]
mod times;

pub use machine::{Effect, Input, Kept, MAX_CAUGHT_UP, MAX_QUEUED, ScheduleMachine, Skip};
#[cfg(not(feature = "schedule"))]
pub use no_times::Times;
#[cfg(feature = "schedule")]
pub use times::Times;

/// The reason that a schedule has no times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimesFault {
    /// The cron expression cannot be read, or its times never come: why.
    Cron(String),
    /// There is no such time zone; the nearest that there is.
    Zone(Option<&'static str>),
    /// This build reads no cron expressions: it is without the feature `schedule`.
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
