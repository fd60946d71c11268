//! Parser of the expressions that can be evaluated without JavaScript.
//!
//! The grammar is a subset of JavaScript's: an accepted expression has its JavaScript meaning, and a refused one may still be
//! valid JavaScript. Excluded on purpose: backslashes, templates, regular expressions, comments, assignment, functions, spread,
//! `++` and `--` (which can start a comment), `**`, and `??` mixed with `&&` or `||`.

use std::sync::Arc;

use serde_json::Value;

use super::ops::json_number;
use super::{Global, Method, Node, Op};
use crate::script::names::{begins_name, continues_name, is_reserved};
use crate::script::path::{Path, Step, canonical_index};

/// Maximum nesting of brackets and unary operators.
const MAX_DEPTH: usize = 64;

/// Maximum number of operands and operators, which bounds the steps and the depth of an evaluation.
const MAX_NODES: usize = 1_000;

/// Binary operators by increasing precedence; longer operators are listed before their prefixes.
const LEVELS: [&[(&str, Op)]; 4] = [
    &[
        ("===", Op::Same),
        ("!==", Op::NotSame),
        ("==", Op::Equal),
        ("!=", Op::NotEqual),
    ],
    &[
        ("<=", Op::AtMost),
        (">=", Op::AtLeast),
        ("<", Op::Less),
        (">", Op::Greater),
    ],
    &[("+", Op::Add), ("-", Op::Subtract)],
    &[("*", Op::Multiply), ("/", Op::Divide), ("%", Op::Remainder)],
];

/// Parses an expression; `None` if it needs JavaScript.
pub(super) fn read(source: &str) -> Option<Node> {
    if ["--", "++", "**"].iter().any(|sign| source.contains(sign)) {
        return None;
    }
    let mut reader = Reader {
        rest: source,
        depth: 0,
        nodes: 0,
    };
    let node = reader.expression()?;
    reader.space();
    reader.rest.is_empty().then_some(node)
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn expression(&mut self) -> Option<Node> {
        self.deeper(|reader| {
            let condition = reader.coalesced()?;
            if !reader.take("?") {
                return Some(condition);
            }
            let then = reader.expression()?;
            reader.expect(":")?;
            let otherwise = reader.expression()?;
            reader.node(Node::Choice(Box::new([condition, then, otherwise])))
        })
    }

    /// Parses `a ?? b`, or operands of `&&` and `||`; JavaScript does not allow both without brackets.
    fn coalesced(&mut self) -> Option<Node> {
        let (mut first, is_joined) = self.joined()?;
        while self.take("??") {
            if is_joined {
                return None;
            }
            let next = self.level(0)?;
            first = self.binary(Op::Coalesce, first, next)?;
            if self.looks_at("&&") || self.looks_at("||") {
                return None;
            }
        }
        Some(first)
    }

    /// Parses operands of `&&` and `||`, and returns whether there is more than one.
    fn joined(&mut self) -> Option<(Node, bool)> {
        let (mut first, mut is_joined) = self.conjunction()?;
        while self.take("||") {
            let (next, _) = self.conjunction()?;
            first = self.binary(Op::Or, first, next)?;
            is_joined = true;
        }
        Some((first, is_joined))
    }

    fn conjunction(&mut self) -> Option<(Node, bool)> {
        let mut first = self.level(0)?;
        let mut is_joined = false;
        while self.take("&&") {
            let next = self.level(0)?;
            first = self.binary(Op::And, first, next)?;
            is_joined = true;
        }
        Some((first, is_joined))
    }

    fn level(&mut self, level: usize) -> Option<Node> {
        let Some(operators) = LEVELS.get(level) else {
            return self.operand();
        };
        let mut first = self.level(level + 1)?;
        while let Some((_, op)) = operators.iter().find(|(sign, _)| self.take_operator(sign)) {
            let next = self.level(level + 1)?;
            first = self.binary(*op, first, next)?;
        }
        Some(first)
    }

    fn take_operator(&mut self, sign: &str) -> bool {
        let is_comment = sign == "/" && (self.looks_at("//") || self.looks_at("/*"));
        !is_comment && self.take(sign)
    }

    fn operand(&mut self) -> Option<Node> {
        self.deeper(|reader| {
            for (sign, op) in [("!", Op::Not), ("-", Op::Negate), ("+", Op::ToNumber)] {
                if reader.take(sign) {
                    let inner = reader.operand()?;
                    return reader.unary(op, inner);
                }
            }
            if reader.looks_at_word("typeof") {
                reader.word()?;
                let inner = reader.operand()?;
                return reader.unary(Op::Typeof, inner);
            }
            let mut value = reader.value()?;
            while reader.looks_at(".") || reader.looks_at("?.") || reader.looks_at("[") || reader.looks_at("(") {
                value = reader.member_of(value)?;
            }
            Some(value)
        })
    }

    /// Parses a method call or the length of an expression other than a path.
    fn member_of(&mut self, value: Node) -> Option<Node> {
        self.expect(".")?;
        let name = self.word()?;
        if self.looks_at("(") {
            let method = Method::named(name)?;
            let arguments = self.arguments()?;
            return self.node(Node::Method(method, Box::new(value), arguments));
        }
        (name == "length").then_some(())?;
        self.node(Node::Length(Box::new(value)))
    }

    fn value(&mut self) -> Option<Node> {
        if self.take("(") {
            let inside = self.expression()?;
            self.expect(")")?;
            return Some(inside);
        }
        if self.take("{{") {
            let path = self.placeholder()?;
            return self.node(Node::Placeholder(path));
        }
        if self.take("[") {
            let items = self.items("]")?;
            return self.node(Node::List(items));
        }
        if self.take("{") {
            let fields = self.fields()?;
            return self.node(Node::Object(fields));
        }
        match self.rest.chars().next()? {
            '"' | '\'' => self.text(),
            '0'..='9' => self.number(),
            _ => self.name(),
        }
    }

    fn placeholder(&mut self) -> Option<Path> {
        let (inside, after) = self.rest.split_once("}}")?;
        self.rest = after;
        Path::of_template(inside)
    }

    fn items(&mut self, end: &str) -> Option<Vec<Node>> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(self.expression()?);
            if !self.take(",") {
                self.expect(end)?;
                break;
            }
        }
        Some(items)
    }

    fn arguments(&mut self) -> Option<Vec<Node>> {
        self.expect("(")?;
        self.items(")")
    }

    fn fields(&mut self) -> Option<Vec<(Arc<str>, Node)>> {
        let mut fields = Vec::new();
        while !self.take("}") {
            self.space();
            let is_quoted = self.rest.starts_with(['"', '\'']);
            let key = if is_quoted { self.quoted()? } else { self.word()? };
            if key == "__proto__" || key.contains("{{") {
                return None;
            }
            let value = if self.take(":") {
                self.expression()?
            } else {
                let is_name = !is_quoted && !is_reserved(key);
                is_name.then_some(())?;
                self.node(Node::Path(Path::new(key, key.into(), Vec::new(), Vec::new())))?
            };
            fields.push((key.into(), value));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Some(fields)
    }

    /// Parses a quoted string without escapes.
    fn quoted(&mut self) -> Option<&'a str> {
        let quote = self.rest.chars().next()?;
        let inside = &self.rest[1..];
        let end = inside.find([quote, '\\', '\n', '\r', '\u{2028}', '\u{2029}'])?;
        self.rest = inside[end..].strip_prefix(quote)?;
        Some(&inside[..end])
    }

    /// Parses a string; one that contains `{{path}}` becomes a sum of strings and values.
    fn text(&mut self) -> Option<Node> {
        let mut rest = self.quoted()?;
        let mut sum: Option<Node> = None;
        let mut plain = String::new();
        while let Some((before, tail)) = rest.split_once("{{") {
            plain.push_str(before);
            let inside = tail
                .split_once("{{")
                .map_or(tail, |(inside, _)| inside)
                .split_once("}}");
            let path = inside.and_then(|(inside, _)| Some((Path::of_template(inside)?, &tail[inside.len() + 2..])));
            let Some((path, after)) = path else {
                plain.push_str("{{");
                rest = tail;
                continue;
            };
            let text = self.literal(Value::from(std::mem::take(&mut plain)))?;
            let before = match sum.take() {
                Some(sum) => self.binary(Op::Add, sum, text)?,
                None => text,
            };
            let value = self.node(Node::Placeholder(path))?;
            sum = Some(self.binary(Op::Add, before, value)?);
            rest = after;
        }
        plain.push_str(rest);
        let last = self.literal(Value::from(plain))?;
        match sum {
            Some(sum) => self.binary(Op::Add, sum, last),
            None => Some(last),
        }
    }

    fn number(&mut self) -> Option<Node> {
        let start = self.rest;
        let whole = self.digits();
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        if let Some(rest) = self.rest.strip_prefix('.') {
            self.rest = rest;
            if self.digits().is_empty() {
                return None;
            }
        }
        // Refuses `1n`, `1e3`, `0x1`, `1a`, `1.2.3`.
        if self.rest.starts_with(|next| continues_name(next) || next == '.') {
            return None;
        }
        let number: f64 = start[..start.len() - self.rest.len()].parse().ok()?;
        self.literal(json_number(number)?)
    }

    fn digits(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits
    }

    /// Parses a named literal, a path, or a method call on a path.
    fn name(&mut self) -> Option<Node> {
        let start = self.rest;
        let root = self.word()?;
        match root {
            "true" | "false" => return self.literal(Value::Bool(root == "true")),
            "null" => return self.literal(Value::Null),
            "undefined" => return self.node(Node::Undefined),
            _ if is_reserved(root) || root == "__proto__" => return None,
            _ => {}
        }
        if self.looks_at("(") {
            let global = Global::named(root, None)?;
            let arguments = self.arguments()?;
            return self.node(Node::Global(global, root.into(), arguments));
        }
        let (mut steps, mut optional) = (Vec::new(), Vec::new());
        loop {
            let path = start[..start.len() - self.rest.len()].trim_end();
            let is_optional = self.take("?.");
            if is_optional || self.take(".") {
                if is_optional {
                    optional.push(steps.len());
                }
                let name = self.word()?;
                if self.looks_at("(") {
                    if is_optional {
                        return None;
                    }
                    return self.call((path, root, steps, optional), name);
                }
                steps.push(Step::Key(name.into()));
            } else if self.take("[") {
                self.space();
                steps.push(if self.rest.starts_with(['"', '\'']) {
                    Step::Key(self.quoted().filter(|key| !key.contains("{{"))?.into())
                } else {
                    Step::Index(canonical_index(self.digits())?)
                });
                self.expect("]")?;
            } else {
                return self.node(Node::Path(Path::new(path, root.into(), steps, optional)));
            }
        }
    }

    /// Parses a method call on a path, or a call of a JavaScript function.
    fn call(&mut self, (path, root, steps, optional): (&str, &str, Vec<Step>, Vec<usize>), name: &str) -> Option<Node> {
        if let Some(global) = Global::named(root, Some(name)).filter(|_| steps.is_empty()) {
            let arguments = self.arguments()?;
            return self.node(Node::Global(global, root.into(), arguments));
        }
        let method = Method::named(name)?;
        let of = self.node(Node::Path(Path::new(path, root.into(), steps, optional)))?;
        let arguments = self.arguments()?;
        self.node(Node::Method(method, Box::new(of), arguments))
    }

    fn word(&mut self) -> Option<&'a str> {
        self.space();
        let end = self.rest.find(|c| !continues_name(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let is_name = word.starts_with(begins_name) && !rest.starts_with('\\');
        self.rest = rest;
        is_name.then_some(word)
    }

    fn looks_at_word(&mut self, wanted: &str) -> bool {
        self.looks_at(wanted) && !self.rest[wanted.len()..].starts_with(continues_name)
    }

    fn literal(&mut self, value: Value) -> Option<Node> {
        self.node(Node::Literal(Arc::new(value)))
    }

    fn unary(&mut self, op: Op, inner: Node) -> Option<Node> {
        if let (Op::Negate, Node::Literal(value)) = (op, &inner)
            && let Some(number) = value.as_f64()
        {
            return self.literal(json_number(-number)?);
        }
        self.node(Node::Unary(op, Box::new(inner)))
    }

    fn binary(&mut self, op: Op, left: Node, right: Node) -> Option<Node> {
        self.node(Node::Binary(op, Box::new([left, right])))
    }

    fn node(&mut self, node: Node) -> Option<Node> {
        self.nodes += 1;
        (self.nodes <= MAX_NODES).then_some(node)
    }

    fn deeper<R>(&mut self, read: impl FnOnce(&mut Self) -> Option<R>) -> Option<R> {
        self.depth += 1;
        let done = if self.depth > MAX_DEPTH { None } else { read(self) };
        self.depth -= 1;
        done
    }

    fn looks_at(&mut self, token: &str) -> bool {
        self.space();
        self.rest.starts_with(token)
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expect(&mut self, token: &str) -> Option<()> {
        self.take(token).then_some(())
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }
}
