//! Evaluator of simple expressions without JavaScript: paths, literals, comparison, logic, arithmetic, and built-ins with work
//! bounded by the size of their arguments.
//!
//! 1. The result equals JavaScript's exactly (a stored number retains its notation). If that is not certain there is no result,
//!    and JavaScript must evaluate the expression.
//! 2. An evaluation is short: it reads at most [`MAX_WORK`] bytes, except for a value that it returns unchanged. It may therefore
//!    run on a thread that must not block.
//!
//! Not here: expressions whose result may differ from JavaScript's, which JavaScript evaluates.

mod ops;
mod parse;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Map, Value};

use self::ops::{Val, json_number};
use super::names::is_global;
use super::path::{Reached, Target, owned};
use super::text::is_truthy;
use super::{Path, Scope, is_known};
use crate::error::{RunErrorCode, ScriptFault};
use crate::value::{MAX_LEVELS, levels};

/// Maximum number of bytes that an evaluation may read.
const MAX_WORK: usize = 1 << 20;

/// An expression that can be evaluated without JavaScript.
#[derive(Clone, Debug, PartialEq)]
pub struct Plain(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Literal(Arc<Value>),
    Undefined,
    /// `input.items[0]?.name`: `undefined` if the path does not exist.
    Path(Path),
    /// `{{user.name}}`: an error if the path does not exist.
    Placeholder(Path),
    Unary(Op, Box<Node>),
    Binary(Op, Box<[Node; 2]>),
    /// `a ? b : c`
    Choice(Box<[Node; 3]>),
    Length(Box<Node>),
    Method(Method, Box<Node>, Vec<Node>),
    /// A global function, with the root name in the source, which a variable may shadow.
    Global(Global, Arc<str>, Vec<Node>),
    List(Vec<Node>),
    Object(Vec<(Arc<str>, Node)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Same,
    NotSame,
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Coalesce,
    Not,
    Negate,
    ToNumber,
    Typeof,
}

/// A method of strings; two of the methods also exist for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Includes,
    IndexOf,
    StartsWith,
    EndsWith,
    Trim,
    ToLowerCase,
    ToUpperCase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Global {
    Boolean,
    Number,
    String,
    IsArray,
    Abs,
    Ceil,
    Floor,
    Trunc,
    Max,
    Min,
}

impl Method {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "includes" => Self::Includes,
            "indexOf" => Self::IndexOf,
            "startsWith" => Self::StartsWith,
            "endsWith" => Self::EndsWith,
            "trim" => Self::Trim,
            "toLowerCase" => Self::ToLowerCase,
            "toUpperCase" => Self::ToUpperCase,
            _ => return None,
        })
    }
}

impl Global {
    fn named(root: &str, member: Option<&str>) -> Option<Self> {
        Some(match (root, member) {
            ("Boolean", None) => Self::Boolean,
            ("Number", None) => Self::Number,
            ("String", None) => Self::String,
            ("Array", Some("isArray")) => Self::IsArray,
            ("Math", Some("abs")) => Self::Abs,
            ("Math", Some("ceil")) => Self::Ceil,
            ("Math", Some("floor")) => Self::Floor,
            ("Math", Some("trunc")) => Self::Trunc,
            ("Math", Some("max")) => Self::Max,
            ("Math", Some("min")) => Self::Min,
            _ => return None,
        })
    }
}

/// Reason why an evaluation ends without a value.
enum EvalError {
    /// Only JavaScript can evaluate the expression, or the work limit is exceeded.
    Unknown,
    Fault(ScriptFault),
}

impl Plain {
    /// Parses an expression; `None` if it needs JavaScript.
    pub fn read(source: &str) -> Option<Self> {
        parse::read(source.trim()).map(Self)
    }

    /// Returns the value if the expression is a literal.
    pub fn literal(&self) -> Option<&Value> {
        match &self.0 {
            Node::Literal(value) => Some(value),
            Node::Undefined => Some(&Value::Null),
            _ => None,
        }
    }

    /// Returns the path if the expression is a path or a `{{path}}`.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Node::Path(path) | Node::Placeholder(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the value, with `undefined` as `null`. `None` means that JavaScript must evaluate the expression.
    ///
    /// # Errors
    /// `SCRIPT_ERROR` with the path if a `{{path}}` does not exist.
    pub fn value(&self, scope: &dyn Scope) -> Option<Result<Arc<Value>, ScriptFault>> {
        known(match &self.0 {
            Node::Literal(value) => Ok(Arc::clone(value)),
            Node::Undefined => Ok(Arc::new(Value::Null)),
            Node::Path(path) => at(path, scope, owned).map(Option::unwrap_or_default),
            Node::Placeholder(path) => expected(path, scope, owned),
            node => Evaluation::over(scope).result(node),
        })
    }

    /// True if the value is truthy. `None` as for [`Plain::value`].
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
        known(match &self.0 {
            Node::Path(path) => at(path, scope, truth).map(|found| found.unwrap_or(false)),
            Node::Placeholder(path) => expected(path, scope, truth),
            node => Evaluation::over(scope).value(node).map(|value| value.is_truthy()),
        })
    }
}

fn known<R>(result: Result<R, EvalError>) -> Option<Result<R, ScriptFault>> {
    match result {
        Ok(value) => Some(Ok(value)),
        Err(EvalError::Fault(fault)) => Some(Err(fault)),
        Err(EvalError::Unknown) => None,
    }
}

/// Reads the value at a path of an expression; `None` for `undefined`.
fn at<R>(path: &Path, scope: &dyn Scope, read: impl FnOnce(Target<'_>) -> R) -> Result<Option<R>, EvalError> {
    let root = path.root();
    if is_global(root) && scope.variable(root).is_none() {
        return Err(EvalError::Unknown);
    }
    if !is_known(scope, root) {
        return Err(EvalError::Fault(ScriptFault::unknown_name(root)));
    }
    match path.reach(scope, read) {
        Reached::Value(value) => Ok(Some(value)),
        Reached::Undefined => Ok(None),
        Reached::Unknown => Err(EvalError::Unknown),
    }
}

/// Reads the value at a `{{path}}`.
fn expected<R>(path: &Path, scope: &dyn Scope, read: impl FnOnce(Target<'_>) -> R) -> Result<R, EvalError> {
    match path.reach(scope, read) {
        Reached::Value(value) => Ok(value),
        Reached::Undefined | Reached::Unknown => {
            let fault = ScriptFault::missing_path(RunErrorCode::ScriptError, path.source());
            Err(EvalError::Fault(fault))
        }
    }
}

/// State of one evaluation, with the remaining number of bytes it may read.
struct Evaluation<'s> {
    scope: &'s dyn Scope,
    work: Cell<usize>,
}

impl<'s> Evaluation<'s> {
    fn over(scope: &'s dyn Scope) -> Self {
        Self {
            scope,
            work: Cell::new(MAX_WORK),
        }
    }

    fn result(&self, node: &Node) -> Result<Arc<Value>, EvalError> {
        let value = self.value(node)?;
        let value = self.json(value)?.unwrap_or_default();
        if levels(&value) > MAX_LEVELS {
            return Err(EvalError::Unknown);
        }
        Ok(Arc::new(value))
    }

    fn value<'a>(&self, node: &'a Node) -> Result<Val<'a>, EvalError> {
        match node {
            Node::Literal(value) => self.shown(value, None),
            Node::Undefined => Ok(Val::Undefined),
            Node::Path(path) => {
                let found = at(path, self.scope, |target| self.target(&target, path))?;
                found.unwrap_or(Ok(Val::Undefined))
            }
            Node::Placeholder(path) => expected(path, self.scope, |target| self.target(&target, path))?,
            Node::Unary(Op::Typeof, inner) if self.is_unknown(inner) => Ok(Val::Text("undefined".into())),
            Node::Unary(op, inner) => ops::unary(*op, &self.value(inner)?).ok_or(EvalError::Unknown),
            Node::Binary(op, operands) => self.binary(*op, operands),
            Node::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                let chosen = if self.value(condition)?.is_truthy() {
                    then
                } else {
                    otherwise
                };
                self.value(chosen)
            }
            Node::Length(of) => match self.value(of)? {
                Val::Text(text) => Ok(Val::Number(text.encode_utf16().count() as f64)),
                _ => Err(EvalError::Unknown),
            },
            Node::Method(method, of, arguments) => self.method(*method, of, arguments),
            Node::Global(global, root, arguments) => {
                if self.scope.variable(root).is_some() {
                    return Err(EvalError::Unknown);
                }
                if *global == Global::IsArray {
                    return self.is_array(arguments);
                }
                let arguments = arguments.iter().map(|one| self.value(one));
                ops::global(*global, &arguments.collect::<Result<Vec<_>, _>>()?).ok_or(EvalError::Unknown)
            }
            Node::List(items) => {
                let items = items.iter().map(|item| {
                    let item = self.value(item)?;
                    Ok(self.json(item)?.unwrap_or_default())
                });
                Ok(Val::Made(Value::Array(items.collect::<Result<_, EvalError>>()?)))
            }
            Node::Object(fields) => {
                let mut made = Map::new();
                for (name, field) in fields {
                    let field = self.value(field)?;
                    match self.json(field)? {
                        Some(field) => made.insert(name.to_string(), field),
                        None => made.remove(&**name),
                    };
                }
                Ok(Val::Made(Value::Object(made)))
            }
        }
    }

    /// True for a single undefined name, which JavaScript allows as the operand of `typeof`.
    fn is_unknown(&self, node: &Node) -> bool {
        match node {
            Node::Path(path) => {
                let name = path.root();
                path.steps().is_empty() && !is_global(name) && !is_known(self.scope, name)
            }
            _ => false,
        }
    }

    fn binary<'a>(&self, op: Op, operands: &'a [Node; 2]) -> Result<Val<'a>, EvalError> {
        let [left, right] = operands;
        let left = self.value(left)?;
        let is_left = match op {
            Op::And => !left.is_truthy(),
            Op::Or => left.is_truthy(),
            Op::Coalesce => !matches!(left, Val::Undefined | Val::Null),
            _ => {
                let right = self.value(right)?;
                let result = ops::binary(op, &left, &right).ok_or(EvalError::Unknown)?;
                if let Val::Text(text) = &result {
                    self.spend(text.len())?;
                }
                return Ok(result);
            }
        };
        if is_left { Ok(left) } else { self.value(right) }
    }

    fn method<'a>(&self, method: Method, of: &'a Node, arguments: &[Node]) -> Result<Val<'a>, EvalError> {
        let of = self.value(of)?;
        // Checked before the arguments: on a value without methods only JavaScript can give the result, usually an error.
        let has_methods = match &of {
            Val::Text(_) | Val::Made(Value::Array(_)) => true,
            Val::At(path) => self.list(path, |_| Some(()))?.is_some(),
            _ => false,
        };
        if !has_methods {
            return Err(EvalError::Unknown);
        }
        let argument = match arguments {
            [] => None,
            [one] => Some(self.value(one)?),
            _ => return Err(EvalError::Unknown),
        };
        let found = match of {
            Val::Text(text) => {
                self.spend(text.len())?;
                ops::method(method, &text, argument.as_ref())
            }
            Val::At(path) => self.list(path, |items| ops::method_of_list(method, items, argument.as_ref()))?,
            // A `null` in the list may be an `undefined`, which JavaScript distinguishes and JSON does not.
            Val::Made(Value::Array(items)) if items.contains(&Value::Null) => None,
            Val::Made(Value::Array(items)) => ops::method_of_list(method, &items, argument.as_ref()),
            _ => None,
        };
        found.ok_or(EvalError::Unknown)
    }

    /// Returns the result of `read` for the list at a path; `None` if the value is not a list.
    fn list<R>(&self, path: &Path, read: impl FnOnce(&[Value]) -> Option<R>) -> Result<Option<R>, EvalError> {
        let listed = |target: Target<'_>| {
            let items = match &target {
                Target::Whole(value) => value.as_array(),
                Target::Part(value) => value.as_array(),
                Target::Length(_) | Target::All(_) => None,
            };
            let Some(items) = items else { return Ok(None) };
            self.spend(items.len() * size_of::<Value>())?;
            Ok(read(items))
        };
        at(path, self.scope, listed)?.unwrap_or(Ok(None))
    }

    fn is_array<'a>(&self, arguments: &[Node]) -> Result<Val<'a>, EvalError> {
        let [argument] = arguments else {
            return Err(EvalError::Unknown);
        };
        let is_array = match self.value(argument)? {
            Val::At(path) => self.list(path, |_| Some(()))?.is_some(),
            Val::Made(value) => value.is_array(),
            _ => false,
        };
        Ok(Val::Bool(is_array))
    }

    fn target<'a>(&self, target: &Target<'_>, path: &'a Path) -> Result<Val<'a>, EvalError> {
        match target {
            Target::Whole(value) => self.shown(value, Some(path)),
            Target::Part(value) => self.shown(value, Some(path)),
            Target::Length(length) => Ok(Val::Number(*length as f64)),
            Target::All(_) => Ok(Val::At(path)),
        }
    }

    /// Converts a stored value; a list or an object is represented by its path.
    fn shown<'a>(&self, value: &Value, path: Option<&'a Path>) -> Result<Val<'a>, EvalError> {
        Ok(match value {
            Value::Null => Val::Null,
            Value::Bool(truth) => Val::Bool(*truth),
            Value::Number(number) => Val::Number(number.as_f64().ok_or(EvalError::Unknown)?),
            Value::String(text) => {
                self.spend(text.len())?;
                Val::Text(Cow::Owned(text.clone()))
            }
            Value::Array(_) | Value::Object(_) => Val::At(path.ok_or(EvalError::Unknown)?),
        })
    }

    /// Converts to JSON; `None` for `undefined`.
    fn json(&self, value: Val<'_>) -> Result<Option<Value>, EvalError> {
        Ok(Some(match value {
            Val::Undefined => return Ok(None),
            Val::Null => Value::Null,
            Val::Bool(truth) => Value::Bool(truth),
            Val::Number(number) => json_number(number).ok_or(EvalError::Unknown)?,
            Val::Text(text) => Value::String(text.into_owned()),
            Val::At(path) => match path.reach(self.scope, owned) {
                Reached::Value(value) => Arc::unwrap_or_clone(value),
                Reached::Undefined | Reached::Unknown => return Err(EvalError::Unknown),
            },
            Val::Made(value) => value,
        }))
    }

    fn spend(&self, bytes: usize) -> Result<(), EvalError> {
        let left = self.work.get().checked_sub(bytes).ok_or(EvalError::Unknown)?;
        self.work.set(left);
        Ok(())
    }
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
            known: ["nothing".into()].into(),
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
    fn literals_and_paths_are_evaluated_without_javascript() {
        assert_eq!(value(" 42 "), Some(json!(42)));
        assert_eq!(value("-7"), Some(json!(-7)));
        assert_eq!(value("1.0"), Some(json!(1)));
        assert_eq!(value("2.50"), Some(json!(2.5)));
        assert_eq!(value("'it is \"so\"'"), Some(json!("it is \"so\"")));
        assert_eq!(value("undefined"), Some(json!(null)));
        assert_eq!(value("user.name"), Some(json!("John")));
        assert_eq!(value("nothing"), Some(json!(null)));
        assert_eq!(value("user.other"), Some(json!(null)));
        assert_eq!(value("Math"), Some(json!("mine")));
        assert_eq!(value("input.items.length"), Some(json!(2)));
    }

    #[test]
    fn an_unknown_name_is_an_error_unless_tested_by_typeof() {
        for source in [
            "absent",
            "absent.x",
            "absent?.x",
            "1 + absent",
            "typeof absent.x",
            "[absent]",
        ] {
            assert_eq!(
                value(source),
                Some(json!({"fault": "unknown name `absent`"})),
                "{source}"
            );
        }
        assert_eq!(value("typeof absent"), Some(json!("undefined")));
        assert_eq!(value("typeof absent === 'undefined' || absent.x"), Some(json!(true)));
        assert_eq!(value("zero && absent"), Some(json!(0)));
    }

    #[test]
    fn javascript_features_are_left_to_javascript() {
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
            "",
            "a +",
            "a b",
            "1) + (2",
            "a, b",
            "a = 1",
            "007",
            "1e3",
            "1n",
            "1.a",
            "'\\n'",
            "'a",
            "`a`",
            "await",
            "let",
            "new X",
            "a /b/ c ? 1 : 2 //",
            "a // b",
            "a /* b */",
            "a ?? b || c",
            "a && b ?? c",
            "a ? b",
            "1 <!--x",
            "x => x",
            "[...a]",
            "[,]",
            "({__proto__: a})",
            "({[a]: 1})",
            "a.1",
            "a..b",
            "a?.5:1",
            "a[b]",
            "f(1)",
            "a.map(b)",
            "a\\u0062",
        ] {
            assert_eq!(Plain::read(source), None, "{source}");
        }
    }

    #[test]
    fn operators_and_short_built_ins_are_evaluated_without_javascript() {
        for (source, expected) in [
            ("1 + 2 * 3 - 4 / 2 % 2", json!(7)),
            ("'a' + 1.5 + true + nothing", json!("a1.5trueundefined")),
            ("zero === 0 && user.name !== 'Jane'", json!(true)),
            ("zero || user", json!({"name": "John"})),
            ("nothing ?? input.items", json!([1, 2])),
            ("input?.items?.length > 1 ? 'many' : 'few'", json!("many")),
            ("nothing?.a.b", json!(null)),
            ("user\n.name.toUpperCase().length", json!(4)),
            ("input.items.includes(2) && !input.items.includes('2')", json!(true)),
            (
                "[String(zero), Number(true), input.items.indexOf(2)]",
                json!(["0", 1, 1]),
            ),
            (
                "[Array.isArray(input.items), Array.isArray(user)]",
                json!([true, false]),
            ),
            (
                "({ n: 1, user, 'a b': nothing, list: [zero, nothing] })",
                json!({"n": 1, "user": {"name": "John"}, "list": [0, null]}),
            ),
            ("'{{user.name}}' === 'John' && {{zero}} + 1", json!(1)),
            (
                "typeof nothing + typeof user + typeof null",
                json!("undefinedobjectobject"),
            ),
            ("nothing > 1", json!(false)),
            ("!user == false", json!(true)),
        ] {
            assert_eq!(value(source), Some(expected), "{source}");
        }
    }

    #[test]
    fn slow_or_ambiguous_evaluations_are_left_to_javascript() {
        let long = json!({ "text": "a".repeat(MAX_WORK + 1), "ss": "stra\u{df}e" });
        let scope = ScopeValues {
            input: Arc::new(long),
            ..ScopeValues::default()
        };
        for source in [
            "input.text === 'a'",
            "input.ss.toUpperCase()",
            "1 / 0",
            "[input.none].indexOf(input.none)",
            "1 == '1'",
            "'2' > 1",
            "input === input",
            "input + 1",
            "1e21 + ''",
            "0.0000001 + ''",
            "Math.max(input)",
            "NaN",
        ] {
            let value = Plain::read(source).and_then(|plain| plain.value(&scope));
            assert!(value.is_none(), "{source}: {value:?}");
        }
        let sum = vec!["1"; MAX_NODES_OF_A_TEST].join(" + ");
        assert_eq!(Plain::read(&sum), None);
    }

    /// Larger than the limit of an expression.
    const MAX_NODES_OF_A_TEST: usize = 100_000;

    #[test]
    fn l05_l06_a_single_placeholder_is_its_value_or_an_error_with_its_path() {
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
    fn truth_follows_javascript() {
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
