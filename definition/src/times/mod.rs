//! The times of a cron expression in a time zone, for triggers that fire by the clock.
//!
//! The feature `schedule` parses cron expressions and time zones; without it [`Times`] cannot be created.
//!
//! Not here: a clock, and the decision which of the times start a run (`pirn_events::schedule`).

#[cfg(not(feature = "schedule"))]
mod absent;
#[cfg(feature = "schedule")]
mod cron;

#[cfg(not(feature = "schedule"))]
pub use absent::Times;
#[cfg(feature = "schedule")]
pub use cron::Times;

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
