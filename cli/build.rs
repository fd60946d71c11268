//! Sets `PIRN_COMMIT`, the commit of a release build, for `pirn --version`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=PIRN_COMMIT");
    let given = std::env::var("PIRN_COMMIT").ok();
    // Other builds do not name their commit: they would be compiled again after every commit.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(commit).flatten());
    if let Some(commit) = commit {
        println!("cargo::rustc-env=PIRN_COMMIT={commit}");
    }
}

/// Returns the commit of the checkout and its date, and watches the files that change with it.
fn commit() -> Option<String> {
    let head = git(&["rev-parse", "--git-path", "HEAD"])?;
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={head}");
    println!("cargo::rerun-if-changed={log}");
    git(&["log", "-1", "--format=%h %cs"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
