//! Fault injection by configuration: models and tools that fail, stall or answer late, and therefore out of order.
//!
//! Tests seldom exercise a workflow's retries, timeouts and error edges. Injected faults do, and a seed
//! ([`EngineBuilder::simulated`](crate::EngineBuilder::simulated)) reproduces them:
//!
//! ```toml
//! [faults.models]
//! "*" = { fail = 0.1, late = 0.5, lateMs = [50, 2000] }   # every model that is not named
//! slow-one = { stall = 1.0, stallMs = 30000 }              # by profile id
//!
//! [faults.tools]
//! search = { fail = 0.3 }
//! ```
//!
//! ```
//! use pirn::{Engine, faults::Faults};
//! use serde_json::{Value, json};
//! let ask = r#"{"id": "ask", "nodes": [{"id": "s", "type": "START"},
//!     {"id": "llm", "type": "LLM", "config": {"prompt": "hello"}}, {"id": "e", "type": "END"}],
//!   "edges": [{"from": "s", "to": "llm"}, {"from": "llm", "to": "e"}]}"#;
//! let faults: Faults = serde_json::from_value(json!({"models": {"*": {"fail": 1.0}}}))?;
//! let engine = Engine::builder().workflows(ask).simulated(7).faults(faults).build()?;
//! let report = engine.start("ask", Value::Null)?.outcome_blocking();
//! assert_eq!(report.error.as_ref().map(|error| error.code.as_str()), Some("MODEL_ERROR"), "seed 7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dice;
mod inject;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pirn_definition::Millis;
use pirn_definition::definition::json_from_value;
use serde::Deserialize;
use serde_json::Value;

use crate::config::{ConfigError, ConfigText};

pub(crate) use dice::inject_configured;
pub(crate) use inject::{End, Fate, FaultSource, inject};

/// Fault rates by profile id and tool name; `*` applies to names without an entry.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Faults {
    /// Rates by profile id.
    #[serde(default)]
    pub models: BTreeMap<String, Rates>,
    /// Rates by tool name.
    #[serde(default)]
    pub tools: BTreeMap<String, Rates>,
}

/// Probabilities of faults, between 0 and 1. A call either fails or stalls, not both; it may also be late.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rates {
    /// Probability of a failure: `MODEL_ERROR`, or a failed tool result.
    #[serde(default)]
    pub fail: f64,
    /// Probability of no response for `stall_ms`, followed by a failure as of a client timeout.
    #[serde(default)]
    pub stall: f64,
    /// Milliseconds after which a stalled call fails (default ten minutes).
    #[serde(default = "ten_minutes")]
    pub stall_ms: Millis,
    /// Probability of a delay before the call. Calls with different delays complete out of order.
    #[serde(default)]
    pub late: f64,
    /// Minimum and maximum delay in milliseconds (default 0 to 5 seconds).
    #[serde(default = "up_to_five_seconds")]
    pub late_ms: (Millis, Millis),
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            fail: 0.0,
            stall: 0.0,
            stall_ms: ten_minutes(),
            late: 0.0,
            late_ms: up_to_five_seconds(),
        }
    }
}

fn ten_minutes() -> Millis {
    600_000
}

fn up_to_five_seconds() -> (Millis, Millis) {
    (0, 5_000)
}

impl Faults {
    /// Returns whether no faults are configured.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty() && self.tools.is_empty()
    }

    fn check(self) -> Result<Self, String> {
        let named = [("models", &self.models), ("tools", &self.tools)];
        for (kind, rates) in named {
            for (name, rates) in rates {
                for (what, chance) in [("fail", rates.fail), ("stall", rates.stall), ("late", rates.late)] {
                    if !(0.0..=1.0).contains(&chance) {
                        return Err(format!(
                            "faults.{kind}.{name}.{what}: {chance} is no chance between 0 and 1"
                        ));
                    }
                }
                // One number decides between failing and stalling, so both rates share the range from 0 to 1.
                if rates.fail + rates.stall > 1.0 {
                    return Err(format!("faults.{kind}.{name}: fail and stall together are more than 1"));
                }
                if rates.late_ms.0 > rates.late_ms.1 {
                    return Err(format!("faults.{kind}.{name}.lateMs: it goes from less to more"));
                }
            }
        }
        Ok(self)
    }
}

/// Reason why a file's faults cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct FaultsError {
    /// The file.
    pub path: PathBuf,
    /// Description of the error.
    pub message: String,
}

/// Reads `[faults]` of a file, in TOML or JSON by the rules of [`load_profiles`](crate::profiles::load_profiles). Returns no faults
/// if the file has no such section.
///
/// # Errors
/// The file cannot be read, or its faults are invalid.
pub fn load_faults(path: impl AsRef<Path>) -> Result<Faults, FaultsError> {
    let config = ConfigText::read(path).map_err(|error| match error {
        ConfigError::Unreadable { path, error } => FaultsError {
            path,
            message: error.to_string(),
        },
        ConfigError::Malformed { path, message } => FaultsError { path, message },
    })?;
    config.faults()
}

impl ConfigText {
    /// Returns the file's `[faults]`, as [`load_faults`] does.
    ///
    /// # Errors
    /// Like [`load_faults`].
    pub fn faults(&self) -> Result<Faults, FaultsError> {
        faults_of(self.written()).map_err(|message| FaultsError {
            path: self.path().to_owned(),
            message,
        })
    }
}

/// Reads the faults in a parsed file.
fn faults_of(written: &Value) -> Result<Faults, String> {
    match written.get("faults") {
        None => Ok(Faults::default()),
        Some(faults) => json_from_value::<Faults>(faults.clone())
            .map_err(|error| error.sentence("`faults`"))
            .and_then(Faults::check),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(faults: &Value) -> Result<Faults, String> {
        Faults::deserialize(faults)
            .map_err(|error| error.to_string())
            .and_then(Faults::check)
    }

    #[test]
    fn an_invalid_probability_is_refused_with_its_location() {
        for (faults, part) in [
            (json!({"models": {"*": {"fail": 1.5}}}), "faults.models.*.fail"),
            (json!({"tools": {"t": {"stall": -0.1}}}), "faults.tools.t.stall"),
            (json!({"tools": {"t": {"stall": 0.6, "fail": 0.6}}}), "more than 1"),
            (json!({"tools": {"t": {"lateMs": [5, 1]}}}), "lateMs"),
            (json!({"tools": {"t": {"later": 1}}}), "unknown field"),
            (json!({"model": {}}), "unknown field"),
        ] {
            let message = read(&faults).expect_err("refused");
            assert!(message.contains(part), "{faults}: {message}");
        }
        assert!(read(&json!({"models": {"*": {"fail": 1}}})).is_ok());
    }
}
