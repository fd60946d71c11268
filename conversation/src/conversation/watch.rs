//! State machine of TOKEN_LIMIT_EXCEEDED, TOKEN_USAGE_WARNING and TOKEN_LIMIT_APPROACHED.
//!
//! Each event has an armed state. The event fires if its condition is met while it is armed, and is then disarmed. So it fires once
//! per crossing of its threshold, not once per model call.
//!
//! | input | limit | warning | early |
//! |---|---|---|---|
//! | model call, context above the limit | fires if armed, disarmed | disarmed | disarmed |
//! | model call, context from 80 % to the limit | rearmed | fires if armed, disarmed | |
//! | model call, context from the early share to the limit | rearmed | | fires if armed, disarmed |
//! | context observed at or below the limit | rearmed | | |
//! | context observed below 80 % | rearmed | rearmed | |
//! | context observed below the early share | rearmed | | rearmed |
//! | compression ended | rearmed | rearmed | |
//! | same call repeated after its firing, context above the limit | | disarmed | disarmed |
//!
//! A repeated call fires no limit event, because the compression of its firing has just acted. The limit stays armed if that
//! compression has ended, and fires at a later call once an attempt may succeed: the messages before the current turn have changed,
//! or the context has grown by a tenth of the limit.
//!
//! The end of a compression does not rearm the early event. If an early compression leaves the context above the early share,
//! another one would not help either. The warning and the limit still fire.

use serde::{Deserialize, Serialize};

/// Divisor of the limit: growth of the context after which a compression is attempted again in the same turn.
const LEAST_GROWTH: u64 = 10;

/// Token limit of a thread's requests, and the share of it at which a compression starts early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenLimit {
    /// Limit in tokens of context. If `None`, no event fires. Runs and threads that a token event started have no limit, so
    /// their requests fire no further token events.
    pub tokens: Option<u64>,
    /// Share of the limit, above 0 and below 1. If `None`, no compression starts early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculative_at: Option<f64>,
}

impl From<Option<u64>> for TokenLimit {
    fn from(tokens: Option<u64>) -> Self {
        Self {
            tokens,
            // A plain number means a limit without early compressions.
            speculative_at: None,
        }
    }
}

impl TokenLimit {
    /// Returns the smallest context, in tokens, at which a compression starts early.
    fn early(self) -> Option<u64> {
        let (tokens, share) = (self.tokens?, self.speculative_at?);
        // Rounded up: the share must be reached.
        Some((tokens as f64 * share).ceil() as u64)
    }
}

/// Context that a compression has left above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Attempt {
    tokens: u64,
    turn_start: u64,
}

/// A model call that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCall {
    /// Tokens of the request.
    pub tokens: u64,
    /// Position of the current turn in the complete history. Read only if the context is above the limit.
    pub turn_start: u64,
    /// True if TOKEN_LIMIT_EXCEEDED was raised for this call, and its request was prepared again afterwards.
    pub is_repeated: bool,
}

/// Armed states of the three token events of a thread. Each event fires once per crossing of its threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenWatch {
    limit: Option<u64>,
    limit_armed: bool,
    warning_armed: bool,
    #[serde(default)]
    early_armed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speculative_at: Option<f64>,
    /// Last compression that left the context above the limit. Boxed, because few threads have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<Box<Attempt>>,
}

/// Event that a pending model call fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenSignal {
    /// TOKEN_LIMIT_EXCEEDED: the context exceeds the limit.
    Exceeded {
        /// Tokens of the request.
        tokens_used: u64,
        /// The token limit.
        token_limit: u64,
    },
    /// TOKEN_USAGE_WARNING: the context is from 80 % of the limit to the limit.
    Warning {
        /// Tokens of the request.
        tokens_used: u64,
        /// The token limit.
        token_limit: u64,
    },
    /// TOKEN_LIMIT_APPROACHED: the context is from the early share to the limit.
    Approached {
        /// Tokens of the request.
        tokens_used: u64,
        /// The token limit.
        token_limit: u64,
    },
}

impl TokenWatch {
    /// Creates a watch with all events armed.
    pub fn new(limit: TokenLimit) -> Self {
        Self {
            limit: limit.tokens,
            limit_armed: true,
            warning_armed: true,
            early_armed: true,
            speculative_at: limit.speculative_at,
            attempt: None,
        }
    }

    /// Returns true if a request of `tokens` exceeds the limit.
    pub fn exceeds(&self, tokens: u64) -> bool {
        self.limit.is_some_and(|limit| tokens > limit)
    }

    /// Returns the limit.
    pub fn limit(&self) -> TokenLimit {
        TokenLimit {
            tokens: self.limit,
            speculative_at: self.speculative_at,
        }
    }

    /// Returns the events that fire before a model call. At most two: TOKEN_LIMIT_EXCEEDED excludes the others.
    pub fn before_model_call(&mut self, call: PendingCall) -> impl Iterator<Item = TokenSignal> + use<> {
        self.crossed(call).into_iter().flatten()
    }

    fn crossed(&mut self, call: PendingCall) -> [Option<TokenSignal>; 2] {
        let tokens = call.tokens;
        // Rearm first, so that a context between two thresholds rearms the upper event and can fire the lower one.
        self.observe(tokens);
        let Some(token_limit) = self.limit else {
            // Nothing can be exceeded without a limit.
            return [None; 2];
        };
        let tokens_used = tokens;
        if tokens > token_limit {
            // The other thresholds are below the limit: their events are redundant until they are rearmed.
            self.warning_armed = false;
            self.early_armed = false;
            let fires = self.fires_limit(call, token_limit);
            let exceeded = TokenSignal::Exceeded {
                tokens_used,
                token_limit,
            };
            return [fires.then_some(exceeded), None];
        }
        // A request without tokens reaches a threshold of 0, but has nothing to compress.
        let is_early = tokens > 0 && self.limit().early().is_some_and(|early| tokens >= early);
        let approaches = is_early && std::mem::replace(&mut self.early_armed, false);
        // `replace` runs only if the condition holds, so that the event stays armed otherwise.
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

    /// Returns true if a call above the limit fires TOKEN_LIMIT_EXCEEDED.
    fn fires_limit(&mut self, call: PendingCall, limit: u64) -> bool {
        let PendingCall { tokens, turn_start, .. } = call;
        if call.is_repeated {
            // Firing again within the call would repeat for ever if no compression helps.
            if self.limit_armed {
                self.attempt = Some(Box::new(Attempt { tokens, turn_start }));
            }
            return false;
        }
        // An equal attempt fails again, and may cost a call of a model.
        let is_useless = self.attempt.as_ref().is_some_and(|last| {
            last.turn_start == turn_start && tokens.saturating_sub(last.tokens) <= limit / LEAST_GROWTH
        });
        if is_useless {
            return false;
        }
        self.attempt = None;
        std::mem::replace(&mut self.limit_armed, false)
    }

    /// Records that the context has `tokens`. Rearms the events whose threshold it does not reach (for the limit: does not exceed).
    /// Fires none.
    pub fn observe(&mut self, tokens: u64) {
        if let Some(limit) = self.limit {
            self.limit_armed |= tokens <= limit;
            if tokens <= limit {
                self.attempt = None;
            }
            self.warning_armed |= !is_near(tokens, limit);
        }
        // Only set, never cleared: an event is disarmed where it fires.
        self.early_armed |= self.limit().early().is_some_and(|early| tokens < early);
    }

    /// Records that a compression ended, successfully or not. Rearms the limit and the warning: if the context is still too large,
    /// the next model call fires them again.
    pub fn compression_ended(&mut self) {
        self.limit_armed = true;
        self.warning_armed = true;
    }
}

/// Returns true if `tokens` is at least 80 % of the limit. Computed with 128-bit integers: exact, without overflow.
fn is_near(tokens: u64, limit: u64) -> bool {
    tokens > 0 && u128::from(tokens) * 5 >= u128::from(limit) * 4
}
