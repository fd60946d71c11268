//! What a started program sees of the environment, and texts that hold secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// What every started program is given: what programs need to work at all, and nothing that could hold a secret.
const PASSED_ON: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TERM",
    "SystemRoot",
    "SystemDrive",
    "ComSpec",
    "PATHEXT",
    "TEMP",
    "TMP",
    "APPDATA",
    "LOCALAPPDATA",
    "USERPROFILE",
    "ProgramFiles",
];

/// The environment of a program: the variables every program gets, those named in `from`, and `set` over both.
pub(super) fn of_program(set: &BTreeMap<String, String>, from: &[String]) -> Vec<(OsString, OsString)> {
    let names = PASSED_ON.iter().copied().chain(from.iter().map(String::as_str));
    let inherited = names.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let set = set.iter().map(|(name, value)| (name.into(), value.into()));
    inherited.chain(set).collect()
}

/// The value of a `headersEnv` entry: `NAME`, or a text with `${NAME}` in it.
///
/// # Errors
/// A sentence that names the variable that is not set; never a value.
pub(super) fn expanded(source: &str) -> Result<String, String> {
    expanded_by(source, |name| std::env::var(name).ok())
}

fn expanded_by(source: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let value_of = |name: &str| lookup(name).ok_or_else(|| format!("the environment variable `{name}` is not set"));
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
        assert_eq!(expanded_by("TOKEN", lookup).as_deref(), Ok("t0p"));
        assert_eq!(expanded_by("Bearer ${TOKEN}!", lookup).as_deref(), Ok("Bearer t0p!"));
        for source in ["OTHER", "Bearer ${OTHER}"] {
            assert!(expanded_by(source, lookup).unwrap_err().contains("`OTHER`"));
        }
        assert!(expanded_by("${TOKEN", lookup).is_err());
    }

    #[test]
    fn a_program_gets_what_is_named_and_no_more() {
        let set = BTreeMap::from([("MINE".to_owned(), "1".to_owned())]);
        let given = of_program(&set, &["CARGO_MANIFEST_DIR".to_owned()]);
        let has = |wanted: &str| given.iter().any(|(name, _)| name == wanted);
        assert!(has("PATH") && has("MINE") && has("CARGO_MANIFEST_DIR"));
        assert!(!has("CARGO_PKG_NAME"), "cargo sets it for this test, nobody named it");
    }
}
