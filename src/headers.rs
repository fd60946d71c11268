//! Headers of a request, from a config file and from environment variables.

use std::collections::BTreeMap;

use pirn_core::definition::shown_variable_name;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Returns the headers of `headers`, then those of `headersEnv`. All are marked as sensitive, so that they are not displayed.
///
/// # Errors
/// A sentence with the name of the header, or of the variable that is not set; never a value.
pub(crate) fn of_request(
    written: &BTreeMap<String, String>,
    from_environment: &BTreeMap<String, String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::with_capacity(written.len() + from_environment.len());
    for (name, value) in written {
        headers.push(header(name, value)?);
    }
    for (name, source) in from_environment {
        let value = expanded(source, &variable).map_err(|fault| format!("header `{name}`: {fault}"))?;
        headers.push(header(name, &value)?);
    }
    Ok(headers)
}

/// Adds `Idempotency-Key`, which identifies an effect and is equal in all of its attempts. A configured header is not replaced.
pub(crate) fn add_idempotency_key(headers: &mut HeaderMap, key: Option<String>) {
    if let Some(key) = key
        && let Ok(value) = HeaderValue::try_from(key)
    {
        headers.entry("idempotency-key").or_insert(value);
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let key: HeaderName = name.parse().map_err(|_| format!("`{name}` is no name of a header"))?;
    let mut value: HeaderValue = value
        .parse()
        .map_err(|_| format!("the value of the header `{name}` has characters that a header can not have"))?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// Expands a `headersEnv` entry: `NAME`, or text that contains `${NAME}`.
///
/// # Errors
/// A sentence with the name of the variable that is not set; never a value.
fn expanded(source: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let value_of = |name: &str| {
        let unset = || format!("the environment variable {} is not set", shown_variable_name(name));
        lookup(name).ok_or_else(unset)
    };
    if !source.contains("${") {
        return value_of(source);
    }
    let mut text = String::new();
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("${") {
        let (name, after) = tag.split_once('}').ok_or("a `${` has no `}`")?;
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
    fn a_header_is_a_variable_or_a_text_with_variables() {
        let lookup = |name: &str| (name == "TOKEN").then(|| "t0p".to_owned());
        assert_eq!(expanded("TOKEN", lookup).as_deref(), Ok("t0p"));
        assert_eq!(expanded("Bearer ${TOKEN}!", lookup).as_deref(), Ok("Bearer t0p!"));
        for source in ["OTHER", "Bearer ${OTHER}"] {
            assert!(expanded(source, lookup).unwrap_err().contains(" OTHER "));
        }
        assert!(expanded("${TOKEN", lookup).is_err());
    }
}
