//! A provider's API key: read when it is needed, and never displayed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pirn_actors::ports::ModelCall;
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_definition::definition::shown_variable_name;
use pirn_definition::error::RunError;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use crate::ChooseKey;
use crate::headers::{Secrets, begun};

/// Minimum length of a secret that is removed from replies: placeholder keys of local servers are words.
const LEAST_IN_REPLIES: usize = 16;

/// Looks up a key by the name of an environment variable.
pub(super) type KeySource = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Reads keys from the process's environment.
pub(super) fn from_environment() -> KeySource {
    Arc::new(|name| std::env::var(name).ok())
}

/// Sources of a call's key.
pub(super) struct Keys {
    /// Environment variable for calls whose metadata selects none.
    pub(super) variable: Option<String>,
    pub(super) by: Option<KeysBy>,
    pub(super) variables: KeySource,
    pub(super) choose: Option<Arc<ChooseKey>>,
}

/// Environment variables selected by an entry of the run's metadata: `{by = "tenant", names = {acme = "ACME_KEY"}}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysBy {
    by: String,
    pub(super) names: BTreeMap<String, String>,
}

impl Keys {
    /// Returns the key of a call: the one chosen by the program, else the one selected by the run's metadata, else the profile's.
    ///
    /// # Errors
    /// Fails if there is no key.
    pub(super) fn of(&self, call: &ModelCall) -> Result<Key, RunError> {
        let failed = |message: String| Err(ModelFailure::new(FailureKind::Key).into_error(message));
        let chosen = self
            .choose
            .as_ref()
            .and_then(|choose| choose(&call.profile, &call.context));
        if let Some(key) = chosen.as_deref().and_then(Key::read) {
            return Ok(key);
        }
        let chooser = self.by.as_ref().map(|by| (by, call.context.metadata.get(&by.by)));
        let own = chooser.and_then(|(by, value)| by.names.get(&name_of(value?)));
        let Some(variable) = own.or(self.variable.as_ref()) else {
            return match chooser {
                None => Ok(Key::none()),
                Some((by, Some(value))) => failed(format!(
                    "there is no key for {} {value}: `apiKeyEnvs` does not name it, and there is no `apiKeyEnv`",
                    by.by
                )),
                Some((by, None)) => failed(format!(
                    "the run's metadata has no `{}` to choose the key by, and there is no `apiKeyEnv`",
                    by.by
                )),
            };
        };
        match (self.variables)(variable).as_deref().and_then(Key::read) {
            Some(key) => Ok(key),
            None => failed(format!(
                "the environment variable {} with the key is not set",
                shown_variable_name(variable)
            )),
        }
    }
}

/// Returns the name for a metadata value: a tenant may be a number.
fn name_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A key. `Debug` output and errors do not contain it.
#[derive(Clone)]
pub(super) struct Key {
    text: Option<String>,
    /// Other secrets that the request contains.
    others: Secrets,
}

impl Key {
    /// Returns an empty key, for a provider that requires none.
    pub(super) fn none() -> Self {
        Self {
            text: None,
            others: Secrets::default(),
        }
    }

    /// Parses a key; surrounding whitespace (such as a file's last line end) is removed.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self {
            text: Some(text.to_owned()),
            others: Secrets::default(),
        })
    }

    /// Adds the values of headers from the environment, which are also secret: a gateway may expect its key there.
    pub(super) fn and<'a>(mut self, headers: impl Iterator<Item = &'a HeaderValue>) -> Self {
        self.others = Secrets::of(headers);
        self
    }

    /// Returns the key itself, for the request.
    pub(super) fn expose(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Removes the key from `text`: providers quote it in error messages.
    pub(super) fn redact(&self, text: &str) -> String {
        let text = match &self.text {
            Some(key) => text.replace(key.as_str(), "***"),
            None => text.to_owned(),
        };
        self.others.redact(text)
    }
}

/// Removes secrets from replies: a provider or gateway that quotes its request returns the key.
impl Key {
    fn of_replies(&self) -> impl Iterator<Item = &str> {
        let all = self.text.as_deref().into_iter().chain(self.others.iter());
        all.filter(|secret| secret.len() >= LEAST_IN_REPLIES)
    }

    /// Replaces each secret in `text` from the byte `from` on.
    pub(super) fn hide_from(&self, text: &mut String, from: usize) {
        for secret in self.of_replies() {
            while let Some(at) = text.get(from..).and_then(|new| new.find(secret)) {
                text.replace_range(from + at..from + at + secret.len(), "***");
            }
        }
    }

    /// Replaces each secret in the strings and the field names of `value`.
    pub(super) fn hide_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.hide_from(text, 0),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in(item)),
            Value::Object(fields) => {
                let is_shown = |name: &String| self.of_replies().any(|secret| name.contains(secret));
                if fields.keys().any(is_shown) {
                    let renamed = std::mem::take(fields).into_iter().map(|(mut name, value)| {
                        self.hide_from(&mut name, 0);
                        (name, value)
                    });
                    *fields = renamed.collect();
                }
                fields.values_mut().for_each(|value| self.hide_in(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns the number of bytes at the end of `text` that may be the beginning of a secret.
    pub(super) fn begun_in(&self, text: &str) -> usize {
        self.of_replies().map(|secret| begun(secret, text)).max().unwrap_or(0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.text.is_some() { "Key(***)" } else { "Key(none)" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_masked_in_every_part_of_a_reply() {
        let key = Key::read("sk-0123456789abcdef").expect("it is one");
        let mut value = json!({"a": ["my sk-0123456789abcdef", 1], "sk-0123456789abcdef": null});
        key.hide_in(&mut value);
        assert_eq!(value, json!({"a": ["my ***", 1], "***": null}));
        for (text, begun) in [
            ("ask", 2),
            ("sk-0123", 7),
            ("sk-0124", 0),
            ("s s", 1),
            ("", 0),
            ("é", 0),
        ] {
            assert_eq!(key.begun_in(text), begun, "{text}");
        }
        let short = Key::read("lm-studio").expect("it is one");
        let mut text = "lm-studio".to_owned();
        short.hide_from(&mut text, 0);
        assert_eq!((text.as_str(), short.begun_in("lm")), ("lm-studio", 0));
    }

    #[test]
    fn a_key_is_absent_from_debug_output_and_error_text() {
        let key = Key::read(" sk-123\n").expect("it is one");
        assert_eq!(key.expose(), Some("sk-123"));
        assert!(!format!("{key:?} {key:#?}").contains("sk-123"));
        assert_eq!(key.redact("bad key sk-123, sk-123"), "bad key ***, ***");
        assert!(Key::read(" \n").is_none());
        assert_eq!(Key::none().redact("as it is"), "as it is");
        let gateway = [
            HeaderValue::from_static("Bearer gw-12345678"),
            HeaderValue::from_static("v1"),
        ];
        let both = key.and(gateway.iter());
        assert_eq!(both.redact("Bearer v1 gw-12345678 sk-123"), "Bearer v1 *** ***");
    }
}
