//! Environment of started programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Variables passed to every program: those that programs commonly require and that contain no secrets.
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

/// Returns the environment of a program: the variables for all programs, those named in `from`, and `set`, which overrides both.
pub(super) fn child_env(set: &BTreeMap<String, String>, from: &[String]) -> Vec<(OsString, OsString)> {
    let names = PASSED_ON.iter().copied().chain(from.iter().map(String::as_str));
    let inherited = names.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let set = set.iter().map(|(name, value)| (name.into(), value.into()));
    inherited.chain(set).collect()
}

/// Returns whether a program exists: in the given PATH, if its name has no folder. The extension `.exe` is tried too.
pub(super) fn has_program(program: &Path, set: &BTreeMap<String, String>, cwd: Option<&Path>) -> bool {
    let is_there = |path: &Path| is_runnable(path) || is_runnable(&path.with_extension("exe"));
    if program.components().count() > 1 {
        return cwd.is_some_and(|folder| is_there(&folder.join(program))) || is_there(program);
    }
    let path = set.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
    let folders = path.as_ref().map(std::env::split_paths).into_iter().flatten();
    folders.into_iter().any(|folder| is_there(&folder.join(program)))
}

#[cfg(unix)]
fn is_runnable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_runnable(path: &Path) -> bool {
    path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_program_is_searched_in_the_path_it_will_run_with() {
        let none = BTreeMap::new();
        let elsewhere = BTreeMap::from([("PATH".to_owned(), "/nowhere".to_owned())]);
        for (program, env, is_there) in [
            ("sh", &none, true),
            ("sh", &elsewhere, false),
            ("/bin/sh", &elsewhere, true),
            ("no-such-program", &none, false),
            ("/etc/passwd", &none, false),
        ] {
            assert_eq!(has_program(Path::new(program), env, None), is_there, "{program}");
        }
    }

    #[test]
    fn a_program_gets_only_the_named_environment_variables() {
        let set = BTreeMap::from([("MINE".to_owned(), "1".to_owned())]);
        let given = child_env(&set, &["CARGO_MANIFEST_DIR".to_owned()]);
        let has = |wanted: &str| given.iter().any(|(name, _)| name == wanted);
        assert!(has("PATH") && has("MINE") && has("CARGO_MANIFEST_DIR"));
        assert!(
            !has("CARGO_PKG_NAME"),
            "cargo sets it for this test; the config does not name it"
        );
    }
}
