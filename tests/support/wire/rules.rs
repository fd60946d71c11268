//! The rules that providers publish for the order of messages, written from their documentation and not from our code.
//!
//! - Anthropic (Messages API; "handling stop reasons", "tool use"): the first message is the user's; the last one is not the
//!   assistant's, which newer models refuse as a prefill; texts are not blank; `tool_result` blocks answer the calls of the
//!   previous turn, all of them, and precede any text; the ids of calls are letters, digits, `_` and `-`, none twice.
//! - Gemini (generateContent; "function calling"): the first content is the user's; the last one is not the model's; parts are
//!   not empty; a call directly follows the user's turn or results, and is directly followed by one result per call;
//!   roles alternate, except for results.

use std::collections::BTreeSet;

use serde_json::Value;

/// Checks the body of a request to Anthropic.
///
/// # Errors
/// Fails with the broken rule and the message's index.
pub fn check_anthropic(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().ok_or("no messages")?;
    ends(messages, "assistant")?;
    let mut ids = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut before = "";
    for (place, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == before {
            return Err(format!("message {place}: two turns of {role}"));
        }
        before = role;
        let blocks = match &message["content"] {
            Value::String(text) if text.trim().is_empty() => return Err(format!("message {place}: blank")),
            Value::String(_) => Vec::new(),
            Value::Array(blocks) if blocks.is_empty() => return Err(format!("message {place}: empty")),
            Value::Array(blocks) => blocks.clone(),
            other => return Err(format!("message {place}: {other}")),
        };
        let mut answered = Vec::new();
        let mut has_text = false;
        for block in &blocks {
            let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
            match text("type").as_str() {
                "text" if text("text").trim().is_empty() => return Err(format!("message {place}: a blank text")),
                "text" => has_text = true,
                "tool_use" => {
                    let id = text("id");
                    let is_plain = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                    if id.is_empty() || !is_plain || !ids.insert(id) {
                        return Err(format!("message {place}: the id of a call: {block}"));
                    }
                    if role != "assistant" || !block["input"].is_object() {
                        return Err(format!("message {place}: {block}"));
                    }
                }
                "tool_result" if has_text || role != "user" => {
                    return Err(format!("message {place}: a result after text"));
                }
                "tool_result" => answered.push(text("tool_use_id")),
                _ => {}
            }
        }
        open.sort();
        answered.sort();
        if open != answered {
            return Err(format!("message {place}: {answered:?} answer {open:?}"));
        }
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        open = calls
            .filter_map(|block| block["id"].as_str().map(str::to_owned))
            .collect();
    }
    nothing_open(&open)
}

/// Checks the body of a request to Gemini.
///
/// # Errors
/// Fails with the broken rule and the content's index.
pub fn check_gemini(body: &Value) -> Result<(), String> {
    let contents = body["contents"].as_array().ok_or("no contents")?;
    ends(contents, "model")?;
    let mut open: Vec<String> = Vec::new();
    let mut before = "";
    for (place, content) in contents.iter().enumerate() {
        let role = content["role"].as_str().unwrap_or_default();
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        if parts.is_empty() {
            return Err(format!("content {place}: no parts"));
        }
        if parts
            .iter()
            .any(|part| part["text"].as_str().is_some_and(|text| text.trim().is_empty()))
        {
            return Err(format!("content {place}: a blank text"));
        }
        let named = |field: &str| -> Vec<String> {
            let found = parts.iter().filter_map(|part| part[field]["name"].as_str());
            found.map(str::to_owned).collect()
        };
        let (calls, results) = (named("functionCall"), named("functionResponse"));
        if results != open {
            return Err(format!("content {place}: {results:?} answer {open:?}"));
        }
        if role == "model" && before == "model" {
            return Err(format!("content {place}: two turns of the model"));
        }
        if !calls.is_empty() && role != "model" {
            return Err(format!("content {place}: a call of the user"));
        }
        before = role;
        open = calls;
    }
    nothing_open(&open)
}

fn ends(messages: &[Value], model: &str) -> Result<(), String> {
    match messages {
        [] => Err("no message".to_owned()),
        [first, ..] if first["role"] != "user" => Err("the first message is not the user's".to_owned()),
        [.., last] if last["role"] == model => Err("the last message is the model's".to_owned()),
        _ => Ok(()),
    }
}

fn nothing_open(open: &[String]) -> Result<(), String> {
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("{open:?} stand unanswered at the end"))
    }
}
