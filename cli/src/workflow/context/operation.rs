//! The operations of `pirn context` with JSON input and output, one function each.

use std::sync::Arc;

use pirn::tokens;
use pirn_conversation::conversation::compression::{
    Compression, CompressionContext, CompressionError, compress, finish_with_checklist,
};
use pirn_conversation::conversation::{
    AgentKind, Estimator, MarkMap, PinStrategy, message_cost, parse_selection, pinned_messages, place, select_from,
    tool_blocks,
};
use pirn_definition::definition::Pinned;
use pirn_definition::error::RunErrorCode;
use pirn_definition::message::{Message, Role};
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{BadInput, conversation, parse};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Select {
    messages: Vec<Arc<Message>>,
    mark_map: Option<MarkMap>,
    options: Value,
}

/// Selects messages; the option `false` selects none.
pub(super) fn select(text: &str) -> Result<Value, BadInput> {
    let input: Select = parse(text)?;
    let history = conversation(input.messages, input.mark_map, &Estimator)?;
    let selection = parse_selection(&input.options).map_err(|error| BadInput::at("/options", &error))?;
    let selected = select_from(&history, &selection).map_err(|error| BadInput::at("/options", &error))?;
    Ok(json!({"messages": selected.unwrap_or_default()}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Layout {
    history: Vec<Arc<Message>>,
    pending: Option<Pending>,
    #[serde(default)]
    pinned: Pinned,
    #[serde(default)]
    agent: AgentKind,
    from_end: Option<usize>,
}

/// A message, or the text of a user message.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pending {
    Text(String),
    Message(Arc<Message>),
}

/// Inserts the pinned messages; the result is not repaired.
pub(super) fn layout(text: &str) -> Result<Value, BadInput> {
    let input: Layout = parse(text)?;
    let has_role = input.pinned.role.as_deref().is_some_and(|role| !role.trim().is_empty());
    if input.agent == AgentKind::Sub && !has_role {
        let message = "a sub-agent needs a role: give `pinned.role`";
        return Err(BadInput::new(
            RunErrorCode::SubAgentRoleMissing.as_str(),
            message,
            "/pinned/role",
        ));
    }
    let mut history = input.history;
    if input.agent == AgentKind::Main {
        history.retain(|message| !message.sub_agent_internal);
    }
    let strategy = PinStrategy::FromEnd(input.from_end.unwrap_or(PinStrategy::DEFAULT_FROM_END));
    let pinned = pinned_messages(&input.pinned).into_iter().map(Arc::new).collect();
    let layout = place(history, pinned, strategy);
    let pending = input.pending.map(|pending| match pending {
        Pending::Text(text) => Arc::new(Message::new(Role::User, text)),
        Pending::Message(message) => message,
    });
    let messages: Vec<Arc<Message>> = layout.messages.into_iter().chain(pending).collect();
    Ok(json!({"messages": messages, "insertedAt": layout.inserted_at}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Blocks {
    messages: Vec<Message>,
}

pub(super) fn blocks(text: &str) -> Result<Value, BadInput> {
    let input: Blocks = parse(text)?;
    let blocks = tool_blocks(&input.messages);
    let inclusive: Vec<[usize; 2]> = blocks.into_iter().map(|block| [block.start, block.end - 1]).collect();
    Ok(json!({"blocks": inclusive}))
}

/// Compresses a conversation. `summarize` is `checklist`, because no model is called.
pub(super) fn compact(text: &str) -> Result<Value, BadInput> {
    let context: CompressionContext = parse(text)?;
    let compression = compress(&context, &Estimator).map_err(|error| match error {
        CompressionError::Conversation(error) => BadInput::at("/markMap", &error),
        CompressionError::Parameter(error) => {
            let pointer = format!("/compressionConfig/parameters/{}", error.name);
            BadInput::new("INVALID_COMPRESSION_PARAMETERS", error.to_string(), pointer)
        }
    })?;
    let result = match compression {
        Compression::Done(result) => *result,
        Compression::Summarize(plan) => finish_with_checklist(&plan, None, &Estimator).result,
    };
    Ok(json!(result))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Marks {
    length: usize,
    mark_map: Option<MarkMap>,
    #[serde(default)]
    operations: Vec<MarkOperation>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum MarkOperation {
    StartNewBatch(usize),
    RollbackToBatch(u64),
    Append(usize),
}

/// `visible` is the range from the first visible message to the one after the last. Messages in between that a rollback removed are
/// in `markMap.setAside`.
pub(super) fn marks(text: &str) -> Result<Value, BadInput> {
    let input: Marks = parse(text)?;
    let mut length = input.length;
    let mut mark_map = input.mark_map.unwrap_or_default();
    mark_map
        .check(length)
        .map_err(|error| BadInput::at("/markMap", &error))?;
    for (at, operation) in input.operations.into_iter().enumerate() {
        let pointer = format!("/operations/{at}");
        let done = match operation {
            MarkOperation::StartNewBatch(index) => mark_map.start_new_batch(index, length),
            MarkOperation::RollbackToBatch(batch) => mark_map.rollback_to_batch(batch, length).map(|_| ()),
            MarkOperation::Append(count) => {
                length = length
                    .checked_add(count)
                    .ok_or_else(|| BadInput::new("INVALID_INPUT", "the history is too long", pointer.clone()))?;
                Ok(())
            }
        };
        done.map_err(|error| BadInput::at(&pointer, &error))?;
    }
    let stretches = mark_map.visible(length);
    let start = stretches.first().map_or(mark_map.boundary(), |first| first.start);
    let end = stretches.last().map_or(start, |last| last.end);
    Ok(json!({"markMap": mark_map, "visible": [start, end]}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    messages: Vec<Message>,
    model: Option<String>,
}

pub(super) fn count(text: &str) -> Result<Value, BadInput> {
    let input: Count = parse(text)?;
    let tokenizer = tokens::tokenizer(input.model.as_deref());
    let costs = input
        .messages
        .iter()
        .map(|message| message_cost(message, tokenizer.as_ref()));
    let per_message: Vec<u64> = costs.collect();
    let tokens = per_message.iter().copied().fold(0, u64::saturating_add);
    Ok(json!({"tokens": tokens, "perMessage": per_message}))
}
