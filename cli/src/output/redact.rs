//! Masking of secrets in output: a line of a file that is shown may contain a key by mistake.

use std::borrow::Cow;
use std::sync::{LazyLock, PoisonError, RwLock};

use pirn_definition::definition::{misplaced_secrets, variable_name_fault};
use regex::{Captures, Regex};
use serde_json::Value;

/// Matches values of fields that are named like keys, user info in URLs, bearer tokens, and the key prefixes of large providers.
/// The named groups contain the part to hide.
static KEYS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"(?i)\b(?:[a-z0-9_-]*api[_-]?key|[a-z_-]*secret|password|passwd|access[_-]?token|auth[_-]?token|x-api-key)"#,
        r#"\\?["']?\s*(?::\s*\\?["']|=\s*\\?["']?)(?P<a>[^"'\s,}\\]+)"#,
        r#"|[a-z][a-z0-9+.-]*://(?P<b>[^/@\s"']+)@"#,
        r#"|\bbearer\s+(?P<c>[a-z0-9._~+/=-]{8,})"#,
        r#"|\b(?P<d>(?:sk|pk|rk|xai|gsk|hf|ghp|gho)[-_][a-z0-9_-]{8,})"#,
        r#"|\b(?P<e>AIza[a-z0-9_-]{20,})"#,
        r#"|\b(?:api_?key|client_?secret)_?env\\?["']?\s*[:=]\s*\\?["'](?P<f>[^"'\\]+)"#,
    ))
    .ok()
});

/// Values found in files at fields for names of environment variables, but which are not such names: probably secrets.
static MISPLACED: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Masks, in all later output, values that a file has at fields for names of environment variables and that are not such names.
pub(crate) fn hide_misplaced(file: &Value) {
    let found = misplaced_secrets(file);
    if !found.is_empty() {
        let mut hidden = MISPLACED.write().unwrap_or_else(PoisonError::into_inner);
        hidden.extend(found.into_iter().filter(|text| !text.is_empty()).map(str::to_owned));
        // Replace longer values first: a shorter one may be a part of a longer one.
        hidden.sort_by_key(|text| std::cmp::Reverse(text.len()));
    }
}

/// Masks the misplaced values in the text of a workflow file, as [`hide_misplaced`] does.
pub(crate) fn hide_misplaced_in(text: &str) {
    if ["Env\"", "apiKeyEnvs", "api_key_env"]
        .iter()
        .any(|name| text.contains(name))
        && let Ok(file) = serde_json::from_str(text)
    {
        hide_misplaced(&file);
    }
}

/// Replaces every key in the text by asterisks of equal length in bytes, so that positions in the text stay valid.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    let Some(keys) = KEYS.as_ref() else {
        return Cow::Borrowed(text);
    };
    let mut text = Cow::Borrowed(text);
    for secret in MISPLACED.read().unwrap_or_else(PoisonError::into_inner).iter() {
        if text.contains(secret.as_str()) {
            text = Cow::Owned(text.replace(secret.as_str(), &"*".repeat(secret.len())));
        }
    }
    let masked = keys.replace_all(&text, |found: &Captures<'_>| {
        let whole = &found[0];
        let key = ["a", "b", "c", "d", "e"].iter().find_map(|name| found.name(name));
        let misplaced = || {
            found
                .name("f")
                .filter(|name| variable_name_fault(name.as_str()).is_some())
        };
        let Some(key) = key.or_else(misplaced) else {
            return whole.to_owned();
        };
        let start = key.start() - found.get(0).map_or(0, |all| all.start());
        let (before, rest) = whole.split_at(start);
        format!("{before}{}{}", "*".repeat(key.len()), &rest[key.len()..])
    });
    match masked {
        Cow::Borrowed(_) => text,
        Cow::Owned(masked) => Cow::Owned(masked),
    }
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn keys_are_masked_without_moving_the_rest_of_the_line() {
        for (text, shown) in [
            (r#"{"apiKey": "abc", "id": 1}"#, r#"{"apiKey": "***", "id": 1}"#),
            ("api_key = 'abc'", "api_key = '***'"),
            ("OPENAI_API_KEY=abcd next", "OPENAI_API_KEY=**** next"),
            ("https://me:pw@host/x", "https://*****@host/x"),
            ("Authorization: Bearer abcdefgh", "Authorization: Bearer ********"),
            ("the key sk-12345678 is wrong", "the key *********** is wrong"),
            ("apiKeyEnv = 'a key'", "apiKeyEnv = '*****'"),
        ] {
            assert_eq!(masked(text), shown);
        }
        for text in [
            r#"apiKeyEnv = "OPENAI_API_KEY""#,
            r#""tokenLimit": 100"#,
            "https://host/a@b",
            "task-12345678-of-many",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
