//! A reply as it comes, piece by piece, and as it is when it has ended.

use std::collections::BTreeSet;
use std::future::Future;

use futures::StreamExt;
use futures::future::{Either, select};
use genai::chat::{ChatResponse, ChatStream, ChatStreamEvent, ContentPart, MessageContent, StreamEnd, Usage};
use pirn_actors::host::WorkClock;
use pirn_actors::ports::ModelCall;
use pirn_core::Millis;
use pirn_core::conversation::Spent;
use pirn_core::error::RunError;
use pirn_core::message::ToolCall;
use pirn_core::model_call::{FailureKind, ModelFailure};
use pirn_core::thread::ModelReply;
use serde_json::Value;

use super::super::policy::Timeouts;
use super::failure::error_of;
use super::key::Key;
use super::protocol::Protocol;
use super::reasoning::{self, Speaker};
use super::watch::Watch;

/// The longest text that is taken, bytes: what never ends must not fill the memory.
const LONGEST: usize = 32 << 20;

/// Takes a stream to its end.
pub(super) async fn streamed(
    mut stream: ChatStream,
    speaker: Speaker<'_>,
    watch: &Watch,
    timeouts: Timeouts,
    call: &ModelCall,
    key: &Key,
) -> Result<ModelReply, RunError> {
    let mut said = Said::default();
    let mut wait = Wait::new(&call.clock, timeouts.first_token);
    loop {
        let event = match wait.or(stream.next()).await {
            None => return Err(stalled(&wait)),
            // Some servers of OpenAI's protocol leave its last line out.
            Some(None) if watch.is_finished() => return Ok(said.reply(speaker, watch.spent())),
            Some(None) => return Err(dropped("the stream has no end")),
            Some(Some(Err(error))) => return Err(error_of(&error, key)),
            Some(Some(Ok(event))) => event,
        };
        match event {
            // Ours, before anything has come from the provider.
            ChatStreamEvent::Start => continue,
            ChatStreamEvent::Heartbeat if !wait.has_begun => continue,
            ChatStreamEvent::Chunk(piece) => {
                said.content.push_str(&piece.content);
                call.tokens.put(&piece.content);
            }
            ChatStreamEvent::ReasoningChunk(piece) => said.reasoning.push_str(&piece.content),
            ChatStreamEvent::ToolCallChunk(chunk) => said.called(chunk.tool_call),
            ChatStreamEvent::End(end) => return ended(said, end, speaker),
            ChatStreamEvent::Heartbeat | ChatStreamEvent::ThoughtSignatureChunk(_) => {}
        }
        if said.content.len() + said.reasoning.len() > LONGEST {
            let failure = ModelFailure::new(FailureKind::Malformed);
            return Err(failure.into_error(format!("the reply is longer than {LONGEST} bytes")));
        }
        wait.begun(timeouts.idle);
    }
}

/// Takes a reply that comes in one piece.
pub(super) async fn whole(
    reply: impl Future<Output = genai::Result<ChatResponse>> + Send,
    speaker: Speaker<'_>,
    timeouts: Timeouts,
    call: &ModelCall,
    key: &Key,
) -> Result<ModelReply, RunError> {
    let wait = Wait::new(&call.clock, timeouts.first_token);
    let reply = match wait.or(Box::pin(reply)).await {
        None => return Err(stalled(&wait)),
        Some(Err(error)) => return Err(error_of(&error, key)),
        Some(Ok(reply)) => reply,
    };
    let content = reply.content.texts().concat();
    if !content.is_empty() {
        call.tokens.put(&content);
    }
    let usage = spent(&reply.usage);
    Ok(put_together(
        speaker,
        content,
        reply.content.into_parts(),
        reply.reasoning_content,
        usage,
    ))
}

/// What a stream has said so far.
#[derive(Default)]
struct Said {
    content: String,
    reasoning: String,
    /// As far as they have come, each once.
    calls: Vec<genai::chat::ToolCall>,
}

impl Said {
    fn called(&mut self, call: genai::chat::ToolCall) {
        match self.calls.iter_mut().find(|known| known.call_id == call.call_id) {
            Some(known) => *known = call,
            None => self.calls.push(call),
        }
    }

    /// The reply of a stream that has finished without saying so once more.
    fn reply(self, speaker: Speaker<'_>, usage: Spent) -> ModelReply {
        let parts = self.calls.into_iter().map(|mut call| {
            if let Value::String(written) = &call.fn_arguments
                && let Ok(arguments) = serde_json::from_str(written)
            {
                call.fn_arguments = arguments;
            }
            ContentPart::ToolCall(call)
        });
        put_together(speaker, self.content, parts, Some(self.reasoning), usage)
    }
}

/// The reply of these parts; its text is `content`. `reasoning` came beside them.
fn put_together(
    speaker: Speaker<'_>,
    content: String,
    parts: impl IntoIterator<Item = ContentPart>,
    reasoning: Option<String>,
    usage: Spent,
) -> ModelReply {
    let (calls, others): (Vec<ContentPart>, Vec<ContentPart>) = parts
        .into_iter()
        .partition(|part| matches!(part, ContentPart::ToolCall(_)));
    let (calls, signatures): (Vec<ToolCall>, Vec<Option<Vec<String>>>) = calls
        .into_iter()
        .filter_map(ContentPart::into_tool_call)
        .map(|mut call| {
            let signatures = call.thought_signatures.take();
            (tool_call(call), signatures)
        })
        .unzip();
    let tool_calls = told_apart(calls);
    let metadata = if tool_calls.is_empty() {
        None
    } else {
        let ids = tool_calls.iter().map(|call| call.id.clone());
        let signatures = ids
            .zip(signatures)
            .filter_map(|(id, signatures)| Some((id, signatures?)));
        reasoning::metadata(speaker, others, reasoning, signatures.collect())
    };
    ModelReply {
        content,
        tool_calls,
        usage,
        metadata,
    }
}

/// How long the next piece may take.
struct Wait<'a> {
    clock: &'a WorkClock,
    has_begun: bool,
    limit: Option<Millis>,
    until: Option<Millis>,
}

impl<'a> Wait<'a> {
    fn new(clock: &'a WorkClock, limit: Option<Millis>) -> Self {
        let until = limit.map(|limit| clock.now().saturating_add(limit));
        Self {
            clock,
            has_begun: false,
            limit,
            until,
        }
    }

    /// A piece has come: from now on the next one may take `limit`.
    fn begun(&mut self, limit: Option<Millis>) {
        *self = Self {
            has_begun: true,
            ..Self::new(self.clock, limit)
        };
    }

    /// What `next` gives; none where it takes too long.
    async fn or<F: Future + Unpin>(&self, next: F) -> Option<F::Output> {
        let Some(until) = self.until else {
            return Some(next.await);
        };
        let left = until.saturating_sub(self.clock.now());
        match select(next, self.clock.sleep(left)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(((), _)) => None,
        }
    }
}

fn stalled(wait: &Wait<'_>) -> RunError {
    let what = if wait.has_begun { "next" } else { "first" };
    let limit = wait.limit.unwrap_or_default();
    ModelFailure::new(FailureKind::Stalled).into_error(format!("no {what} token within {limit} ms"))
}

fn dropped(why: &str) -> RunError {
    ModelFailure::new(FailureKind::Dropped).into_error(format!("the connection ended before the reply did: {why}"))
}

/// Two protocols have no end of their own: the library makes one up where the connection is cut. A cut reply is no
/// reply.
fn ended(said: Said, end: StreamEnd, speaker: Speaker<'_>) -> Result<ModelReply, RunError> {
    let is_whole = match speaker.protocol {
        Protocol::OpenAi | Protocol::Anthropic => true,
        Protocol::Gemini => end.captured_stop_reason.is_some(),
        Protocol::Ollama => end.captured_stop_reason.is_some() || end.captured_usage.is_some(),
    };
    if !is_whole {
        return Err(dropped("the provider did not say that it is done"));
    }
    let usage = end.captured_usage.as_ref().map(spent).unwrap_or_default();
    let parts = end.captured_content.map(MessageContent::into_parts).unwrap_or_default();
    Ok(put_together(
        speaker,
        said.content,
        parts,
        end.captured_reasoning_content,
        usage,
    ))
}

fn tool_call(call: genai::chat::ToolCall) -> ToolCall {
    ToolCall {
        id: call.call_id,
        name: call.fn_name,
        arguments: call.fn_arguments,
    }
}

/// Every call gets an id of its own: results are told apart by nothing else.
fn told_apart(mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
    let mut seen = BTreeSet::new();
    for (place, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() {
            call.id = format!("call-{}", place + 1);
        }
        while !seen.insert(call.id.clone()) {
            call.id = format!("{}-{}", call.id, place + 1);
        }
    }
    calls
}

fn spent(usage: &Usage) -> Spent {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
    let (input, output) = (count(usage.prompt_tokens), count(usage.completion_tokens));
    Spent::new(
        input,
        output,
        count(usage.total_tokens).max(input.saturating_add(output)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_an_id_of_its_own() {
        let call = |id: &str| ToolCall {
            id: id.to_owned(),
            name: "t".to_owned(),
            arguments: serde_json::Value::Null,
        };
        let ids = |list: &[&str]| -> Vec<String> {
            let calls = told_apart(list.iter().map(|id| call(id)).collect());
            calls.into_iter().map(|call| call.id).collect()
        };
        assert_eq!(ids(&["a", "b"]), ["a", "b"]);
        assert_eq!(ids(&["", ""]), ["call-1", "call-2"]);
        let same = ids(&["a", "a", "a", "a-2"]);
        assert_eq!(same.iter().collect::<BTreeSet<_>>().len(), 4, "{same:?}");
        assert_eq!(same[0], "a");
    }

    #[test]
    fn what_a_provider_does_not_report_counts_nothing() {
        assert_eq!(spent(&Usage::default()), Spent::default());
        let usage = Usage {
            prompt_tokens: Some(3),
            completion_tokens: Some(-1),
            ..Usage::default()
        };
        assert_eq!(spent(&usage), Spent::new(3, 0, 3));
    }
}
