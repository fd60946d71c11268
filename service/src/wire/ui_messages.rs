//! Conversion of events to chunks of the AI SDK's UI message stream (version 1), which `useChat` pages read.
//!
//! | event | chunk |
//! |---|---|
//! | the first | `start`, `start-step` |
//! | LLM_TOKEN, MESSAGE_ADDED of the assistant | `text-start`, `text-delta`, `text-end` |
//! | TOOL_CALL_STARTED | `tool-input-available`, dynamic unless the page executes the call |
//! | TOOL_CALL_COMPLETED; TOOL_CALL_FAILED | `tool-output-available`; `tool-output-error` |
//! | NODE_STARTED, NODE_COMPLETED, NODE_FAILED | `data-node`, transient |
//! | CUSTOM, NOTIFICATION, USER_MESSAGE | `data-event`, transient |
//! | calls of the page's tools that wait for results, when the run has no other event | `finish-step`, `finish`, `[DONE]` |
//! | the run's end | `finish-step`, then `finish`, `abort` if it was cancelled, `error` if it failed; `[DONE]` |

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use serde_json::{Value, json};

use super::messages::{MessageEvent, MessageTracker, RunningCalls, output_text};
use crate::events::feed::{Feed, FeedItem};
use crate::events::sse::{EventEncoder, Frames, all, data, frame};
use crate::runs::events::event_log::ReadEvent;
use pirn::{RunReport, ThreadStatus};

/// State of the conversion of one run to a UI message.
#[derive(Default)]
pub(in super::super) struct UiMessages {
    has_begun: bool,
    /// True if a tool call of the page may be open that the page has not executed.
    has_asked: bool,
    messages: MessageTracker,
    calls: RunningCalls,
}

impl UiMessages {
    /// Starts a conversion at the end of an earlier stream that ended with tool calls for the page.
    pub(in super::super) fn resumed() -> Self {
        Self {
            has_asked: true,
            ..Self::default()
        }
    }

    /// Updates the state by an event that an earlier stream has sent.
    pub(in super::super) fn was_sent(&mut self, event: &Event) {
        self.messages.was_said(event);
        self.calls.observe(event);
    }

    fn begin(&mut self, run_id: &str, out: &mut Vec<Value>) {
        if !self.has_begun {
            self.has_begun = true;
            out.push(json!({"type": "start", "messageId": run_id, "messageMetadata": {"runId": run_id}}));
            out.push(json!({"type": "start-step"}));
        }
    }

    fn event(&mut self, read: &ReadEvent) -> Vec<Value> {
        let event = &read.event;
        let mut out = Vec::new();
        self.calls.observe(event);
        self.begin(&event.run_id, &mut out);
        out.extend(self.messages.observe(read).into_iter().map(text_part));
        let fields = &event.raised.fields;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let node = |status: &str| {
            let node = json!({"nodeId": text("nodeId"), "threadId": event.thread_id, "status": status});
            json!({"type": "data-node", "data": node, "transient": true})
        };
        let is_of_client = fields.contains_key("client");
        match event.raised.event_type {
            EventType::NodeStarted => out.push(node("RUNNING")),
            EventType::NodeCompleted => out.push(node("COMPLETED")),
            EventType::NodeFailed => out.push(node("FAILED")),
            // A static tool without `providerExecuted`: the page's `onToolCall` executes the call.
            EventType::ToolCallStarted if is_of_client => out.push(json!({
                "type": "tool-input-available", "toolCallId": text("toolCallId"), "toolName": text("name"),
                "input": fields.get("arguments"),
            })),
            // The page has the result already.
            EventType::ToolCallCompleted | EventType::ToolCallFailed if is_of_client => {}
            EventType::InteractionRequested => self.has_asked |= fields.contains_key("clientTool"),
            EventType::ToolCallStarted => out.push(json!({
                "type": "tool-input-available", "toolCallId": text("toolCallId"), "toolName": text("name"),
                "input": fields.get("arguments"), "dynamic": true, "providerExecuted": true,
            })),
            EventType::ToolCallCompleted => out.push(json!({
                "type": "tool-output-available", "toolCallId": text("toolCallId"), "output": text("result"),
                "dynamic": true, "providerExecuted": true,
            })),
            EventType::ToolCallFailed => out.push(json!({
                "type": "tool-output-error", "toolCallId": text("toolCallId"), "errorText": text("result"),
                "dynamic": true, "providerExecuted": true,
            })),
            EventType::Custom | EventType::Notification | EventType::UserMessage => {
                out.push(json!({"type": "data-event", "data": event.to_json(), "transient": true}));
            }
            _other => {}
        }
        out
    }

    /// Returns the chunks that end the stream while the run waits for results of the page's tools.
    fn paused(&mut self, run_id: &str) -> Vec<Value> {
        let mut out = Vec::new();
        self.begin(run_id, &mut out);
        out.extend(self.messages.end_all().into_iter().map(text_part));
        out.push(json!({"type": "finish-step"}));
        out.push(json!({"type": "finish"}));
        out
    }

    fn end(&mut self, run_id: &str, report: Option<&RunReport>) -> Vec<Value> {
        let mut out = Vec::new();
        self.begin(run_id, &mut out);
        out.extend(self.messages.end_all().into_iter().map(text_part));
        let said = report
            .and_then(|report| output_text(&report.output))
            .filter(|_| !self.messages.has_spoken());
        if let Some(text) = said {
            let id = format!("{run_id}-output");
            let all = [
                MessageEvent::Begin { id: id.clone() },
                MessageEvent::Piece { id: id.clone(), text },
                MessageEvent::End { id },
            ];
            out.extend(all.into_iter().map(text_part));
        }
        out.push(json!({"type": "finish-step"}));
        let why = report
            .and_then(|report| report.error.as_ref())
            .map_or("the run was lost", |error| &error.message);
        out.push(match report.map(|report| report.status) {
            Some(ThreadStatus::Completed) => json!({"type": "finish"}),
            Some(ThreadStatus::Cancelled) => json!({"type": "abort", "reason": why}),
            _failed => json!({"type": "error", "errorText": why}),
        });
        out
    }
}

impl EventEncoder for UiMessages {
    fn write(&mut self, feed: &Feed, item: FeedItem, out: &mut Frames) {
        match item {
            FeedItem::Event(recorded) => {
                if let Some(read) = recorded.read() {
                    all(out, &self.event(&read), read.position);
                }
            }
            FeedItem::Missed { count, .. } => {
                let missed = json!({"type": "data-missed", "data": count, "transient": true});
                data(out, &missed);
            }
            FeedItem::Idle => {}
            FeedItem::End => {
                let run = feed.run();
                let chunks = self.end(run.id(), run.outcome().as_deref());
                for chunk in &chunks {
                    data(out, chunk);
                }
                frame(out, None, None, b"[DONE]");
            }
        }
    }

    fn pauses<'a>(&'a mut self, feed: &'a Feed, out: &'a mut Frames) -> BoxFuture<'a, bool> {
        async move {
            if !std::mem::take(&mut self.has_asked) {
                return false;
            }
            let open = feed.run().handle.interactions().await;
            if open.iter().all(|asked| asked.client_tool.is_none()) {
                return false;
            }
            // The page sends the results when the stream has ended. Until then it receives the calls, and the results of other calls.
            if !self.calls.wait_for(&open) || !feed.has_read_calls(&open) {
                self.has_asked = true;
                return false;
            }
            feed.run().questions.paused(feed.read_to());
            for chunk in &self.paused(feed.run().id()) {
                data(out, chunk);
            }
            frame(out, None, None, b"[DONE]");
            true
        }
        .boxed()
    }
}

fn text_part(said: MessageEvent) -> Value {
    match said {
        MessageEvent::Begin { id } => json!({"type": "text-start", "id": id}),
        MessageEvent::Piece { id, text } => json!({"type": "text-delta", "id": id, "delta": text}),
        MessageEvent::End { id } => json!({"type": "text-end", "id": id}),
    }
}
