//! Headers of a request, from the texts of a config file and from the environment.

use std::collections::BTreeMap;

use reqwest::header::{HeaderName, HeaderValue};

use super::environment;

/// `headers` as they are written, then `headersEnv`. All are marked as secrets, so that nothing shows them.
///
/// # Errors
/// A sentence that names the header, or the variable that is not set; never a value.
pub(super) fn of_request(
    written: &BTreeMap<String, String>,
    from_environment: &BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::with_capacity(written.len() + from_environment.len());
    for (name, value) in written {
        headers.push(header(name, value)?);
    }
    for (name, source) in from_environment {
        let value = environment::expanded(source).map_err(|fault| format!("header `{name}`: {fault}"))?;
        headers.push(header(name, &value)?);
    }
    Ok(headers)
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let key: HeaderName = name.parse().map_err(|_| format!("`{name}` is no name of a header"))?;
    let mut value: HeaderValue = value
        .parse()
        .map_err(|_| format!("the value of the header `{name}` has characters that a header can not have"))?;
    value.set_sensitive(true);
    Ok((key, value))
}
