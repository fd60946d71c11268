//! Options of tool calls.

use pirn_definition::Millis;
use pirn_definition::definition::InDoubt;

use super::approval::Approval;

/// Default timeout of a tool call, in milliseconds.
pub const DEFAULT_TIMEOUT: Millis = 60_000;

/// Options of a tool's calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOptions {
    /// Timeout in milliseconds, without the time that a call waits for approval or for the concurrency limit.
    pub timeout: Millis,
    /// Maximum number of concurrent calls; further ones wait. `None`: the limit of the registry.
    pub max_parallel: Option<usize>,
    /// Approval policy.
    pub approval: Approval,
    /// Milliseconds that a call waits for a person's approval; `None`: without limit. A call without an answer in time is refused.
    pub approval_timeout: Option<Millis>,
    /// Rule for a call that was in progress when its run's process ended; `None`: the node's rule.
    pub in_doubt: Option<InDoubt>,
    /// The tool's source, for display.
    pub source: String,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            timeout: DEFAULT_TIMEOUT,
            max_parallel: None,
            approval: Approval::Never,
            approval_timeout: None,
            in_doubt: None,
            source: "code".to_owned(),
        }
    }
}
