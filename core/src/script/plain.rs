//! Expressions that need no JavaScript: a path, a literal, one `{{path}}`.

use std::sync::Arc;

use serde_json::Value;

use super::names::{is_global, is_reserved};
use super::path::{Reached, Target, owned};
use super::text::is_truthy;
use super::{Path, Scope};
use crate::error::{RunErrorCode, ScriptFault};

/// An expression that is evaluated without JavaScript, with exactly JavaScript's result (a stored number keeps the
/// notation it is stored in).
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    /// `true`, `42`, `"text"`, `null`, `undefined`.
    Literal(Arc<Value>),
    /// `input.items[0].name`: `undefined` where there is nothing.
    Path(Path),
    /// `{{user.name}}` and nothing else: an error where there is nothing.
    Placeholder(Path),
}

impl Plain {
    /// Reads an expression; `None` where it takes JavaScript.
    pub fn read(source: &str) -> Option<Self> {
        let source = source.trim();
        if let Some(path) = source.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
            return Path::of_template(path).map(Self::Placeholder);
        }
        if let Some(literal) = literal(source) {
            return Some(Self::Literal(Arc::new(literal)));
        }
        let path = Path::of_expression(source)?;
        let is_name = !is_reserved(path.root()) && path.root().as_ref() != "__proto__";
        is_name.then_some(Self::Path(path))
    }

    /// The value, `undefined` as `null`. `None` where only JavaScript knows: evaluate the text there.
    ///
    /// # Errors
    /// `SCRIPT_ERROR` naming the path where a `{{path}}` leads nowhere.
    pub fn value(&self, scope: &dyn Scope) -> Option<Result<Arc<Value>, ScriptFault>> {
        self.evaluate(scope, owned, || Arc::new(Value::Null))
    }

    /// Whether the value counts as true. `None` as for [`Plain::value`].
    ///
    /// # Errors
    /// As [`Plain::value`].
    pub fn truth(&self, scope: &dyn Scope) -> Option<Result<bool, ScriptFault>> {
        let truth = |target: Target<'_>| match target {
            Target::Whole(value) => is_truthy(value),
            Target::Part(value) => is_truthy(value),
            Target::Length(length) => length > 0,
            Target::All(_) => true,
        };
        self.evaluate(scope, truth, || false)
    }

    fn evaluate<R>(
        &self,
        scope: &dyn Scope,
        read: impl FnOnce(Target<'_>) -> R,
        undefined: impl FnOnce() -> R,
    ) -> Option<Result<R, ScriptFault>> {
        match self {
            Self::Literal(value) => Some(Ok(read(Target::Whole(value)))),
            Self::Path(path) => {
                let root = path.root();
                if is_global(root) && scope.variable(root).is_none() {
                    return None;
                }
                match path.reach(scope, read) {
                    Reached::Value(value) => Some(Ok(value)),
                    Reached::Undefined => Some(Ok(undefined())),
                    Reached::Unknown => None,
                }
            }
            Self::Placeholder(path) => match path.reach(scope, read) {
                Reached::Value(value) => Some(Ok(value)),
                Reached::Undefined | Reached::Unknown => {
                    Some(Err(ScriptFault::missing_path(RunErrorCode::ScriptError, path.source())))
                }
            },
        }
    }
}

fn literal(source: &str) -> Option<Value> {
    match source {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        "null" | "undefined" => return Some(Value::Null),
        _ => {}
    }
    let quote = source.chars().next()?;
    if matches!(quote, '"' | '\'') {
        let inside = source[1..].strip_suffix(quote)?;
        let is_plain = !inside.contains([quote, '\\', '\n', '\r']) && !inside.contains("{{");
        return is_plain.then(|| Value::from(inside));
    }
    number(source)
}

/// A decimal number that JavaScript and JSON write alike: at most 15 digits, no exponent.
fn number(source: &str) -> Option<Value> {
    let digits = source.strip_prefix('-').unwrap_or(source);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_octal_look = whole.len() > 1 && whole.starts_with('0');
    if !is_digits(whole) || !is_digits(fraction) || has_octal_look || digits.len() > 15 {
        return None;
    }
    if fraction.bytes().all(|digit| digit == b'0') {
        return source.split('.').next()?.parse::<i64>().ok().map(Value::from);
    }
    source.parse::<f64>().ok().map(Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::ScopeValues;
    use serde_json::json;

    fn scope() -> ScopeValues {
        ScopeValues {
            input: Arc::new(json!({"items": [1, 2]})),
            variables: [
                ("user", json!({"name": "John"})),
                ("Math", json!("mine")),
                ("zero", json!(0)),
            ]
            .map(|(name, value)| (Arc::from(name), Arc::new(value)))
            .into(),
            ..ScopeValues::default()
        }
    }

    fn value(source: &str) -> Option<Value> {
        let value = Plain::read(source)?.value(&scope())?;
        Some(value.map_or_else(
            |fault| json!({ "fault": fault.message }),
            |value| value.as_ref().clone(),
        ))
    }

    #[test]
    fn literals_and_paths_need_no_javascript() {
        assert_eq!(value(" 42 "), Some(json!(42)));
        assert_eq!(value("-7"), Some(json!(-7)));
        assert_eq!(value("1.0"), Some(json!(1)));
        assert_eq!(value("2.50"), Some(json!(2.5)));
        assert_eq!(value("'it is \"so\"'"), Some(json!("it is \"so\"")));
        assert_eq!(value("undefined"), Some(json!(null)));
        assert_eq!(value("user.name"), Some(json!("John")));
        assert_eq!(value("nothing"), Some(json!(null)), "K25");
        assert_eq!(value("user.other"), Some(json!(null)));
        assert_eq!(value("Math"), Some(json!("mine")));
        assert_eq!(value("input.items.length"), Some(json!(2)));
    }

    #[test]
    fn what_only_javascript_knows_is_left_to_it() {
        for source in [
            "nothing.x",
            "user.name[0]",
            "user.toString",
            "input.items.map",
            "JSON",
            "this",
            "__proto__.x",
        ] {
            assert_eq!(value(source), None, "{source}");
        }
        for source in [
            "a + b",
            "007",
            "1e3",
            "'a' + 'b'",
            "'a{{b}}'",
            "'\\n'",
            "a?.b",
            "await",
            "a\n.b",
        ] {
            assert_eq!(Plain::read(source), None, "{source}");
        }
    }

    #[test]
    fn l05_a_lone_placeholder_is_the_value_and_l06_a_missing_one_an_error_that_names_it() {
        assert_eq!(value("{{user.name}}"), Some(json!("John")), "L05");
        assert_eq!(
            value("{{ user.age }}"),
            Some(json!({"fault": "`user.age` does not exist"})),
            "L06"
        );
        assert_eq!(
            value("{{nothing}}"),
            Some(json!({"fault": "`nothing` does not exist"})),
            "L06"
        );
    }

    #[test]
    fn truth_is_javascripts() {
        let truth = |source| {
            Plain::read(source)
                .and_then(|plain| plain.truth(&scope()))
                .map(Result::unwrap)
        };
        assert_eq!(truth("zero"), Some(false));
        assert_eq!(truth("user"), Some(true));
        assert_eq!(truth("nothing"), Some(false));
        assert_eq!(truth("''"), Some(false));
        assert_eq!(truth("variables"), Some(true));
    }
}
