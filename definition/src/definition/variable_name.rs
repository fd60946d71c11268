//! Names of environment variables for secrets. A secret that was written instead of a name is refused, and messages do not repeat
//! it.

use serde_json::Value;

/// Maximum length of a name, in characters.
const LONGEST: usize = 128;

/// Minimum length at which a word of mixed characters is treated as a secret, in characters.
const LIKE_A_SECRET: usize = 20;

/// Prefixes of the keys of large providers that are also valid in names.
const BEGINNINGS: [&str; 13] = [
    "sk_",
    "pk_",
    "rk_",
    "gsk_",
    "hf_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "xai_",
    "pplx_",
    "AIza",
    "r8_",
];

/// Returns the fault of an invalid environment variable name. The message does not repeat the name, which may be a secret.
pub fn variable_name_fault(name: &str) -> Option<&'static str> {
    let is_of_a_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty() {
        return Some("is empty: expected the name of an environment variable");
    }
    if name.len() > LONGEST || name.starts_with(|first: char| first.is_ascii_digit()) || !name.chars().all(is_of_a_name)
    {
        return Some(
            "is not the name of an environment variable (letters, digits and `_`): store the secret in a variable and write \
             the variable's name here",
        );
    }
    looks_like_a_secret(name).then_some(
        "looks like the secret itself: store it in an environment variable and write the variable's name here, in capitals",
    )
}

/// As [`variable_name_fault`] for a text that may contain `${NAME}`; without `${NAME}` it is a name.
pub fn variable_text_fault(text: &str) -> Option<&'static str> {
    if !text.contains("${") {
        return variable_name_fault(text);
    }
    let mut tags = text.split("${").skip(1);
    tags.find_map(|tag| match tag.split_once('}') {
        Some((name, _)) => variable_name_fault(name),
        None => Some("has a `${` without a closing `}`"),
    })
}

/// Returns the name for a message, or a fixed phrase if the name may be a secret.
pub fn shown_variable_name(name: &str) -> &str {
    let is_conventional = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(is_conventional) {
        name
    } else {
        "(named in the configuration)"
    }
}

/// True for mixed-case words with digits and without `_`, long hexadecimal numbers, and words with a known key prefix.
fn looks_like_a_secret(name: &str) -> bool {
    if BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) {
        return true;
    }
    let has = |wanted: fn(&char) -> bool| name.chars().any(|letter| wanted(&letter));
    let is_mixed = has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit);
    let is_hexadecimal = has(char::is_ascii_digit) && name.chars().all(|letter| letter.is_ascii_hexdigit());
    name.len() >= LIKE_A_SECRET && !name.contains('_') && (is_mixed || is_hexadecimal)
}

/// Returns the values of all fields for environment variable names that are not valid names. They may be secrets and must not be
/// shown.
pub fn misplaced_secrets(file: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut left = vec![file];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "apiKeyEnv" | "api_key_env" | "clientSecretEnv" => found.extend(value.as_str()),
                        "envFrom" => found.extend(value.as_array().into_iter().flatten().filter_map(Value::as_str)),
                        "headersEnv" => found.extend(texts_of(value)),
                        "apiKeyEnvs" => found.extend(value.get("names").into_iter().flat_map(texts_of)),
                        _ => left.push(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found.retain(|text| variable_text_fault(text).is_some());
    found
}

fn texts_of(table: &Value) -> impl Iterator<Item = &str> {
    let fields = table.as_object().into_iter().flatten();
    fields.filter_map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variable_names_are_accepted_and_secrets_are_refused() {
        for name in [
            "OPENAI_API_KEY",
            "_x",
            "my_key",
            "KEY2",
            "Path",
            "openai_key_of_tenant_2",
            "A",
        ] {
            assert_eq!(variable_name_fault(name), None, "{name}");
        }
        for secret in [
            "",
            "sk-abcdefghijklmnopqrstuv",
            "9LIVES",
            "a b",
            "KEY=abc",
            "hf_abcdefghijklmnop",
            "ghp_0123456789",
            "AIzaSyA1234567890",
            "eyJhbGciOiJIUzI1NiJ9.e30.abc",
            "aB3dE6gH9jK2mN5pQ8sT",
            "deadbeef0123456789abcdef",
            &"A".repeat(129),
            "schlüssel",
        ] {
            let fault = variable_name_fault(secret).expect(secret);
            assert!(secret.is_empty() || !fault.contains(secret));
        }
    }

    #[test]
    fn a_template_is_checked_by_the_variable_names_in_it() {
        assert_eq!(variable_text_fault("Bearer ${TOKEN}"), None);
        assert!(variable_text_fault("Bearer abcdef").is_some());
        assert!(variable_text_fault("Bearer ${sk-abc}").is_some());
        assert!(variable_text_fault("${TOKEN").is_some());
    }

    #[test]
    fn only_a_string_in_the_form_of_a_variable_name_is_shown() {
        assert_eq!(shown_variable_name("MY_KEY"), "MY_KEY");
        for name in ["correcthorsebatterystaple", "my_key", ""] {
            assert!(!shown_variable_name(name).contains("horse") && shown_variable_name(name) != name);
        }
    }

    #[test]
    fn a_secret_is_found_in_every_field_for_a_variable_name() {
        let file = json!({
            "profiles": [
                {"id": "a", "apiKeyEnv": "sk-1", "headersEnv": {"X": "sk-2", "Y": "FINE"}},
                {"id": "b", "apiKeyEnv": "FINE", "apiKeyEnvs": {"by": "t", "names": {"acme": "sk-3"}}},
            ],
            "tools": [{"command": {"program": "p", "envFrom": ["HOME", "sk-4"]}}],
            "mcpServers": [{"oauth": {"clientSecretEnv": "sk-5"}}],
            "other": "sk-6",
        });
        let mut found = misplaced_secrets(&file);
        found.sort_unstable();
        assert_eq!(found, ["sk-1", "sk-2", "sk-3", "sk-4", "sk-5"]);
    }
}
