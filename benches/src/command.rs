//! The `pirn` command as a process: time to start, and to read a large file.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::compare::Times;
use crate::sides::workflows;

const ROUNDS: usize = 31;
/// Number of nodes in the file that is validated.
pub const NODES: usize = 10_000;

/// Measures the binary `pirn` on files that it writes to `folder`. Returns the times, each with its limit in milliseconds.
///
/// # Errors
/// Fails if a file cannot be written, or the binary cannot be started or fails.
pub fn measure(pirn: &Path, folder: &Path) -> std::io::Result<Vec<(Times, f64)>> {
    let large = folder.join("large.json");
    std::fs::write(&large, format!("{:#}", workflows::mixed(NODES)))?;
    let varied = folder.join("varied.json");
    std::fs::write(&varied, format!("{:#}", workflows::varied(NODES)))?;
    let small = folder.join("small.json");
    let workflow = json!({"id": "small", "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "end"}]});
    std::fs::write(&small, workflow.to_string())?;
    let [large, varied, small] = [&large, &varied, &small].map(|path| path.to_string_lossy());
    Ok(vec![
        (often("pirn --version", pirn, &["--version"])?, 10.0),
        (often("pirn run, two nodes", pirn, &["run", &small])?, 10.0),
        (
            often("pirn validate, 10,000 nodes", pirn, &["validate", &large])?,
            100.0,
        ),
        (
            often(
                "pirn validate, 10,000 nodes, all different",
                pirn,
                &["validate", &varied],
            )?,
            100.0,
        ),
    ])
}

#[allow(clippy::disallowed_methods)] // a benchmark measures real time
fn often(name: &str, pirn: &Path, words: &[&str]) -> std::io::Result<Times> {
    let mut us = Vec::new();
    // The first round fills the file cache.
    for round in 0..=ROUNDS {
        let start = Instant::now();
        let status = Command::new(pirn)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(std::io::Error::other(format!("{name} ended with {status}")));
        }
        if round > 0 {
            us.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Times::of(name, us))
}
