//! Merge of thread variables at a JOIN.
//!
//! If one branch assigned `x` and another did not, the assignment is taken over, also if the value is that before the FORK. Two
//! branches conflict only if they assigned different values to `x`, or values that the reducer of `x` cannot combine.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::definition::ReducerWord;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::CompiledReducer;
use serde_json::{Map, Value, json};

use super::reduce::{ByValue, misfit, reduce};
use crate::thread::{PendingReduction, type_of};

/// The thread variables of a branch at the JOIN.
#[derive(Clone, Debug)]
pub struct BranchVariables<'a> {
    /// Id from the definition.
    pub path_id: &'a str,
    /// Variables that the branch assigned.
    pub variables: Vec<(&'a str, &'a Value)>,
}

/// Variables with values that cannot be combined.
struct VariableConflict {
    names: BTreeMap<String, Conflict>,
}

/// Values of one variable that cannot be combined.
struct Conflict {
    /// Path id and value of each path, in path order.
    values: Vec<(String, Value)>,
    /// Reducer that does not accept the values; none if the values differ and the variable has no reducer.
    reducer: Option<ReducerWord>,
}

impl Conflict {
    /// Describes values that a reducer does not accept.
    fn refused(&self, name: &str, reducer: ReducerWord) -> String {
        let word = reducer.as_str();
        let values: Vec<&Value> = self.values.iter().map(|(_, value)| value).collect();
        match misfit(reducer, &values).and_then(|at| self.values.get(at)) {
            Some((path, value)) => {
                let kind = type_of(value);
                format!("`{word}` cannot combine the values of {name}: that of path {path} is {kind}")
            }
            None => format!("`{word}` cannot combine the values of {name}: the result is out of range"),
        }
    }
}

impl From<VariableConflict> for RunError {
    /// Converts to `VARIABLE_MERGE_CONFLICT` with details `{conflicts: {name: {pathId: value}}, reducers?: {name: word}}`.
    fn from(conflict: VariableConflict) -> Self {
        let (mut different, mut parts, mut reducers) = (Vec::new(), Vec::new(), Map::new());
        for (name, conflict) in &conflict.names {
            match conflict.reducer {
                Some(reducer) => {
                    parts.push(conflict.refused(name, reducer));
                    reducers.insert(name.clone(), json!(reducer.as_str()));
                }
                None => different.push(name.as_str()),
            }
        }
        if !different.is_empty() {
            parts.insert(0, format!("branches set {} to different values", different.join(", ")));
        }
        let message = parts.join("; ");
        let conflicts: Map<String, Value> = conflict
            .names
            .into_iter()
            .map(|(name, conflict)| (name, Value::Object(conflict.values.into_iter().collect())))
            .collect();
        let mut details = json!({ "conflicts": conflicts });
        if !reducers.is_empty() {
            details["reducers"] = Value::Object(reducers);
        }
        Self::new(RunErrorCode::VariableMergeConflict, message).with_details(details)
    }
}

/// Assignments that a parent takes over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedVariables {
    /// Values by variable name.
    pub variables: BTreeMap<String, Value>,
    /// Assignments that an expression must compute.
    pub folds: Vec<PendingReduction>,
}

/// Returns the assignments that the parent takes over from `branches`: those of [`Verdict::Succeeded`]'s `merge`, in path order.
/// `reducer` looks up the reducer of a name.
///
/// # Errors
/// `VARIABLE_MERGE_CONFLICT` with every name to which two branches assigned different values and that has no applicable reducer;
/// `SCRIPT_LIMIT_EXCEEDED` if a reducer's value becomes too large.
///
/// [`Verdict::Succeeded`]: super::Verdict::Succeeded
pub fn merge_variables(
    reducer: impl Fn(&str) -> Option<CompiledReducer>,
    branches: &[BranchVariables<'_>],
) -> Result<MergedVariables, RunError> {
    // Ordered by name, so that errors and folds are equal in every replay.
    let mut writes: BTreeMap<&str, Vec<(&str, &Value)>> = BTreeMap::new();
    for branch in branches {
        for (name, value) in &branch.variables {
            writes.entry(name).or_default().push((branch.path_id, value));
        }
    }
    let mut merged = MergedVariables::default();
    let mut names = BTreeMap::new();
    for (name, writers) in writes {
        // Not reached: a name is entered together with its first writer.
        let Some(((_, first), others)) = writers.split_first() else {
            continue;
        };
        let values = writers.iter().map(|(_, value)| *value);
        let mut refused = None;
        let value = match reducer(name) {
            Some(CompiledReducer::Expression(expression)) if !others.is_empty() => {
                merged.folds.push(PendingReduction {
                    name: name.into(),
                    expression,
                    // Copied, because the join may release the threads of the branches before the expression is evaluated.
                    values: values.cloned().map(Arc::new).collect(),
                });
                continue;
            }
            Some(CompiledReducer::Word(word)) => {
                refused = Some(word);
                reduce(word, values)?
            }
            Some(CompiledReducer::Expression(_)) | None => {
                let is_first = |(_, value): &(&str, &Value)| ByValue(value) == ByValue(first);
                others.iter().all(is_first).then(|| (*first).clone())
            }
        };
        if let Some(value) = value {
            merged.variables.insert(name.to_owned(), value);
        } else {
            // No early return: the error lists every name in conflict.
            let values = writers
                .iter()
                .map(|(path, value)| ((*path).to_owned(), (*value).clone()))
                .collect();
            names.insert(
                name.to_owned(),
                Conflict {
                    values,
                    reducer: refused,
                },
            );
        }
    }
    if names.is_empty() {
        Ok(merged)
    } else {
        Err(VariableConflict { names }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branches(variables: &[Value]) -> Vec<BranchVariables<'_>> {
        const PATHS: [&str; 3] = ["a", "b", "c"];
        PATHS
            .iter()
            .zip(variables)
            .map(|(path_id, variables)| BranchVariables {
                path_id,
                variables: variables
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| (name.as_str(), value))
                    .collect(),
            })
            .collect()
    }

    fn merge(variables: &[Value]) -> Result<Value, Value> {
        match merge_variables(|_| None, &branches(variables)) {
            Ok(merged) => Ok(json!(merged.variables)),
            Err(conflict) => Err(conflict.into_facts().details.unwrap_or_default()),
        }
    }

    #[test]
    fn equal_writes_do_not_conflict() {
        let merged = merge(&[
            json!({"x": {"deep": [1]}}),
            json!({"x": {"deep": [1.0]}}),
            json!({"y": 1}),
        ]);
        assert_eq!(merged, Ok(json!({"x": {"deep": [1]}, "y": 1})));
    }

    #[test]
    fn two_different_values_for_one_name_conflict_and_every_name_is_listed() {
        let conflict = merge(&[json!({"x": 1, "y": 1, "z": 7}), json!({"x": 2}), json!({"y": 2})]);
        let expected = json!({"conflicts": {"x": {"a": 1, "b": 2}, "y": {"a": 1, "c": 2}}});
        assert_eq!(conflict, Err(expected));
    }

    #[test]
    fn a_conflict_names_the_reducer_that_cannot_combine_the_values() {
        let values = [
            json!({"big": f64::MAX, "n": "a", "x": 1}),
            json!({"big": f64::MAX, "n": "a", "x": 2}),
        ];
        let sums = |name: &str| (name != "x").then_some(CompiledReducer::Word(ReducerWord::Sum));
        let error = merge_variables(sums, &branches(&values)).expect_err("a conflict");
        let parts: Vec<&str> = error.message.split("; ").collect();
        let expected = [
            "branches set x to different values",
            "`sum` cannot combine the values of big: the result is out of range",
            "`sum` cannot combine the values of n: that of path a is text",
        ];
        assert_eq!(parts, expected);
        let details = error.into_facts().details.unwrap_or_default();
        assert_eq!(details["reducers"], json!({"big": "sum", "n": "sum"}));
        assert_eq!(details["conflicts"]["x"], json!({"a": 1, "b": 2}));
    }

    #[test]
    fn a_null_variable_unknown_to_the_parent_is_a_write() {
        assert_eq!(merge(&[json!({"x": null})]), Ok(json!({"x": null})));
    }

    #[test]
    fn without_branches_no_variable_is_merged() {
        assert_eq!(merge(&[]), Ok(json!({})));
    }
}
