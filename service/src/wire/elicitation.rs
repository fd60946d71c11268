//! Conversion of questions to MCP elicitations, and of their results to answers. A form of MCP is an object of plain fields.
//!
//! | question | form | answer |
//! |---|---|---|
//! | its schema is an object of plain fields | the schema | the form |
//! | with choices | `answer`, one of them | the choice |
//! | its schema is that of a plain value | `answer`, by the schema | its value |
//! | any other | `answer`, a text | the text; with a schema, the JSON that it is |
//! | consent to a tool call | `decision`: allow or refuse, and a reason | decision and reason |

use std::collections::BTreeMap;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::{Map, Value, json};

use pirn::Interaction;

const ANSWER: &str = "answer";

/// Outcome of an elicitation.
#[derive(Debug, PartialEq)]
pub(in super::super) enum ElicitationOutcome {
    /// The answer.
    Answer(Value),
    /// The person cancelled the elicitation, or declined a question that is not about a tool call. The run is cancelled.
    GivenUp,
}

/// Converts a question to a form; `wrong` is the reason why the previous answer was refused.
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

/// Returns the question's schema if it is valid as a form.
fn whole(asked: &Interaction) -> Option<ElicitationSchema> {
    let schema = asked.schema.as_ref().filter(|_| asked.choices.is_none())?;
    ElicitationSchema::from_json_schema((**schema).clone()).ok()
}

fn fields(properties: &Value, required: &str) -> Option<ElicitationSchema> {
    let schema = json!({"type": "object", "properties": properties, "required": [required]});
    serde_json::from_value(schema).ok()
}

/// Returns a choice as displayed text.
fn name(choice: &Value) -> String {
    choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)
}

/// Converts a client's result to the outcome of a question's elicitation.
pub(in super::super) fn elicited(asked: &Interaction, sent: ElicitResult) -> ElicitationOutcome {
    let content = match (sent.action, sent.content) {
        (ElicitationAction::Accept, Some(content)) => content,
        (ElicitationAction::Cancel, _) => return ElicitationOutcome::GivenUp,
        (_, _) if asked.tool.is_some() => return ElicitationOutcome::Answer(json!("refuse")),
        (_, _) => return ElicitationOutcome::GivenUp,
    };
    if asked.tool.is_some() {
        return ElicitationOutcome::Answer(consent(&content));
    }
    if whole(asked).is_some() {
        return ElicitationOutcome::Answer(content);
    }
    let given = content.get(ANSWER).cloned().unwrap_or_default();
    let Some(text) = given.as_str() else {
        return ElicitationOutcome::Answer(given);
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
    ElicitationOutcome::Answer(chosen.cloned().or_else(of_schema).unwrap_or(given))
}

/// Drops the reason from an `allow` answer, and empty fields from both.
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
