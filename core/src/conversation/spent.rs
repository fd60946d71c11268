//! Tokens that providers reported and what they cost, added up.
//!
//! Every kind of token stands for itself: none counts within another, whatever the provider's protocol says. So a sum of
//! requests is the sum of each kind, and a cost is a sum of products.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Tokens that a provider reported, added up over a thread and its children.
///
/// ```
/// # use pirn_core::conversation::Spent;
/// let mut spent = Spent { cached_read: 80, ..Spent::new(20, 5, 105) };
/// spent.add(Spent::new(1, 1, 2));
/// assert_eq!((spent.input, spent.cached_read, spent.output, spent.total), (21, 80, 6, 107));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spent {
    /// Sent, and neither read from a cache nor written to one.
    pub input: u64,
    /// Sent, and read from the provider's cache.
    #[serde(default)]
    pub cached_read: u64,
    /// Sent, and written to the provider's cache.
    #[serde(default)]
    pub cached_write: u64,
    /// Received, reasoning not counted.
    pub output: u64,
    /// Received as reasoning.
    #[serde(default)]
    pub reasoning: u64,
    /// All of them, as the provider says; at least their sum.
    pub total: u64,
    /// The cost, of what profiles with prices were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl Spent {
    /// The tokens of one request.
    pub fn new(input: u64, output: u64, total: u64) -> Self {
        Self {
            input,
            output,
            total,
            ..Self::default()
        }
    }

    /// True where nothing was reported.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Everything that was sent.
    pub fn sent(&self) -> u64 {
        self.input
            .saturating_add(self.cached_read)
            .saturating_add(self.cached_write)
    }

    /// Everything that was received.
    pub fn received(&self) -> u64 {
        self.output.saturating_add(self.reasoning)
    }

    /// Adds a request that has ended, or a child's sum. A stream reports absolute figures of its request: only the
    /// last one is added.
    pub fn add(&mut self, other: Spent) {
        for (own, more) in [
            (&mut self.input, other.input),
            (&mut self.cached_read, other.cached_read),
            (&mut self.cached_write, other.cached_write),
            (&mut self.output, other.output),
            (&mut self.reasoning, other.reasoning),
            (&mut self.total, other.total),
        ] {
            *own = own.saturating_add(more);
        }
        self.cost = match (self.cost, other.cost) {
            (Some(own), Some(more)) => Some(own.plus(more)),
            (own, None) => own,
            (None, more) => more,
        };
    }
}

/// An amount of money: exact, so that the order of adding does not matter. Written down it is a number of the currency, exact
/// for what one call may cost: below 500 of it.
///
/// ```
/// # use pirn_core::conversation::{Cost, Currency};
/// let cost = Cost { pico: 1_250_000_000, currency: Currency::default() };
/// assert_eq!(serde_json::to_value(cost).unwrap(), serde_json::json!({"amount": 0.00125, "currency": "USD"}));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Cost {
    /// Millionths of a millionth of the currency.
    pub pico: u64,
    /// Which.
    pub currency: Currency,
}

/// Pico in one.
const ONE: f64 = 1e12;

impl Cost {
    /// The sum. Amounts of two currencies have none: it is 0 of [`Currency::NONE`], and stays that.
    fn plus(self, other: Cost) -> Cost {
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

    /// The amount, as a number of the currency.
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
        if !(written.amount >= 0.0 && written.amount.is_finite()) {
            return Err("an amount is at least 0");
        }
        Ok(Self {
            pico: (written.amount * ONE).round() as u64,
            currency: written.currency,
        })
    }
}

/// A currency, by the three letters of ISO 4217.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// No currency (`XXX`): of a sum over several.
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
        fn a_cost_that_is_written_down_is_read_as_it_was(pico in 0..(1_u64 << 49)) {
            let cost = cost(pico, "EUR");
            let text = serde_json::to_string(&cost).unwrap();
            prop_assert_eq!(serde_json::from_str::<Cost>(&text).unwrap(), cost);
        }
    }

    #[test]
    fn what_was_written_before_there_were_kinds_is_read() {
        let old: Spent = serde_json::from_value(json!({"input": 1, "output": 2, "total": 3})).unwrap();
        assert_eq!(old, Spent::new(1, 2, 3));
    }

    #[test]
    fn amounts_of_two_currencies_have_no_sum() {
        let of = |cost| Spent {
            cost: Some(cost),
            ..Spent::default()
        };
        let mut spent = of(cost(5, "EUR"));
        spent.add(Spent::new(1, 1, 2));
        spent.add(of(cost(7, "EUR")));
        assert_eq!(spent.cost, Some(cost(12, "EUR")));
        for _ in 0..2 {
            spent.add(of(cost(7, "USD")));
            assert_eq!(spent.cost, Some(cost(0, "XXX")));
        }
    }

    #[test]
    fn what_is_no_amount_of_money_is_refused() {
        for wrong in [
            json!({"amount": -1.0, "currency": "USD"}),
            json!({"amount": 1.0, "currency": "usd"}),
            json!({"amount": 1.0, "currency": "EURO"}),
        ] {
            assert!(serde_json::from_value::<Cost>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
