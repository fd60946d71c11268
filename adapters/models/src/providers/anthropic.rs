//! Anthropic's messages.

use pirn_actors::ports::ToolSpec;
use pirn_conversation::model_call::FinishReason;
use serde_json::{Value, json};

use super::failure::{Failure, of_body};
use super::openai::merge;
use super::reply_builder::{CallPiece, RawUsage, ReplyBuilder};
use super::request::parameters::{Effort, Names, Parameters, ToolChoice};
use super::request::provider_request::{CacheHints, ProviderRequest};
use super::request::schema::unbounded;
use crate::formats::{FormatError, anthropic};

const NAMES: Names = Names {
    temperature: "temperature",
    top_p: "top_p",
    top_k: Some("top_k"),
    seed: None,
    stop: Some("stop_sequences"),
};

/// Minimum thinking budget in tokens.
const LEAST_BUDGET: u64 = 1024;

pub(super) fn body(request: &ProviderRequest<'_>) -> Result<Value, FormatError> {
    let parameters = request.parameters;
    let most = parameters.max_tokens.unwrap_or_else(|| most_tokens(request.model));
    let mut body = json!({"model": request.model, "stream": request.streams, "max_tokens": most});
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters});
        body["tools"] = request.tools.iter().map(tool).collect();
        body["tool_choice"] = match &parameters.tool_choice {
            Some(ToolChoice::None) => json!({"type": "none"}),
            Some(ToolChoice::Required) => json!({"type": "any"}),
            Some(ToolChoice::Tool(name)) => json!({"type": "tool", "name": name}),
            Some(ToolChoice::Auto) | None => json!({"type": "auto"}),
        };
    }
    merge(
        &mut body,
        &anthropic::write(request.messages, request.recall("anthropic"))?,
    );
    if let Some(cache) = request.cache {
        mark_cached(request, cache, &mut body)?;
    }
    parameters.put(&mut body, &NAMES);
    if let Some(effort) = parameters.effort {
        think(effort, request.model, most, &mut body);
    }
    if let Some(schema) = request.format.and_then(|format| unbounded(format.schema.as_ref()?)) {
        body["output_config"]["format"] = json!({"type": "json_schema", "schema": schema});
    }
    merge(&mut body, &parameters.rest);
    Ok(body)
}

/// Sets cache marks at the ends of the prefixes that the next request shares: the system text with the tools before it, and the
/// messages up to the pinned context. Also repeats the mark of the preceding request, because after many blocks in one reply the
/// provider would not search back that far. These are three marks; four are allowed.
fn mark_cached(request: &ProviderRequest<'_>, cache: CacheHints<'_>, body: &mut Value) -> Result<(), FormatError> {
    if let Some(system) = body.get_mut("system") {
        *system = json!([{"type": "text", "text": *system, "cache_control": ephemeral()}]);
    } else if let Some(last) = body
        .get_mut("tools")
        .and_then(Value::as_array_mut)
        .and_then(|tools| tools.last_mut())
    {
        last["cache_control"] = ephemeral();
    }
    for count in [cache.repeated.min(cache.stable), cache.stable] {
        let before = request.messages.get(..count).unwrap_or(request.messages);
        // The turns of a prefix are a prefix of the turns, except for later blocks of its last turn.
        let written = anthropic::write(before, request.recall("anthropic"))?;
        let turns = written.get("messages").and_then(Value::as_array);
        let Some((last, earlier)) = turns.and_then(|turns| turns.split_last()) else {
            continue;
        };
        let blocks = last["content"].as_array().map_or(1, Vec::len);
        let content = &mut body["messages"][earlier.len()]["content"];
        if let Value::String(text) = content {
            *content = json!([{"type": "text", "text": text}]);
        }
        if let Some(block) = content.get_mut(blocks.saturating_sub(1))
            && block["type"].as_str().is_some_and(|kind| !kind.ends_with("thinking"))
        {
            block["cache_control"] = ephemeral();
        }
    }
    Ok(())
}

/// Returns a cache mark.
fn ephemeral() -> Value {
    json!({"type": "ephemeral"})
}

/// Returns the model's maximum, used if the node sets none: the protocol requires a value.
pub(super) fn most_tokens(model: &str) -> u64 {
    let is = |names: &[&str]| names.iter().any(|name| model.contains(name));
    if is(&["3-opus", "3-haiku"]) {
        4_096
    } else if is(&["3-5-"]) {
        8_192
    } else if is(&["opus-4-0", "opus-4-1", "opus-4-2"]) {
        32_000
    } else {
        64_000
    }
}

/// Sets the thinking effort: newer models take a level, older ones a number of tokens, which must be less than the reply's maximum.
fn think(effort: Effort, model: &str, most: u64, body: &mut Value) {
    if effort == Effort::None {
        return;
    }
    if takes_effort(model) {
        let word = match effort {
            Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High | Effort::XHigh => "high",
            Effort::Max => "max",
            Effort::None => return,
        };
        body["output_config"] = json!({ "effort": word });
        body["thinking"] = json!({"type": "adaptive"});
        return;
    }
    let budget = effort.budget().min(most.saturating_mul(4) / 5);
    if budget >= LEAST_BUDGET {
        body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
    }
}

/// Returns whether the model is of version 4.6 or later: `claude-FAMILY-MAJOR-MINOR`, optionally followed by a date or a cloud's
/// suffix. In models before version 4 the version precedes the family (`claude-3-7-sonnet`); they reject `adaptive`.
fn takes_effort(model: &str) -> bool {
    let Some(name) = model.rfind("claude-").and_then(|at| model.get(at..)) else {
        return false;
    };
    let mut parts = name.split(['-', '@', ':']).skip(1);
    if !parts
        .next()
        .is_some_and(|family| family.starts_with(char::is_alphabetic))
    {
        return false;
    }
    let mut numbers = parts.map_while(|part| {
        let is_version = part.len() <= 2;
        part.parse::<u32>().ok().filter(|_| is_version)
    });
    let version = numbers.next().map(|major| (major, numbers.next().unwrap_or(0)));
    version.is_some_and(|version| version >= (4, 6))
}

pub(super) fn check(parameters: &Parameters) -> Result<(), (String, String)> {
    let budget = parameters
        .rest
        .get("thinking")
        .and_then(|thinking| thinking.get("budget_tokens"));
    match (budget.and_then(Value::as_u64), parameters.max_tokens) {
        (Some(budget), Some(most)) if budget >= most => {
            let message = format!(
                "must leave room for the reply: its budget of {budget} tokens is not below `maxTokens`, {most}"
            );
            Err(("thinking".to_owned(), message))
        }
        _ => Ok(()),
    }
}

pub(super) fn parse_chunk(event: Option<&str>, frame: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    let kind = frame.get("type").and_then(Value::as_str).or(event).unwrap_or_default();
    let place = frame.get("index").and_then(Value::as_u64).unwrap_or(0);
    match kind {
        "message_start" => usage(frame.pointer("/message/usage"), reply),
        "content_block_start" => block(place, frame.get("content_block").unwrap_or(&Value::Null), false, reply),
        "content_block_delta" => {
            let delta = frame.get("delta").unwrap_or(&Value::Null);
            let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
            reply.text(text("text"));
            reply.reasoning(place, text("thinking"), text("signature"));
            let written = text("partial_json");
            // The arguments of a tool that the provider runs itself arrive in the same form.
            if !written.is_empty() && reply.has_call(place) {
                reply.call(&CallPiece {
                    place: Some(place),
                    written,
                    ..CallPiece::default()
                });
            }
        }
        "message_delta" => {
            usage(frame.get("usage"), reply);
            stop(frame.get("delta"), reply);
        }
        "message_stop" => reply.over(),
        "error" => return Err(of_body(frame)),
        _ => {}
    }
    Ok(())
}

pub(super) fn parse_response(body: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    let blocks = body.get("content").and_then(Value::as_array);
    let blocks =
        blocks.ok_or_else(|| Failure::malformed("the reply does not follow the protocol: it has no content"))?;
    for (place, one) in (0..).zip(blocks) {
        block(place, one, true, reply);
    }
    usage(body.get("usage"), reply);
    stop(Some(body), reply);
    Ok(())
}

fn block(place: u64, block: &Value, is_whole: bool, reply: &mut ReplyBuilder) {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "text" => reply.text(text("text")),
        "thinking" => reply.reasoning(place, text("thinking"), text("signature")),
        "redacted_thinking" => reply.reasoning_block(block),
        "tool_use" => reply.call(&CallPiece {
            place: Some(place),
            id: text("id"),
            name: text("name"),
            arguments: block.get("input"),
            is_whole,
            ..CallPiece::default()
        }),
        _ => {}
    }
}

/// Records the reported usage. Its input count excludes cached tokens, and its output count includes thinking, with a separate figure
/// for some models.
fn usage(usage: Option<&Value>, reply: &mut ReplyBuilder) {
    let Some(usage) = usage else { return };
    let of = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (read, write) = (of("cache_read_input_tokens"), of("cache_creation_input_tokens"));
    reply.spent(RawUsage {
        input: of("input_tokens").saturating_add(read).saturating_add(write),
        cached_read: read,
        cached_write: write,
        reports_cache: usage.get("cache_read_input_tokens").is_some_and(Value::is_u64),
        output: of("output_tokens"),
        reasoning: usage
            .pointer("/output_tokens_details/thinking_tokens")
            .and_then(Value::as_u64)
            .unwrap_or(0),
        ..RawUsage::default()
    });
}

fn stop(delta: Option<&Value>, reply: &mut ReplyBuilder) {
    let reason = delta.and_then(|delta| delta.get("stop_reason")).and_then(Value::as_str);
    reply.finished(match reason {
        None => return,
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
        Some("tool_use") => FinishReason::ToolCalls,
        Some("pause_turn") => FinishReason::Pause,
        Some("refusal") => FinishReason::Refusal,
        Some(_) => FinishReason::Stop,
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pirn_definition::message::{Message, Role};

    use super::*;
    use crate::formats::reasoning::for_model;
    use crate::providers::key::Key;

    #[test]
    fn every_thinking_block_is_sent_back_with_its_signature() {
        let blocks = json!([
            {"type": "thinking", "thinking": "", "signature": "SIG1"},
            {"type": "thinking", "thinking": "TEXT2", "signature": "SIG2"},
            {"type": "redacted_thinking", "data": "hidden"},
            {"type": "thinking", "thinking": "", "signature": "SIG3"},
            {"type": "tool_use", "id": "t1", "name": "wipe", "input": {"pattern": "a"}},
            {"type": "tool_use", "id": "t2", "name": "wipe", "input": {}},
        ]);
        let mut whole = ReplyBuilder::default();
        parse_response(&json!({"content": blocks, "stop_reason": "tool_use"}), &mut whole).expect("a body");
        // A server may send whole blocks in a stream.
        let mut streamed = ReplyBuilder::default();
        let starts = blocks.as_array().expect("blocks").iter().zip(0..);
        let starts = starts
            .map(|(block, at): (_, u8)| json!({"type": "content_block_start", "index": at, "content_block": block}));
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
        for frame in starts.chain([end]) {
            parse_chunk(None, &frame, &mut streamed).expect("a frame");
        }
        for builder in [whole, streamed] {
            let reply = builder.reply("anthropic", "m", &Key::none()).expect("a reply");
            let message = Arc::new(Message {
                tool_calls: reply.tool_calls,
                metadata: reply.metadata,
                ..Message::new(Role::Assistant, "")
            });
            let sent = anthropic::write(&[message], |message| for_model(message, "anthropic", "m")).expect("a request");
            assert_eq!(sent["messages"][0]["content"], blocks);
        }
    }

    #[test]
    fn the_thinking_budget_is_below_the_token_limit_of_the_reply() {
        for (model, most, expected) in [
            (
                "claude-sonnet-4-5",
                64_000,
                json!({"type": "enabled", "budget_tokens": 24_000}),
            ),
            (
                "claude-sonnet-4-5-20250929",
                10_000,
                json!({"type": "enabled", "budget_tokens": 8_000}),
            ),
            ("claude-3-7-sonnet-20250219", 1_000, Value::Null),
            (
                "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
                64_000,
                json!({"type": "enabled", "budget_tokens": 24_000}),
            ),
            ("claude-opus-4@20250514", 1_000, Value::Null),
            ("claude-opus-4-6", 1_000, json!({"type": "adaptive"})),
            ("claude-opus-4-6@20260205", 1_000, json!({"type": "adaptive"})),
            ("anthropic/claude-sonnet-5", 1_000, json!({"type": "adaptive"})),
        ] {
            let mut body = json!({});
            think(Effort::High, model, most, &mut body);
            assert_eq!(body["thinking"], expected, "{model}");
        }
    }
}
