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
    /// Limits of each path of a FORK, and of each item of a MAP, by itself. It has no `perPath` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_path: Option<Box<Budget>>,
    /// The share of a limit from which on models are told how much is used (default 0.8; of a path that of the whole).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<f64>,
}

impl Budget {
    /// True if something is limited, paths aside.
    pub fn is_limit(&self) -> bool {
        self.tokens.is_some() || self.cost.is_some() || self.model_calls.is_some()
    }

    /// The limits of the whole and those of a path.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.per_path.as_deref())
    }
}
