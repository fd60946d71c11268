//! Paths into a scope: `output`, `input.items[0].name`, `nodes["x"].y`, `compress-messages.content`.

use std::sync::Arc;

use serde_json::Value;

use super::names::continues_name;
use super::{Names, Scope, bare_name};

/// A root name and the members to follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    source: Arc<str>,
    root: Arc<str>,
    steps: Vec<Step>,
    /// Indices of the steps after `?.`: the path is `undefined` if the value before such a step is.
    optional: Vec<usize>,
}

/// Access to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `.name`, `["name"]`
    Key(Arc<str>),
    /// `[0]`
    Index(usize),
}

/// Result of following a path with JavaScript's semantics.
pub(super) enum Reached<R> {
    /// The reader's result for the value.
    Value(R),
    /// The path is `undefined`.
    Undefined,
    /// Only JavaScript can evaluate the path: a method of a prototype, a character of a string, or the error of reading a member
    /// of `undefined`.
    Unknown,
}

/// The value that a reader receives.
pub(super) enum Target<'v> {
    /// A stored value.
    Whole(&'v Arc<Value>),
    /// A part of a stored value.
    Part(&'v Value),
    /// `length` of a list or a string (in UTF-16 units, as in JavaScript).
    Length(usize),
    /// The whole object `variables` or `nodes`.
    All(Vec<(Arc<str>, Arc<Value>)>),
}

impl Path {
    /// Parses a path in the notation of a template or a `{{path}}`: names may contain hyphens, and `a.0` is `a[0]`. Returns
    /// `None` if the source is not a path.
    pub fn of_template(source: &str) -> Option<Self> {
        let template_name = |text: &str| {
            let end = text.find(|c| !continues_name(c) && c != '-').unwrap_or(text.len());
            (end > 0).then_some(end)
        };
        Self::read(source.trim(), template_name)
    }

    /// Creates the path of an expression with the notation `source`; `optional` lists the indices of the steps after `?.`.
    pub(super) fn new(source: &str, root: Arc<str>, steps: Vec<Step>, optional: Vec<usize>) -> Self {
        Self {
            source: source.into(),
            root,
            steps,
            optional,
        }
    }

    fn read(source: &str, name_end: impl Fn(&str) -> Option<usize>) -> Option<Self> {
        let (root, mut rest) = source.split_at(name_end(source)?);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(member) = rest.strip_prefix('.') {
                let (name, after) = member.split_at(name_end(member)?);
                steps.push(Step::Key(name.into()));
                rest = after;
            } else {
                let (inside, after) = bracketed(rest)?;
                steps.push(inside);
                rest = after;
            }
        }
        Some(Self {
            source: source.into(),
            root: root.into(),
            steps,
            optional: Vec::new(),
        })
    }

    /// Returns the path as written.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// Returns the root name.
    pub fn root(&self) -> &Arc<str> {
        &self.root
    }

    /// Returns the members after the root.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Records the names of a scope that the path uses.
    pub fn note(&self, names: &mut Names) {
        names.add(&self.root);
        if let (root @ ("variables" | "nodes"), Some(Step::Key(name))) = (self.root.as_ref(), self.steps.first()) {
            if root == "nodes" {
                names.add_node(name);
            } else {
                names.add_variable(name);
            }
        }
    }

    /// Returns the value at the path, or `None`. The value is shared if the path is a single name. `length` is a field if the
    /// object has one, otherwise the length of the list or string.
    pub fn value(&self, scope: &dyn Scope) -> Option<Arc<Value>> {
        match self.reach(scope, owned) {
            Reached::Value(value) => Some(value),
            Reached::Undefined | Reached::Unknown => None,
        }
    }

    /// Calls `read` with the value at the path.
    pub(super) fn reach<R>(&self, scope: &dyn Scope, read: impl FnOnce(Target<'_>) -> R) -> Reached<R> {
        let is_optional = |place: usize| self.optional.contains(&place);
        let (base, begin) = match (self.root.as_ref(), self.steps.first()) {
            ("variables", None) => return Reached::Value(read(Target::All(scope.variables()))),
            ("nodes", None) => return Reached::Value(read(Target::All(scope.nodes()))),
            (root @ ("variables" | "nodes"), Some(first)) => {
                let name = match first {
                    Step::Key(name) => name.clone(),
                    Step::Index(index) => index.to_string().into(),
                };
                let found = if root == "nodes" {
                    scope.node(&name)
                } else {
                    scope.variable(&name)
                };
                match found {
                    Some(value) => (value, 1),
                    None if is_inherited(&name) => return Reached::Unknown,
                    None if self.steps.len() > 1 && !is_optional(1) => return Reached::Unknown,
                    None => return Reached::Undefined,
                }
            }
            (root, _) => match bare_name(scope, root) {
                Some(value) => (value, 0),
                None if self.steps.is_empty() || is_optional(0) => return Reached::Undefined,
                None => return Reached::Unknown,
            },
        };
        if self.steps.len() == begin {
            return Reached::Value(read(Target::Whole(&base)));
        }
        self.follow(&base, begin, read)
    }

    /// Follows the steps from index `begin`.
    fn follow<R>(&self, base: &Value, begin: usize, read: impl FnOnce(Target<'_>) -> R) -> Reached<R> {
        let mut at = base;
        for (place, step) in self.steps.iter().enumerate().skip(begin) {
            let is_last = place + 1 == self.steps.len();
            let next = match (at, step) {
                (Value::Null, _) if self.optional.contains(&place) => return Reached::Undefined,
                (Value::Object(fields), Step::Key(key)) => match fields.get(key.as_ref()) {
                    None if is_inherited(key) => return Reached::Unknown,
                    found => found,
                },
                (Value::Object(fields), Step::Index(index)) => fields.get(&index.to_string()),
                (Value::Array(items), Step::Index(index)) => items.get(*index),
                (Value::Array(items), Step::Key(key)) => match canonical_index(key) {
                    Some(index) => items.get(index),
                    None if key.as_ref() == "length" && is_last => {
                        return Reached::Value(read(Target::Length(items.len())));
                    }
                    None => return Reached::Unknown,
                },
                (Value::String(text), Step::Key(key)) if key.as_ref() == "length" && is_last => {
                    return Reached::Value(read(Target::Length(text.encode_utf16().count())));
                }
                (Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_), _) => return Reached::Unknown,
            };
            match next {
                Some(value) => at = value,
                None if is_last || self.optional.contains(&(place + 1)) => return Reached::Undefined,
                None => return Reached::Unknown,
            }
        }
        Reached::Value(read(Target::Part(at)))
    }
}

/// Returns the value of a target, copied if it is a part of a stored value.
pub(super) fn owned(target: Target<'_>) -> Arc<Value> {
    match target {
        Target::Whole(value) => value.clone(),
        Target::Part(value) => Arc::new(value.clone()),
        Target::Length(length) => Arc::new(Value::from(length)),
        Target::All(values) => Arc::new(
            values
                .into_iter()
                .map(|(name, value)| (name.to_string(), value.as_ref().clone()))
                .collect(),
        ),
    }
}

/// True if every object inherits a member of this name from its prototype.
fn is_inherited(key: &str) -> bool {
    matches!(
        key,
        "__defineGetter__"
            | "__defineSetter__"
            | "__lookupGetter__"
            | "__lookupSetter__"
            | "__proto__"
            | "constructor"
            | "hasOwnProperty"
            | "isPrototypeOf"
            | "propertyIsEnumerable"
            | "toLocaleString"
            | "toString"
            | "valueOf"
    )
}

/// Parses `"12"` as 12, but not `"012"`, which is a plain name. The limit is that of a list index, below 2^32 - 1.
pub(super) fn canonical_index(key: &str) -> Option<usize> {
    let is_canonical = key == "0" || (key.starts_with(|c: char| ('1'..='9').contains(&c)) && key.len() <= 9);
    is_canonical.then(|| key.parse().ok())?
}

/// Parses `[0]`, `["name"]` or `['name']` at the start of `text`, and returns the rest.
fn bracketed(text: &str) -> Option<(Step, &str)> {
    let inside = text.strip_prefix('[')?;
    if let Some(quote) = inside.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let (name, after) = inside[1..].split_once(quote)?;
        let is_literal = !name.contains(['\\', '\n', '\r']);
        return is_literal.then(|| after.strip_prefix(']').map(|after| (Step::Key(name.into()), after)))?;
    }
    let (digits, after) = inside.split_once(']')?;
    Some((Step::Index(canonical_index(digits)?), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::ScopeValues;
    use serde_json::json;

    fn at(path: &str) -> Option<Value> {
        let scope = ScopeValues {
            input: Arc::new(json!({"items": [{"name": "first"}], "text": "h\u{e9}\u{1f600}"})),
            nodes: [(Arc::from("compress-messages"), Arc::new(json!({"content": "short"})))].into(),
            variables: [(Arc::from("a"), Arc::new(json!({"b": null})))].into(),
            ..ScopeValues::default()
        };
        Path::of_template(path)?
            .value(&scope)
            .map(|value| value.as_ref().clone())
    }

    #[test]
    fn a_path_resolves_to_its_value() {
        assert_eq!(at("compress-messages.content"), Some(json!("short")));
        assert_eq!(at("nodes['compress-messages'].content"), Some(json!("short")));
        assert_eq!(at(r#"nodes["compress-messages"]["content"]"#), Some(json!("short")));
        assert_eq!(at("input.items[0].name"), Some(json!("first")));
        assert_eq!(at(" input.items.0.name "), Some(json!("first")));
        assert_eq!(at("input.items.length"), Some(json!(1)));
        assert_eq!(at("input.text.length"), Some(json!(4)));
        assert_eq!(at("variables.a.b"), Some(json!(null)));
        assert_eq!(at("variables"), Some(json!({"a": {"b": null}})));
    }

    #[test]
    fn a_path_without_a_value_resolves_to_nothing() {
        for path in [
            "other",
            "input.other",
            "input.items[1]",
            "a.b.c",
            "variables.x",
            "input.toString",
            "event",
        ] {
            assert_eq!(at(path), None, "{path}");
        }
    }

    #[test]
    fn an_invalid_path_is_refused() {
        for text in [
            "", ".", "a.", "a..b", "a b", "a[", "a[]", "a[01]", "a[\"x]", "a + b", "a[b]", "#if a", "a/b",
        ] {
            assert_eq!(Path::of_template(text), None, "{text}");
        }
    }
}
