//! The scope in which a snippet is evaluated, and an owned copy of the part that a snippet uses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::names::is_global;
use super::{Names, Used};

/// Names and values that a snippet can use during its evaluation.
///
/// Values are looked up when they are used, so the cost of an evaluation depends on the names in the snippet and not on the size
/// of the scope. Values are shared, never copied.
pub trait Scope {
    /// The thread's input.
    fn input(&self) -> Arc<Value>;
    /// The last node's output; `result` is another name for it. At the start of a branch it is the last output before the FORK,
    /// at the start of any other thread `null`.
    fn output(&self) -> Arc<Value>;
    /// A variable; the thread's variable shadows the run's.
    fn variable(&self, name: &str) -> Option<Arc<Value>>;
    /// Returns all variables, each name once. Used for the whole object `variables`.
    fn variables(&self) -> Vec<(Arc<str>, Arc<Value>)>;
    /// The output of a node, by the user's id.
    fn node(&self, id: &str) -> Option<Arc<Value>>;
    /// Returns all node outputs. Used for the whole object `nodes`.
    fn nodes(&self) -> Vec<(Arc<str>, Arc<Value>)>;
    /// The event, in a trigger's snippets and in threads that a trigger started.
    fn event(&self) -> Option<Arc<Value>>;
    /// True if `name` may have no value yet: a node that has not run, or a variable that is not assigned. Any other name without
    /// a value is an error.
    fn knows(&self, name: &str) -> bool;
}

/// Returns the value of the bare name `name`, JavaScript's globals excluded: a variable, one of the fixed names, or a node's
/// output. `variables` and `nodes` are not values and return `None`.
pub fn bare_name(scope: &dyn Scope, name: &str) -> Option<Arc<Value>> {
    if name == "variables" || name == "nodes" {
        return None;
    }
    scope.variable(name).or_else(|| match name {
        "input" => Some(scope.input()),
        "output" | "result" => Some(scope.output()),
        "event" => scope.event(),
        _ => scope.node(name),
    })
}

/// An owned scope: the names that a snippet uses of another scope, for evaluation later or on another thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeValues {
    /// The thread's input.
    pub input: Arc<Value>,
    /// The last node's output.
    pub output: Arc<Value>,
    /// Variables by name.
    pub variables: BTreeMap<Arc<str>, Arc<Value>>,
    /// Node outputs by id.
    pub nodes: BTreeMap<Arc<str>, Arc<Value>>,
    /// The event.
    pub event: Option<Arc<Value>>,
    /// Names that have no value yet.
    pub known: BTreeSet<Arc<str>>,
}

impl ScopeValues {
    /// Copies (by reference count) the values that a snippet with these names can reach: a script that uses two variables of 10
    /// 000 captures two.
    pub fn capture(names: &Names, scope: &dyn Scope) -> Self {
        let mut values = Self::default();
        for name in names.bare() {
            match &**name {
                "input" => values.input = scope.input(),
                "output" | "result" => values.output = scope.output(),
                "event" => values.event = scope.event(),
                _ => {}
            }
            let (variable, node) = (scope.variable(name), scope.node(name));
            if variable.is_none() && node.is_none() && scope.knows(name) {
                values.known.insert(name.clone());
            }
            values.variables.extend(variable.map(|value| (name.clone(), value)));
            values.nodes.extend(node.map(|value| (name.clone(), value)));
        }
        match names.variables() {
            Used::All => values.variables.extend(scope.variables()),
            Used::These(used) => values.variables.extend(
                used.iter()
                    .filter_map(|name| Some((name.clone(), scope.variable(name)?))),
            ),
        }
        match names.nodes() {
            Used::All => values.nodes.extend(scope.nodes()),
            Used::These(used) => {
                values
                    .nodes
                    .extend(used.iter().filter_map(|name| Some((name.clone(), scope.node(name)?))));
            }
        }
        values
    }

    /// Returns the bare names of a script that are undefined in this scope. Some may be local variables of the script.
    pub fn unknown(&self, names: &Names) -> Vec<Arc<str>> {
        let bare = names.bare().filter(|name| &***name != "__proto__");
        let unknown = bare.filter(|name| !is_global(name) && !is_known(self, name));
        unknown.cloned().collect()
    }
}

impl Scope for ScopeValues {
    fn input(&self) -> Arc<Value> {
        self.input.clone()
    }
    fn output(&self) -> Arc<Value> {
        self.output.clone()
    }
    fn variable(&self, name: &str) -> Option<Arc<Value>> {
        self.variables.get(name).cloned()
    }
    fn variables(&self) -> Vec<(Arc<str>, Arc<Value>)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
    fn node(&self, id: &str) -> Option<Arc<Value>> {
        self.nodes.get(id).cloned()
    }
    fn nodes(&self) -> Vec<(Arc<str>, Arc<Value>)> {
        self.nodes
            .iter()
            .map(|(id, value)| (id.clone(), value.clone()))
            .collect()
    }
    fn event(&self) -> Option<Arc<Value>> {
        self.event.clone()
    }
    fn knows(&self, name: &str) -> bool {
        self.known.contains(name)
    }
}

/// Names in scope of every snippet: without a value they are `undefined`.
pub const FIXED_NAMES: [&str; 7] = ["event", "input", "loop", "nodes", "output", "result", "variables"];

/// True if a bare name is defined in a scope, even as `undefined`; JavaScript's globals excluded.
pub fn is_known(scope: &dyn Scope, name: &str) -> bool {
    FIXED_NAMES.contains(&name) || scope.knows(name) || bare_name(scope, name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> ScopeValues {
        let variables = ["a", "b", "result", "variables"].map(|name| (Arc::from(name), Arc::new(json!(name))));
        let nodes = ["b", "n", "input"].map(|id| (Arc::from(id), Arc::new(json!(format!("node {id}")))));
        ScopeValues {
            input: Arc::new(json!("in")),
            output: Arc::new(json!("out")),
            variables: variables.into(),
            nodes: nodes.into(),
            ..ScopeValues::default()
        }
    }

    #[test]
    fn a_bare_name_is_a_variable_then_a_fixed_name_then_a_node() {
        let scope = scope();
        let meaning = |name| bare_name(&scope, name).map(|value| value.as_ref().clone());
        assert_eq!(meaning("b"), Some(json!("b")));
        assert_eq!(meaning("n"), Some(json!("node n")));
        assert_eq!(meaning("input"), Some(json!("in")));
        assert_eq!(meaning("result"), Some(json!("result")));
        assert_eq!(meaning("output"), Some(json!("out")));
        assert_eq!(meaning("event"), None);
        assert_eq!(meaning("variables"), None);
        assert_eq!(meaning("other"), None);
    }

    #[test]
    fn capture_takes_only_the_named_values() {
        let captured = ScopeValues::capture(&Names::of("b + variables.a"), &scope());
        assert_eq!(
            captured.variables.keys().map(AsRef::as_ref).collect::<Vec<&str>>(),
            ["a", "b", "variables"]
        );
        assert_eq!(captured.nodes.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["b"]);
        let all = ScopeValues::capture(&Names::of("Object.keys(variables)"), &scope());
        assert_eq!(all.variables.len(), 4);
    }
}
