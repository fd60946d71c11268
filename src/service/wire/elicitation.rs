//! The table question to MCP elicitation, and the way back. A form of MCP is an object of plain fields.
//!
//! | question | form | answer |
//! |---|---|---|
//! | whose schema is such an object | the schema | the form |
//! | with choices | `answer`, one of them | the choice |
//! | whose schema is a plain value's | `answer`, by the schema | its value |
//! | any other | `answer`, a text | the text; with a schema, the JSON that it is |
//! | consent to a tool call | `decision`: allow or refuse, and a reason | the same |

use std::collections::BTreeMap;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::{Map, Value, json};

use crate::Interaction;

const ANSWER: &str = "answer";

/// The end of an elicitation.
#[derive(Debug, PartialEq)]
pub(in super::super) enum Elicited {
    /// The answer.
    Answer(Value),
    /// There is none: the person gives the whole up.
    GivenUp,
}

/// A question as a form; `wrong` says why the answer before was not taken.
pub(in super::super) fn form(asked: &Interaction, wrong: Option<&str>) -> ElicitRequestParams {
    let mut message = asked.question.to_string();
    if let Some(tool) = &asked.tool {
        message = format!("{message}\n{} {}", tool.name, tool.arguments);
    }
    if let Some(wrong) = wrong {
        message = format!("{message}\n({wrong})");
    }
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: schema(asked),
    }
}

fn schema(asked: &Interaction) -> ElicitationSchema {
    if asked.tool.is_some() {
        let decision = json!({"type": "string", "enum": ["allow", "refuse"]});
        return fields(&json!({"decision": decision, "reason": {"type": "string"}}), "decision").unwrap_or_else(empty);
    }
    let choices = asked.choices.as_ref().map(|choices| {
        let names: Vec<String> = choices.iter().map(name).collect();
        json!({"type": "string", "enum": names})
    });
    let of_value = || Some(json!(asked.schema.as_ref()?));
    whole(asked)
        .or_else(|| fields(&json!({ANSWER: choices.or_else(of_value)?}), ANSWER))
        .or_else(|| fields(&json!({ANSWER: {"type": "string"}}), ANSWER))
        .unwrap_or_else(empty)
}

fn empty() -> ElicitationSchema {
    ElicitationSchema::new(BTreeMap::new())
}

/// The question's own schema, where it is that of a form.
fn whole(asked: &Interaction) -> Option<ElicitationSchema> {
    let schema = asked.schema.as_ref().filter(|_| asked.choices.is_none())?;
    ElicitationSchema::from_json_schema((**schema).clone()).ok()
}

fn fields(properties: &Value, required: &str) -> Option<ElicitationSchema> {
    let schema = json!({"type": "object", "properties": properties, "required": [required]});
    serde_json::from_value(schema).ok()
}

/// A choice as it is shown.
fn name(choice: &Value) -> String {
    choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)
}

/// The end of a question's elicitation, from a client's result.
pub(in super::super) fn elicited(asked: &Interaction, sent: ElicitResult) -> Elicited {
    let content = match (sent.action, sent.content) {
        (ElicitationAction::Accept, Some(content)) => content,
        (ElicitationAction::Cancel, _) => return Elicited::GivenUp,
        (_, _) if asked.tool.is_some() => return Elicited::Answer(json!("refuse")),
        (_, _) => return Elicited::GivenUp,
    };
    if asked.tool.is_some() {
        return Elicited::Answer(consent(&content));
    }
    if whole(asked).is_some() {
        return Elicited::Answer(content);
    }
    let given = content.get(ANSWER).cloned().unwrap_or_default();
    let Some(text) = given.as_str() else {
        return Elicited::Answer(given);
    };
    let chosen = asked.choices.iter().flat_map(|choices| choices.iter());
    let chosen = chosen.clone().find(|choice| name(choice) == text);
    let of_schema = || {
        asked
            .schema
            .as_ref()
            .filter(|schema| schema.get("type").is_none_or(|kind| kind != "string"))?;
        serde_json::from_str(text).ok()
    };
    Elicited::Answer(chosen.cloned().or_else(of_schema).unwrap_or(given))
}

/// A reason for allowing is nobody's business.
fn consent(content: &Value) -> Value {
    let mut answer = Map::new();
    for field in ["decision", "reason"] {
        let value = content
            .get(field)
            .filter(|value| value.as_str().is_some_and(|text| !text.is_empty()));
        if let Some(value) = value
            && (field == "decision" || content["decision"] == "refuse")
        {
            answer.insert(field.to_owned(), value.clone());
        }
    }
    Value::Object(answer)
}
