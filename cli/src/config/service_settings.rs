//! The section `[service]` of a config file.

use std::time::Duration;

use pirn_service::{Access, InvalidOption, TenantLimits};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The settings. Every command checks all of them, also a command that uses none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ServiceSettings {
    pub(crate) jwt: Option<JwtSettings>,
    #[serde(default)]
    pub(crate) tenant_limits: TenantLimits,
    #[serde(default, deserialize_with = "written_age")]
    pub(crate) keep_ended: Option<Duration>,
    #[serde(default, deserialize_with = "written_age")]
    pub(crate) keep_events: Option<Duration>,
    #[serde(default, deserialize_with = "written_url")]
    pub(crate) advertise: Option<String>,
}

/// Checks the URL at which other services reach a service.
pub(crate) fn advertised_url(text: &str) -> Result<String, InvalidOption> {
    Access::advertised_host(text).map(|_| text.to_owned())
}

fn written_url<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(from)?;
    advertised_url(&text).map(Some).map_err(D::Error::custom)
}

fn written_age<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    age(&text).map(Some).map_err(D::Error::custom)
}

/// The identity provider; see [`JwtOptions`](pirn_service::JwtOptions).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct JwtSettings {
    pub(crate) issuer: Option<String>,
    #[serde(default)]
    pub(crate) audience: Words,
    pub(crate) jwks: Option<String>,
    pub(crate) roles_claim: Option<String>,
    #[serde(default)]
    pub(crate) default_roles: Vec<String>,
    pub(crate) tenant_claim: Option<String>,
}

/// A word, or a list of words.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Words {
    One(String),
    Several(Vec<String>),
}

impl Default for Words {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

/// Parses an age, such as `7d`.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number and s, m, h or d, as in 7d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn unknown_settings_of_a_service_are_refused() {
        let read = |json: Value| ServiceSettings::deserialize(&json).map(drop);
        let full = serde_json::json!({"jwt": {"issuer": "https://a.example", "audience": "pirn", "rolesClaim": "scope",
            "defaultRoles": ["read"], "tenantClaim": "/org/id", "jwks": "https://a.example/keys"}});
        assert!(read(full).is_ok());
        assert!(read(serde_json::json!({"tenantLimits": {"concurrentRuns": 7, "storedBytes": 1}})).is_ok());
        assert!(read(serde_json::json!({"tenantLimits": {"runs": 7}})).is_err());
        assert!(read(serde_json::json!({"jwt": {"audience": ["a", "b"]}})).is_ok());
        assert!(read(serde_json::json!({"jwt": {"issuers": "https://a.example"}})).is_err());
        assert!(read(serde_json::json!({"jwts": {}})).is_err());
        assert!(read(serde_json::json!({"advertise": "http://svc-a:7474"})).is_ok());
        assert!(read(serde_json::json!({"advertise": "svc-a:7474"})).is_err());
    }
}
