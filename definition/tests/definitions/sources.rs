//! Syntax checks of expressions, templates and scripts: which ones the compiler requests, and where it reports the faults.

use std::cell::RefCell;

use pirn_definition::definition::{FaultCode, SourceFile, load};
use pirn_definition::graph::{CompileContext, Compiled, Syntax, SyntaxFault, compile_loaded};
use serde_json::{Value, json};

use super::fixtures::flow;

/// Rejects source text that contains `bad`, and records every request.
#[derive(Default)]
struct RejectingSyntax(RefCell<Vec<String>>);

impl RejectingSyntax {
    fn judge(&self, kind: &str, text: &str) -> Result<(), SyntaxFault> {
        self.0.borrow_mut().push(format!("{kind} {text}"));
        if text.contains("bad") {
            let message = format!("`{text}` is bad");
            return Err(SyntaxFault { message, at: None });
        }
        Ok(())
    }
}

impl Syntax for RejectingSyntax {
    fn expression(&self, text: &str) -> Result<(), SyntaxFault> {
        self.judge("expression", text)
    }
    fn template(&self, text: &str) -> Result<(), SyntaxFault> {
        self.judge("template", text)
    }
    fn script(&self, text: &str) -> Result<(), SyntaxFault> {
        self.judge("script", text)
    }
}

fn compiled(file: &Value, syntax: &RejectingSyntax) -> Compiled {
    let loaded = load(&SourceFile::new("test.json", file.to_string()));
    let context = CompileContext {
        syntax,
        ..CompileContext::default()
    };
    compile_loaded(&loaded, &context)
}

fn variable(id: &str, expression: &str) -> Value {
    json!({"id": id, "type": "VARIABLE", "config": {"variableName": "v", "expression": expression}})
}

/// START, these nodes, END in a row.
fn row(nodes: &[Value]) -> Value {
    let mut all = vec![json!({"id": "s", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "e", "type": "END"}));
    let edges: Vec<String> = all
        .windows(2)
        .map(|pair| {
            let id = |node: &Value| node["id"].as_str().expect("an id").to_owned();
            format!("{}>{}", id(&pair[0]), id(&pair[1]))
        })
        .collect();
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    flow(&json!(all), &edges)
}

#[test]
fn a_repeated_source_is_checked_once_per_kind() {
    let mut nodes: Vec<Value> = (0..100).map(|n| variable(&format!("v{n}"), "a")).collect();
    nodes.extend((0..100).map(|n| json!({"id": format!("c{n}"), "type": "CODE", "config": {"code": "a"}})));
    nodes.extend((0..100).map(|n| json!({"id": format!("l{n}"), "type": "LLM", "config": {"prompt": "a"}})));
    let syntax = RejectingSyntax::default();
    let compiled = compiled(&row(&nodes), &syntax);
    assert_eq!(compiled.graphs.len(), 1);
    assert_eq!(compiled.graphs[0].snippets.len(), 3);
    assert_eq!(syntax.0.into_inner(), ["expression a", "script a", "template a"]);
}

#[test]
fn a_source_fault_is_reported_at_every_occurrence_in_order() {
    let wait = |id: &str| json!({"id": id, "type": "WAIT", "config": {"seconds": -1}});
    let nodes = [
        variable("a", "bad"),
        wait("b"),
        variable("c", "good"),
        variable("d", "bad"),
        wait("f"),
        json!({"id": "g", "type": "LLM", "config": {"prompt": "bad too"}}),
        variable("h", "worse, and bad"),
    ];
    let syntax = RejectingSyntax::default();
    let compiled = compiled(&row(&nodes), &syntax);
    let told: Vec<(FaultCode, &str)> = compiled
        .faults
        .iter()
        .map(|fault| (fault.code, fault.pointer.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (FaultCode::InvalidExpression, "/nodes/1/config/expression"),
            (FaultCode::InvalidTimeout, "/nodes/2/config/seconds"),
            (FaultCode::InvalidExpression, "/nodes/4/config/expression"),
            (FaultCode::InvalidTimeout, "/nodes/5/config/seconds"),
            (FaultCode::InvalidTemplate, "/nodes/6/config/prompt"),
            (FaultCode::InvalidExpression, "/nodes/7/config/expression"),
        ]
    );
    assert_eq!(compiled.faults[2].message, "`bad` is bad");
    assert!(compiled.graphs.is_empty());
}

#[test]
fn a_too_long_expression_is_refused_without_parsing() {
    let long = "bad".repeat(400);
    let syntax = RejectingSyntax::default();
    let compiled = compiled(&row(&[variable("a", &long), variable("b", &long)]), &syntax);
    assert_eq!(compiled.faults.len(), 2);
    assert!(
        compiled
            .faults
            .iter()
            .all(|fault| fault.message.contains("1200 characters"))
    );
    assert!(syntax.0.into_inner().is_empty());
}

#[test]
fn a_fault_in_a_script_file_is_at_a_whole_character_of_it() {
    for text in [
        "export const meta =\u{538b}\u{7f29}",
        "export const meta = {name: 'a",
        "export const meta = {name: 'a\n",
        "export const meta = {",
        "export const meta = {limits: 1}",
        "\u{e9}",
    ] {
        let loaded = load(&SourceFile::new("plan.js", text));
        let compiled = compile_loaded(&loaded, &CompileContext::default());
        assert!(text == "\u{e9}" || !compiled.faults.is_empty(), "{text}");
        for fault in &compiled.faults {
            let position = fault.position.expect("a position");
            let span = position.offset..position.offset + position.length;
            assert!(text.get(span.clone()).is_some(), "{text:?}: {span:?} of {fault}");
        }
    }
}
