//! Code mode: limits of the scripts that a model runs by the tool `run_code`.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// Limits of a script that the model of an LLM node runs by the tool `run_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CodeModeLimits {
    /// Maximum number of calls of tools (default 1000).
    pub calls: u32,
    /// Maximum number of calls at once (default 16). Further ones wait.
    pub concurrency: u32,
    /// Maximum bytes of all results that the script receives (default 8388608).
    pub result_bytes: u64,
    /// Maximum bytes of the return value and the log lines, which the model receives (default 65536).
    pub output_bytes: u64,
    /// Time limit in milliseconds (default: none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<Millis>,
}

impl Default for CodeModeLimits {
    fn default() -> Self {
        Self {
            calls: 1_000,
            concurrency: 16,
            result_bytes: 8 << 20,
            output_bytes: 64 << 10,
            time_ms: None,
        }
    }
}
