//! `export const meta = {...}` at the start of a script workflow: a literal, which is read without running the script.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::names::{begins_name, continues_name};
use super::place;
use crate::value::MAX_LEVELS;

/// Names of the host functions and values in the scope of a script workflow.
pub const HOST_NAMES: [&str; 16] = [
    "agent",
    "any",
    "args",
    "ask",
    "budget",
    "event",
    "log",
    "parallel",
    "phase",
    "pipeline",
    "race",
    "sleep",
    "threshold",
    "tool",
    "tools",
    "workflow",
];

/// Reason why the `meta` of a script cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaFault {
    /// Description in one sentence, for display.
    pub message: String,
    /// Byte offset in the script.
    pub at: usize,
    /// Line in the script, from 1.
    pub line: u32,
    /// Column in the line, from 1.
    pub column: u32,
}

impl std::fmt::Display for MetaFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (line {}, column {})", self.message, self.line, self.column)
    }
}

/// Returns the value of `export const meta = {...}`, which must be the first statement; `None` if the script has none.
///
/// # Errors
/// Fails if the value is not a literal.
pub fn read_meta(source: &str) -> Result<Option<Map<String, Value>>, MetaFault> {
    let mut reader = Reader { source, at: 0 };
    reader.meta().map_err(|message| {
        let (line, column) = place::line_and_column(source, reader.at.min(source.len()));
        MetaFault {
            message,
            at: reader.at,
            line,
            column,
        }
    })
}

/// Returns the script as the body of a function: with spaces for the word `export` before `meta`, so that all positions stay.
pub fn script_body(source: &str) -> Cow<'_, str> {
    let mut reader = Reader { source, at: 0 };
    match reader.export() {
        Ok(Some(word)) => {
            let mut body = source.to_owned();
            body.replace_range(word.clone(), &" ".repeat(word.len()));
            body.into()
        }
        Ok(None) | Err(_) => source.into(),
    }
}

fn computed() -> String {
    "`meta` must be a literal: objects, lists, strings, numbers, true, false and null, without computed values"
        .to_owned()
}

struct Reader<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn meta(&mut self) -> Result<Option<Map<String, Value>>, String> {
        if self.export()?.is_none() {
            return Ok(None);
        }
        let Value::Object(meta) = self.value(0)? else {
            return Err("`meta` must be an object".to_owned());
        };
        // `{...}.name` and `{...}[0]` are computed values.
        self.space()?;
        match self.rest().chars().next() {
            Some('.' | '[' | '(' | '?' | '|' | '&' | '+' | '`') => Err(computed()),
            _ => Ok(Some(meta)),
        }
    }

    /// Skips `export const meta =`. Returns the range of the word `export`.
    fn export(&mut self) -> Result<Option<Range<usize>>, String> {
        self.space()?;
        let begin = self.at;
        for word in ["export", "const", "meta", "="] {
            self.space()?;
            let Some(rest) = self.rest().strip_prefix(word) else {
                return Ok(None);
            };
            if word != "=" && rest.starts_with(continues_name) {
                return Ok(None);
            }
            self.at += word.len();
        }
        Ok(Some(begin..begin + "export".len()))
    }

    /// Skips white space and comments.
    fn space(&mut self) -> Result<(), String> {
        loop {
            let rest = self.rest();
            // A byte order mark is white space in JavaScript.
            let trimmed = rest.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}');
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                let end = trimmed.find("*/").ok_or("a comment has no end")?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn take(&mut self, sign: char) -> Result<bool, String> {
        self.space()?;
        let is_next = self.rest().starts_with(sign);
        if is_next {
            self.at += sign.len_utf8();
        }
        Ok(is_next)
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_LEVELS {
            return Err("`meta` is nested too deeply".to_owned());
        }
        self.space()?;
        match self.rest().chars().next() {
            Some('{') => self.object(depth).map(Value::Object),
            Some('[') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.take(']')? {
                    items.push(self.value(depth + 1)?);
                    if !self.take(',')? && !self.rest().starts_with(']') {
                        return Err(computed());
                    }
                }
                Ok(Value::Array(items))
            }
            Some('"' | '\'' | '`') => self.text().map(Value::String),
            Some(sign) if sign == '-' || sign.is_ascii_digit() => self.number(),
            _ => {
                let known = [
                    ("true", Value::Bool(true)),
                    ("false", Value::Bool(false)),
                    ("null", Value::Null),
                ];
                for (word, value) in known {
                    let rest = self.rest().strip_prefix(word);
                    if rest.is_some_and(|rest| !rest.starts_with(continues_name)) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(computed())
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Map<String, Value>, String> {
        self.at += 1;
        let mut members = Map::new();
        while !self.take('}')? {
            let rest = self.rest();
            let key = if rest.starts_with(['"', '\'']) {
                self.text()?
            } else if rest.starts_with(begins_name) {
                let end = rest.find(|letter| !continues_name(letter)).unwrap_or(rest.len());
                self.at += end;
                rest[..end].to_owned()
            } else {
                return Err(computed());
            };
            // A shorthand member, a method or a getter has no colon.
            if !self.take(':')? {
                return Err(computed());
            }
            let value = self.value(depth + 1)?;
            members.insert(key, value);
            if !self.take(',')? && !self.rest().starts_with('}') {
                return Err(computed());
            }
        }
        Ok(members)
    }

    fn number(&mut self) -> Result<Value, String> {
        let rest = self.rest();
        let end = rest
            .find(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '+')))
            .unwrap_or(rest.len());
        let number: Number = serde_json::from_str(&rest[..end]).map_err(|_| computed())?;
        self.at += end;
        Ok(Value::Number(number))
    }

    fn text(&mut self) -> Result<String, String> {
        let quote = self.rest().chars().next().unwrap_or_default();
        self.at += 1;
        let mut text = String::new();
        loop {
            let letter = self.next().ok_or("a string has no end")?;
            match letter {
                '\n' if quote != '`' => return Err("a string has no end".to_owned()),
                '$' if quote == '`' && self.rest().starts_with('{') => return Err(computed()),
                '\\' => self.escape(&mut text)?,
                _ if letter == quote => return Ok(text),
                _ => text.push(letter),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest().chars().next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn escape(&mut self, text: &mut String) -> Result<(), String> {
        let letter = self.next().ok_or("a string has no end")?;
        text.push(match letter {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '0' => '\0',
            // A line break after a backslash is not part of the string.
            '\n' => return Ok(()),
            'u' => {
                let rest = self.rest();
                let (digits, length) = match rest.strip_prefix('{') {
                    Some(inner) => {
                        let end = inner.find('}').unwrap_or(0);
                        (&inner[..end], end + 2)
                    }
                    None => (rest.get(..4).unwrap_or_default(), 4),
                };
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                let code = code.ok_or("invalid escape sequence: write the character itself")?;
                self.at += length;
                code
            }
            'x' => return Err("invalid escape sequence: write the character itself".to_owned()),
            other => other,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn meta(source: &str) -> Value {
        read_meta(source).unwrap().map_or(Value::Null, Value::Object)
    }

    #[test]
    fn meta_is_read_without_running_the_script() {
        let source = "// a plan\n/* of\nus */ export const meta = {\n  name: 'find', \"description\": `two\nlines`,\n  phases: [{ title: \
                      'A\\u0042\\'' }, ], n: -1.5e3, deep: { yes: true, no: null, }, // end\n};\nreturn await agent('x')\n";
        let expected = json!({
            "name": "find", "description": "two\nlines", "phases": [{ "title": "AB'" }], "n": -1500.0,
            "deep": { "yes": true, "no": null },
        });
        assert_eq!(meta(source), expected);
        assert_eq!(
            meta("\u{feff}export const meta = {\"name\": \"marked\"}"),
            json!({"name": "marked"})
        );
        assert_eq!(meta("return 1"), Value::Null);
        assert_eq!(meta("const meta = { name: f() }"), Value::Null);
    }

    #[test]
    fn a_computed_value_in_meta_is_refused_with_its_place() {
        for (text, column) in [
            ("{ name: f() }", 29),
            ("{ name: `a${b}` }", 32),
            ("{ ...other }", 23),
            ("{ name }", 28),
            ("{ [key]: 1 }", 23),
            ("{ a: 1 + 2 }", 28),
            ("{ a: 0x10 }", 26),
            ("{ a() {} }", 24),
            ("{}.a", 23),
            ("other", 21),
        ] {
            let fault = read_meta(&format!("export const meta = {text}")).unwrap_err();
            assert!(fault.message.contains("must be"), "{text}: {fault}");
            assert_eq!((fault.line, fault.column), (1, column), "{text}: {fault}");
        }
    }

    #[test]
    fn the_body_of_a_script_has_the_positions_of_its_file() {
        let source = "/* é */ export const meta = {}\nreturn 1";
        assert_eq!(script_body(source), "/* é */        const meta = {}\nreturn 1");
        assert_eq!(script_body("return 'export'"), "return 'export'");
    }

    proptest! {
        #[test]
        fn any_json_object_is_a_meta(members in prop::collection::btree_map(".*", prop::option::of(".*"), 0..4), n in any::<f64>()) {
            let mut value = json!(members);
            value["n"] = json!([n, { "s": [] }]);
            let source = format!("export const meta = {value};\nreturn 1");
            prop_assert_eq!(meta(&source), value);
        }

        #[test]
        fn no_source_makes_the_reader_panic(source in "(export const meta = )?[\\[\\]{}:,'\"`$\\\\a-z0-9/* \n.ué-]*") {
            let _ = read_meta(&source);
            let _ = script_body(&source);
        }
    }
}
