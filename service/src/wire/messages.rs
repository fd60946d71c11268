//! The assistant's replies in a run, as messages that start, grow and end: the front ends' formats have messages, events have
//! pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use serde_json::Value;

use crate::runs::events::event_log::ReadEvent;
use crate::runs::events::position::Position;
use pirn::Interaction;

/// An update of a message.
#[derive(Debug, PartialEq)]
pub(super) enum MessageEvent {
    Begin { id: String },
    Piece { id: String, text: String },
    End { id: String },
}

/// The messages that are being streamed.
#[derive(Default)]
pub(super) struct MessageTracker {
    /// Open message ids by thread: a thread has at most one open message.
    open: BTreeMap<Arc<str>, String>,
    said: u64,
    /// Threads with a reply that an earlier stream has started: their message is not sent again as a whole.
    said_before: BTreeSet<Arc<str>>,
}

impl MessageTracker {
    pub(super) fn observe(&mut self, ReadEvent { position, event }: &ReadEvent) -> Vec<MessageEvent> {
        let data = &event.raised.fields;
        let thread = &event.thread_id;
        match event.raised.event_type {
            EventType::LlmToken => {
                // Text that was sent cannot be revoked: a restarted reply ends the open message and starts another one.
                let is_anew = data.contains_key("restart");
                let ended = if is_anew { self.end(thread) } else { None };
                let text = data.get("text").and_then(Value::as_str).unwrap_or_default();
                ended.into_iter().chain(self.piece(event, *position, text)).collect()
            }
            EventType::MessageAdded => match data.get("message").filter(|message| message["role"] == "assistant") {
                Some(_) if self.said_before.remove(thread) => self.end(thread).into_iter().collect(),
                Some(message) if !self.open.contains_key(thread) => {
                    self.whole_message(event, *position, &text_of(&message["content"]))
                }
                Some(_) => self.end(thread).into_iter().collect(),
                None => Vec::new(),
            },
            EventType::NodeFailed
            | EventType::ThreadCompleted
            | EventType::ThreadFailed
            | EventType::ThreadCancelled => {
                self.said_before.remove(thread);
                self.end(thread).into_iter().collect()
            }
            _other => Vec::new(),
        }
    }

    /// Updates the state by an event that an earlier stream has sent.
    pub(super) fn was_said(&mut self, event: &Event) {
        let has_text = || event.raised.fields.get("text").is_some_and(|text| text != "");
        match event.raised.event_type {
            EventType::LlmToken if has_text() => {
                self.said_before.insert(Arc::clone(&event.thread_id));
            }
            EventType::MessageAdded
            | EventType::NodeFailed
            | EventType::ThreadCompleted
            | EventType::ThreadFailed
            | EventType::ThreadCancelled => {
                self.said_before.remove(&event.thread_id);
            }
            _other => {}
        }
    }

    /// True once any text was sent.
    pub(super) fn has_spoken(&self) -> bool {
        self.said > 0
    }

    /// Ends every open message.
    pub(super) fn end_all(&mut self) -> Vec<MessageEvent> {
        let open = std::mem::take(&mut self.open);
        open.into_values().map(|id| MessageEvent::End { id }).collect()
    }

    /// Sends a complete message that was not streamed in pieces.
    fn whole_message(&mut self, event: &Event, position: Position, text: &str) -> Vec<MessageEvent> {
        let mut said = self.piece(event, position, text);
        said.extend(self.end(&event.thread_id));
        said
    }

    fn piece(&mut self, event: &Event, position: Position, text: &str) -> Vec<MessageEvent> {
        if text.is_empty() {
            return Vec::new();
        }
        let text = text.to_owned();
        if let Some(id) = self.open.get(&event.thread_id) {
            return vec![MessageEvent::Piece { id: id.clone(), text }];
        }
        self.said += 1;
        // A message has one id for all readers of the run. Two threads may start a message after one event, so the piece number is
        // needed.
        let id = format!("{}-m{position}", event.run_id);
        self.open.insert(Arc::clone(&event.thread_id), id.clone());
        vec![MessageEvent::Begin { id: id.clone() }, MessageEvent::Piece { id, text }]
    }

    fn end(&mut self, thread: &Arc<str>) -> Option<MessageEvent> {
        self.open.remove(thread).map(|id| MessageEvent::End { id })
    }
}

/// The tool calls that have started and not ended.
#[derive(Default)]
pub(super) struct RunningCalls(BTreeSet<String>);

impl RunningCalls {
    pub(super) fn observe(&mut self, event: &Event) {
        let id = || event.raised.fields.text("toolCallId").map(str::to_owned);
        match event.raised.event_type {
            EventType::ToolCallStarted => self.0.extend(id()),
            EventType::ToolCallCompleted | EventType::ToolCallFailed => {
                if let Some(id) = id() {
                    self.0.remove(&id);
                }
            }
            _other => {}
        }
    }

    /// True if each of the calls waits for an answer to one of these questions: no result follows without an answer.
    pub(super) fn wait_for(&self, open: &[Interaction]) -> bool {
        let call_of = |asked: &Interaction| {
            let consent = asked.tool.as_ref().map(|tool| tool.tool_call_id.clone());
            consent.or_else(|| asked.client_tool.as_ref().map(|call| call.tool_call_id.clone()))
        };
        let asked: BTreeSet<String> = open.iter().filter_map(call_of).collect();
        self.0.is_subset(&asked)
    }
}

/// Returns the text of a message's content: a string, or the texts of its parts.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n")
        }
        _other => String::new(),
    }
}

/// Returns the text of a run's output, for a workflow that sent no message: a string unchanged, the content of a reply, else JSON.
pub(in super::super) fn output_text(output: &Value) -> Option<String> {
    match output {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(
            other["content"]
                .as_str()
                .map_or_else(|| other.to_string(), str::to_owned),
        ),
    }
}
