//! Schedules: triggers that fire by the clock.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// The times that a SCHEDULE trigger fires at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleDefinition {
    /// Five fields: minute, hour, day of the month, month, day of the week; or six, seconds first.
    pub cron: String,
    /// The zone whose clock the times are read on, by its name in the IANA database: `Europe/Berlin` (default `UTC`).
    #[serde(default = "utc")]
    pub timezone: String,
    /// The rule for a time that comes while the run of an earlier one is under way (default `skip`).
    #[serde(default)]
    pub overlap: Overlap,
    /// The times to make good of those that were missed while no engine lived (default `last`).
    #[serde(default)]
    pub catch_up: CatchUp,
    /// Starts each run up to so many milliseconds later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<Millis>,
}

impl ScheduleDefinition {
    /// The times of a cron expression in UTC.
    pub fn cron(cron: impl Into<String>) -> Self {
        Self {
            cron: cron.into(),
            timezone: utc(),
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            jitter_ms: None,
        }
    }

    /// The same on the clock of another zone.
    #[must_use]
    pub fn timezone(self, name: impl Into<String>) -> Self {
        Self {
            timezone: name.into(),
            ..self
        }
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

/// The rule for a time of a schedule that comes while the run of an earlier one is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Overlap {
    /// Nothing starts.
    #[default]
    Skip,
    /// The new run waits for its turn.
    Queue,
    /// The earlier run is cancelled.
    CancelPrevious,
    /// Both run.
    Allow,
}

/// The missed times of a schedule that are made good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum CatchUp {
    /// None.
    None,
    /// The last one.
    #[default]
    Last,
    /// All, one run after the other unless they may overlap.
    All,
}
