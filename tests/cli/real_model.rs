//! A real model plans a workflow, with the script of `examples/dynamic`. Needs the model that `examples/real-model/install` installs.

use std::process::Command;

use crate::command::root;

#[test]
fn a_small_real_model_plans_a_workflow_that_completes() {
    let model = root().join("target/real-model");
    // Not installed here: 300 MB are no part of a test run.
    if !model.join(".installed").exists() {
        eprintln!("skipped: examples/real-model/install has not installed the model");
        return;
    }
    let planned = Command::new(model.join("venv/bin/python"))
        .env("PYTHONPATH", root().join("examples/real-model"))
        .arg(root().join("examples/dynamic/real.py"))
        .arg(&model)
        .arg(env!("CARGO_BIN_EXE_pirn"))
        .arg("Compare gold and silver.")
        .output()
        .expect("the script starts");
    let told = String::from_utf8_lossy(&planned.stdout);
    let errors = String::from_utf8_lossy(&planned.stderr);
    assert!(
        planned.status.success() && told.contains("1 of 1 tasks"),
        "{told}\n{errors}"
    );
}
