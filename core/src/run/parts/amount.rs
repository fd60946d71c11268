//! Amounts of the figures that budgets limit.

use pirn_definition::definition::Budget;
use serde::{Deserialize, Serialize};

/// Tokens, cost and number of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::run) struct Amount {
    pub(in crate::run) tokens: u64,
    /// Cost in 1e-12 units of the currency.
    pub(in crate::run) pico: u64,
    pub(in crate::run) calls: u64,
}

impl Amount {
    pub(in crate::run) fn plus(self, other: Self) -> Self {
        Self {
            // A maximum comes from a profile and may be any number: a sum that wrapped would admit every call.
            tokens: self.tokens.saturating_add(other.tokens),
            pico: self.pico.saturating_add(other.pico),
            calls: self.calls.saturating_add(other.calls),
        }
    }

    pub(in crate::run) fn minus(self, other: Self) -> Self {
        Self {
            // Exact unless `plus` has saturated: each amount is added before it is subtracted.
            tokens: self.tokens.saturating_sub(other.tokens),
            pico: self.pico.saturating_sub(other.pico),
            calls: self.calls.saturating_sub(other.calls),
        }
    }

    pub(in crate::run) fn of(self, kind: FigureKind) -> u64 {
        match kind {
            FigureKind::Tokens => self.tokens,
            FigureKind::Cost => self.pico,
            FigureKind::ModelCalls => self.calls,
        }
    }
}

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::run) enum FigureKind {
    Tokens,
    Cost,
    ModelCalls,
}

impl FigureKind {
    pub(in crate::run) const ALL: [Self; 3] = [Self::Tokens, Self::Cost, Self::ModelCalls];

    /// Returns the name in JSON.
    pub(in crate::run) fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::ModelCalls => "modelCalls",
        }
    }
}

/// Maximum usage of one call; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::run) struct MaximumUsage {
    pub(in crate::run) tokens: Option<u64>,
    pub(in crate::run) pico: Option<u64>,
}

impl MaximumUsage {
    pub(in crate::run) fn amount(self) -> Amount {
        Amount {
            // An unknown maximum counts 0: `Ledger::refusal` has refused the call if an account limits that kind.
            tokens: self.tokens.unwrap_or_default(),
            pico: self.pico.unwrap_or_default(),
            calls: 1,
        }
    }

    /// Returns the maximum usage of both together.
    pub(in crate::run) fn and(self, other: Self) -> Self {
        // The sum is unknown if one part is: the known part alone would be no upper bound.
        let sum = |one: Option<u64>, other| one.zip(other).map(|(one, other): (u64, u64)| one.saturating_add(other));
        Self {
            tokens: sum(self.tokens, other.tokens),
            pico: sum(self.pico, other.pico),
        }
    }

    pub(in crate::run) fn is_known(self, kind: FigureKind) -> bool {
        match kind {
            FigureKind::Tokens => self.tokens.is_some(),
            FigureKind::Cost => self.pico.is_some(),
            FigureKind::ModelCalls => true,
        }
    }
}

/// Limits of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::run) struct Limits {
    tokens: Option<u64>,
    pico: Option<u64>,
    calls: Option<u64>,
    /// Share of a limit at which models are warned.
    pub(in crate::run) warn_at: f64,
}

impl Limits {
    pub(in crate::run) fn of(budget: &Budget, warn_at: f64) -> Self {
        Self {
            tokens: budget.tokens,
            // Whole numbers have the same sum in any order. Rounded, because `as` truncates a product just below the number meant.
            pico: budget.cost.map(|cost| (cost * 1e12).round() as u64),
            calls: budget.model_calls,
            warn_at,
        }
    }

    pub(in crate::run) fn of_kind(&self, kind: FigureKind) -> Option<u64> {
        match kind {
            FigureKind::Tokens => self.tokens,
            FigureKind::Cost => self.pico,
            FigureKind::ModelCalls => self.calls,
        }
    }

    /// Returns the first figure that exceeds its limit.
    pub(in crate::run) fn exceeded_by(&self, amount: Amount) -> Option<FigureKind> {
        let is_over = |kind: &FigureKind| self.of_kind(*kind).is_some_and(|limit| amount.of(*kind) > limit);
        // If several figures are exceeded, the order of `ALL` decides which one the error names, equally in every replay.
        FigureKind::ALL.into_iter().find(is_over)
    }
}
