//! Helpers: compile files and return fault codes.

use std::fs;
use std::path::{Path, PathBuf};

use pirn_definition::definition::{Fault, FaultCode, Loaded, SourceFile, load};
use pirn_definition::graph::{CompileContext, Compiled, compile_loaded};
use serde_json::{Value, json};

/// A file or folder of the repository's `tests/`.
pub(crate) fn shared(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(path)
}

/// The rows of an acceptance case file.
pub(crate) fn cases(name: &str) -> Vec<Value> {
    let path = shared("cases").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a case is JSON"))
        .collect()
}

/// Loads and compiles one file.
pub(crate) fn build(text: impl Into<String>) -> Compiled {
    let loaded = load(&SourceFile::new("test.json", text.into()));
    compile_loaded(&loaded, &CompileContext::default())
}

/// Loads one file.
pub(crate) fn loaded(text: impl Into<String>) -> Loaded {
    load(&SourceFile::new("test.json", text.into()))
}

/// Returns the fault codes in order, each once.
pub(crate) fn codes(compiled: &Compiled) -> Vec<&'static str> {
    let mut codes: Vec<&str> = compiled.faults.iter().map(|fault| fault.code.as_str()).collect();
    codes.dedup();
    codes
}

/// The codes of a file.
pub(crate) fn codes_of(file: &Value) -> Vec<&'static str> {
    codes(&build(file.to_string()))
}

/// Returns the only fault with this code.
pub(crate) fn the_fault(faults: &[Fault], code: FaultCode) -> &Fault {
    let mut found = faults.iter().filter(|fault| fault.code == code);
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no {code} among:\n{}", shown(faults)));
    assert!(found.next().is_none(), "{code} more than once:\n{}", shown(faults));
    first
}

/// Faults for a failed assertion.
pub(crate) fn shown(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Builds a workflow from nodes and from edges in the form `a>b`.
pub(crate) fn flow(nodes: &Value, edges: &[&str]) -> Value {
    let edges: Vec<Value> = edges
        .iter()
        .map(|edge| {
            let (from, to) = edge.split_once('>').expect("an edge is written a>b");
            json!({"from": from, "to": to})
        })
        .collect();
    json!({"id": "w", "nodes": nodes, "edges": edges})
}

/// A node without config.
pub(crate) fn node(id: &str, word: &str) -> Value {
    json!({"id": id, "type": word})
}

/// A node that does nothing.
pub(crate) fn idle(id: &str) -> Value {
    json!({"id": id, "type": "CODE", "config": {"code": "return 1"}})
}

/// A FORK whose paths start at these nodes.
pub(crate) fn fork(id: &str, paths: &[&str], children: &[&str]) -> Value {
    json!({"id": id, "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": children}})
}

/// A JOIN that waits for all paths.
pub(crate) fn join(id: &str, paths: &[&str]) -> Value {
    json!({"id": id, "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}})
}
