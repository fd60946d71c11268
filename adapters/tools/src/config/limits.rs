//! Limits and rules for the calls of a tool, or of all tools of a server.

use pirn_definition::Millis;
use pirn_definition::definition::InDoubt;
use serde::Deserialize;

use super::fields::Fields;
use crate::approval::Approval;
use crate::options::DEFAULT_TIMEOUT;

/// Maximum timeout of a call, in milliseconds: one day.
const MOST_TIMEOUT: Millis = 86_400_000;
/// Maximum configurable time to wait for approval, in milliseconds: 30 days.
const MOST_APPROVAL: Millis = 30 * MOST_TIMEOUT;
/// Default maximum size of a result, in bytes.
const DEFAULT_OUTPUT: u64 = 64 * 1024;
/// Maximum configurable size of a result, in bytes.
const MOST_OUTPUT: u64 = 16 * 1024 * 1024;
/// Default maximum number of concurrent calls.
const DEFAULT_PARALLEL: u64 = 8;
/// Maximum configurable number of concurrent calls.
const MOST_PARALLEL: u64 = 1_024;

/// Limits of a tool's calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Timeout of a call, in milliseconds.
    pub timeout: Millis,
    /// Maximum bytes of a result; longer ones are truncated.
    pub max_output_bytes: usize,
    /// Maximum number of concurrent calls.
    pub max_parallel: usize,
    /// Approval policy.
    pub approval: Approval,
    /// Milliseconds that a call waits for a person's approval.
    pub approval_timeout: Option<Millis>,
    /// Rule for a call that was in progress when its run's process ended.
    pub in_doubt: Option<InDoubt>,
}

impl CallLimits {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let timeout = fields.number("timeoutMs", 1..=MOST_TIMEOUT).unwrap_or(DEFAULT_TIMEOUT);
        let output = fields
            .number("maxOutputBytes", 1..=MOST_OUTPUT)
            .unwrap_or(DEFAULT_OUTPUT);
        let parallel = fields
            .number("maxParallel", 1..=MOST_PARALLEL)
            .unwrap_or(DEFAULT_PARALLEL);
        let approval = match fields.word("approval", &["never", "ask"]) {
            Some(1) => Approval::Ask,
            Some(_) | None => Approval::Never,
        };
        let approval_timeout = fields.number("approvalTimeoutMs", 1..=MOST_APPROVAL);
        let in_doubt = fields.value("inDoubt").and_then(|written| {
            let read = InDoubt::deserialize(written).ok();
            if read.is_none() {
                let message = "expected `retry`, `keyed`, `ask`, `fail` or `{ reconcile = \"TOOL\" }`";
                fields.fault("inDoubt", message);
            }
            read
        });
        Self {
            timeout,
            max_output_bytes: usize::try_from(output).unwrap_or(usize::MAX),
            max_parallel: usize::try_from(parallel).unwrap_or(usize::MAX),
            approval,
            approval_timeout,
            in_doubt,
        }
    }
}
