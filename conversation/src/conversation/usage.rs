//! Sums of tokens that providers reported, with their cost.
//!
//! Each token is counted in one kind only, whatever the provider's protocol reports. The sum over requests is therefore the sum of
//! each kind, and the cost is a sum of products.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Tokens that a provider reported, summed over a thread and its children.
///
/// ```
/// # use pirn_conversation::conversation::TokenUsage;
/// let mut spent = TokenUsage { cached_read: 80, ..TokenUsage::new(20, 5, 105) };
/// spent.add(TokenUsage::new(1, 1, 2));
/// assert_eq!((spent.input, spent.cached_read, spent.output, spent.total), (21, 80, 6, 107));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Input tokens neither read from nor written to a cache.
    pub input: u64,
    /// Input tokens read from the provider's cache.
    #[serde(default)]
    pub cached_read: u64,
    /// Input tokens written to the provider's cache.
    #[serde(default)]
    pub cached_write: u64,
    /// Output tokens without reasoning.
    pub output: u64,
    /// Reasoning tokens.
    #[serde(default)]
    pub reasoning: u64,
    /// Total, as reported by the provider; at least the sum of the others.
    pub total: u64,
    /// Cost of the calls of profiles with prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl TokenUsage {
    /// Creates the tokens of one request.
    pub fn new(input: u64, output: u64, total: u64) -> Self {
        Self {
            input,
            output,
            total,
            ..Self::default()
        }
    }

    /// Returns true if nothing was reported.
    pub fn is_nothing(&self) -> bool {
        // A cost of 0 counts as reported: the profile has prices.
        *self == Self::default()
    }

    /// Returns all input tokens.
    pub fn sent(&self) -> u64 {
        self.input
            // The kinds exclude each other, so that nothing is counted twice.
            .saturating_add(self.cached_read)
            .saturating_add(self.cached_write)
    }

    /// Returns all output tokens.
    pub fn received(&self) -> u64 {
        self.output.saturating_add(self.reasoning)
    }

    /// Adds a request that has ended, or a child's sum. A stream reports cumulative figures of its request: add the last report
    /// only.
    pub fn add(&mut self, other: TokenUsage) {
        for (own, more) in [
            (&mut self.input, other.input),
            (&mut self.cached_read, other.cached_read),
            (&mut self.cached_write, other.cached_write),
            (&mut self.output, other.output),
            (&mut self.reasoning, other.reasoning),
            (&mut self.total, other.total),
        ] {
            // The numbers come from providers: a wrong one must not wrap around.
            *own = own.saturating_add(more);
        }
        self.cost = match (self.cost, other.cost) {
            (Some(own), Some(more)) => Some(own.plus(more)),
            // A call without prices does not change the sum, which is then a lower bound.
            (own, None) => own,
            (None, more) => more,
        };
    }
}

/// An amount of money in integer units, so that sums do not depend on the order. In JSON it is a number of the currency, exact for
/// amounts below 500, more than one call costs.
///
/// ```
/// # use pirn_conversation::conversation::{Cost, Currency};
/// let cost = Cost { pico: 1_250_000_000, currency: Currency::default() };
/// assert_eq!(serde_json::to_value(cost).unwrap(), serde_json::json!({"amount": 0.00125, "currency": "USD"}));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Cost {
    /// Amount in trillionths (1e-12) of the currency.
    pub pico: u64,
    /// Currency of the amount.
    pub currency: Currency,
}

/// Number of 1e-12 units in one unit of the currency.
const ONE: f64 = 1e12;

impl Cost {
    /// Adds two amounts. If their currencies differ, the result is 0 in [`Currency::NONE`], to which every further sum evaluates.
    pub(crate) fn plus(self, other: Cost) -> Cost {
        // There are no exchange rates.
        if self.currency != other.currency {
            return Cost {
                pico: 0,
                currency: Currency::NONE,
            };
        }
        Cost {
            pico: self.pico.saturating_add(other.pico),
            currency: self.currency,
        }
    }

    /// Returns the amount for `count` items of this cost.
    #[must_use]
    pub fn times(self, count: u64) -> Cost {
        Cost {
            pico: self.pico.saturating_mul(count),
            ..self
        }
    }

    /// Returns the amount as a number of the currency.
    pub fn amount(&self) -> f64 {
        self.pico as f64 / ONE
    }
}

#[derive(Serialize, Deserialize)]
struct Written {
    amount: f64,
    currency: Currency,
}

impl From<Cost> for Written {
    fn from(cost: Cost) -> Self {
        Self {
            amount: cost.amount(),
            currency: cost.currency,
        }
    }
}

impl TryFrom<Written> for Cost {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        // Negated, because every comparison with NaN is false.
        if !(written.amount >= 0.0 && written.amount.is_finite()) {
            return Err("an amount is at least 0");
        }
        Ok(Self {
            // Rounded, because the product of a decimal fraction is not exact. `as` saturates for huge amounts.
            pico: (written.amount * ONE).round() as u64,
            currency: written.currency,
        })
    }
}

/// A currency by its three-letter code (ISO 4217).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// The code `XXX`, for a sum over several currencies.
    pub const NONE: Self = Self(*b"XXX");
}

impl Default for Currency {
    /// `USD`.
    fn default() -> Self {
        Self(*b"USD")
    }
}

impl TryFrom<String> for Currency {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            // Only the form is checked: the list of currencies changes.
            Ok(letters) if letters.iter().all(u8::is_ascii_uppercase) => Ok(Self(letters)),
            Ok(_) | Err(_) => Err(format!("`{text}` is no currency: three capital letters, such as `EUR`")),
        }
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.to_string()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn cost(pico: u64, currency: &str) -> Cost {
        let currency = Currency::try_from(currency.to_owned()).expect("three letters");
        Cost { pico, currency }
    }

    proptest! {
        #[test]
        fn a_stored_cost_round_trips(pico in 0..(1_u64 << 49)) {
            let cost = cost(pico, "EUR");
            let text = serde_json::to_string(&cost).unwrap();
            prop_assert_eq!(serde_json::from_str::<Cost>(&text).unwrap(), cost);
        }
    }

    #[test]
    fn usage_stored_without_token_kinds_is_read() {
        let old: TokenUsage = serde_json::from_value(json!({"input": 1, "output": 2, "total": 3})).unwrap();
        assert_eq!(old, TokenUsage::new(1, 2, 3));
    }

    #[test]
    fn amounts_in_two_currencies_have_no_sum() {
        let of = |cost| TokenUsage {
            cost: Some(cost),
            ..TokenUsage::default()
        };
        let mut spent = of(cost(5, "EUR"));
        spent.add(TokenUsage::new(1, 1, 2));
        spent.add(of(cost(7, "EUR")));
        assert_eq!(spent.cost, Some(cost(12, "EUR")));
        for _ in 0..2 {
            spent.add(of(cost(7, "USD")));
            assert_eq!(spent.cost, Some(cost(0, "XXX")));
        }
    }

    #[test]
    fn an_invalid_amount_of_money_is_refused() {
        for wrong in [
            json!({"amount": -1.0, "currency": "USD"}),
            json!({"amount": 1.0, "currency": "usd"}),
            json!({"amount": 1.0, "currency": "EURO"}),
        ] {
            assert!(serde_json::from_value::<Cost>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
