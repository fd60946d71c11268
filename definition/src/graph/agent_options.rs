//! Faults of the options of `agent` in a script workflow.

use crate::definition::nearest;
use crate::script::AGENT_OPTIONS;

/// Returns the fault of an option of `agent` that does not exist; `None` if it exists.
pub fn agent_option_fault(name: &str) -> Option<String> {
    if AGENT_OPTIONS.contains(&name) {
        return None;
    }
    let advice = match nearest(name, AGENT_OPTIONS.into_iter()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the options are {}", AGENT_OPTIONS.join(", ")),
    };
    Some(format!("agent: there is no option `{name}`: {advice}"))
}
