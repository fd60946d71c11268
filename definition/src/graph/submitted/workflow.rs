//! A workflow that a model submits, and its faults as the model receives them.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::definition::Fault;
use crate::script::place::line_and_column;

/// Maximum number of faults in the result of a call.
const MAX_FAULTS: usize = 20;

/// Config of the SCRIPT node of a script.
const SCRIPT_NODE: &str = "/nodes/1/config/";

/// A submitted workflow that follows the rules of its node. It is not compiled yet.
#[derive(Clone, Debug)]
pub struct SubmittedWorkflow {
    /// Source with the limits of the rules, for [`compile_inline`](crate::graph::compile_inline).
    pub source: Arc<str>,
    /// Description for the person who approves it: number of agents, limits, and a drawing or the script.
    pub plan: String,
    /// Argument of the call with the workflow: `graph`, or the name of the one with a script.
    pub(super) argument: &'static str,
}

impl SubmittedWorkflow {
    /// Converts the faults of the compiled source to those for the model. Their JSON pointers are within the graph. For a script, the
    /// pointer is the name of its argument, or `/meta/...` for a member of its `meta`. A fault in code has the line and column in its message.
    pub fn faults(&self, mut faults: Vec<Fault>) -> Vec<Fault> {
        for fault in &mut faults {
            // A fault in a `meta` has its position in the message already.
            if let Some((line, column)) = self.place(fault).filter(|_| !fault.message.contains("(line ")) {
                let _ = write!(fault.message, " (line {line}, column {column})");
            }
        }
        match self.argument {
            "graph" => faults,
            argument => Self::faults_of_script(faults, argument),
        }
    }

    /// Returns the line and column of a fault within the code of a node.
    fn place(&self, fault: &Fault) -> Option<(u32, u32)> {
        if !fault.pointer.ends_with("/config/code") {
            return None;
        }
        let before = self.source.get(..fault.position?.offset)?;
        // The source is compact, and the quotes within its strings are escaped.
        let (_, written) = before.rsplit_once(r#""code":""#)?;
        let code: String = serde_json::from_str(&format!("\"{written}\"")).ok()?;
        Some(line_and_column(&code, code.len()))
    }

    /// Replaces the pointers into the workflow that contains a script.
    pub(super) fn faults_of_script(mut faults: Vec<Fault>, argument: &str) -> Vec<Fault> {
        for fault in &mut faults {
            let pointer = &fault.pointer;
            fault.pointer = match (pointer.strip_prefix(SCRIPT_NODE), pointer.strip_prefix("/config/")) {
                (Some("code"), _) => format!("/{argument}"),
                (Some(field), _) | (None, Some(field)) => format!("/meta/{field}"),
                (None, None) if pointer == "/id" => "/meta/name".to_owned(),
                (None, None) if pointer.starts_with("/inputSchema") || pointer == "/description" => {
                    format!("/meta{pointer}")
                }
                (None, None) => format!("/{argument}"),
            };
        }
        faults
    }

    /// Returns the result of a call that submitted a workflow with faults, so that the model can correct it.
    pub fn refusal(faults: &[Fault]) -> Value {
        let shown: Vec<Value> = faults.iter().take(MAX_FAULTS).map(shown).collect();
        let error = "it was not started: correct these faults and call the tool again";
        json!({"error": error, "faults": shown})
    }
}

/// Returns a fault without its position: the model addresses its graph by JSON pointer.
fn shown(fault: &Fault) -> Value {
    let mut pointer = fault.pointer.clone();
    if pointer.starts_with("/edges/") {
        // The names by which the description of the tool calls these fields. The source that was checked has their long names.
        pointer = pointer
            .replace("/sourceNodeId", "/from")
            .replace("/targetNodeId", "/to");
    }
    let mut shown = json!({"code": fault.code, "pointer": pointer, "message": fault.message});
    if let Some(help) = &fault.help {
        shown["fix"] = json!(help);
    }
    shown
}
