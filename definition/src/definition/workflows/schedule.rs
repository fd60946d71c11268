//! Schedules: triggers that fire at times of a cron expression.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// The times at which a SCHEDULE trigger fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleDefinition {
    /// Cron expression with five fields: minute, hour, day of the month, month, day of the week; or with six, seconds first.
    pub cron: String,
    /// Time zone of the times, by its name in the IANA database: `Europe/Berlin` (default `UTC`).
    #[serde(default = "utc")]
    pub timezone: String,
    /// Policy for a time that is due while the run of an earlier one is in progress (default `skip`).
    #[serde(default)]
    pub overlap: Overlap,
    /// Policy for times that were missed while no engine ran (default `last`).
    #[serde(default)]
    pub catch_up: CatchUp,
    /// Maximum random delay of each run's start, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<Millis>,
}

impl ScheduleDefinition {
    /// Returns a schedule of a cron expression in UTC.
    pub fn cron(cron: impl Into<String>) -> Self {
        Self {
            cron: cron.into(),
            timezone: utc(),
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            jitter_ms: None,
        }
    }

    /// Sets the time zone.
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

/// Policy for a time of a schedule that is due while the run of an earlier one is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Overlap {
    /// The new run is skipped.
    #[default]
    Skip,
    /// The new run is queued.
    Queue,
    /// The earlier run is cancelled.
    CancelPrevious,
    /// The new run starts, and the earlier one continues.
    Allow,
}

/// The missed times of a schedule that start a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum CatchUp {
    /// No missed time starts a run.
    None,
    /// The last missed time starts a run.
    #[default]
    Last,
    /// Every missed time starts a run: one after another, unless runs may overlap.
    All,
}

/// Returns the name of a schedule in a store and in the ids of its runs: `WORKFLOW.TRIGGER`, or the id of the trigger alone if it belongs to
/// no workflow.
pub fn schedule_name(workflow: Option<&str>, trigger: &str) -> String {
    workflow.map_or_else(|| trigger.to_owned(), |workflow| format!("{workflow}.{trigger}"))
}
