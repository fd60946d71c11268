//! Budgets: limits on what model calls may use.

use serde::{Deserialize, Serialize};

/// Limits on what the model calls of a thread of the workflow, and of everything it starts, may use together. Every call reserves
/// the most that it may use before it starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Maximum number of tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost, in the currency of the profiles' `prices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Maximum number of model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Separate limits for each path of a FORK and each item of a MAP. Must not contain `perPath`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_path: Option<Box<Budget>>,
    /// Used share of a limit at which models are warned (default 0.8; for a path that of the whole).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<f64>,
}

impl Budget {
    /// True if something other than the paths is limited.
    pub fn is_limit(&self) -> bool {
        self.tokens.is_some() || self.cost.is_some() || self.model_calls.is_some()
    }

    /// Returns the limits of the whole and those of a path.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.per_path.as_deref())
    }
}
