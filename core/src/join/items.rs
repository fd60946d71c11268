//! The result of a MAP: the outputs of its items' threads, in item order.

use pirn_definition::error::RunError;
use pirn_definition::value::Output;
use serde_json::{Map, Value, json};

use super::output::{JoinedPath, PathReport, error_of, memory, reports_of, within_limits};
use super::path::PathStatus;

/// The output of a MAP, built on first read: `{results: [output or null], completed: [index], failed: [{index, error}],
/// cancelled: [index]}`, indices ascending. `failed` and `cancelled` have the meaning they have in the output of a JOIN.
///
/// # Errors
/// As [`within_limits`].
pub fn late_items_output(items: Vec<JoinedPath>) -> Result<Output, RunError> {
    // Checked now, before the value is built: the parent must fail at the JOIN, not at a later read.
    let levels = within_limits(&items)?;
    Ok(Output::later_of((levels, memory(&items)), move || output(&items)))
}

/// Returns the reports of items under these names.
pub fn item_reports<'a>(names: &'a [String], run_id: &str, items: &'a [JoinedPath]) -> Vec<PathReport<'a>> {
    reports_of(names.iter().map(String::as_str), run_id, items)
}

fn output(items: &[JoinedPath]) -> Value {
    let mut results = Vec::with_capacity(items.len());
    let (mut completed, mut failed, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
    for (index, item) in items.iter().enumerate() {
        let is_completed = item.status == PathStatus::Completed;
        let value = item.output.as_ref().filter(|_| is_completed);
        // Null without a result, so that a position in the list is the index of the item.
        results.push(value.map(|output| (**output.value()).clone()).unwrap_or_default());
        if is_completed {
            completed.push(json!(index));
        } else if item.status.counts_as_failed() {
            failed.push(json!({"index": index, "error": error_of(item.error.as_ref(), item.status)}));
        } else if item.status.cancelled_by_join() {
            cancelled.push(json!(index));
        }
    }
    Value::Object(Map::from_iter([
        ("results".to_owned(), Value::Array(results)),
        ("completed".to_owned(), Value::Array(completed)),
        ("failed".to_owned(), Value::Array(failed)),
        ("cancelled".to_owned(), Value::Array(cancelled)),
    ]))
}
