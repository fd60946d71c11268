//! Servers that scenarios talk to: those from npm are installed when the first test needs them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The file of the MCP project's server for testing clients, to be run with node. Without npm to install it, prints the reason and
/// returns `None`.
///
/// # Panics
/// Panics if installing fails.
#[track_caller]
pub fn everything() -> Option<PathBuf> {
    Some(modules()?.join("@modelcontextprotocol/server-everything/dist/index.js"))
}

/// Returns the `node_modules` folder of the servers from npm. Without npm, prints the reason and returns `None`.
///
/// # Panics
/// Panics if installing fails.
#[track_caller]
pub fn modules() -> Option<PathBuf> {
    Some(installed("setup", "servers")?.join("node_modules"))
}

/// The MCP project's conformance suite, to be called with arguments. Without Node 22 and Python, prints the reason and
/// returns `None`.
///
/// # Panics
/// Panics if installing fails.
#[track_caller]
pub fn conformance() -> Option<Command> {
    let node = new_node()?;
    let mut suite = Command::new(&node);
    suite.arg(node.with_file_name("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
    Some(suite)
}

/// Node 22 or later. Without it and without Python to install it, prints the reason and returns `None`.
///
/// # Panics
/// Panics if installing fails.
#[track_caller]
pub fn new_node() -> Option<PathBuf> {
    Some(installed("setup-conformance", "servers/conformance")?.join("node"))
}

/// Python with the MCP project's client. Without Python, prints the reason and returns `None`.
///
/// # Panics
/// Panics if installing fails.
#[track_caller]
pub fn mcp_python() -> Option<PathBuf> {
    Some(installed("setup-mcp-python", "servers/mcp-python")?.join("bin/python"))
}

/// The folder below `target` that a script of `tests/servers` installs into. If it cannot, prints the reason and returns `None`.
#[track_caller]
fn installed(script: &str, folder: &str) -> Option<PathBuf> {
    let into = target().join(folder);
    // The packages that include this file are folders of the workspace's root.
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/servers")
        .join(script);
    let output = match Command::new("bash").arg(script).arg(&into).output() {
        Ok(output) => output,
        Err(error) => panic!("bash does not start: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(into),
        Some(3) => {
            println!("skipped: {}", said.trim());
            None
        }
        _other => panic!("the servers can not be installed: {said}"),
    }
}

/// The Python of compaction-conformance-kit. If it cannot be installed, prints the reason and returns `None`.
#[track_caller]
pub fn compaction_kit() -> Option<PathBuf> {
    Some(installed("setup-compaction-kit", "servers/compaction-kit")?.join("bin/python"))
}

/// The folder of the servers from PyPI. Tests do not install them: if it is absent, prints the reason and returns `None`.
pub fn python() -> Option<PathBuf> {
    let folder = target().join("servers/python");
    if folder.join(".installed").is_file() {
        return Some(folder);
    }
    println!("skipped: the servers from PyPI are not installed (tests/servers/setup-python)");
    None
}

/// The workspace's `target`, where this test was built to.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let target = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map_or_else(|| std::env::temp_dir().join("pirn-target"), Path::to_path_buf)
}
