//! Budgets: limits on what model calls may use.

use serde::{Deserialize, Serialize};

/// Limits on what the model calls of a thread that walks the workflow, and of everything it starts, may use together. Every
/// call reserves the most that it may use before it begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in the currency of the profiles' `prices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Calls of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Limits of each path of a FORK, and of each item of a MAP, by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_path: Option<PathBudget>,
    /// The share of a limit from which on models are told how much is used (default 0.8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<f64>,
}

/// The same limits, of one path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PathBudget {
    /// Tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in the currency of the profiles' `prices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Calls of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
}

impl Budget {
    /// The limits of the whole.
    pub fn whole(&self) -> PathBudget {
        PathBudget {
            tokens: self.tokens,
            cost: self.cost,
            model_calls: self.model_calls,
        }
    }

    /// The limits of the whole and those of a path.
    pub fn all(&self) -> impl Iterator<Item = PathBudget> {
        std::iter::once(self.whole()).chain(self.per_path.clone())
    }
}

impl PathBudget {
    /// True if nothing is limited.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
