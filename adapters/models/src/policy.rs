//! Call settings of a profile, for every provider: `timeouts`, `retry`, `limits`, `fallback`, `prices`.

use pirn_conversation::model_call::{GateLimits, Prices, RetryRule};
use pirn_definition::Millis;
use pirn_definition::definition::{Profile, json_from_value, nearest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ProfileFault;

/// Names of the fields that this file reads from a profile.
const FIELDS: [&str; 5] = ["timeouts", "retry", "limits", "fallback", "prices"];

/// Names of `endpoint` in other systems.
const ENDPOINTS: [&str; 6] = ["baseUrl", "baseURL", "base_url", "host", "server", "url"];

/// Names of a number of attempts in other systems.
const RETRIES: [&str; 4] = ["maxAttempts", "maxRetries", "max_retries", "retries"];

/// Names of parameters of models, which belong into `parameters`.
const PARAMETERS: [&str; 12] = [
    "temperature",
    "topP",
    "top_p",
    "topK",
    "top_k",
    "maxTokens",
    "max_tokens",
    "seed",
    "stop",
    "reasoningEffort",
    "reasoning_effort",
    "toolChoice",
];

/// Returns faults for the profile's fields that neither this file nor its model, which reads `own`, recognizes.
pub(super) fn unknown_fields(profile: &Profile, own: &[&str]) -> Vec<ProfileFault> {
    let known = || {
        let common = [
            "model",
            "endpoint",
            "apiKeyEnv",
            "parameters",
            "tokenLimit",
            "tokenizer",
        ];
        own.iter().copied().chain(FIELDS).chain(common)
    };
    let unknown = profile
        .rest
        .keys()
        .filter(|name| !known().any(|known| known == name.as_str()));
    let fault = |name: &String| {
        let meant = match nearest(name, known()) {
            _ if PARAMETERS.contains(&name.as_str()) => {
                format!("write it into `parameters`: parameters = {{ {name} = ... }}")
            }
            _ if ENDPOINTS.contains(&name.as_str()) => "did you mean `endpoint`?".to_owned(),
            _ if RETRIES.contains(&name.as_str()) => "write `retry = { maxAttempts = 3 }`".to_owned(),
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("`{}` has {}", profile.provider, known().collect::<Vec<_>>().join(", ")),
        };
        ProfileFault::new(
            profile.id.as_str(),
            format!("/{name}"),
            format!("unknown field; {meant}"),
        )
    };
    unknown.map(fault).collect()
}

/// The call settings of a profile.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallPolicy {
    pub(super) timeouts: Timeouts,
    pub(super) retry: RetryRule,
    pub(super) limits: GateLimits,
    /// Fallback profiles, in order.
    pub(super) fallback: Vec<String>,
    /// Prices to report costs; they do not affect calls.
    pub(super) prices: Option<Prices>,
}

/// Time limits in milliseconds; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeouts {
    /// Limit on the connection.
    pub(super) connect: Option<Millis>,
    /// Limit from the request to the first piece of the reply.
    pub(super) first_token: Option<Millis>,
    /// Limit between two pieces.
    pub(super) idle: Option<Millis>,
    /// Limit on all work of this profile for one call: waiting for the limiter, attempts, delays.
    pub(super) total: Option<Millis>,
}

impl CallPolicy {
    /// Reads a profile. By default, a network provider gets three attempts and timeouts; a local model gets neither.
    ///
    /// # Errors
    /// All faults in these fields.
    pub(super) fn read(profile: &Profile, is_remote: bool) -> Result<Self, Vec<ProfileFault>> {
        let mut faults = Vec::new();
        let timeouts: WrittenTimeouts = part(profile, "timeouts", &mut faults);
        let retry: WrittenRetry = part(profile, "retry", &mut faults);
        let limits: WrittenLimits = part(profile, "limits", &mut faults);
        let fallback: Vec<String> = part(profile, "fallback", &mut faults);
        let prices: Option<Prices> = part(profile, "prices", &mut faults);

        let mut fault = |pointer: &str, message: &str| {
            faults.push(ProfileFault::new(profile.id.as_str(), pointer, message));
        };
        if retry.max_attempts == Some(0) {
            fault("/retry/maxAttempts", "must be at least 1");
        }
        if retry.backoff.is_some_and(|factor| !factor.is_finite() || factor < 1.0) {
            fault("/retry/backoff", "must be at least 1");
        }
        if limits.requests_at_once == Some(0) {
            fault("/limits/requestsAtOnce", "must be at least 1");
        }
        if limits.requests_per_minute == Some(0) {
            fault("/limits/requestsPerMinute", "must be at least 1");
        }
        if limits.tokens_per_minute == Some(0) {
            fault("/limits/tokensPerMinute", "must be at least 1");
        }
        if fallback.contains(&profile.id) {
            fault(
                "/fallback",
                "a profile cannot be its own fallback: remove it from the list",
            );
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            timeouts: timeouts.or_default(is_remote),
            retry: retry.or_default(is_remote),
            limits: GateLimits {
                requests_at_once: limits.requests_at_once,
                requests_per_minute: limits.requests_per_minute,
                tokens_per_minute: limits.tokens_per_minute,
            },
            fallback,
            prices,
        })
    }

    /// Returns a policy without any settings.
    pub(super) fn plain() -> Self {
        Self {
            timeouts: Timeouts::default(),
            retry: RetryRule::ONCE,
            limits: GateLimits::default(),
            fallback: Vec::new(),
            prices: None,
        }
    }

    /// Returns whether the policy has no settings: no limits, retries or timeouts.
    pub(super) fn is_plain(&self) -> bool {
        self.retry.max_attempts <= 1
            && self.timeouts.total.is_none()
            && self.limits.is_none()
            && self.fallback.is_empty()
    }
}

/// Reads one field of the profile; the default if it is absent or wrong.
fn part<T: Default + DeserializeOwned>(profile: &Profile, name: &str, faults: &mut Vec<ProfileFault>) -> T {
    match profile.rest.get(name) {
        None | Some(Value::Null) => T::default(),
        Some(value) => json_from_value(value.clone()).unwrap_or_else(|error| {
            let pointer = format!("/{name}{}", error.pointer().unwrap_or_default());
            faults.push(ProfileFault::new(profile.id.as_str(), pointer, error.message()));
            T::default()
        }),
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTimeouts {
    #[serde(rename = "connectMs")]
    connect: Option<Millis>,
    #[serde(rename = "firstTokenMs")]
    first_token: Option<Millis>,
    #[serde(rename = "idleMs")]
    idle: Option<Millis>,
    #[serde(rename = "totalMs")]
    total: Option<Millis>,
}

impl WrittenTimeouts {
    /// Applies defaults; 0 means no limit.
    fn or_default(self, is_remote: bool) -> Timeouts {
        let read = |written: Option<Millis>, default: Millis| match written {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => is_remote.then_some(default),
        };
        Timeouts {
            connect: read(self.connect, 10_000),
            first_token: read(self.first_token, 120_000),
            idle: read(self.idle, 60_000),
            total: read(self.total, 600_000),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenRetry {
    max_attempts: Option<u32>,
    initial_delay_ms: Option<Millis>,
    backoff: Option<f64>,
    max_delay_ms: Option<Millis>,
}

impl WrittenRetry {
    fn or_default(self, is_remote: bool) -> RetryRule {
        let default = RetryRule::ONCE;
        RetryRule {
            max_attempts: self.max_attempts.unwrap_or(if is_remote { 3 } else { 1 }),
            initial_delay: self.initial_delay_ms.unwrap_or(default.initial_delay),
            backoff: self.backoff.unwrap_or(default.backoff),
            max_delay: self.max_delay_ms.unwrap_or(default.max_delay),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenLimits {
    requests_at_once: Option<usize>,
    requests_per_minute: Option<usize>,
    tokens_per_minute: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profile(rest: &Value) -> Profile {
        let mut profile = json!({"id": "p", "provider": "x"});
        profile
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        Profile::deserialize(profile).unwrap()
    }

    #[test]
    fn only_a_remote_model_has_default_retries_and_timeouts() {
        let near = CallPolicy::read(&profile(&json!({})), false).unwrap();
        assert!(near.is_plain());
        let far = CallPolicy::read(&profile(&json!({})), true).unwrap();
        assert!(!far.is_plain());
        assert_eq!(far.retry.max_attempts, 3);
        assert!(far.timeouts.connect.is_some() && far.timeouts.total.is_some());
    }

    #[test]
    fn a_given_value_overrides_the_default_and_zero_means_no_limit() {
        let written = json!({
            "timeouts": {"idleMs": 5, "totalMs": 0},
            "retry": {"maxAttempts": 7, "maxDelayMs": 9},
            "limits": {"requestsAtOnce": 2, "tokensPerMinute": 50},
            "fallback": ["a", "b"],
        });
        let policy = CallPolicy::read(&profile(&written), true).unwrap();
        assert_eq!((policy.timeouts.idle, policy.timeouts.total), (Some(5), None));
        assert_eq!((policy.retry.max_attempts, policy.retry.max_delay), (7, 9));
        assert_eq!(policy.limits.requests_at_once, Some(2));
        assert_eq!(policy.fallback, ["a", "b"]);
    }

    #[test]
    fn every_fault_of_a_policy_is_reported_with_its_location() {
        let wrong = json!({
            "timeouts": {"idle": 5},
            "retry": {"maxAttempts": 0, "backoff": 0.5},
            "limits": {"requestsAtOnce": 0, "requestsPerMinute": 0, "tokensPerMinute": 0},
            "fallback": ["p"],
        });
        let faults = CallPolicy::read(&profile(&wrong), true).unwrap_err();
        let places: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        let expected = [
            "/timeouts/idle",
            "/retry/maxAttempts",
            "/retry/backoff",
            "/limits/requestsAtOnce",
            "/limits/requestsPerMinute",
            "/limits/tokensPerMinute",
            "/fallback",
        ];
        assert_eq!(places, expected);
        assert!(faults[0].message.contains("idleMs"), "{}", faults[0]);
    }
}
