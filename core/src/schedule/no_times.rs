//! The times of a build that reads no cron expressions: there are none.

use super::TimesFault;
use crate::Millis;

/// Never made: [`Times::read`] refuses.
#[derive(Clone, Debug)]
pub struct Times(());

impl Times {
    /// Refuses.
    ///
    /// # Errors
    /// [`TimesFault::NotBuilt`].
    pub fn read(_cron: &str, _timezone: &str) -> Result<Self, Vec<TimesFault>> {
        Err(vec![TimesFault::NotBuilt])
    }

    /// The first time after a moment.
    pub fn after(&self, _moment: Millis) -> Option<Millis> {
        None
    }

    /// The last time before a moment.
    pub fn before(&self, _moment: Millis) -> Option<Millis> {
        None
    }

    /// A moment as the clock on the wall shows it.
    pub fn shown(&self, _moment: Millis) -> String {
        String::new()
    }
}
