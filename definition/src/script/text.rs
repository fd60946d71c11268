//! Templates that consist of text and `{{path}}` only, and the conversion of values to text.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{Path, Scope};
use crate::error::{RunErrorCode, ScriptFault};
use crate::value::MAX_TEXT;

/// A template of text and `{{path}}`, rendered directly from the scope.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainText {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(Arc<str>),
    Path(Path),
}

impl PlainText {
    /// Parses a template. Returns `None` for templates with blocks, helpers or escapes, which need a template engine.
    pub fn read(source: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = source;
        while let Some((text, tag)) = rest.split_once("{{") {
            let (inside, after) = tag.split_once("}}")?;
            if text.ends_with('\\') || after.starts_with('}') {
                return None;
            }
            let path = Path::of_template(inside).filter(|path| !matches!(path.root().as_ref(), "this" | "else"))?;
            if !text.is_empty() {
                pieces.push(Piece::Text(text.into()));
            }
            pieces.push(Piece::Path(path));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Some(Self { pieces })
    }

    /// Renders the template.
    ///
    /// # Errors
    /// `TEMPLATE_ERROR` with a path that does not exist, `SCRIPT_LIMIT_EXCEEDED` beyond [`MAX_TEXT`].
    pub fn render(&self, scope: &dyn Scope) -> Result<String, ScriptFault> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => add(&mut text, piece)?,
                Piece::Path(path) => add(&mut text, &text_of(&*value_at(path, scope)?))?,
            }
        }
        Ok(text)
    }

    /// Renders the template; a template that consists of one `{{path}}` returns the value at the path.
    ///
    /// # Errors
    /// As [`PlainText::render`].
    pub fn value(&self, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        match self.pieces.as_slice() {
            [Piece::Path(path)] => value_at(path, scope),
            _ => self.render(scope).map(|text| Arc::new(Value::from(text))),
        }
    }
}

fn add(text: &mut String, piece: &str) -> Result<(), ScriptFault> {
    if text.len() + piece.len() > MAX_TEXT {
        let message = format!("the template's output exceeds {MAX_TEXT} bytes");
        return Err(ScriptFault::limit(message));
    }
    text.push_str(piece);
    Ok(())
}

fn value_at(path: &Path, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
    path.value(scope)
        .ok_or_else(|| ScriptFault::missing_path(RunErrorCode::TemplateError, path.source()))
}

/// Converts a value to text: a string unchanged, a number as in JavaScript (`30`, not `30.0`), `null` as the empty string, lists
/// and objects as JSON.
pub fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed(""),
        Value::Number(number) => Cow::Owned(match number.as_f64() {
            Some(float) if number.is_f64() => float_text(float),
            _ => number.to_string(),
        }),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Cow::Owned(value.to_string()),
    }
}

/// Formats a finite number as JavaScript does. Both languages write the fewest digits that identify the number.
fn float_text(float: f64) -> String {
    if float == 0.0 {
        // Also for -0.
        return "0".to_owned();
    }
    if (1e-6..1e21).contains(&float.abs()) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    if float.abs() < 1.0 {
        text
    } else {
        text.replace('e', "e+")
    }
}

/// True if a value is truthy in JavaScript.
pub fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::ScopeValues;
    use serde_json::json;

    fn scope() -> ScopeValues {
        ScopeValues {
            input: Arc::new(json!({"n": 30.0, "list": [1, {"a": "b"}], "flag": false, "none": null})),
            nodes: [(Arc::from("compress-messages"), Arc::new(json!({"content": "short"})))].into(),
            ..ScopeValues::default()
        }
    }

    #[test]
    fn values_render_plainly_and_structures_as_json() {
        let render = |source| PlainText::read(source).unwrap().render(&scope()).unwrap();
        assert_eq!(render("no paths } {"), "no paths } {");
        assert_eq!(render("<{{input.n}}|{{ input.flag }}|{{input.none}}>"), "<30|false|>");
        assert_eq!(render("{{input.list}}"), r#"[1,{"a":"b"}]"#);
        assert_eq!(render("{{compress-messages.content}}!"), "short!");
    }

    #[test]
    fn numbers_render_as_in_javascript() {
        for (number, expected) in [
            ("-0.0", "0"),
            ("1e-5", "0.00001"),
            ("-0.000001", "-0.000001"),
            ("1e-7", "1e-7"),
            ("-1.5e-9", "-1.5e-9"),
            ("1e16", "10000000000000000"),
            ("1.5e20", "150000000000000000000"),
            ("1e21", "1e+21"),
            ("-1.25e300", "-1.25e+300"),
            ("0.1", "0.1"),
            ("9007199254740993", "9007199254740993"),
        ] {
            let value: Value = serde_json::from_str(number).unwrap();
            assert_eq!(text_of(&value), expected, "{number}");
        }
    }

    #[test]
    fn a_missing_path_is_an_error_with_the_path() {
        let fault = PlainText::read("hello {{user.name}}")
            .unwrap()
            .render(&scope())
            .unwrap_err();
        assert_eq!(fault.code, RunErrorCode::TemplateError);
        assert!(fault.message.contains("user.name"), "{fault}");
        assert_eq!(fault.details, Some(json!({"path": "user.name"})));
    }

    #[test]
    fn a_template_of_one_path_has_the_value_itself() {
        let value = |source| PlainText::read(source).unwrap().value(&scope()).unwrap();
        assert_eq!(*value("{{input.list}}"), json!([1, {"a": "b"}]));
        assert_eq!(*value(" {{input.n}}"), json!(" 30"));
    }

    #[test]
    fn only_templates_of_plain_paths_are_read() {
        for source in [
            "{{#if a}}x{{/if}}",
            "{{{a}}}",
            "\\{{a}}",
            "{{json a}}",
            "{{a",
            "{{!c}}",
            "{{this}}",
            "{{a/b}}",
        ] {
            assert_eq!(PlainText::read(source), None, "{source}");
        }
    }
}
