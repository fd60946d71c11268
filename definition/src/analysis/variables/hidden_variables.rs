//! Triggers and VARIABLE nodes that assign another variable than the one that the workflow declares: `MISSING_FIELD` as a warning for a
//! trigger's `scope` that hides a global variable, `UNKNOWN_NAME` as a warning for a misspelt name.

use std::collections::BTreeMap;

use crate::analysis::facts::reads::words_of_json;
use crate::analysis::{Analysis, PlacedTrigger, WorkflowSet, is_stated};
use crate::definition::json::Step;
use crate::definition::{FaultCode, NodeConfig, Origin, TriggerAction, VariableDefinition, VariableScope, nearest};
use crate::graph::diagnostics::pointer;

/// Minimum length of a name that counts as misspelt.
const SHORTEST_NAME: usize = 4;

/// Reports each such SET_VARIABLE and VARIABLE.
pub(in crate::analysis) fn report(set: &WorkflowSet<'_>, found: &mut Analysis) {
    let places = set.places();
    // Counted at the first name that is not declared: most workflows have none.
    let mut words: Option<BTreeMap<String, usize>> = None;
    let mut occurrences = |name: &str| {
        let words = words.get_or_insert_with(|| words_of(set));
        words.get(name).copied().unwrap_or_default()
    };
    for flow in &set.flows {
        let variables = &flow.definition.variables;
        for (place, node) in flow.definition.nodes.iter().enumerate() {
            let NodeConfig::Variable(config) = &node.config else {
                continue;
            };
            found.work += 1;
            let name = &config.variable_name;
            if variables.iter().all(|variable| variable.name != *name) {
                let pointer = pointer!["nodes", place, "config", "variableName"];
                misspelt((flow.origin, &pointer), name, variables, &mut occurrences, found);
            }
        }
    }
    for placed in set.every_trigger() {
        found.work += 1;
        let TriggerAction::SetVariable {
            variable_name: name,
            scope,
            ..
        } = &placed.trigger.action
        else {
            continue;
        };
        let watched = placed
            .flow
            .or_else(|| places.get(placed.trigger.workflow_id.as_deref()?).copied());
        let Some(flow) = watched.map(|place| &set.flows[place]) else {
            continue;
        };
        let variables = &flow.definition.variables;
        match variables.iter().find(|variable| variable.name == *name) {
            Some(variable)
                if *scope == VariableScope::Thread
                    && !is_stated(placed.origin, &placed.pointer(["action", "parameters", "scope"])) =>
            {
                hidden(&placed, variable, found);
            }
            Some(_) => {}
            None => {
                let pointer = placed.pointer(["action", "parameters", "variableName"]);
                misspelt((placed.origin, &pointer), name, variables, &mut occurrences, found);
            }
        }
    }
}

fn hidden(placed: &PlacedTrigger<'_>, variable: &VariableDefinition, found: &mut Analysis) {
    let (name, word) = (
        &variable.name,
        match variable.scope {
            VariableScope::Thread => return,
            VariableScope::Global => "global",
            VariableScope::Session => "session",
        },
    );
    let message = format!(
        "`scope` is missing: the action assigns a variable of the thread, which hides the {word} variable `{name}`"
    );
    let pointer = placed.pointer(["action", "parameters"]);
    let fault = placed.origin.fault(FaultCode::MissingField, &pointer, message);
    found
        .warnings
        .push(fault.with_help(format!("add `\"scope\": \"{word}\"`")));
}

/// Reports a name that occurs nowhere else and is similar to a declared one.
fn misspelt(
    (origin, pointer): (&Origin, &[Step]),
    name: &str,
    variables: &[VariableDefinition],
    mut occurrences: impl FnMut(&str) -> usize,
    found: &mut Analysis,
) {
    // Any two short names are similar.
    let known = variables.iter().map(|variable| variable.name.as_str());
    let Some(near) = nearest(name, known).filter(|_| name.len() >= SHORTEST_NAME) else {
        return;
    };
    if occurrences(name) > 1 {
        return;
    }
    let message = format!("nothing reads the variable `{name}`, which the workflow does not declare");
    let fault = origin.fault(FaultCode::UnknownName, pointer, message);
    found.warnings.push(fault.with_help(format!("did you mean `{near}`?")));
}

/// Returns the number of occurrences of each word in the definitions.
fn words_of(set: &WorkflowSet<'_>) -> BTreeMap<String, usize> {
    let in_flows = set.flows.iter().map(|flow| serde_json::to_string(flow.definition));
    let in_triggers = set.triggers.iter().map(|trigger| serde_json::to_string(&trigger.value));
    let mut words = BTreeMap::new();
    for word in in_flows.chain(in_triggers).flatten().flat_map(words_of_json) {
        *words.entry(word).or_default() += 1;
    }
    words
}
