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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimesFault {
    /// The cron expression cannot be parsed, or never matches; with the reason.
    #[error("the cron expression cannot be used: {0}")]
    Cron(String),
    /// The time zone does not exist; with the most similar name.
    #[error("unknown time zone{}", .0.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Zone(Option<&'static str>),
    /// This build cannot parse cron expressions: the feature `schedule` is disabled.
    #[error("this build has no schedules: they are the feature `schedule`")]
    NotBuilt,
}
