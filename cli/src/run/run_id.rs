//! Check of the ids that users give to runs.

use pirn_service::{MAX_RUN_ID, is_run_id};

use crate::output::failure::Failure;

/// Refuses a run id that the HTTP API would refuse.
pub(crate) fn check_run_id(id: &str) -> Result<(), Failure> {
    if is_run_id(id) {
        return Ok(());
    }
    let message = format!("--run-id {id}: this is not the id of a run");
    Err(Failure::usage("USAGE", message).with_help(format!(
        "an id has 1 to {MAX_RUN_ID} letters, digits, hyphens, dots and underscores, such as order-17"
    )))
}
