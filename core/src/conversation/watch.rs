//! The moments at which TOKEN_LIMIT_EXCEEDED, TOKEN_USAGE_WARNING and TOKEN_LIMIT_APPROACHED fire.
//!
//! | what happens | limit armed | warning armed | early armed |
//! |---|---|---|---|
//! | model call, context above the limit | fires once, disarmed | disarmed | disarmed |
//! | model call, context from 80 % to the limit | armed again | fires once, disarmed | |
//! | model call, context from the early share to the limit | armed again | | fires once, disarmed |
//! | context seen at or below the limit | armed again | | |
//! | context seen below 80 % | armed again | armed again | |
//! | context seen below the early share | armed again | | armed again |
//! | a compression has ended | armed again | armed again | |
//!
//! A compression that began early and did not bring the context below its share is not begun early again: it would not help
//! the second time either. The limit comes next.

use serde::{Deserialize, Serialize};

/// The token limit of a thread's requests, and the share of it at which a compression begins early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenLimit {
    /// The limit, in tokens of context; none: nothing ever fires (also inside what a token event started).
    pub tokens: Option<u64>,
    /// Above 0 and below 1; none: nothing begins early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculative_at: Option<f64>,
}

impl From<Option<u64>> for TokenLimit {
    fn from(tokens: Option<u64>) -> Self {
        Self {
            tokens,
            speculative_at: None,
        }
    }
}

impl TokenLimit {
    /// The least context at which a compression begins early.
    fn early(self) -> Option<u64> {
        let (tokens, share) = (self.tokens?, self.speculative_at?);
        Some((tokens as f64 * share).ceil() as u64)
    }
}

/// Fires each event once per crossing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenWatch {
    limit: Option<u64>,
    limit_armed: bool,
    warning_armed: bool,
    #[serde(default)]
    early_armed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speculative_at: Option<f64>,
}

/// The signal that a model call about to be made sets off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenSignal {
    /// TOKEN_LIMIT_EXCEEDED.
    Exceeded {
        /// Tokens of the request.
        tokens_used: u64,
        /// The token limit.
        token_limit: u64,
    },
    /// TOKEN_USAGE_WARNING.
    Warning {
        /// Tokens of the request.
        tokens_used: u64,
        /// The token limit.
        token_limit: u64,
    },
    /// TOKEN_LIMIT_APPROACHED.
    Approached {
        /// Tokens of the request.
        tokens_used: u64,
        /// The token limit.
        token_limit: u64,
    },
}

impl TokenWatch {
    /// A watch that is armed.
    pub fn new(limit: TokenLimit) -> Self {
        Self {
            limit: limit.tokens,
            limit_armed: true,
            warning_armed: true,
            early_armed: true,
            speculative_at: limit.speculative_at,
        }
    }

    /// The limit.
    pub fn limit(&self) -> TokenLimit {
        TokenLimit {
            tokens: self.limit,
            speculative_at: self.speculative_at,
        }
    }

    /// A model call of `tokens` of context is about to be made.
    pub fn before_model_call(&mut self, tokens: u64) -> impl Iterator<Item = TokenSignal> + use<> {
        self.crossed(tokens).into_iter().flatten()
    }

    fn crossed(&mut self, tokens: u64) -> [Option<TokenSignal>; 2] {
        self.observe(tokens);
        let Some(token_limit) = self.limit else {
            return [None; 2];
        };
        let tokens_used = tokens;
        if tokens > token_limit {
            self.warning_armed = false;
            self.early_armed = false;
            let fires = std::mem::replace(&mut self.limit_armed, false);
            let exceeded = TokenSignal::Exceeded {
                tokens_used,
                token_limit,
            };
            return [fires.then_some(exceeded), None];
        }
        let is_early = tokens > 0 && self.limit().early().is_some_and(|early| tokens >= early);
        let approaches = is_early && std::mem::replace(&mut self.early_armed, false);
        let warns = is_near(tokens, token_limit) && std::mem::replace(&mut self.warning_armed, false);
        [
            approaches.then_some(TokenSignal::Approached {
                tokens_used,
                token_limit,
            }),
            warns.then_some(TokenSignal::Warning {
                tokens_used,
                token_limit,
            }),
        ]
    }

    /// The context is `tokens` now; nothing fires, but what it is below again is armed again.
    pub fn observe(&mut self, tokens: u64) {
        if let Some(limit) = self.limit {
            self.limit_armed |= tokens <= limit;
            self.warning_armed |= !is_near(tokens, limit);
        }
        self.early_armed |= self.limit().early().is_some_and(|early| tokens < early);
    }

    /// A compression has ended, well or not.
    pub fn compression_ended(&mut self) {
        self.limit_armed = true;
        self.warning_armed = true;
    }
}

/// True if `tokens` is 80 % of the limit or more.
fn is_near(tokens: u64, limit: u64) -> bool {
    tokens > 0 && u128::from(tokens) * 5 >= u128::from(limit) * 4
}
