//! A thread's variables and node outputs.
//!
//! A branch takes a snapshot of both in constant time, so that the cost of a FORK does not depend on the size of the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use pirn_definition::definition::VariableType;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::NodeIx;
use pirn_definition::value::Output;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::history::make_room;

/// A variable with its type and flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    /// Current value.
    pub value: Arc<Value>,
    /// Declared type.
    pub variable_type: Option<VariableType>,
    /// True if assignments are errors.
    pub readonly: bool,
    /// True if the next run of the session receives the variable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_session: bool,
    /// Level of the last assignment, from 1: see [`Variables::enter_branch`]. 0 without an assignment.
    #[serde(default)]
    pub(in crate::thread) assigned_at: u32,
}

impl Variable {
    /// Creates a variable that has not been assigned.
    pub fn new(value: Arc<Value>, variable_type: Option<VariableType>, readonly: bool) -> Self {
        Self {
            value,
            variable_type,
            readonly,
            is_of_session: false,
            assigned_at: 0,
        }
    }
}

/// Variables by name. Cloning is O(1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variables {
    // Ordered, because the variables are listed in JSON and in reports, which must be equal in a replay.
    all: OrdMap<Arc<str>, Variable>,
    /// Number of FORKs around the thread.
    // A level and not a set of names, so that a branch starts in constant time and an assignment allocates nothing.
    level: u32,
}

impl Variables {
    /// Makes the copy of a thread's variables those of a branch, which has assigned none of them.
    pub fn enter_branch(&mut self) {
        self.level += 1;
    }

    /// Returns names and values of the variables that the thread has assigned since its start, sorted by name.
    pub fn assigned(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        let own = self
            .all
            .iter()
            .filter(|(_, variable)| variable.assigned_at > self.level);
        own.map(|(name, variable)| (name, &variable.value))
    }

    /// Returns the value of a variable.
    pub fn value(&self, name: &str) -> Option<&Arc<Value>> {
        self.all.get(name).map(|variable| &variable.value)
    }

    /// Returns a variable.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.all.get(name)
    }

    /// Defines a variable without checks.
    pub fn define(&mut self, name: Arc<str>, variable: Variable) {
        // Replaces a variable of this name: the caller decides about `readonly`.
        self.all.insert(name, variable);
    }

    /// Assigns a variable. Returns READONLY_VARIABLE if it is readonly, NODE_FAILED if the value does not have its type.
    pub fn assign(&mut self, name: &Arc<str>, value: Arc<Value>, readonly: bool) -> Result<Arc<Value>, RunError> {
        // `get_mut` copies only the path to the entry if a snapshot shares the map.
        let Some(variable) = self.all.get_mut(name) else {
            let variable = Variable {
                assigned_at: self.level + 1,
                // An undeclared variable takes any value, also of later assignments.
                ..Variable::new(Arc::clone(&value), None, readonly)
            };
            self.all.insert(Arc::clone(name), variable);
            return Ok(value);
        };
        // Before the type: a read-only variable rejects even a value of the wrong type as read-only.
        if variable.readonly {
            return Err(read_only(name));
        }
        let value = match variable.variable_type {
            Some(variable_type) => coerce(variable_type, value, name)?,
            None => value,
        };
        variable.value = Arc::clone(&value);
        // An assignment may make the variable read-only, but never writable: that case has returned above.
        variable.readonly = readonly;
        variable.assigned_at = self.level + 1;
        Ok(value)
    }

    /// Assigns all variables, or none on an error.
    pub fn assign_all(&mut self, values: &[(Arc<str>, Arc<Value>)]) -> Result<(), RunError> {
        // Constant time. An error drops the copy, so that nothing has to be undone.
        let mut next = self.clone();
        for (name, value) in values {
            next.assign(name, Arc::clone(value), false)?;
        }
        *self = next;
        Ok(())
    }

    /// Marks a variable to be passed to the next run of the session.
    pub fn keep_for_session(&mut self, name: &str) {
        // A missing variable is no error: callers mark a variable that they have just assigned.
        if let Some(variable) = self.all.get_mut(name) {
            variable.is_of_session = true;
        }
    }

    /// Returns the variables for the next run of the session.
    pub fn session_variables(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        let kept = self.all.iter().filter(|(_, variable)| variable.is_of_session);
        kept.map(|(name, variable)| (name, &variable.value))
    }

    /// Returns names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        self.all.iter().map(|(name, variable)| (name, &variable.value))
    }

    /// Returns the number of variables.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there are no variables.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

fn read_only(name: &str) -> RunError {
    RunError::new(RunErrorCode::ReadonlyVariable, format!("variable {name} is read-only"))
}

/// Converts a value to the type: strings that contain a number or a boolean are parsed; other values are not converted.
pub fn coerce(variable_type: VariableType, value: Arc<Value>, name: &str) -> Result<Arc<Value>, RunError> {
    if variable_type.accepts(&value) {
        // The value is passed on by pointer.
        return Ok(value);
    }
    let converted = match (variable_type, &*value) {
        (VariableType::Number, Value::String(text)) => number(text),
        (VariableType::Boolean, Value::String(text)) => text.trim().parse().ok().map(Value::Bool),
        _ => None,
    };
    if let Some(converted) = converted {
        return Ok(Arc::new(converted));
    }
    Err(RunError::new(
        RunErrorCode::NodeFailed,
        format!(
            "type mismatch: variable {name} holds {}, not {}",
            match variable_type {
                VariableType::Number => "a number",
                VariableType::String => "text",
                VariableType::Boolean => "a boolean",
                VariableType::Array => "a list",
                VariableType::Object => "an object",
            },
            type_of(&value)
        ),
    ))
}

fn number(text: &str) -> Option<Value> {
    let text = text.trim();
    // First, because a floating-point number is exact only up to 2^53.
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Value::from(whole));
    }
    // `inf` and `NaN` parse, but JSON has no such numbers.
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    serde_json::Number::from_f64(number).map(Value::Number)
}

/// Returns the type of a value in messages.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Number of out-of-order outputs above which they are moved from the list to the shared map.
// Bounds the entries that an insertion in the middle of the list moves.
const MANY: usize = 32;

/// Outputs by node. A thread adds to a small private list, which is merged into a shared persistent map when a FORK needs a
/// snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outputs {
    /// Latest output, inline: a branch of one node allocates no list.
    newest: Option<(NodeIx, Output)>,
    /// Outputs since the last snapshot, sorted by node. Usually appended, because most nodes end in index order.
    own: Vec<(NodeIx, Output)>,
    shared: OrdMap<NodeIx, Output>,
}

impl Outputs {
    /// Returns the last output of a node.
    pub fn value(&self, node: NodeIx) -> Option<&Arc<Value>> {
        // From the newest to the oldest part: an output set again is still stored in the older parts.
        if let Some((_, newest)) = self.newest.as_ref().filter(|(newest, _)| *newest == node) {
            return Some(newest.value());
        }
        match self.own.binary_search_by_key(&node, |(own, _)| *own) {
            Ok(place) => Some(self.own[place].1.value()),
            Err(_) => self.shared.get(&node).map(Output::value),
        }
    }

    /// Sets the output of a node.
    pub fn set(&mut self, node: NodeIx, value: Output) {
        self.set_of(node, value, 0);
    }

    /// Sets the output of a node in a graph with this number of nodes, which sizes the allocation.
    pub(in crate::thread) fn set_of(&mut self, node: NodeIx, value: Output, nodes: usize) {
        // The same node again, as in a retry, overwrites the output inline.
        if let Some((before, output)) = self.newest.replace((node, value)).filter(|(before, _)| *before != node) {
            make_room(&mut self.own, nodes);
            self.keep(before, output);
        }
    }

    fn keep(&mut self, node: NodeIx, value: Output) {
        if self.own.last().is_some_and(|(last, _)| *last < node) {
            // The usual case: nodes are entered in index order, and no search is needed.
            return self.own.push((node, value));
        }
        match self.own.binary_search_by_key(&node, |(own, _)| *own) {
            // A loop enters its nodes again: the list does not grow with the iterations.
            Ok(place) => self.own[place].1 = value,
            // An insertion in the middle of a long list is O(n). Move the list to the map, so that jumping between nodes stays
            // cheap.
            Err(place) if place < self.own.len() && self.own.len() > MANY => {
                self.share();
                self.own.push((node, value));
            }
            Err(place) => self.own.insert(place, (node, value)),
        }
    }

    fn share(&mut self) {
        // Drained and not replaced, so that the list keeps its allocation.
        for (node, value) in self.own.drain(..) {
            self.shared.insert(node, value);
        }
    }

    fn share_all(&mut self) {
        // Before the newest output, which may replace one of these.
        self.share();
        if let Some((node, value)) = self.newest.take() {
            self.shared.insert(node, value);
        }
    }

    /// Returns a snapshot for branches. The cost is proportional to the outputs since the last snapshot.
    #[must_use]
    pub fn snapshot(&mut self) -> Self {
        self.share_all();
        Self {
            newest: None,
            // Branches of one node never use the list: an empty one allocates nothing.
            own: Vec::new(),
            shared: self.shared.clone(),
        }
    }

    /// Calls `show` with every stored output, in no particular order.
    pub(crate) fn each(&self, mut show: impl FnMut(NodeIx, &Output)) {
        self.shared.iter().for_each(|(node, output)| show(*node, output));
        let own = self.own.iter().chain(&self.newest);
        own.for_each(|(node, output)| show(*node, output));
    }

    /// Returns the nodes with an output, by index.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIx, &Arc<Value>)> {
        // From the oldest to the newest part: `extend` overwrites outputs that were set again.
        let mut all: BTreeMap<NodeIx, &Output> = self.shared.iter().map(|(node, value)| (*node, value)).collect();
        all.extend(self.own.iter().map(|(node, value)| (*node, value)));
        all.extend(self.newest.iter().map(|(node, value)| (*node, value)));
        all.into_iter().map(|(node, output)| (node, output.value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn variables(readonly: bool, variable_type: Option<VariableType>) -> Variables {
        let mut variables = Variables::default();
        variables.define("x".into(), Variable::new(Arc::new(json!(1)), variable_type, readonly));
        variables
    }

    #[test]
    fn an_assigned_variable_is_listed_in_its_thread_even_if_the_value_is_unchanged() {
        let names = |variables: &Variables| {
            variables
                .assigned()
                .map(|(name, _)| name.to_string())
                .collect::<Vec<_>>()
        };
        let one = || Arc::new(json!(1));
        let mut variables = variables(false, None);
        assert!(names(&variables).is_empty(), "an initial value is no assignment");
        variables.assign(&"a".into(), one(), false).unwrap();
        let mut branch = variables.clone();
        branch.enter_branch();
        assert!(names(&branch).is_empty(), "assigned before the FORK");
        let mut nested = branch.clone();
        nested.enter_branch();
        nested.assign(&"x".into(), one(), false).unwrap();
        assert_eq!(names(&nested), ["x"]);
        branch.assign_all(&[("x".into(), one())]).unwrap();
        assert_eq!(names(&branch), ["x"], "a merge is an assignment");
        assert_eq!(names(&variables), ["a"]);
    }

    #[test]
    fn l18_a_read_only_variable_is_never_assigned() {
        let mut variables = variables(true, None);
        let error = variables.assign(&"x".into(), Arc::new(json!(2)), false).unwrap_err();
        assert_eq!(error.code, RunErrorCode::ReadonlyVariable);
        assert_eq!(**variables.value("x").unwrap(), json!(1));
    }

    #[test]
    fn l19_a_value_of_another_type_is_refused() {
        let mut variables = variables(false, Some(VariableType::Number));
        assert!(
            variables
                .assign(&"x".into(), Arc::new(json!("not-a-number")), false)
                .is_err()
        );
        assert_eq!(**variables.value("x").unwrap(), json!(1));
    }

    #[test]
    fn l07_a_numeric_string_becomes_a_number() {
        let mut variables = variables(false, Some(VariableType::Number));
        variables.assign(&"x".into(), Arc::new(json!("42")), false).unwrap();
        assert_eq!(**variables.value("x").unwrap(), json!(42));
    }

    #[test]
    fn assigning_several_variables_is_atomic() {
        let mut variables = variables(true, None);
        let both = [("a".into(), Arc::new(json!(1))), ("x".into(), Arc::new(json!(2)))];
        assert!(variables.assign_all(&both).is_err());
        assert!(variables.value("a").is_none());
    }

    #[test]
    fn outputs_set_in_any_order_are_found_and_the_last_value_wins() {
        for step in [1, 7, 499] {
            let mut outputs = Outputs::default();
            for round in 0..2 {
                for n in 0..500_u32 {
                    let node = n * step % 500;
                    outputs.set(node, json!([round, node]).into());
                }
            }
            assert_eq!(outputs.iter().count(), 500);
            for (node, value) in outputs.iter() {
                assert_eq!(**value, json!([1, node]));
                assert_eq!(outputs.value(node), Some(value));
            }
        }
    }

    #[test]
    fn a_snapshot_does_not_see_later_outputs() {
        let mut outputs = Outputs::default();
        outputs.set(1, json!("before").into());
        let branch = outputs.snapshot();
        outputs.set(1, json!("after").into());
        assert_eq!(**branch.value(1).unwrap(), json!("before"));
        assert_eq!(**outputs.value(1).unwrap(), json!("after"));
        assert_eq!(outputs.iter().count(), 1);
    }
}
