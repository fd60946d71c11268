//! Helpers: analyse files and return warnings.

use pirn_definition::analysis::{Analysis, analyse};
use pirn_definition::definition::{FaultCode, Loaded, SourceFile};
use pirn_definition::graph::{CompileContext, Compiled, compile_loaded};
use serde_json::{Value, json};

/// Compiles and analyses files that must be valid.
pub(crate) fn analyse_files(files: &[SourceFile]) -> (Compiled, Analysis) {
    let loaded = Loaded::of(files);
    let compiled = compile_loaded(&loaded, &CompileContext::default());
    assert!(compiled.faults.is_empty(), "{:#?}", compiled.faults);
    let analysis = analyse(&loaded, &compiled);
    (compiled, analysis)
}

/// Compiles and analyses one file.
pub(crate) fn analyse_json(file: &Value) -> (Compiled, Analysis) {
    analyse_files(&[SourceFile::new("test.json", file.to_string())])
}

/// Returns the pointers of the warnings with one of these codes, sorted.
pub(crate) fn pointers(analysis: &Analysis, codes: &[FaultCode]) -> Vec<String> {
    let wanted = analysis.warnings.iter().filter(|fault| codes.contains(&fault.code));
    let mut found: Vec<String> = wanted.map(|fault| fault.pointer.clone()).collect();
    found.sort();
    found
}

/// A workflow with only START and END.
pub(crate) fn trivial(id: &str) -> Value {
    json!({"id": id, "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
           "edges": [{"from": "s", "to": "e"}]})
}
