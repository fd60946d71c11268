//! The cost of a request, by the prices of its profile.

use serde::{Deserialize, Serialize};

use crate::conversation::{Cost, Currency, TokenUsage};

/// Prices of a profile, for a million tokens of each kind. Cached tokens default to the price of input, and reasoning tokens to
/// the price of output.
///
/// ```
/// # use pirn_conversation::conversation::TokenUsage;
/// # use pirn_conversation::model_call::Prices;
/// let prices: Prices = serde_json::from_str(r#"{"input": 3, "cachedRead": 0.3, "output": 15}"#).unwrap();
/// let spent = TokenUsage { cached_read: 1_000, ..TokenUsage::new(100, 10, 1_110) };
/// assert_eq!(prices.of(&spent).amount(), 0.00075);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prices {
    /// Currency of all prices.
    #[serde(default)]
    pub currency: Currency,
    /// Tokens sent and not cached.
    pub input: Price,
    /// Tokens read from a cache.
    pub cached_read: Option<Price>,
    /// Tokens written to a cache.
    pub cached_write: Option<Price>,
    /// Tokens received.
    pub output: Price,
    /// Tokens received as reasoning.
    pub reasoning: Option<Price>,
}

impl Prices {
    /// Returns the extra cost of an input token that is not read from the cache: 0 if cached tokens cost as much.
    pub fn premium(&self) -> Cost {
        let Price(input) = self.input;
        let Price(cached) = self.cached_read.unwrap_or(self.input);
        Cost {
            pico: input.saturating_sub(cached),
            currency: self.currency,
        }
    }

    /// Returns the cost of these tokens.
    pub fn of(&self, spent: &TokenUsage) -> Cost {
        let Price(input) = self.input;
        let Price(output) = self.output;
        let or = |price: Option<Price>, default: u64| price.map_or(default, |Price(price)| price);
        let pico = [
            (spent.input, input),
            (spent.cached_read, or(self.cached_read, input)),
            (spent.cached_write, or(self.cached_write, input)),
            (spent.output, output),
            (spent.reasoning, or(self.reasoning, output)),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
        .sum::<u128>();
        Cost {
            pico: u64::try_from(pico).unwrap_or(u64::MAX),
            currency: self.currency,
        }
    }
}

/// Upper bound of what one request may use, in addition to the tokens that are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBound {
    /// Maximum number of tokens that may be received, including reasoning; `None` if unknown.
    pub output: Option<u64>,
    /// Prices of the profile; `None` if it has no prices.
    pub prices: Option<Prices>,
}

impl CallBound {
    /// Returns the maximum cost of a request that sends `sent` tokens.
    pub fn cost(&self, sent: u64) -> Option<Cost> {
        let (output, prices) = (self.output?, self.prices?);
        let dearest = |first: Price, others: [Option<Price>; 2]| others.into_iter().flatten().fold(first, Price::max);
        let input = dearest(prices.input, [prices.cached_read, prices.cached_write]);
        let output_price = dearest(prices.output, [prices.reasoning, None]);
        let most = Prices {
            input,
            output: output_price,
            ..prices
        };
        Some(most.of(&TokenUsage::new(sent, output, 0)))
    }

    /// Returns the bound of a request that may go to either of two profiles.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let dearer = |one: Option<Price>, base: Price, other: Option<Price>, other_base: Price| {
            Some(one.unwrap_or(base).max(other.unwrap_or(other_base)))
        };
        let prices = self.prices.zip(other.prices).map(|(one, other)| Prices {
            currency: one.currency,
            input: one.input.max(other.input),
            cached_read: dearer(one.cached_read, one.input, other.cached_read, other.input),
            cached_write: dearer(one.cached_write, one.input, other.cached_write, other.input),
            output: one.output.max(other.output),
            reasoning: dearer(one.reasoning, one.output, other.reasoning, other.output),
        });
        Self {
            output: self.output.zip(other.output).map(|(one, other)| one.max(other)),
            prices,
        }
    }
}

/// A price: pico of the currency for a token, which is millionths of it for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct Price(u64);

/// The highest price of a million tokens.
const HIGHEST: f64 = 1_000_000.0;

impl TryFrom<f64> for Price {
    type Error = String;

    fn try_from(written: f64) -> Result<Self, Self::Error> {
        if (0.0..=HIGHEST).contains(&written) {
            Ok(Self((written * 1e6).round() as u64))
        } else {
            Err(format!("{written} is no price: 0 to {HIGHEST}, for a million tokens"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn prices(written: Value) -> Result<Prices, String> {
        Prices::deserialize(written).map_err(|error| error.to_string())
    }

    proptest! {
        /// Thousandths for a million tokens: the oracle counts in whole numbers.
        #[test]
        fn a_cost_is_the_sum_over_the_token_kinds(kinds in proptest::array::uniform5((0..10_000_000_u64, 0..100_000_u64))) {
            let price = |at: usize| kinds[at].1 as f64 / 1_000.0;
            let written = json!({
                "input": price(0), "cachedRead": price(1), "cachedWrite": price(2), "output": price(3), "reasoning": price(4),
            });
            let spent = TokenUsage {
                input: kinds[0].0, cached_read: kinds[1].0, cached_write: kinds[2].0, output: kinds[3].0, reasoning: kinds[4].0,
                ..TokenUsage::default()
            };
            let thousandths: u64 = kinds.iter().map(|(tokens, price)| tokens * price).sum();
            prop_assert_eq!(prices(written).unwrap().of(&spent).pico, thousandths * 1_000);
        }

        #[test]
        fn a_bound_for_either_of_two_profiles_has_the_dearer_price_of_each_token_kind(
            prices in proptest::array::uniform2(proptest::option::of(any_prices())),
            outputs in proptest::array::uniform2(proptest::option::of(0..100_u64)),
        ) {
            let [one, other] = [0, 1].map(|at| CallBound { output: outputs[at], prices: prices[at] });
            let both = one.or(other);
            prop_assert_eq!(both, other.or(one));
            let is_known = |known: [bool; 2]| known == [true, true];
            prop_assert_eq!(both.output, is_known(outputs.map(|output| output.is_some())).then(|| outputs.into_iter().flatten().max()).flatten());
            prop_assert_eq!(both.prices.is_some(), is_known(prices.map(|prices| prices.is_some())));
            for spent in both.prices.into_iter().flat_map(|_| ONE_TOKEN) {
                let costs = prices.into_iter().flatten().map(|prices| prices.of(&spent).pico);
                prop_assert_eq!(both.prices.map(|prices| prices.of(&spent).pico), costs.max());
            }
        }

        #[test]
        fn the_premium_is_the_cost_of_an_input_token_less_that_of_a_cached_one(prices in any_prices()) {
            let [input, cached, ..] = ONE_TOKEN.map(|spent| prices.of(&spent).pico);
            prop_assert_eq!(prices.premium().pico, input.saturating_sub(cached));
        }
    }

    const NOTHING: TokenUsage = TokenUsage {
        input: 0,
        cached_read: 0,
        cached_write: 0,
        output: 0,
        reasoning: 0,
        total: 0,
        cost: None,
    };

    /// One token of each kind.
    const ONE_TOKEN: [TokenUsage; 5] = [
        TokenUsage { input: 1, ..NOTHING },
        TokenUsage {
            cached_read: 1,
            ..NOTHING
        },
        TokenUsage {
            cached_write: 1,
            ..NOTHING
        },
        TokenUsage { output: 1, ..NOTHING },
        TokenUsage {
            reasoning: 1,
            ..NOTHING
        },
    ];

    fn any_prices() -> impl Strategy<Value = Prices> {
        let price = || (0..100_u64).prop_map(Price);
        (
            proptest::array::uniform2(price()),
            proptest::array::uniform3(proptest::option::of(price())),
        )
            .prop_map(|([input, output], [cached_read, cached_write, reasoning])| Prices {
                currency: Currency::default(),
                input,
                cached_read,
                cached_write,
                output,
                reasoning,
            })
    }

    #[test]
    fn a_token_kind_without_a_price_costs_as_its_parent_kind() {
        let prices = prices(json!({"input": 2, "output": 7, "currency": "EUR"})).unwrap();
        let spent = TokenUsage {
            cached_read: 1_000_000,
            cached_write: 1_000_000,
            reasoning: 1_000_000,
            ..TokenUsage::default()
        };
        let cost = prices.of(&spent);
        assert_eq!((cost.amount(), cost.currency.to_string().as_str()), (11.0, "EUR"));
    }

    #[test]
    fn invalid_prices_are_refused_with_the_reason() {
        for (wrong, part) in [
            (json!({"input": 1}), "output"),
            (json!({"input": -1, "output": 1}), "-1 is no price"),
            (json!({"input": 1e9, "output": 1}), "is no price"),
            (json!({"input": 1, "output": 1, "cached": 1}), "cached"),
            (
                json!({"input": 1, "output": 1, "currency": "euro"}),
                "three capital letters",
            ),
        ] {
            let message = prices(wrong.clone()).unwrap_err();
            assert!(message.contains(part), "{wrong}: {message}");
        }
    }
}
