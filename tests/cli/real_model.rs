//! A real model plans a workflow, and writes workflows. Needs the model that `examples/real-model/install` installs.

use std::path::PathBuf;
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

#[test]
fn a_small_real_model_writes_workflows_after_the_page_for_models() {
    let Some(model) = installed() else { return };
    let written = Command::new(model.join("venv/bin/python"))
        .arg(root().join("examples/real-model/skill.py"))
        .arg(&model)
        .arg(env!("CARGO_BIN_EXE_pirn"))
        .arg("2")
        .output()
        .expect("the script starts");
    let told = String::from_utf8_lossy(&written.stdout);
    let errors = String::from_utf8_lossy(&written.stderr);
    assert!(written.status.success(), "{told}\n{errors}");
    let accepted = told.lines().find_map(|line| line.strip_prefix("the page: "));
    // The texts of a model differ between processors.
    assert!(
        accepted.is_some_and(|count| !count.starts_with('0')),
        "{told}\n{errors}"
    );
}

#[test]
fn a_small_real_model_plans_workflows_that_complete() {
    let Some(model) = installed() else { return };
    let planned = Command::new(model.join("venv/bin/python"))
        .env("PYTHONPATH", root().join("examples/real-model"))
        .arg(root().join("examples/dynamic/real.py"))
        .arg(&model)
        .arg(env!("CARGO_BIN_EXE_pirn"))
        // Three, because the texts of a model differ between processors.
        .args([
            "Compare rice and pasta.",
            "Write a story about the forest, and improve it.",
            "Compare trains and planes.",
        ])
        .output()
        .expect("the script starts");
    let told = String::from_utf8_lossy(&planned.stdout);
    let errors = String::from_utf8_lossy(&planned.stderr);
    assert!(planned.status.success(), "{told}\n{errors}");
    assert!(
        told.contains(" of 3 tasks") && !told.contains("0 of 3"),
        "{told}\n{errors}"
    );
}
