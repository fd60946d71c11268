//! The moments at which TOKEN_LIMIT_EXCEEDED and TOKEN_USAGE_WARNING fire.
//!
//! | what happens | limit armed | warning armed |
//! |---|---|---|
//! | model call, context above the limit | fires once, disarmed | disarmed |
//! | model call, context from 80 % to the limit | armed again | fires once, disarmed |
//! | context seen at or below the limit | armed again | |
//! | context seen below 80 % | armed again | armed again |
//! | a compression has ended | armed again | armed again |

use serde::{Deserialize, Serialize};

/// Fires each event once per crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenWatch {
    limit: Option<u64>,
    limit_armed: bool,
    warning_armed: bool,
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
}

impl TokenWatch {
    /// A watch that is armed. No limit: it never fires (also inside what a token event started).
    pub fn new(limit: Option<u64>) -> Self {
        Self {
            limit,
            limit_armed: true,
            warning_armed: true,
        }
    }

    /// The limit, in tokens of context.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// A model call of `tokens` of context is about to be made.
    pub fn before_model_call(&mut self, tokens: u64) -> Option<TokenSignal> {
        self.observe(tokens);
        let token_limit = self.limit?;
        if tokens > token_limit {
            self.warning_armed = false;
            let fires = std::mem::replace(&mut self.limit_armed, false);
            return fires.then_some(TokenSignal::Exceeded {
                tokens_used: tokens,
                token_limit,
            });
        }
        if is_near(tokens, token_limit) {
            let fires = std::mem::replace(&mut self.warning_armed, false);
            return fires.then_some(TokenSignal::Warning {
                tokens_used: tokens,
                token_limit,
            });
        }
        None
    }

    /// The context is `tokens` now; nothing fires, but what it is below again is armed again.
    pub fn observe(&mut self, tokens: u64) {
        if let Some(limit) = self.limit {
            self.limit_armed |= tokens <= limit;
            self.warning_armed |= !is_near(tokens, limit);
        }
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
