//! Templates over a call's arguments: text with `{{path}}`.
//!
//! A path starts with the name of an argument; `{{input}}` is the object of all arguments, unless one has that name. An absent or
//! null argument makes the whole template absent, so text around an optional argument is omitted with it.

use std::borrow::Cow;

use pirn_definition::script::{Path, Step, text_of};
use serde_json::Value;

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Path(Path),
}

impl Template {
    /// Parses a template. `\{{` is a literal `{{`.
    ///
    /// # Errors
    /// A sentence that quotes the invalid path.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut text = String::new();
        let mut rest = source;
        while let Some((before, tag)) = rest.split_once("{{") {
            if let Some(before) = before.strip_suffix('\\') {
                text.push_str(before);
                text.push_str("{{");
                rest = tag;
                continue;
            }
            text.push_str(before);
            let Some((inside, after)) = tag.split_once("}}") else {
                return Err("a `{{` has no `}}`; write `\\{{` for the two characters themselves".to_owned());
            };
            let path = Path::of_template(inside).ok_or_else(|| {
                format!("`{{{{{inside}}}}}` is no path to an argument; write `\\{{{{` for the characters themselves")
            })?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Path(path));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Self { pieces })
    }

    /// Returns a template of the empty string.
    pub(super) fn nothing() -> Self {
        Self { pieces: Vec::new() }
    }

    /// Returns the names of the arguments that the template uses.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Path(path) => Some(path.root().as_ref()),
            Piece::Text(_) => None,
        })
    }

    /// Returns the text before the first path.
    pub(super) fn beginning(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            Some(Piece::Path(_)) | None => "",
        }
    }

    /// Returns whether the template uses no argument.
    pub(super) fn is_plain(&self) -> bool {
        self.names().next().is_none()
    }

    /// Renders the template for `part` of a call, which cannot be omitted, with each value formatted by `write`.
    ///
    /// # Errors
    /// A sentence that names the first absent argument and `part`.
    pub(super) fn render_required(
        &self,
        part: &str,
        arguments: &Value,
        write: impl for<'v> Fn(Cow<'v, str>) -> Cow<'v, str>,
    ) -> Result<String, String> {
        self.render_with(arguments, write)
            .map_err(|absent| format!("the argument `{absent}` is missing, which {part} needs"))
    }

    /// Renders the template, with each value formatted by `write`. Returns the first argument that is absent or null as an error.
    fn render_with<'t>(
        &'t self,
        arguments: &Value,
        write: impl for<'v> Fn(Cow<'v, str>) -> Cow<'v, str>,
    ) -> Result<String, &'t str> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Path(path) => {
                    let value = value_at(path, arguments).ok_or_else(|| &**path.source())?;
                    text.push_str(&write(text_of(value)));
                }
            }
        }
        Ok(text)
    }

    /// Renders the template. Returns `None` if an argument that it uses is absent or null.
    pub(super) fn render(&self, arguments: &Value) -> Option<String> {
        self.render_with(arguments, |value| value).ok()
    }

    /// Returns the argument itself if the template is a single path, else the text, or `None` as [`Template::render`] does.
    pub(super) fn value(&self, arguments: &Value) -> Option<Value> {
        match self.pieces.as_slice() {
            [Piece::Path(path)] => value_at(path, arguments).cloned(),
            _ => self.render(arguments).map(Value::String),
        }
    }
}

/// Returns the value at a path; null counts as absent.
fn value_at<'v>(path: &Path, arguments: &'v Value) -> Option<&'v Value> {
    let root = path.root().as_ref();
    let first = match arguments.get(root) {
        None if root == "input" => arguments,
        found => found?,
    };
    let found = path.steps().iter().try_fold(first, |value, step| match step {
        Step::Key(key) => match value {
            Value::Array(items) => items.get(key.parse::<usize>().ok()?),
            other => other.get(key.as_ref()),
        },
        Step::Index(index) => value.get(index),
    })?;
    Some(found).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str) -> Option<String> {
        let arguments = json!({"city": "Köln", "n": 3.0, "list": ["a", {"b": true}], "none": null});
        Template::parse(source).unwrap().render(&arguments)
    }

    #[test]
    fn a_path_renders_the_argument_as_text() {
        assert_eq!(render("in {{city}}: {{ n }}").as_deref(), Some("in Köln: 3"));
        assert_eq!(
            render("{{list.0}}{{list[1].b}} {{list}}").as_deref(),
            Some(r#"atrue ["a",{"b":true}]"#)
        );
        assert_eq!(render("plain").as_deref(), Some("plain"));
        assert_eq!(render("").as_deref(), Some(""));
    }

    #[test]
    fn an_absent_argument_drops_the_whole_template() {
        for source in ["--max={{max}}", "{{none}}", "{{city}}{{list.7}}", "{{city.name}}"] {
            assert_eq!(render(source), None, "{source}");
        }
        let both = Template::parse("{{a}} {{b.c}}").unwrap();
        assert_eq!(
            both.render_required("the body", &json!({"a": 1, "b": {}}), |value| value),
            Err("the argument `b.c` is missing, which the body needs".to_owned())
        );
    }

    #[test]
    fn input_is_the_object_of_all_arguments_unless_an_argument_is_named_input() {
        let all = Template::parse("{{input}}").unwrap();
        assert_eq!(all.render(&json!({"a": 1})).as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(all.value(&json!({"a": 1})), Some(json!({"a": 1})));
        assert_eq!(all.render(&json!({"input": "x"})).as_deref(), Some("x"));
    }

    #[test]
    fn a_template_of_one_path_returns_the_value_with_its_type() {
        let value = |source: &str| Template::parse(source).unwrap().value(&json!({"n": 3}));
        assert_eq!(value("{{n}}"), Some(json!(3)));
        assert_eq!(value("{{n}} "), Some(json!("3 ")));
    }

    #[test]
    fn braces_can_be_escaped() {
        assert_eq!(
            render("\\{{.Names}} of {{city}}").as_deref(),
            Some("{{.Names}} of Köln")
        );
        assert!(Template::parse("{{.Names}}").unwrap_err().contains("`{{.Names}}`"));
        assert!(Template::parse("a {{b").unwrap_err().contains("no `}}`"));
    }
}
