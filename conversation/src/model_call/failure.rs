//! Kinds of model failures: each kind decides whether the call is retried.

use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::FinishReason;
use crate::conversation::TokenUsage;

/// Why a call of a model failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No connection: refused, unreachable, no such name, bad certificate.
    Unreachable,
    /// The profile names a key's environment variable that is not set, or the provider refused the key (401, 403).
    Key,
    /// The provider limits the rate (429).
    RateLimited,
    /// The provider failed (5xx, or an error event in a stream).
    Provider,
    /// The provider does not accept this request (another 4xx).
    Rejected,
    /// The first token, or the next one, did not arrive in time.
    Stalled,
    /// The time for the whole call is over.
    Late,
    /// The connection ended before the reply did.
    Dropped,
    /// The reply does not follow the protocol.
    Malformed,
    /// The reply does not fit the node's `responseFormat`.
    BadFormat,
    /// The model reported a failure without a kind.
    Unknown,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Unreachable,
        Self::Key,
        Self::RateLimited,
        Self::Provider,
        Self::Rejected,
        Self::Stalled,
        Self::Late,
        Self::Dropped,
        Self::Malformed,
        Self::BadFormat,
        Self::Unknown,
    ];

    /// The word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Key => "key",
            Self::RateLimited => "rate_limited",
            Self::Provider => "provider",
            Self::Rejected => "rejected",
            Self::Stalled => "stalled",
            Self::Late => "late",
            Self::Dropped => "dropped",
            Self::Malformed => "malformed",
            Self::BadFormat => "bad_format",
            Self::Unknown => "unknown",
        }
    }

    /// True if the provider did no work for the call, so it has no cost.
    pub fn costs_nothing(self) -> bool {
        match self {
            Self::Unreachable | Self::Key | Self::RateLimited | Self::Rejected => true,
            Self::Provider
            | Self::Stalled
            | Self::Late
            | Self::Dropped
            | Self::Malformed
            | Self::BadFormat
            | Self::Unknown => false,
        }
    }

    /// True if a retry of the request may succeed.
    pub fn is_passing(self) -> bool {
        match self {
            Self::Unreachable
            | Self::RateLimited
            | Self::Provider
            | Self::Stalled
            | Self::Dropped
            | Self::Malformed
            | Self::Unknown => true,
            Self::Key | Self::Rejected | Self::Late | Self::BadFormat => false,
        }
    }
}

/// A failed call: its kind, and the delay that the provider requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFailure {
    /// Why.
    pub kind: FailureKind,
    /// HTTP status, if there was a response.
    pub status: Option<u16>,
    /// `Retry-After`, milliseconds.
    pub retry_after: Option<Millis>,
    /// Tokens that the provider reported for the failed call, such as a truncated reply or one that does not fit the format.
    pub spent: TokenUsage,
}

impl ModelFailure {
    /// A failure with a kind and no other facts.
    pub fn new(kind: FailureKind) -> Self {
        Self {
            kind,
            status: None,
            retry_after: None,
            spent: TokenUsage::default(),
        }
    }

    /// Returns a `MODEL_ERROR` whose details are `{kind, status?, retryAfterMs?, spent?}`.
    pub fn into_error(self, message: impl Into<String>) -> RunError {
        let mut details = json!({ "kind": self.kind });
        if let Some(status) = self.status {
            details["status"] = json!(status);
        }
        if let Some(after) = self.retry_after {
            details["retryAfterMs"] = json!(after);
        }
        if self.spent != TokenUsage::default() {
            details["spent"] = json!(self.spent);
        }
        RunError::new(RunErrorCode::ModelError, message).with_details(details)
    }

    /// Like [`Self::into_error`], with the `finishReason` of the reply in the details.
    pub fn into_error_ended(self, finish: FinishReason, message: impl Into<String>) -> RunError {
        let mut error = self.into_error(message);
        if let Some(details) = &mut error.details {
            details["finishReason"] = json!(finish);
        }
        error
    }

    /// Reads a failure from an error's details; without a valid kind it is [`FailureKind::Unknown`].
    pub fn of(error: &RunError) -> Self {
        let detail = |name: &str| error.details.as_ref().and_then(|details| details.get(name));
        let kind = detail("kind").and_then(|kind| FailureKind::deserialize(kind).ok());
        Self {
            kind: kind.unwrap_or(FailureKind::Unknown),
            status: detail("status")
                .and_then(Value::as_u64)
                .and_then(|status| u16::try_from(status).ok()),
            retry_after: detail("retryAfterMs").and_then(Value::as_u64),
            spent: detail("spent")
                .and_then(|spent| TokenUsage::deserialize(spent).ok())
                .unwrap_or_default(),
        }
    }

    /// Returns the error of a failed call, with all the tokens that were spent on it.
    #[must_use]
    pub fn spending(mut error: RunError, spent: TokenUsage) -> RunError {
        if spent == TokenUsage::default() {
            return error;
        }
        let mut details = match error.details.take() {
            Some(Value::Object(details)) => details,
            Some(other) => Map::from_iter([("said".to_owned(), other)]),
            None => Map::new(),
        };
        details.insert("spent".to_owned(), json!(spent));
        error.details = Some(Value::Object(details));
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_round_trips_through_its_error() {
        let failure = ModelFailure {
            kind: FailureKind::RateLimited,
            status: Some(429),
            retry_after: Some(2_000),
            spent: TokenUsage::new(5, 1, 6),
        };
        let error = failure.into_error("slow down");
        assert_eq!(ModelFailure::of(&error), failure);
        assert_eq!(error.to_string(), "MODEL_ERROR: slow down");
        let spent = TokenUsage::new(6, 3, 9);
        assert_eq!(
            ModelFailure::of(&ModelFailure::spending(error, spent)),
            ModelFailure { spent, ..failure }
        );
        let bare = RunError::new(RunErrorCode::ModelError, "no");
        assert_eq!(ModelFailure::of(&ModelFailure::spending(bare, spent)).spent, spent);
    }

    #[test]
    fn an_error_without_details_has_an_unknown_kind() {
        let bare = RunError::new(RunErrorCode::ModelError, "no");
        let odd = bare
            .clone()
            .with_details(json!({"kind": 7, "status": "x", "retryAfterMs": -1}));
        for error in [bare, odd] {
            assert_eq!(ModelFailure::of(&error), ModelFailure::new(FailureKind::Unknown));
        }
    }
}
