//! Workflows that are written while a run executes: one JSON text, compiled next to the registered workflows of the run.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::compile::{compile_loaded, events_of_waits};
use super::compile_context::CompileContext;
use super::model::Graph;
use crate::definition::{Fault, FaultCode, SourceFile, load};

/// Maximum size in bytes of the source of an inline workflow.
// The compilation runs between two steps of a run, and the text is part of the run's journal.
pub const MAX_INLINE_BYTES: usize = 256 << 10;

/// Number of digits of the hash in the id of an inline workflow.
const HASH_DIGITS: usize = 16;

/// Returns the id of the inline workflow with this source: the id in its text, `@`, and the first digits of the SHA-256 of the text.
///
/// Different sources have different ids, and none has that of a registered workflow: settings and events name workflows by id.
fn inline_id(id: &str, source: &str) -> String {
    let mut named = format!("{id}@");
    for byte in Sha256::digest(source.as_bytes()).iter().take(HASH_DIGITS / 2) {
        // Writing to a string cannot fail.
        let _ = write!(named, "{byte:02x}");
    }
    named
}

/// Compiles the source of an inline workflow. Its graph has the source, and an id that contains its hash. `context` has the registered
/// workflows that it may call.
///
/// The result depends only on the text and the registered workflows if `context` names no functions, profiles and tools. A replay in
/// another process then compiles an equal graph.
///
/// # Errors
/// Returns all faults of the text: those of any workflow, and those of parts that only a registered workflow can have.
pub fn compile_inline(source: &Arc<str>, context: &CompileContext<'_>) -> Result<Arc<Graph>, Vec<Fault>> {
    let file = SourceFile::new("workflow", Arc::clone(source));
    if source.len() > MAX_INLINE_BYTES {
        let message = format!("the workflow has {} bytes, more than {MAX_INLINE_BYTES}", source.len());
        return Err(vec![file.fault_in(FaultCode::InvalidValue, "", 0..0, message)]);
    }
    let mut loaded = load(&file);
    let is_one = loaded.workflows.len() == 1 && loaded.triggers.is_empty() && loaded.profiles.is_empty();
    if !is_one && loaded.faults.is_empty() {
        let message = "expected one workflow: {\"id\", \"nodes\", \"edges\"}";
        return Err(vec![file.fault_at(FaultCode::InvalidValue, "", message)]);
    }
    let mut faults = Vec::new();
    for workflow in &mut loaded.workflows {
        if !workflow.value.triggers.is_empty() {
            // The triggers of a run are determined at its start.
            let message = "a workflow that is written during a run has no triggers: remove `triggers`";
            faults.push(workflow.origin.fault_at(FaultCode::InvalidValue, "/triggers", message));
        }
        workflow.value.id = inline_id(&workflow.value.id, source);
    }
    let compiled = compile_loaded(&loaded, context);
    faults.extend(compiled.faults);
    for graph in &compiled.graphs {
        if graph.triggered {
            let message =
                "a workflow that is written during a run is called: begin it with START, not START_FROM_TRIGGER";
            faults.push(file.fault_at(FaultCode::InvalidValue, "/nodes", message));
        }
        if let Some(event) = events_of_waits(&graph.nodes).next() {
            // The names of the events to retain are determined at the start of the run.
            let message = format!(
                "a workflow that is written during a run cannot wait for the event `{event}`: use USER_INTERACTION, or WAIT with \
                 a duration"
            );
            faults.push(file.fault_at(FaultCode::InvalidValue, "/nodes", message));
        }
    }
    // The only reference to it: the graph was compiled above.
    match compiled.graphs.into_iter().next().and_then(Arc::into_inner) {
        Some(graph) if faults.is_empty() => Ok(Arc::new(Graph {
            source: Some(Arc::clone(source)),
            ..graph
        })),
        _ => Err(faults),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Result<Arc<Graph>, Vec<Fault>> {
        compile_inline(&Arc::from(text), &CompileContext::default())
    }

    const NODES: &str =
        r#""nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]"#;

    #[test]
    fn an_inline_workflow_has_its_source_and_an_id_with_the_hash_of_the_source() {
        let text = format!(r#"{{"id": "plan", {NODES}}}"#);
        let graph = compile(&text).unwrap();
        assert_eq!(graph.source.as_deref(), Some(&*text));
        let (id, hash) = graph.workflow_id.split_once('@').unwrap();
        assert_eq!((id, hash.len()), ("plan", HASH_DIGITS));
        let other = compile(&format!(r#"{{"id":"plan", {NODES}}}"#)).unwrap();
        assert_ne!(graph.workflow_id, other.workflow_id, "another text");
    }

    #[test]
    fn parts_that_only_a_registered_workflow_can_have_are_faults() {
        let trigger = r#""triggers": [{"id": "t", "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "stop_thread"}}]"#;
        let wait = r#""nodes": [{"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"event": "go"}},
            {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]"#;
        let cases = [
            (format!(r#"{{"id": "w", {NODES}, {trigger}}}"#), "/triggers"),
            (format!(r#"{{"id": "w", {wait}}}"#), "/nodes"),
            (format!(r#"[{{"id": "a", {NODES}}}, {{"id": "b", {NODES}}}]"#), ""),
            (
                format!("{{\"id\": \"w\", {NODES}}}{}", " ".repeat(MAX_INLINE_BYTES)),
                "",
            ),
        ];
        for (text, pointer) in cases {
            let faults = compile(&text).unwrap_err();
            assert_eq!(faults[0].pointer, pointer, "{faults:?}");
        }
    }
}
