//! `clear_tool_results`: replaces old results with a note. Calls and all other messages stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::message::{Message, Role};

use super::super::{Tokenizer, artifact_of, message_cost, widen};
use super::parameters::Clear;
use super::turn::current_turn_start;

/// Returns the messages with a note instead of each result, except the last ones, those of the current turn, those of blocks with a
/// pinned message and those of excluded tools. Returns them unchanged if that saves less than `minTokens`. A result that is not longer
/// than its note stays.
pub(super) fn cleared(visible: &[Arc<Message>], clear: &Clear, tokenizer: &dyn Tokenizer) -> Vec<Arc<Message>> {
    let turn = current_turn_start(visible);
    let is_result = |message: &Arc<Message>| message.role == Role::Tool;
    let mut pinned: Vec<bool> = visible.iter().map(|message| message.pin).collect();
    // As in all strategies, a pinned message protects its whole block.
    widen(visible, &mut pinned);
    // Counted first: the last ones are known only by their number from the end.
    let results = visible.iter().filter(|message| is_result(message)).count();
    let (mut seen, mut saved) = (0, 0_u64);
    // Filled while iterating: a call precedes its result.
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    let mut shown = Vec::with_capacity(visible.len());
    for (at, message) in visible.iter().enumerate() {
        // A later call with the id of an earlier one replaces it, because results refer to the last call.
        tools.extend(message.tool_calls.iter().map(|call| (&*call.id, &*call.name)));
        seen += usize::from(is_result(message));
        // A result without a known call has no tool that could be excluded.
        let tool = message.tool_call_id.as_deref().and_then(|id| tools.get(id).copied());
        let stays = !is_result(message)
            || seen + clear.keep > results
            || at >= turn
            || pinned[at]
            || tool.is_some_and(|tool| clear.exclude.iter().any(|name| name == tool));
        let note = (!stays).then(|| note(message, tool.unwrap_or("a tool")));
        // A short result may be smaller than its note: it stays then.
        let less = note.as_ref().map_or(0, |note| {
            message_cost(message, tokenizer).saturating_sub(message_cost(note, tokenizer))
        });
        saved = saved.saturating_add(less);
        shown.push(match note {
            Some(note) if less > 0 => Arc::new(note),
            Some(_) | None => Arc::clone(message),
        });
    }
    // All or nothing: clearing a few tokens would break the provider's cache for little.
    if saved < clear.min_tokens {
        return visible.to_vec();
    }
    shown
}

fn note(result: &Message, tool: &str) -> Message {
    let text = match artifact_of(result) {
        // The result is lost, so that the note tells the model how to get it again.
        None => format!("[An old result of {tool} was left out. Call it again if it is needed.]"),
        Some(id) => format!("[An old result of {tool} was left out. It is artifact {id}, for read_artifact.]"),
    };
    Message {
        id: result.id.clone(),
        tool_call_id: result.tool_call_id.clone(),
        sub_agent_internal: result.sub_agent_internal,
        // The note retains the id of the artifact, so that a second pass writes an equal note.
        metadata: result.metadata.clone(),
        ..Message::new(Role::Tool, text)
    }
}
