//! What was heard of a run, as lines and as what runs now.

use std::collections::BTreeMap;

use pirn::{Event, EventType, Heard};
use serde_json::Value;

use super::super::spoken::Spoken;
use super::forks::{End, Forks};
use super::meter::{clipped, grouped, meter, percent};

/// Characters of a line that is not over that are shown: the last ones.
const TAIL: usize = 120;
/// Tool calls that get a line each; the rest is left out.
const CALLS: usize = 200;

/// The state of what is shown.
#[derive(Default)]
pub(super) struct View {
    threads: BTreeMap<String, Thread>,
    /// Those that run, in the order they started.
    running: BTreeMap<u64, String>,
    started: u64,
    forks: Forks,
    spoken: Spoken,
    calls: usize,
}

/// A thread that has been heard of.
#[derive(Default)]
struct Thread {
    place: u64,
    name: String,
    kind: String,
    quiet: bool,
    node: String,
    /// Context tokens of the last request, and their limit.
    context: Option<(u64, Option<u64>)>,
    /// The last failure that was told, not to tell it twice.
    told: String,
}

impl View {
    /// Takes in what was heard; the lines to write.
    pub(super) fn hear(&mut self, heard: &Heard) -> Vec<String> {
        match heard {
            Heard::Lagged(count) => vec![format!("({} events were too fast to show)", grouped(*count))],
            Heard::Event(event) if event.raised.event_type == EventType::LlmToken => self.said(event),
            Heard::Event(event) => {
                let before = self.spoken.end(&event.thread_id);
                let before = before.map(|line| self.quoted(&event.thread_id, &line));
                before.into_iter().chain(self.event(event)).collect()
            }
        }
    }

    /// What runs now: a line for each of at most `most` threads.
    pub(super) fn now(&self, most: usize) -> Vec<String> {
        let shown = if self.running.len() > most {
            most.saturating_sub(1)
        } else {
            most
        };
        let threads = self.running.values().take(shown);
        let mut lines: Vec<String> = threads
            .filter_map(|id| Some(self.threads.get(id)?.now(self.spoken.so_far(id))))
            .collect();
        if self.running.len() > shown {
            lines.push(format!("and {} more", grouped((self.running.len() - shown) as u64)));
        }
        lines
    }

    fn name(&self, thread: &str) -> String {
        let known = self.threads.get(thread);
        known.map_or_else(|| thread.to_owned(), |thread| thread.name.clone())
    }

    fn event(&mut self, event: &Event) -> Vec<String> {
        let facts = Facts(event);
        let id = &*event.thread_id;
        let name = self.name(id);
        let one = |line: String| vec![line];
        match event.raised.event_type {
            EventType::ThreadStarted => self.started(event),
            EventType::ThreadCompleted => self.ended(event, End::Completed),
            EventType::ThreadFailed => self.ended(event, End::Failed),
            EventType::ThreadCancelled => self.ended(event, End::Cancelled),
            EventType::ThreadPaused => one(format!("  {name} is paused")),
            EventType::ThreadResumed => one(format!("  {name} goes on")),
            EventType::ThreadForkStarted => {
                let paths = facts.list("forkPathIds");
                one(self
                    .forks
                    .start(id, &name, &event.workflow_id, &facts.text("nodeId"), &paths))
            }
            EventType::ThreadJoinConditionMet => {
                let counts = self
                    .forks
                    .joined(id)
                    .map_or_else(String::new, |counts| format!(", {counts}"));
                one(format!("= {name} joined: {}{counts}", facts.text("joinStrategy")))
            }
            EventType::NodeStarted => self.changed(id, |thread| thread.node = facts.text("nodeId")),
            EventType::RequestPrepared => self.changed(id, |thread| {
                thread.context = Some((facts.number("tokensUsed"), facts.some_number("tokenLimit")));
            }),
            EventType::NodeFailed => self.node_failed(event),
            EventType::ToolCallStarted => self.tool_call(event, &name),
            EventType::ToolCallFailed => one(format!(
                "! {name}: {} failed: {}",
                facts.text("name"),
                clipped(facts.text("result").lines().next().unwrap_or_default(), 200)
            )),
            EventType::TokenUsageWarning | EventType::TokenLimitExceeded => self.tokens(event, &name),
            EventType::CompressionCompleted => self.compressed(event, &name),
            EventType::CompressionFailed => one(format!("! {name}: the compression failed: {}", facts.error())),
            EventType::TriggeredSubgraphStarted => {
                one(format!("* trigger {} fired for {name}", facts.text("triggerId")))
            }
            EventType::TriggeredSubgraphFailed | EventType::TriggerFailed => one(format!(
                "! trigger {} failed: {}",
                facts.text("triggerId"),
                facts.error()
            )),
            EventType::Notification => one(format!("* {}", facts.text("message"))),
            EventType::ThreadForkCompleted
            | EventType::ThreadJoinStarted
            | EventType::NodeCompleted
            | EventType::MessageAdded
            | EventType::RequestMended
            | EventType::TriggeredSubgraphCompleted
            | EventType::SubgraphStarted
            | EventType::SubgraphCompleted
            | EventType::ToolCallCompleted
            | EventType::VariableChanged
            | EventType::CheckpointCreated
            | EventType::LlmToken
            | EventType::Custom => Vec::new(),
        }
    }

    /// The lines of a reply that are whole with this piece.
    fn said(&mut self, event: &Event) -> Vec<String> {
        let thread = &*event.thread_id;
        if event.raised.data.contains_key("restart") {
            let void = self.spoken.end(thread).unwrap_or_default();
            return vec![self.quoted(thread, &format!("{void} ... (asked again)"))];
        }
        let whole = self.spoken.hear(thread, &Facts(event).text("text"));
        whole.iter().map(|line| self.quoted(thread, line)).collect()
    }

    fn quoted(&self, thread: &str, line: &str) -> String {
        format!("  {} | {line}", self.name(thread))
    }

    fn changed(&mut self, id: &str, change: impl FnOnce(&mut Thread)) -> Vec<String> {
        if let Some(thread) = self.threads.get_mut(id) {
            change(thread);
        }
        Vec::new()
    }

    fn started(&mut self, event: &Event) -> Vec<String> {
        let facts = Facts(event);
        let (kind, path) = (facts.text("kind"), facts.text("pathId"));
        let name = match kind.as_str() {
            "main" => event.workflow_id.to_string(),
            "branch" => format!("branch {path}"),
            kind => format!("{kind} {}", event.workflow_id),
        };
        self.started += 1;
        let thread = Thread {
            place: self.started,
            name,
            quiet: kind == "branch" && self.forks.is_quiet(&event.workflow_id, &path),
            kind,
            ..Thread::default()
        };
        let line = (!thread.quiet).then(|| format!("> {} started", thread.name));
        self.running.insert(thread.place, event.thread_id.to_string());
        self.threads.insert(event.thread_id.to_string(), thread);
        line.into_iter().collect()
    }

    fn ended(&mut self, event: &Event, end: End) -> Vec<String> {
        let facts = Facts(event);
        let path = facts.text("pathId");
        let thread = self.threads.remove(&*event.thread_id).unwrap_or_default();
        self.running.remove(&thread.place);
        let (shown, summed) = if path.is_empty() {
            (true, None)
        } else {
            self.forks.end(&event.workflow_id, &path, end)
        };
        // A branch that was never started has no name yet.
        let name = match (thread.name.is_empty(), path.is_empty()) {
            (false, _) => thread.name,
            (true, false) => format!("branch {path}"),
            (true, true) => event.thread_id.to_string(),
        };
        let error = facts.error();
        // Its node has told so, with the reason.
        let is_echo = end == End::Failed && !thread.told.is_empty() && error == thread.told;
        let reason = if error.is_empty() || error == thread.told {
            String::new()
        } else {
            format!(": {error}")
        };
        let sign = match end {
            End::Completed => '<',
            End::Failed => '!',
            End::Cancelled => 'x',
        };
        let status = facts.text("status").to_lowercase();
        let line = (shown && !is_echo).then(|| format!("{sign} {name} {status}{reason}"));
        line.into_iter().chain(summed).collect()
    }

    fn node_failed(&mut self, event: &Event) -> Vec<String> {
        let facts = Facts(event);
        let Some(thread) = self.threads.get_mut(&*event.thread_id).filter(|thread| !thread.quiet) else {
            return Vec::new();
        };
        thread.told = facts.error();
        vec![format!(
            "! {} failed at {}: {}",
            thread.name,
            facts.text("nodeId"),
            thread.told
        )]
    }

    fn tool_call(&mut self, event: &Event, name: &str) -> Vec<String> {
        let facts = Facts(event);
        let is_quiet = self.threads.get(&*event.thread_id).is_some_and(|thread| thread.quiet);
        self.calls += usize::from(!is_quiet);
        if is_quiet || self.calls > CALLS {
            return Vec::new();
        }
        let arguments = event
            .raised
            .data
            .get("arguments")
            .map_or_else(String::new, Value::to_string);
        vec![format!(
            "  {name} calls {} {}",
            facts.text("name"),
            clipped(&arguments, 60)
        )]
    }

    /// A branch begins with its parent's conversation, whose size has been told.
    fn tokens(&mut self, event: &Event, name: &str) -> Vec<String> {
        let facts = Facts(event);
        let is_over = event.raised.event_type == EventType::TokenLimitExceeded;
        let thread = self.threads.get(&*event.thread_id);
        if thread.is_some_and(|thread| thread.quiet || (thread.kind == "branch" && !is_over)) {
            return Vec::new();
        }
        let (used, limit) = (facts.number("tokensUsed"), facts.number("tokenLimit"));
        let of = format!("{} / {} tokens", grouped(used), grouped(limit));
        vec![if is_over {
            format!("# {name}: {of}, over the limit")
        } else {
            format!("# {name}: {of}, {} %", percent(used, limit))
        }]
    }

    fn compressed(&mut self, event: &Event, name: &str) -> Vec<String> {
        let facts = Facts(event);
        let thread = self.threads.get(&*event.thread_id);
        // What a trigger started works on a copy; it is told when its thread takes it over.
        if thread.is_some_and(|thread| thread.kind == "triggered" || thread.quiet) {
            return Vec::new();
        }
        if event.raised.data.get("changed") == Some(&Value::Bool(false)) {
            let stay = grouped(facts.number("tokensBefore"));
            return vec![format!(
                "# {name}: the compression would not be smaller, {stay} tokens stay"
            )];
        }
        let from_to = |before: &str, after: &str| {
            format!("{} -> {}", grouped(facts.number(before)), grouped(facts.number(after)))
        };
        let of = match thread.and_then(|thread| thread.context?.1) {
            Some(limit) => format!(" of {}", grouped(limit)),
            None => String::new(),
        };
        vec![format!(
            "# {name} compressed: {} messages, {} tokens{of}",
            from_to("messagesBefore", "messagesAfter"),
            from_to("tokensBefore", "tokensAfter"),
        )]
    }
}

impl Thread {
    fn now(&self, reply: Option<&str>) -> String {
        let mut line = self.name.clone();
        if !self.node.is_empty() {
            line.push_str(" · ");
            line.push_str(&self.node);
        }
        match self.context {
            Some((used, Some(limit))) => line = format!("{line}  {}", meter(used, limit)),
            Some((used, None)) => line = format!("{line}  {} tokens", grouped(used)),
            None => {}
        }
        if let Some(reply) = reply {
            let skipped = reply.chars().count().saturating_sub(TAIL);
            line.push_str("  ");
            line.extend(reply.chars().skip(skipped));
        }
        line
    }
}

/// The fields of an event.
struct Facts<'e>(&'e Event);

impl Facts<'_> {
    fn text(&self, field: &str) -> String {
        match self.0.raised.data.get(field) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        }
    }

    fn list(&self, field: &str) -> Vec<String> {
        let list = self.0.raised.data.get(field).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    fn some_number(&self, field: &str) -> Option<u64> {
        self.0.raised.data.get(field).and_then(Value::as_u64)
    }

    fn number(&self, field: &str) -> u64 {
        self.some_number(field).unwrap_or_default()
    }

    fn error(&self) -> String {
        let message = self.0.raised.data.get("error").and_then(|error| error.get("message"));
        message.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}
