//! Progress on stderr: a line for what a person wants to know. With a terminal, threads that run are shown below.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pirn::{BlockingEvents, Event, EventType, Heard};
use serde_json::Value;

use super::spoken::Spoken;

/// Characters of a line that is not over that are shown.
const TAIL: usize = 60;

/// What is shown of a run; replies as they come on a terminal, or where they are asked for.
pub(super) fn types(replies: bool) -> Vec<EventType> {
    let mut types = TYPES.to_vec();
    if replies || stderr().is_terminal() {
        types.push(EventType::LlmToken);
    }
    types
}

const TYPES: &[EventType] = &[
    EventType::ThreadStarted,
    EventType::ThreadCompleted,
    EventType::ThreadFailed,
    EventType::ThreadCancelled,
    EventType::NodeStarted,
    EventType::NodeFailed,
    EventType::ToolCallStarted,
    EventType::ToolCallFailed,
    EventType::ThreadJoinConditionMet,
    EventType::TokenLimitExceeded,
    EventType::TokenUsageWarning,
    EventType::CompressionCompleted,
    EventType::CompressionFailed,
    EventType::TriggeredSubgraphStarted,
    EventType::TriggeredSubgraphFailed,
    EventType::TriggerFailed,
    EventType::Notification,
];

/// A view that is being drawn.
pub(super) struct Shown {
    drawer: Option<JoinHandle<()>>,
}

/// One line, outside a run.
pub(super) fn say(text: &str) {
    // Where stderr is gone nobody is there to be told.
    let _ = writeln!(stderr().lock(), "pirn: {text}");
}

/// Draws until the events end; `moving`: with what runs now below the lines, on a terminal.
pub(super) fn start(events: BlockingEvents, moving: bool) -> Shown {
    let drawer = std::thread::Builder::new()
        .name("pirn-progress".to_owned())
        .spawn(move || {
            let mut view = View::new(moving);
            for heard in events {
                view.show(&heard);
            }
            if let Some(bar) = view.bar {
                bar.finish_and_clear();
            }
        });
    Shown { drawer: drawer.ok() }
}

impl Shown {
    /// Waits for the last line.
    pub(super) fn finish(self) {
        if let Some(drawer) = self.drawer
            && drawer.join().is_err()
        {
            say("the progress view panicked; the run did not");
        }
    }
}

/// The end of a line.
fn tail(line: &str) -> &str {
    let start = line.char_indices().rev().nth(TAIL - 1);
    start.map_or(line, |(start, _)| &line[start..])
}

/// The lines so far, and what runs now.
struct View {
    bar: Option<ProgressBar>,
    /// Where each running thread is.
    running: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
    spoken: Spoken,
}

impl View {
    fn new(moving: bool) -> Self {
        let bar = (moving && stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            bar,
            running: BTreeMap::new(),
            names: BTreeMap::new(),
            spoken: Spoken::default(),
        }
    }

    fn show(&mut self, heard: &Heard) {
        let lines = match heard {
            Heard::Missed(count) => vec![format!("({count} events were too fast to show)")],
            Heard::Event(event) if event.raised.event_type == EventType::LlmToken => self.said(event),
            Heard::Event(event) => {
                let before = self.spoken.end(&event.thread_id);
                let before = before.map(|line| self.quoted(&event.thread_id, &line));
                before.into_iter().chain(self.line(event)).collect()
            }
        };
        let Some(bar) = &self.bar else {
            for line in lines {
                let _ = writeln!(stderr().lock(), "{line}");
            }
            return;
        };
        for line in lines {
            bar.println(line);
        }
        let running: Vec<String> = self
            .running
            .iter()
            .map(|(thread, node)| match self.spoken.so_far(thread) {
                Some(line) => format!("{}: {}", self.name(thread), tail(line)),
                None => format!("{}: {node}", self.name(thread)),
            })
            .collect();
        bar.set_message(running.join("  |  "));
    }

    /// The lines of a reply that are whole with this piece.
    fn said(&mut self, event: &Event) -> Vec<String> {
        let thread = event.thread_id.as_str();
        let data = &event.raised.data;
        if data.contains_key("restart") {
            let void = self.spoken.end(thread).unwrap_or_default();
            return vec![self.quoted(thread, &format!("{void} ... (asked again)"))];
        }
        let piece = data.get("text").and_then(Value::as_str).unwrap_or_default();
        let whole = self.spoken.hear(thread, piece);
        whole.iter().map(|line| self.quoted(thread, line)).collect()
    }

    fn quoted(&self, thread: &str, line: &str) -> String {
        format!("  {} | {line}", self.name(thread))
    }

    fn name(&self, thread: &str) -> String {
        self.names.get(thread).cloned().unwrap_or_else(|| thread.to_owned())
    }

    fn line(&mut self, event: &Event) -> Option<String> {
        let data = &event.raised.data;
        let text = |field: &str| match data.get(field) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let error = || {
            data.get("error")
                .and_then(|error| error.get("message"))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let thread = event.thread_id.as_str();
        match event.raised.event_type {
            EventType::ThreadStarted => {
                let path = text("pathId");
                let name = match (text("kind").as_str(), path.as_str()) {
                    ("main", _) => event.workflow_id.clone(),
                    ("branch", path) => format!("branch {path}"),
                    (kind, _) => format!("{kind} {}", event.workflow_id),
                };
                self.names.insert(thread.to_owned(), name.clone());
                self.running.insert(thread.to_owned(), String::new());
                Some(format!("> {name} started"))
            }
            EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                self.running.remove(thread);
                let reason = error();
                let because = if reason.is_empty() {
                    reason
                } else {
                    format!(": {reason}")
                };
                Some(format!(
                    "< {} {}{because}",
                    self.name(thread),
                    text("status").to_lowercase()
                ))
            }
            EventType::NodeStarted => {
                self.running.insert(thread.to_owned(), text("nodeId"));
                None
            }
            EventType::NodeFailed => Some(format!(
                "! {} failed at {}: {}",
                self.name(thread),
                text("nodeId"),
                error()
            )),
            EventType::ToolCallStarted => Some(format!("  {} calls {}", self.name(thread), text("name"))),
            EventType::ToolCallFailed => Some(format!(
                "! {}: {} failed: {}",
                self.name(thread),
                text("name"),
                text("result").lines().next().unwrap_or_default()
            )),
            EventType::ThreadJoinConditionMet => {
                Some(format!("= {} joined: {}", self.name(thread), text("joinStrategy")))
            }
            EventType::TokenLimitExceeded => Some(format!(
                "# {}: {} tokens, over the limit of {}",
                self.name(thread),
                text("tokensUsed"),
                text("tokenLimit")
            )),
            EventType::TokenUsageWarning => Some(format!(
                "# {}: {} tokens of {}",
                self.name(thread),
                text("tokensUsed"),
                text("tokenLimit")
            )),
            EventType::CompressionCompleted => Some(format!(
                "# {} compressed: {} -> {} tokens",
                self.name(thread),
                text("tokensBefore"),
                text("tokensAfter")
            )),
            EventType::CompressionFailed => {
                Some(format!("! {}: the compression failed: {}", self.name(thread), error()))
            }
            EventType::TriggeredSubgraphStarted => Some(format!(
                "* trigger {} fired for {}",
                text("triggerId"),
                self.name(thread)
            )),
            EventType::TriggeredSubgraphFailed | EventType::TriggerFailed => {
                Some(format!("! trigger {} failed: {}", text("triggerId"), error()))
            }
            EventType::Notification => Some(format!("* {}", text("message"))),
            EventType::ThreadPaused
            | EventType::ThreadResumed
            | EventType::ThreadForkStarted
            | EventType::ThreadForkCompleted
            | EventType::ThreadJoinStarted
            | EventType::NodeCompleted
            | EventType::MessageAdded
            | EventType::RequestPrepared
            | EventType::RequestMended
            | EventType::TriggeredSubgraphCompleted
            | EventType::SubgraphStarted
            | EventType::SubgraphCompleted
            | EventType::ToolCallCompleted
            | EventType::VariableChanged
            | EventType::CheckpointCreated
            | EventType::LlmToken
            | EventType::Custom => None,
        }
    }
}
