//! Conversion of events to AG-UI events (AG-UI 1.0, docs.ag-ui.com).
//!
//! | event | AG-UI |
//! |---|---|
//! | the first | RUN_STARTED |
//! | NODE_STARTED; NODE_COMPLETED, NODE_FAILED, the thread's end | STEP_STARTED; STEP_FINISHED |
//! | LLM_TOKEN, MESSAGE_ADDED of the assistant | TEXT_MESSAGE_START, _CONTENT, _END |
//! | TOOL_CALL_STARTED; TOOL_CALL_COMPLETED, _FAILED | TOOL_CALL_START, _ARGS, _END; TOOL_CALL_RESULT |
//! | VARIABLE_CHANGED of the main thread or the run | STATE_DELTA |
//! | CUSTOM; NOTIFICATION; USER_MESSAGE; `missed` | CUSTOM named by the event; `notification`; `userMessage`; `missed` |
//! | questions that wait for people, when the run has no other event | RUN_FINISHED (interrupt) |
//! | calls of the client's tools that wait for results, when the run has no other event | RUN_FINISHED (success) |
//! | the run's end | RUN_FINISHED (success, cancelled) or RUN_ERROR |

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use serde_json::{Value, json};

use super::interrupts::interrupt;
use super::messages::{MessageEvent, MessageTracker, RunningCalls, output_text};
use crate::events::feed::{Feed, FeedItem};
use crate::events::sse::{EventEncoder, Frames, all, data};
use crate::runs::events::event_log::ReadEvent;
use pirn::{Interaction, RunReport, ThreadStatus};

/// State of the conversion of one run to AG-UI.
pub(in super::super) struct AgUi {
    /// The client's ids for the conversation and for this run.
    thread_id: String,
    run_id: String,
    main_thread: String,
    has_begun: bool,
    /// True if a question may be open that the client has not received.
    has_asked: bool,
    messages: MessageTracker,
    calls: RunningCalls,
    /// Open steps by thread and node; their names are unique.
    steps: BTreeMap<(Arc<str>, String), String>,
}

impl AgUi {
    /// Starts a conversion at the run's first event; with `resumed`, at the end of an earlier stream that ended with questions.
    pub(in super::super) fn new((thread_id, run_id): (String, String), main_thread: String, resumed: bool) -> Self {
        Self {
            thread_id,
            run_id,
            main_thread,
            has_begun: false,
            has_asked: resumed,
            messages: MessageTracker::default(),
            calls: RunningCalls::default(),
            steps: BTreeMap::new(),
        }
    }

    /// Updates the state by an event that an earlier stream has sent.
    pub(in super::super) fn was_sent(&mut self, event: &Event) {
        self.messages.was_said(event);
        self.calls.observe(event);
    }

    fn begin(&mut self, out: &mut Vec<Value>) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        out.push(json!({
            "type": "RUN_STARTED", "threadId": self.thread_id, "runId": self.run_id, "protocolVersion": "1.0"
        }));
    }

    fn event(&mut self, read: &ReadEvent) -> Vec<Value> {
        let event = &read.event;
        let mut out = Vec::new();
        self.calls.observe(event);
        self.begin(&mut out);
        out.extend(self.messages.observe(read).into_iter().map(message));
        let fields = &event.raised.fields;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let value = |name: &str| fields.get(name).cloned().unwrap_or_default();
        match event.raised.event_type {
            EventType::NodeStarted => self.step_started(event, text("nodeId"), &mut out),
            EventType::NodeCompleted | EventType::NodeFailed => {
                let step = self
                    .steps
                    .remove(&(Arc::clone(&event.thread_id), text("nodeId").to_owned()));
                out.extend(step.map(|name| finished(&name)));
            }
            EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                let of_thread = |(thread, _): &(Arc<str>, String)| *thread == event.thread_id;
                let ended: Vec<_> = self.steps.keys().filter(|key| of_thread(key)).cloned().collect();
                out.extend(
                    ended
                        .iter()
                        .filter_map(|key| self.steps.remove(key))
                        .map(|name| finished(&name)),
                );
            }
            EventType::ToolCallStarted => {
                let id = text("toolCallId");
                out.push(json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": text("name")}));
                let arguments = value("arguments").to_string();
                out.push(json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments}));
                out.push(json!({"type": "TOOL_CALL_END", "toolCallId": id}));
            }
            // The client has the result already.
            EventType::ToolCallCompleted | EventType::ToolCallFailed if fields.contains_key("client") => {}
            EventType::ToolCallCompleted | EventType::ToolCallFailed => out.push(json!({
                "type": "TOOL_CALL_RESULT",
                "messageId": format!("{}-r{}", event.run_id, event.sequence),
                "toolCallId": text("toolCallId"),
                "content": text("result"),
                "role": "tool",
            })),
            EventType::VariableChanged => {
                let is_main = *self.main_thread == *event.thread_id;
                if is_main || text("scope") != "thread" {
                    let path = super::pointer_to(text("name"));
                    let delta = json!([{"op": "add", "path": path, "value": value("value")}]);
                    out.push(json!({"type": "STATE_DELTA", "delta": delta}));
                }
            }
            EventType::InteractionRequested => self.has_asked = true,
            EventType::Custom => {
                let name = event.raised.event_name.as_deref().unwrap_or_default();
                out.push(json!({"type": "CUSTOM", "name": name, "value": value("data")}));
            }
            EventType::Notification => {
                out.push(json!({"type": "CUSTOM", "name": "notification", "value": fields.to_map()}));
            }
            EventType::UserMessage => {
                out.push(json!({"type": "CUSTOM", "name": "userMessage", "value": fields.to_map()}));
            }
            _other => {}
        }
        out
    }

    /// Starts a step. If two threads are in one node, the step's name includes the thread, since names must be unique.
    fn step_started(&mut self, event: &Event, node_id: &str, out: &mut Vec<Value>) {
        let key = (Arc::clone(&event.thread_id), node_id.to_owned());
        if self.steps.contains_key(&key) {
            return;
        }
        let is_taken = self.steps.values().any(|name| name == node_id);
        let name = if is_taken {
            format!("{node_id} ({})", event.thread_id)
        } else {
            node_id.to_owned()
        };
        out.push(json!({"type": "STEP_STARTED", "stepName": name}));
        self.steps.insert(key, name);
    }

    /// Returns the events that end open messages and steps.
    fn close(&mut self) -> Vec<Value> {
        let mut out = Vec::new();
        self.begin(&mut out);
        out.extend(self.messages.end_all().into_iter().map(message));
        let steps = std::mem::take(&mut self.steps);
        out.extend(steps.into_values().map(|name| finished(&name)));
        out
    }

    /// Returns the events that end the stream while the run waits for these answers. If it waits only for results of the client's
    /// tools, the outcome is a success: the client executes the calls and sends the results in its next input.
    fn interrupted(&mut self, questions: &[Interaction], feed: &Feed) -> Vec<Value> {
        let mut out = self.close();
        feed.run().questions.paused(feed.read_to());
        let is_question = |asked: &&Interaction| asked.client_tool.is_none();
        if !questions.iter().any(|asked| is_question(&asked)) {
            out.push(json!({
                "type": "RUN_FINISHED", "threadId": self.thread_id, "runId": self.run_id, "outcome": {"type": "success"},
            }));
            return out;
        }
        let put_at = |asked: &Interaction| feed.run().questions.asked_at(&asked.id).map(|asked_at| asked_at.at);
        let interrupts = questions
            .iter()
            .filter(is_question)
            .map(|asked| interrupt(asked, feed.read_to(), put_at(asked)));
        let interrupts: Vec<Value> = interrupts.collect();
        out.push(json!({
            "type": "RUN_FINISHED", "threadId": self.thread_id, "runId": self.run_id,
            "outcome": {"type": "interrupt", "interrupts": interrupts},
        }));
        out
    }

    fn end(&mut self, report: Option<&RunReport>) -> Vec<Value> {
        let mut out = self.close();
        let Some(report) = report else {
            out.push(json!({"type": "RUN_ERROR", "message": "the run was lost", "code": "ACTOR_PANICKED"}));
            return out;
        };
        let said = output_text(&report.output).filter(|_| !self.messages.has_spoken());
        if let Some(text) = said {
            let id = format!("{}-output", report.run_id);
            let all = [
                MessageEvent::Begin { id: id.clone() },
                MessageEvent::Piece { id: id.clone(), text },
                MessageEvent::End { id },
            ];
            out.extend(all.into_iter().map(message));
        }
        let finished = |outcome: &str| {
            json!({
                "type": "RUN_FINISHED", "threadId": self.thread_id, "runId": self.run_id,
                "result": report.output, "outcome": {"type": outcome},
            })
        };
        out.push(match (report.status, &report.error) {
            (ThreadStatus::Completed, _) => finished("success"),
            (ThreadStatus::Cancelled, _) => finished("cancelled"),
            (_, Some(error)) => {
                json!({"type": "RUN_ERROR", "message": error.message, "code": error.code.as_str()})
            }
            (status, None) => json!({"type": "RUN_ERROR", "message": status.as_str()}),
        });
        out
    }
}

impl EventEncoder for AgUi {
    fn write(&mut self, feed: &Feed, item: FeedItem, out: &mut Frames) {
        let events = match item {
            FeedItem::Event(recorded) => {
                if let Some(read) = recorded.read() {
                    all(out, &self.event(&read), read.position);
                }
                return;
            }
            FeedItem::Missed { count, .. } => vec![json!({"type": "CUSTOM", "name": "missed", "value": count})],
            FeedItem::Idle => Vec::new(),
            FeedItem::End => self.end(feed.run().outcome().as_deref()),
        };
        for event in &events {
            data(out, event);
        }
    }

    fn pauses<'a>(&'a mut self, feed: &'a Feed, out: &'a mut Frames) -> BoxFuture<'a, bool> {
        async move {
            if !std::mem::take(&mut self.has_asked) {
                return false;
            }
            let mut open = feed.run().handle.interactions().await;
            // The run may be ahead of this feed: the client receives the events before a question first.
            open.retain(|asked| asked.client_tool.is_some() || feed.has_read(asked));
            if open.is_empty() {
                return false;
            }
            // A client executes its calls when the stream has ended. Until then it receives the calls, and the results of other calls.
            let is_due = self.calls.wait_for(&open) && feed.has_read_calls(&open);
            if open.iter().all(|asked| asked.client_tool.is_some()) && !is_due {
                self.has_asked = true;
                return false;
            }
            for event in self.interrupted(&open, feed) {
                data(out, &event);
            }
            true
        }
        .boxed()
    }
}

fn message(said: MessageEvent) -> Value {
    match said {
        MessageEvent::Begin { id } => json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}),
        MessageEvent::Piece { id, text } => json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text}),
        MessageEvent::End { id } => json!({"type": "TEXT_MESSAGE_END", "messageId": id}),
    }
}

fn finished(step: &str) -> Value {
    json!({"type": "STEP_FINISHED", "stepName": step})
}
