//! The built binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The exit code and the output of a command.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Parses stdout as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}

/// Calls `pirn` in the repository's `tests/`, with `input` on its stdin.
pub(crate) fn pirn_with(input: &[u8], arguments: &[&str]) -> Ended {
    let mut child = start(arguments);
    // A command that does not read its input may close stdin before this write.
    let _ = child.stdin.take().expect("piped").write_all(input);
    ended(child.wait_with_output().expect("it ends"))
}

/// Calls `pirn` without input.
pub(crate) fn pirn(arguments: &[&str]) -> Ended {
    pirn_with(b"", arguments)
}

/// Calls `pirn` in `folder` with additional environment variables.
pub(crate) fn pirn_in(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let child = start_in(folder, arguments, environment);
    ended(child.wait_with_output().expect("it ends"))
}

/// Starts `pirn` with all its streams piped.
pub(crate) fn start(arguments: &[&str]) -> std::process::Child {
    start_in(&root().join("tests"), arguments, &[])
}

fn ended(output: std::process::Output) -> Ended {
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Starts `pirn` in `folder`.
pub(crate) fn start_in(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_pirn"))
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is built")
}

/// Returns the repository's root.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("a folder of the repository").to_owned()
}
