//! The environment of a started program.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_what_is_named_and_no_more() {
        let set = BTreeMap::from([("MINE".to_owned(), "1".to_owned())]);
        let given = of_program(&set, &["CARGO_MANIFEST_DIR".to_owned()]);
        let has = |wanted: &str| given.iter().any(|(name, _)| name == wanted);
        assert!(has("PATH") && has("MINE") && has("CARGO_MANIFEST_DIR"));
        assert!(!has("CARGO_PKG_NAME"), "cargo sets it for this test, nobody named it");
    }
}
