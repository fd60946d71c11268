//! The outcome of a run, reduced to what distinguishes outcomes.

use std::collections::BTreeMap;
use std::fmt;

use pirn_core::run::RunReport;
use pirn_core::status::ThreadStatus;
use pirn_definition::error::RunErrorCode;
use pirn_definition::message::Role;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Choices, Exploration};
use crate::leaves::map_leaves;

/// One possible outcome of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The shortest order that leads to this outcome: the events at choices and in branches, in order.
    pub order: Vec<String>,
    /// The choices of this order, for [`Explorer::replay`](super::Explorer::replay).
    pub replay: Choices,
    /// Status of the run; RUNNING if the run is deadlocked.
    pub status: ThreadStatus,
    /// The run's output, with thread ids replaced by their paths.
    pub output: Value,
    /// The error, if the run did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OutcomeError>,
}

/// A summary of a run's error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeError {
    /// Error code of the run.
    pub code: RunErrorCode,
    /// Message of the error.
    pub message: String,
}

/// Returns the outcome of a run that has ended, and a key that identifies equal outcomes.
pub(super) fn outcome_of(report: &RunReport, order: Vec<String>, is_strict: bool) -> (String, Outcome) {
    let names = Names::of(report);
    let output = names.in_value(&report.output);
    let error = report.error.as_ref().map(|error| OutcomeError {
        code: error.code,
        message: names.in_text(&error.message),
    });
    // Without the message, which may quote values that differ between orders.
    let mut key = json!([report.status, output, error.as_ref().map(|error| error.code.as_str())]);
    if is_strict && let Some(parts) = key.as_array_mut() {
        let messages = report.conversation.messages.iter();
        let messages: Vec<(Role, String)> = messages
            .map(|message| (message.role, names.in_text(&message.content)))
            .collect();
        let variables: BTreeMap<&String, Value> = report
            .variables
            .iter()
            .map(|(name, value)| (name, names.in_value(value)))
            .collect();
        parts.extend([
            json!(error.as_ref().map(|error| &error.message)),
            json!(variables),
            json!(messages),
        ]);
    }
    let outcome = Outcome {
        order,
        // Set by the schedule.
        replay: Choices::default(),
        status: report.status,
        output,
        error,
    };
    (key.to_string(), outcome)
}

/// Returns the outcome of a deadlocked run.
pub(super) fn stuck(order: Vec<String>) -> (String, Outcome) {
    let outcome = Outcome {
        order,
        replay: Choices::default(),
        status: ThreadStatus::Running,
        // A deadlocked run has no report.
        output: Value::Null,
        error: None,
    };
    // An empty key, which no JSON array equals: all deadlocks of a workflow are one outcome.
    (String::new(), outcome)
}

/// Maps thread ids, which depend on the order of starting, to paths, which do not.
struct Names {
    by_id: Vec<(String, String)>,
}

impl Names {
    fn of(report: &RunReport) -> Self {
        let name = |thread: &pirn_core::run::ThreadReport| {
            // Only branches have a path. Other threads are named after their workflow.
            let name = thread.path_id.clone().unwrap_or_else(|| thread.workflow_id.clone());
            (thread.thread_id.to_string(), format!("thread of {name}"))
        };
        // Longest first, because one id may be a prefix of another.
        let mut by_id: Vec<(String, String)> = report.threads.iter().map(name).collect();
        by_id.sort_by_key(|(id, _)| std::cmp::Reverse(id.len()));
        Self { by_id }
    }

    fn in_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (id, name) in &self.by_id {
            // `replace` allocates a new string even if nothing is found.
            if text.contains(id.as_str()) {
                text = text.replace(id.as_str(), name);
            }
        }
        text
    }

    fn in_value(&self, value: &Value) -> Value {
        map_leaves(value, &|leaf| match leaf {
            Value::String(text) => Value::String(self.in_text(text)),
            other => other.clone(),
        })
    }
}

/// Maximum characters of an output in the table.
const SHOWN: usize = 36;

/// Maximum width of the table in characters.
const WIDTH: usize = 80;

impl fmt::Display for Exploration {
    /// Formats a table for display.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, noun) = match self.outcomes.len() {
            1 => (1, "outcome"),
            count => (count, "outcomes"),
        };
        let how = if self.complete {
            "every order was tried"
        } else {
            "not every order was tried"
        };
        let schedules = if self.schedules == 1 { "schedule" } else { "schedules" };
        writeln!(f, "{count} {noun} in {} {schedules}; {how}", self.schedules)?;
        let rows: Vec<[String; 4]> = self
            .outcomes
            .iter()
            .zip(1..)
            .map(|(outcome, no)| row(outcome, no))
            .collect();
        let heads = ["#", "status", "output", "shortest order"].map(str::to_owned);
        let width = |column: usize| {
            let cells = rows.iter().chain([&heads]).map(|row| row[column].chars().count());
            cells.max().unwrap_or_default()
        };
        let widths = [width(0), width(1), width(2)];
        for row in [&heads].into_iter().chain(&rows) {
            let [no, status, output, order] = row;
            let before = widths.iter().sum::<usize>() + 6;
            let mut lines = wrapped(order, WIDTH.saturating_sub(before)).into_iter();
            let first = lines.next().unwrap_or_default();
            writeln!(
                f,
                "{no:>0$}  {status:<1$}  {output:<2$}  {first}",
                widths[0], widths[1], widths[2]
            )?;
            for line in lines {
                writeln!(f, "{:before$}{line}", "")?;
            }
        }
        Ok(())
    }
}

fn row(outcome: &Outcome, no: usize) -> [String; 4] {
    let what = match &outcome.error {
        Some(error) => format!("{}: {}", error.code.as_str(), error.message),
        None if outcome.status == ThreadStatus::Running => "(waits for ever)".to_owned(),
        None => outcome.output.to_string(),
    };
    let order = if outcome.order.is_empty() {
        "(no choice)".to_owned()
    } else {
        outcome.order.join(", ")
    };
    [
        no.to_string(),
        outcome.status.as_str().to_owned(),
        shortened(&what),
        order,
    ]
}

/// Breaks the steps of an order into lines of `width` characters; a longer step is on a separate line.
fn wrapped(order: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for step in order.split_inclusive(", ") {
        match lines.last_mut() {
            // The space after the last comma of a line is trimmed below, so it does not count.
            Some(line) if line.chars().count() + step.trim_end().chars().count() <= width => line.push_str(step),
            Some(_) | None => lines.push(step.to_owned()),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

fn shortened(text: &str) -> String {
    // A table row is one line, and the first line of an error is its summary.
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= SHOWN {
        return line.to_owned();
    }
    let kept: String = line.chars().take(SHOWN - 3).collect();
    format!("{kept}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_schedule_is_written_in_the_singular() {
        let told = |schedules| {
            let found = Exploration {
                outcomes: Vec::new(),
                schedules,
                complete: true,
            };
            found.to_string()
        };
        assert!(told(1).contains(" in 1 schedule; "), "{}", told(1));
        assert!(told(2).contains(" in 2 schedules; "), "{}", told(2));
    }

    #[test]
    fn a_table_fits_eighty_columns_and_lists_every_step() {
        let order: Vec<String> = (0..20).map(|no| format!("p{no}/n{no} script")).collect();
        let outcome = |output: Value| Outcome {
            order: order.clone(),
            replay: Choices::default(),
            status: ThreadStatus::Completed,
            output,
            error: None,
        };
        let told = Exploration {
            outcomes: vec![outcome(json!(["x".repeat(200)])), outcome(json!(1))],
            schedules: 7,
            complete: true,
        };
        let table = told.to_string();
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "{table}");
        for step in &order {
            assert_eq!(table.matches(step.as_str()).count(), 2, "{step}\n{table}");
        }
    }
}
