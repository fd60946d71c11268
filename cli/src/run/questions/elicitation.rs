//! Questions of a tool during its call (an MCP server's elicitation), prompted field by field on the terminal.

use futures::FutureExt;
use futures::channel::oneshot;
use pirn::tools::{Question, ToolRegistry};
use serde_json::{Map, Value};

use super::asking::{Asking, line_after, say};

/// Routes elicitations of MCP servers to the person at the terminal. Returns true if such questions are possible.
pub(in crate::run) fn set(tools: &mut ToolRegistry, asking: &Asking) -> bool {
    let asking = asking.clone();
    tools.on_elicitation(move |elicitation| {
        let (sender, receiver) = oneshot::channel();
        asking.ask(move |gate| {
            // The tool's run was stopped while this question was queued.
            if sender.is_canceled() {
                return;
            }
            let answer = gate.ask(|| answered(&elicitation.tool, &elicitation.question));
            // The run was stopped during the prompt: discard the answer.
            sender.send(answer).unwrap_or(());
        });
        async move { receiver.await.ok().flatten() }.boxed()
    });
    tools.list().any(|tool| tool.options.source.starts_with("mcp "))
}

/// Prompts for each property of the answer, and again after an invalid value; an empty line omits the property. `None` declines.
fn answered(tool: &str, question: &Question) -> Option<Value> {
    let schema = &question.schema;
    let fields = schema.get("properties").and_then(Value::as_object);
    let required = |name: &str| {
        let mut names = schema["required"].as_array().into_iter().flatten();
        names.any(|required| required == name)
    };
    say(&format!("? {tool} asks: {}", question.message));
    let mut answer = Map::new();
    for (name, field) in fields.into_iter().flatten() {
        let prompt = prompt(name, field, required(name));
        loop {
            let line = line_after(&prompt)?;
            if line.is_empty() {
                if required(name) {
                    return None;
                }
                break;
            }
            match value_of(&line, field) {
                Ok(value) => {
                    answer.insert(name.clone(), value);
                    break;
                }
                Err(expected) => say(&format!("    expected {expected}")),
            }
        }
    }
    let agrees = || line_after("  [y]es, or nothing to decline: ").is_some_and(|line| line == "y" || line == "yes");
    if answer.is_empty() && !agrees() {
        return None;
    }
    Some(Value::Object(answer))
}

/// Formats the prompt of a field, such as `  colour (of the car; 1) red, 2) blue; empty declines): `.
fn prompt(name: &str, field: &Value, is_required: bool) -> String {
    let text = |key: &str| field.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut about: Vec<String> = text("description").or_else(|| text("title")).into_iter().collect();
    let choices = choices(field);
    if !choices.is_empty() {
        let numbered = (1..)
            .zip(&choices)
            .map(|(number, (_, shown))| format!("{number}) {shown}"));
        let list = numbered.collect::<Vec<_>>().join(", ");
        let several = if is_list(field) { ", several with commas" } else { "" };
        about.push(format!("{list}{several}"));
    } else if field["type"] == "boolean" {
        about.push("y or n".to_owned());
    }
    if is_required {
        about.push("empty declines".to_owned());
    }
    let about = if about.is_empty() {
        String::new()
    } else {
        format!(" ({})", about.join("; "))
    };
    format!("  {name}{about}: ")
}

fn is_list(field: &Value) -> bool {
    field["type"] == "array"
}

/// Returns the allowed values with their displayed text; empty if every value of the type is allowed.
fn choices(field: &Value) -> Vec<(Value, String)> {
    let of = if is_list(field) { &field["items"] } else { field };
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(values) = of["enum"].as_array() {
        let title = |place: usize, value: &Value| {
            of["enumNames"][place]
                .as_str()
                .map_or_else(|| shown(value), str::to_owned)
        };
        let all = values.iter().enumerate();
        return all.map(|(place, value)| (value.clone(), title(place, value))).collect();
    }
    let titled = of["oneOf"].as_array().or_else(|| of["anyOf"].as_array());
    let titled = titled
        .into_iter()
        .flatten()
        .filter_map(|one| Some((one.get("const")?, one)));
    titled
        .map(|(value, one)| {
            (
                value.clone(),
                one["title"].as_str().map_or_else(|| shown(value), str::to_owned),
            )
        })
        .collect()
}

/// Converts the typed text to a value of the field's type.
///
/// # Errors
/// Returns a description of the expected form.
fn value_of(text: &str, field: &Value) -> Result<Value, String> {
    let choices = choices(field);
    if is_list(field) {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        return parts.map(|part| chosen(part, &choices)).collect();
    }
    if !choices.is_empty() {
        return chosen(text, &choices);
    }
    match field["type"].as_str() {
        Some("boolean") => match text {
            "y" | "yes" | "true" => Ok(Value::Bool(true)),
            "n" | "no" | "false" => Ok(Value::Bool(false)),
            _ => Err("y or n".to_owned()),
        },
        Some(kind @ ("integer" | "number")) => {
            let number: Option<Value> = serde_json::from_str(text).ok().filter(Value::is_number);
            let is_right = |number: &Value| {
                let at = number.as_f64().unwrap_or_default();
                let is_whole = kind == "number" || number.is_i64() || number.is_u64();
                let least = field["minimum"].as_f64().is_none_or(|least| at >= least);
                is_whole && least && field["maximum"].as_f64().is_none_or(|most| at <= most)
            };
            number.filter(is_right).ok_or_else(|| range(kind, field))
        }
        _ => {
            // Checked here, because the engine declines an answer that does not fit and does not ask again.
            let length = text.chars().count() as u64;
            let is_long = field["minLength"].as_u64().is_none_or(|least| length >= least);
            let is_short = field["maxLength"].as_u64().is_none_or(|most| length <= most);
            let is_right = is_long && is_short && (field["format"] != "email" || is_email(text));
            is_right.then(|| Value::from(text)).ok_or_else(|| text_form(field))
        }
    }
}

/// Returns whether a text has the form of an email address. Servers check the rest.
fn is_email(text: &str) -> bool {
    let sides = text.split_once('@');
    sides.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace))
}

/// Formats the expected form of a text, such as `a text (at least 2 characters, format email)`.
fn text_form(field: &Value) -> String {
    let rules = [
        field["minLength"]
            .as_u64()
            .map(|least| format!("at least {least} characters")),
        field["maxLength"]
            .as_u64()
            .map(|most| format!("at most {most} characters")),
        field["format"].as_str().map(|format| format!("format {format}")),
    ];
    format!(
        "a text ({})",
        rules.into_iter().flatten().collect::<Vec<_>>().join(", ")
    )
}

/// Formats the expected form, such as `a whole number from 1 to 100`.
fn range(kind: &str, field: &Value) -> String {
    let word = if kind == "integer" {
        "a whole number"
    } else {
        "a number"
    };
    let bound = |name: &str, key: &str| field.get(key).map_or_else(String::new, |at| format!(" {name} {at}"));
    format!("{word}{}{}", bound("from", "minimum"), bound("to", "maximum"))
}

/// Finds a choice by its number, its value or its title.
fn chosen(text: &str, choices: &[(Value, String)]) -> Result<Value, String> {
    let by_number = text
        .parse::<usize>()
        .ok()
        .and_then(|number| choices.get(number.checked_sub(1)?));
    let by_word = || choices.iter().find(|(value, shown)| value == text || shown == text);
    match by_word().or(by_number) {
        Some((value, _)) => Ok(value.clone()),
        None if choices.is_empty() => Ok(Value::from(text)),
        None => Err(format!("a number from 1 to {}, or one of the words", choices.len())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn typed_input_becomes_a_value_of_the_field_or_an_error_that_names_the_expected_form() {
        let color = json!({"type": "string", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]});
        let hero =
            json!({"type": "string", "oneOf": [{"const": "h1", "title": "Ada"}, {"const": "h2", "title": "Bo"}]});
        let colors = json!({"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}});
        let whole = json!({"type": "integer", "minimum": 1, "maximum": 9});
        let mail = json!({"type": "string", "minLength": 2, "format": "email"});
        let expected_mail = "a text (at least 2 characters, format email)";
        for (text, field, value) in [
            ("2", &color, Ok(json!("blue"))),
            ("red", &color, Ok(json!("red"))),
            ("Blue", &color, Ok(json!("blue"))),
            ("0", &color, Err("a number from 1 to 2, or one of the words")),
            ("Bo", &hero, Ok(json!("h2"))),
            ("1, blue", &colors, Ok(json!(["red", "blue"]))),
            ("7", &whole, Ok(json!(7))),
            ("10", &whole, Err("a whole number from 1 to 9")),
            ("1.5", &whole, Err("a whole number from 1 to 9")),
            ("1.5", &json!({"type": "number"}), Ok(json!(1.5))),
            ("x", &json!({"type": "number", "minimum": 0}), Err("a number from 0")),
            ("y", &json!({"type": "boolean"}), Ok(json!(true))),
            ("maybe", &json!({"type": "boolean"}), Err("y or n")),
            ("7", &json!({"type": "string"}), Ok(json!("7"))),
            ("a@b.example", &mail, Ok(json!("a@b.example"))),
            ("a", &mail, Err(expected_mail)),
            ("notmail", &mail, Err(expected_mail)),
        ] {
            assert_eq!(
                value_of(text, field),
                value.map_err(str::to_owned),
                "{text} for {field}"
            );
        }
    }
}
