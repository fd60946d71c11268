//! A real model plans a workflow, and writes workflows. Needs the model that `examples/real-model/install` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::root;

/// Returns the folder of the model if it is installed.
fn installed() -> Option<PathBuf> {
    let model = root().join("target/real-model");
    // Not installed here: 300 MB are no part of a test run.
    if !model.join(".installed").exists() {
        eprintln!("skipped: examples/real-model/install has not installed the model");
        return None;
    }
    Some(model)
}

/// Executes a script with the model, and returns its output.
fn output(model: &Path, script: &str, arguments: &[&str]) -> String {
    let ended = Command::new(model.join("venv/bin/python"))
        .env("PYTHONPATH", root().join("examples/real-model"))
        .arg(root().join(script))
        .arg(model)
        .arg(env!("CARGO_BIN_EXE_pirn"))
        .args(arguments)
        .output()
        .expect("the script starts");
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{told}\n{errors}");
    told
}

#[test]
fn a_small_real_model_writes_workflows_after_the_page_for_models() {
    let Some(model) = installed() else { return };
    let told = output(&model, "examples/real-model/skill.py", &["2"]);
    let accepted = told.lines().find_map(|line| line.strip_prefix("the page: "));
    // The texts of a model differ between processors.
    assert!(accepted.is_some_and(|count| !count.starts_with('0')), "{told}");
}

#[test]
fn a_small_real_model_plans_workflows_that_complete() {
    let Some(model) = installed() else { return };
    // Three, because the texts of a model differ between processors.
    let tasks = [
        "Compare rice and pasta.",
        "Write a story about the forest, and improve it.",
        "Compare trains and planes.",
    ];
    let told = output(&model, "examples/dynamic/real.py", &tasks);
    assert!(told.contains(" of 3 tasks") && !told.contains("0 of 3"), "{told}");
}
