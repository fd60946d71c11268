//! The times of a build that reads no cron expressions: there are none.

use super::TimesFault;
use crate::Millis;

/// No value of it exists.
#[derive(Clone, Debug)]
pub enum Times {}

impl Times {
    /// Refuses.
    ///
    /// # Errors
    /// [`TimesFault::NotBuilt`].
    pub fn read(_cron: &str, _timezone: &str) -> Result<Self, TimesFault> {
        Err(TimesFault::NotBuilt)
    }

    /// The first time after a moment.
    pub fn after(&self, _moment: Millis) -> Option<Millis> {
        match *self {}
    }

    /// The last time before a moment.
    pub fn before(&self, _moment: Millis) -> Option<Millis> {
        match *self {}
    }

    /// A moment as the clock on the wall shows it.
    pub fn shown(&self, _moment: Millis) -> String {
        match *self {}
    }
}
