//! Stub of [`Times`] for builds without the feature `schedule`.

use super::TimesFault;
use crate::Millis;

/// Never created: [`Times::read`] always fails.
#[derive(Clone, Debug)]
pub struct Times(());

impl Times {
    /// Always fails.
    ///
    /// # Errors
    /// [`TimesFault::NotBuilt`].
    pub fn read(_cron: &str, _timezone: &str) -> Result<Self, Vec<TimesFault>> {
        Err(vec![TimesFault::NotBuilt])
    }

    /// Returns the first time after a moment.
    pub fn after(&self, _moment: Millis) -> Option<Millis> {
        None
    }

    /// Returns the last time before a moment.
    pub fn before(&self, _moment: Millis) -> Option<Millis> {
        None
    }

    /// Returns a moment in local time.
    pub fn shown(&self, _moment: Millis) -> String {
        String::new()
    }
}
