//! Maps an error of a run to the location in the files of the script, expression or template that caused it.

use std::ops::Range;

use pirn_definition::definition::{Fault, FaultCode, NodeConfig, Origin};
use pirn_definition::error::RunError;
use pirn_definition::script::place;
use pirn_script::place_in_tags;
use serde_json::Value;

use super::CheckedFiles;

impl CheckedFiles {
    /// Returns the location in the files of the node's text that caused an error: of the innermost error that has a location.
    /// Returns `None` if no text caused it, or the text is not in these files.
    pub fn place_of(&self, error: &RunError) -> Option<Fault> {
        // Errors wrap their cause, and the innermost one is closest to the text that the author wrote.
        let chain: Vec<&RunError> = std::iter::successors(Some(error), |error| error.cause.as_ref()).collect();
        chain.iter().enumerate().rev().find_map(|(depth, error)| {
            let place = Place::of(error)?;
            // The cause itself may name no node; then the nearest error around it does.
            let node = chain[..=depth]
                .iter()
                .rev()
                .find_map(|error| error.node_id.as_deref())?;
            self.loaded().workflows.iter().find_map(|workflow| {
                let nodes = workflow.value.nodes.iter();
                let (at, found) = nodes.enumerate().find(|(_, found)| found.id == node)?;
                let script = match &found.config {
                    NodeConfig::Code(code) => code.code.as_deref(),
                    NodeConfig::Script(script) => Some(script.code.as_str()),
                    _other => None,
                };
                let pointers = [format!("/nodes/{at}"), "/edges".to_owned()];
                place.fault(&workflow.origin, &pointers, script, error)
            })
        })
    }

    /// Returns the location in the files of the trigger's text that caused an error; the trigger belongs to this workflow or to
    /// none. Returns `None` as [`CheckedFiles::place_of`] does.
    pub fn place_in_trigger(&self, workflow_id: &str, trigger_id: &str, error: &RunError) -> Option<Fault> {
        let place = Place::of(error)?;
        let mut workflows = self.loaded().workflows.iter();
        let own = workflows.find(|workflow| workflow.value.id == workflow_id);
        // A trigger of the workflow takes precedence over one outside of workflows with its id.
        let own = own.and_then(|workflow| {
            let mut triggers = workflow.value.triggers.iter();
            let at = triggers.position(|trigger| trigger.id == trigger_id)?;
            Some((&workflow.origin, format!("/triggers/{at}")))
        });
        let alone = || {
            let mut triggers = self.loaded().triggers.iter();
            let found = triggers.find(|trigger| trigger.value.id == trigger_id)?;
            Some((&found.origin, String::new()))
        };
        let (origin, pointer) = own.or_else(alone)?;
        place.fault(origin, &[pointer], None, error)
    }
}

/// A location in a snippet, as recorded in an error's details.
enum Place<'e> {
    /// A line and column of this expression, or of the node's script if there is no expression.
    At {
        expression: Option<&'e str>,
        line: u32,
        column: u32,
    },
    /// A `{{path}}`.
    Path(&'e str),
}

impl<'e> Place<'e> {
    fn of(error: &'e RunError) -> Option<Self> {
        let details = error.details.as_ref()?;
        let text = |name: &str| details.get(name).and_then(Value::as_str);
        let number = |name: &str| u32::try_from(details.get(name)?.as_u64()?).ok();
        match number("line").zip(number("column")) {
            Some((line, column)) => Some(Self::At {
                expression: text("expression"),
                line,
                column,
            }),
            // A template has no line and column: the path is searched in its tags.
            None => text("path").map(Self::Path),
        }
    }

    fn fault(&self, origin: &Origin, pointers: &[String], script: Option<&str>, error: &RunError) -> Option<Fault> {
        let in_text = |text: &str| self.in_text(text, script);
        origin.fault_in_text(FaultCode::InvalidExpression, pointers, &in_text, error.message.as_str())
    }

    /// Returns the byte range in a text to which this location refers, or `None` if it refers to another text.
    fn in_text(&self, text: &str, script: Option<&str>) -> Option<Range<usize>> {
        match self {
            Self::At {
                expression,
                line,
                column,
            } => {
                let start = place::offset(text, *line, *column);
                // A position may be valid in another text of the node, so the whole text must be equal.
                (expression.or(script) == Some(text)).then_some(start..start)
            }
            Self::Path(path) => {
                let start = place_in_tags(text, path)?;
                Some(start..start + path.len())
            }
        }
    }
}
