//! The pair rule on the wire: system first, every call answered directly after it, no answer without its call.

use serde_json::Value;

/// Checks a request's body of any of the four protocols.
///
/// # Errors
/// Fails with the broken rule and the message's index.
pub fn check_pairs(body: &Value) -> Result<(), String> {
    let messages = ["messages", "contents", "input"]
        .into_iter()
        .find_map(|name| body[name].as_array());
    let messages = messages.ok_or("a request without messages")?;
    let mut open: Vec<String> = Vec::new();
    let mut is_past_system = false;
    for (place, message) in messages.iter().enumerate() {
        let is_system = message["role"] == "system";
        if is_system && is_past_system {
            return Err(format!("message {place}: a system message that is not first"));
        }
        is_past_system |= !is_system;
        let answers = answers(message);
        // Adjacent `function_call` items are one turn.
        let is_call = message["type"] == "function_call";
        if answers.is_empty() && !open.is_empty() && !is_call {
            return Err(format!("message {place}: {open:?} stand unanswered before it"));
        }
        for answer in &answers {
            let asked = open.iter().position(|call| call == answer || answer.is_empty());
            let asked = asked.ok_or_else(|| format!("message {place}: {answer:?} answers no call"))?;
            open.remove(asked);
        }
        let calls = calls(message);
        if !calls.is_empty() && !open.is_empty() && !is_call {
            return Err(format!("message {place}: {open:?} stand unanswered before it"));
        }
        open.extend(calls);
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("{open:?} stand unanswered at the end"))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The ids of the calls in a message; empty ids where the protocol has none.
fn calls(message: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    if message["type"] == "function_call" {
        return vec![text(&message["call_id"])];
    }
    let mut found: Vec<String> = list(&message["tool_calls"])
        .iter()
        .map(|call| text(&call["id"]))
        .collect();
    let parts = list(&message["content"]);
    found.extend(
        parts
            .iter()
            .filter(|part| part["type"] == "tool_use")
            .map(|part| text(&part["id"])),
    );
    let parts = list(&message["parts"]);
    found.extend(
        parts
            .iter()
            .filter(|part| part["functionCall"].is_object())
            .map(|part| text(&part["functionCall"]["id"])),
    );
    found
}

/// The ids of the calls that a message answers.
fn answers(message: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    if message["type"] == "function_call_output" {
        return vec![text(&message["call_id"])];
    }
    if message["role"] == "tool" {
        return vec![text(&message["tool_call_id"])];
    }
    let parts = list(&message["content"]);
    let mut found: Vec<String> = parts
        .iter()
        .filter(|part| part["type"] == "tool_result")
        .map(|part| text(&part["tool_use_id"]))
        .collect();
    let parts = list(&message["parts"]);
    found.extend(
        parts
            .iter()
            .filter(|part| part["functionResponse"].is_object())
            .map(|part| text(&part["functionResponse"]["id"])),
    );
    found
}
