//! Headers of a request, from a config file and from environment variables.

use std::collections::BTreeMap;

use pirn_definition::definition::shown_variable_name;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Returns the headers of `headers`, then those of `headersEnv`. All are marked as sensitive, so that they are not displayed.
///
/// # Errors
/// [`HeaderError`], which never contains a value.
pub fn build_headers(
    written: &BTreeMap<String, String>,
    from_environment: &BTreeMap<String, String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, HeaderError> {
    let mut headers = Vec::with_capacity(written.len() + from_environment.len());
    for (name, value) in written {
        headers.push(header(name, value)?);
    }
    for (name, source) in from_environment {
        let value = expanded(source, &variable).map_err(|source| HeaderError::Variable {
            header: name.clone(),
            source,
        })?;
        headers.push(header(name, &value)?);
    }
    Ok(headers)
}

/// Reason that a header cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The name contains characters that are not allowed, or is empty.
    #[error("`{header}` is not a header name")]
    Name {
        /// Name of the header.
        header: String,
    },
    /// The value contains characters that are not allowed.
    #[error("the value of the header `{header}` contains characters that are not allowed in a header")]
    Value {
        /// Name of the header.
        header: String,
    },
    /// The value from the environment cannot be built.
    #[error("header `{header}`: {source}")]
    Variable {
        /// Name of the header.
        header: String,
        /// Reason of the failure.
        source: VariableError,
    },
}

/// Reason that an entry of `headersEnv` cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// The environment variable is not set.
    #[error("the environment variable {name} is not set")]
    Unset {
        /// Name of the variable, shortened if it may be a secret.
        name: String,
    },
    /// The text contains `${` without `}`.
    #[error("a `${{` has no `}}`")]
    Unclosed,
}

/// Minimum length of a header value that is treated as a secret: versions and plain words are shorter.
const LEAST_SECRET: usize = 8;

/// Secrets that are sent to a server and removed from its answers.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Takes the secrets from the values of these headers. Scheme names such as `Bearer` are not secret.
    pub fn of<'a>(headers: impl Iterator<Item = &'a HeaderValue>) -> Self {
        let values = headers.filter_map(|value| value.to_str().ok());
        let parts = values.flat_map(|value| value.split_whitespace().filter(|part| part.len() >= LEAST_SECRET));
        let mut secrets: Vec<String> = parts.map(str::to_owned).collect();
        // The longest first: a shorter one may be a part of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    /// Replaces each secret in the text with `***`.
    pub fn redact(&self, mut text: String) -> String {
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "***");
            }
        }
        text
    }

    /// Iterates over the secrets, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the number of bytes at the end of `text` that may be the beginning of a secret.
    pub fn begun_in(&self, text: &str) -> usize {
        self.0.iter().map(|secret| begun(secret, text)).max().unwrap_or(0)
    }

    /// Returns the length of the longest secret in bytes, 0 without any.
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }
}

/// Returns the number of bytes at the end of `text` that are the beginning of `secret`, but not all of it.
pub fn begun(secret: &str, text: &str) -> usize {
    let longest = text.len().min(secret.len().saturating_sub(1));
    let mut lengths = (1..=longest).rev();
    let found = lengths.find(|length| text.as_bytes().ends_with(&secret.as_bytes()[..*length]));
    found
        .filter(|length| text.is_char_boundary(text.len() - length))
        .unwrap_or(0)
}

/// Adds `Idempotency-Key`, which identifies an effect and is equal in all of its attempts. A configured header is not replaced.
pub fn add_idempotency_key(headers: &mut HeaderMap, key: Option<String>) {
    if let Some(key) = key
        && let Ok(value) = HeaderValue::try_from(key)
    {
        headers.entry("idempotency-key").or_insert(value);
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let header = || name.to_owned();
    let key: HeaderName = name.parse().map_err(|_| HeaderError::Name { header: header() })?;
    let value = value.parse().map_err(|_| HeaderError::Value { header: header() });
    let mut value: HeaderValue = value?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// Expands a `headersEnv` entry: `NAME`, or text that contains `${NAME}`.
///
/// # Errors
/// [`VariableError`], which never contains a value.
fn expanded(source: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, VariableError> {
    let value_of = |name: &str| {
        let name_shown = || shown_variable_name(name).to_string();
        lookup(name).ok_or_else(|| VariableError::Unset { name: name_shown() })
    };
    if !source.contains("${") {
        return value_of(source);
    }
    let mut text = String::new();
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("${") {
        let (name, after) = tag.split_once('}').ok_or(VariableError::Unclosed)?;
        text.push_str(before);
        text.push_str(&value_of(name)?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_variable_name_or_a_template_with_variables() {
        let lookup = |name: &str| (name == "TOKEN").then(|| "t0p".to_owned());
        assert_eq!(expanded("TOKEN", lookup).as_deref(), Ok("t0p"));
        assert_eq!(expanded("Bearer ${TOKEN}!", lookup).as_deref(), Ok("Bearer t0p!"));
        for source in ["OTHER", "Bearer ${OTHER}"] {
            assert!(expanded(source, lookup).unwrap_err().to_string().contains(" OTHER "));
        }
        assert!(expanded("${TOKEN", lookup).is_err());
    }
}
