//! Converts the events of a run to lines and to the list of running threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn::{Event, EventType, SubscriptionItem, TokenUsage};
use serde::Deserialize;
use serde_json::Value;

use super::forks::{End, Forks};
use super::line::{Line, Tone, seconds};
use super::meter::{clipped, grouped, meter, percent};
use super::replies::{Manner, Reply};

/// Maximum number of characters of an unfinished line that are shown: its end.
const TAIL_WIDTH: usize = 120;
/// Maximum number of tool calls with a line each; further ones are omitted.
const MAX_CALLS: usize = 200;
/// Maximum number of lines for one node, for nodes in loops.
const MAX_NODE_LINES: u32 = 12;
/// Maximum number of nodes that the line of a branch names.
const MAX_NAMED_NODES: usize = 6;

/// State of the progress display.
#[derive(Default)]
pub(super) struct View {
    verbose: bool,
    threads: BTreeMap<String, Thread>,
    /// Running threads, in the order in which they started.
    running: BTreeMap<u64, String>,
    started: u64,
    /// Names of called threads that have not started yet, for workflows that were written during the run.
    written: BTreeMap<String, String>,
    forks: Forks,
    calls: usize,
    /// Number of lines of each node of a workflow so far.
    node_lines: BTreeMap<(String, String), u32>,
    /// Time of the first event.
    begin: Option<u64>,
    compressions: Compressions,
}

/// Compressions that took effect in threads that continue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compressions {
    pub(super) count: u64,
    /// Tokens that later requests save.
    pub(super) saved: u64,
}

/// A thread with at least one observed event.
#[derive(Default)]
struct Thread {
    place: u64,
    name: String,
    kind: String,
    /// True for a branch of a fork that is summed up.
    is_quiet: bool,
    began: u64,
    node: String,
    node_began: u64,
    /// Nodes that took measurable time, with their milliseconds.
    nodes: Vec<(String, u64)>,
    /// Context tokens of the last request, and their limit.
    context: Option<(u64, Option<u64>)>,
    /// The last failure that was printed, so that it is not printed twice.
    failure: String,
    reply: Reply,
}

impl View {
    pub(super) fn new(verbose: bool) -> Self {
        Self {
            verbose,
            ..Self::default()
        }
    }

    /// Processes the events of a resumed run up to the resumption, which are not printed.
    pub(super) fn skip(&mut self, seen: Vec<Arc<Event>>) {
        for event in seen {
            drop(self.hear(&SubscriptionItem::Event(event)));
        }
        // The times of the printed lines begin with the first one.
        self.begin = None;
    }

    /// Processes an event and returns the lines to print.
    pub(super) fn hear(&mut self, heard: &SubscriptionItem) -> Vec<Line> {
        match heard {
            SubscriptionItem::Lagged(count) => vec![Line {
                at: None,
                depth: 0,
                tone: Tone::Quiet,
                text: format!("({} events were too fast to show)", grouped(*count)),
            }],
            SubscriptionItem::Event(event) => {
                self.begin.get_or_insert(event.timestamp);
                if event.raised.event_type == EventType::LlmToken {
                    self.said(event)
                } else {
                    self.event(event)
                }
            }
        }
    }

    /// Returns the compressions and the saved tokens, after the last event.
    pub(super) fn compressions(&self) -> Compressions {
        self.compressions
    }

    /// Formats the running threads: one line each, at most `most`.
    pub(super) fn now(&self, most: usize) -> Vec<String> {
        let shown = if self.running.len() > most {
            most.saturating_sub(1)
        } else {
            most
        };
        let threads = self.running.values().take(shown);
        let mut lines: Vec<String> = threads.filter_map(|id| Some(self.threads.get(id)?.now())).collect();
        if self.running.len() > shown {
            lines.push(format!("and {} more", grouped((self.running.len() - shown) as u64)));
        }
        lines
    }

    /// Formats a line about a thread: `NAME: TEXT`.
    fn line(&self, event: &Event, tone: Tone, text: impl AsRef<str>) -> Line {
        let known = self.threads.get(&*event.thread_id);
        let name = known.map_or(&*event.thread_id, |thread| thread.name.as_str());
        Line {
            at: Some(event.timestamp.saturating_sub(self.begin.unwrap_or_default())),
            depth: usize::from(known.is_some_and(|thread| thread.kind != "main")),
            tone,
            text: format!("{name}: {}", text.as_ref()),
        }
    }

    fn event(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let id = &*event.thread_id;
        match event.raised.event_type {
            EventType::ThreadStarted => self.started(event),
            EventType::ThreadCompleted => self.ended(event, End::Completed),
            EventType::ThreadFailed => self.ended(event, End::Failed),
            EventType::ThreadCancelled => self.ended(event, End::Cancelled),
            EventType::ThreadPaused => vec![self.line(event, Tone::Plain, "paused")],
            EventType::ThreadResumed => vec![self.line(event, Tone::Plain, "resumed")],
            EventType::ThreadForkStarted => {
                let paths = facts.list("forkPathIds");
                // The branches of a MAP execute another workflow.
                let called = facts.text("subgraphId");
                let walked = if called.is_empty() {
                    &event.workflow_id
                } else {
                    &*called
                };
                let text = self.forks.start(id, walked, &facts.text("nodeId"), &paths);
                vec![self.line(event, Tone::Turn, text)]
            }
            EventType::ThreadJoinConditionMet => {
                let counts = self.forks.joined(id);
                let counts = counts.map_or_else(String::new, |counts| format!(": {counts}"));
                let node = self.threads.get(id).map_or("", |thread| thread.node.as_str());
                let text = format!("{node} joined by {}{counts}", facts.text("joinStrategy"));
                vec![self.line(event, Tone::Turn, text)]
            }
            EventType::NodeStarted => self.node_started(event),
            EventType::NodeCompleted => self.node_completed(event),
            EventType::RequestPrepared => self.changed(id, |thread| {
                thread.context = Some((facts.number("tokensUsed"), facts.some_number("tokenLimit")));
            }),
            EventType::NodeFailed => self.node_failed(event),
            EventType::ToolCallStarted => self.tool_call(event),
            EventType::ToolCallFailed => {
                let result = facts.text("result");
                let reason = clipped(result.lines().next().unwrap_or_default(), 200);
                let text = format!("tool {} failed: {reason}", facts.text("name"));
                vec![self.line(event, Tone::Bad, text)]
            }
            EventType::TokenUsageWarning | EventType::TokenLimitExceeded | EventType::TokenLimitApproached => {
                self.tokens(event)
            }
            EventType::ArtifactKept => {
                let (whole, preview) = (facts.number("tokens"), facts.number("previewTokens"));
                let (whole, preview, id) = (grouped(whole), grouped(preview), facts.text("artifactId"));
                let text = format!("a result of {whole} tokens is artifact {id}, its preview {preview} tokens");
                vec![self.line(event, Tone::Plain, text)]
            }
            EventType::ArtifactDropped => {
                let text = format!(
                    "artifact {} was dropped: the run has too many",
                    facts.text("artifactId")
                );
                vec![self.line(event, Tone::Bad, text)]
            }
            EventType::BudgetWarning => {
                let scope = match &*facts.text("budgetOfPath") {
                    "" => facts.text("budgetOf"),
                    path => format!("path {path}"),
                };
                let [kind, used, limit] = ["kind", "used", "limit"].map(|name| facts.text(name));
                let text = format!("the budget of {scope}: {used} of {limit} {kind} used");
                vec![self.line(event, Tone::Turn, text)]
            }
            EventType::BudgetOverrun => {
                let text = format!("{}: a model call used more than it had reserved", facts.text("nodeId"));
                vec![self.line(event, Tone::Bad, text)]
            }
            EventType::CacheCollapsed => {
                let text = match &*facts.text("reason") {
                    "unreported" => "the provider reports no cached tokens".to_owned(),
                    reason => {
                        let [read, expected] = ["readTokens", "expectedTokens"].map(|name| grouped(facts.number(name)));
                        let why = match &*facts.text("why") {
                            "" => String::new(),
                            why => format!(": {why}"),
                        };
                        format!("{read} of {expected} tokens came from the provider's cache ({reason}{why})")
                    }
                };
                vec![self.line(event, Tone::Plain, text)]
            }
            EventType::CompressionCompleted => self.compressed(event),
            EventType::CompressionFailed => {
                let text = format!("the compression failed: {}", facts.error());
                vec![self.line(event, Tone::Bad, text)]
            }
            // Precedes the start of the called thread.
            EventType::SubgraphStarted => {
                if let Some(name) = facts.written_name() {
                    self.written.insert(facts.text("childThreadId"), name);
                }
                Vec::new()
            }
            EventType::TriggeredSubgraphStarted => {
                let text = format!("trigger {} fired", facts.text("triggerId"));
                vec![self.line(event, Tone::Turn, text)]
            }
            EventType::TriggeredSubgraphFailed | EventType::TriggerFailed => {
                let text = format!("trigger {} failed: {}", facts.text("triggerId"), facts.error());
                vec![self.line(event, Tone::Bad, text)]
            }
            EventType::Notification => {
                let text = format!("notification: {}", facts.text("message"));
                vec![self.line(event, Tone::Turn, text)]
            }
            EventType::ScriptLog => {
                let tone = match facts.text("level").as_str() {
                    "error" | "warn" => Tone::Bad,
                    _ => Tone::Plain,
                };
                let text = format!(
                    "{} {}: {}",
                    facts.text("nodeId"),
                    facts.text("level"),
                    facts.text("message")
                );
                vec![self.line(event, tone, text)]
            }
            EventType::UserMessage => {
                let said = clipped(facts.text("text").lines().next().unwrap_or_default(), 200);
                let (tone, what) = match &*facts.text("status") {
                    "RECEIVED" => (Tone::Plain, "message received"),
                    "ADDED" => (Tone::Turn, "message added to the conversation"),
                    _undelivered => (Tone::Bad, "the run ended before its model received the message"),
                };
                vec![self.line(event, tone, format!("{what}: {said}"))]
            }
            EventType::InteractionRequested => {
                let assignee = facts.text("assignee");
                let whom = if assignee.is_empty() {
                    String::new()
                } else {
                    format!(" {assignee}")
                };
                let text = format!("asks{whom}: {}", facts.text("question"));
                vec![self.line(event, Tone::Turn, text)]
            }
            EventType::InteractionAnswered => {
                let by = facts.text("by");
                let by = if by.is_empty() { String::new() } else { format!("{by} ") };
                let text = format!("{by}answered: {}", clipped(&facts.text("answer"), 200));
                vec![self.line(event, Tone::Turn, text)]
            }
            EventType::InteractionWithdrawn => vec![self.line(event, Tone::Turn, "the question was withdrawn")],
            EventType::InteractionTimedOut => vec![self.line(event, Tone::Turn, "no answer in time")],
            EventType::EffectInDoubt => {
                let (node, kind) = (facts.text("nodeId"), facts.text("kind"));
                let text = format!(
                    "{node}: the {kind} call was in progress when the process ended: {}",
                    facts.text("resolution")
                );
                vec![self.line(event, Tone::Bad, text)]
            }
            EventType::EventDropped => {
                let (name, count) = (facts.text("name"), facts.text("dropped"));
                let text = format!("too many events {name}: the {count} oldest were dropped and cannot end a WAIT");
                vec![self.line(event, Tone::Bad, text)]
            }
            EventType::ThreadForkCompleted
            | EventType::ThreadJoinStarted
            | EventType::MessageAdded
            | EventType::RequestRepaired
            | EventType::TriggeredSubgraphCompleted
            | EventType::SubgraphCompleted
            | EventType::ToolCallCompleted
            | EventType::VariableChanged
            | EventType::CheckpointCreated
            | EventType::LlmToken
            | EventType::ScheduleDue
            | EventType::Custom => Vec::new(),
        }
    }

    /// Returns the lines of a reply that this piece completes.
    fn said(&mut self, event: &Event) -> Vec<Line> {
        let Some(thread) = self
            .threads
            .get_mut(&*event.thread_id)
            .filter(|thread| !thread.is_quiet)
        else {
            return Vec::new();
        };
        let lines = if event.raised.fields.contains_key("restart") {
            thread.reply.restart()
        } else {
            thread.reply.push(&Facts(event).text("text"))
        };
        self.quoted(event, lines)
    }

    fn quoted(&self, event: &Event, lines: Vec<String>) -> Vec<Line> {
        let kind = self.threads.get(&*event.thread_id).map(|thread| thread.kind.as_str());
        let depth = usize::from(kind != Some("main"));
        let quoted = lines.into_iter().map(|text| Line {
            at: None,
            depth: depth + 1,
            tone: Tone::Quiet,
            text: format!("| {text}"),
        });
        quoted.collect()
    }

    fn changed(&mut self, id: &str, change: impl FnOnce(&mut Thread)) -> Vec<Line> {
        if let Some(thread) = self.threads.get_mut(id) {
            change(thread);
        }
        Vec::new()
    }

    fn started(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let (kind, path) = (facts.text("kind"), facts.text("pathId"));
        let name = match kind.as_str() {
            "main" => event.workflow_id.to_string(),
            "branch" => format!("branch {path}"),
            "subgraph" => match self.written.remove(&*event.thread_id) {
                Some(name) => format!("called {name}"),
                None => format!("called {}", event.workflow_id),
            },
            kind => format!("{kind} {}", event.workflow_id),
        };
        let manner = match kind.as_str() {
            _ if self.verbose => Manner::Live,
            "main" | "subgraph" => Manner::Live,
            "triggered" => Manner::Counted,
            _ => Manner::Folded,
        };
        self.started += 1;
        let thread = Thread {
            place: self.started,
            name,
            is_quiet: kind == "branch" && self.forks.is_quiet(&event.workflow_id, &path),
            began: event.timestamp,
            reply: Reply::new(manner),
            kind,
            ..Thread::default()
        };
        // The line of the fork has named its branches already.
        let is_told = thread.kind != "branch" || (self.verbose && !thread.is_quiet);
        self.running.insert(thread.place, event.thread_id.to_string());
        self.threads.insert(event.thread_id.to_string(), thread);
        if is_told {
            vec![self.line(event, Tone::Plain, "started")]
        } else {
            Vec::new()
        }
    }

    fn ended(&mut self, event: &Event, end: End) -> Vec<Line> {
        let facts = Facts(event);
        let path = facts.text("pathId");
        let (shown, summed) = if path.is_empty() {
            (true, None)
        } else {
            self.forks.end(&event.workflow_id, &path, end)
        };
        let rest = self.threads.get_mut(&*event.thread_id).map(|thread| {
            let hidden = thread.reply.hidden();
            // Discard the partial reply of a thread that did not complete, such as the loser of a race.
            if end == End::Completed {
                (thread.reply.finish(), 0)
            } else {
                (Vec::new(), hidden)
            }
        });
        let (rest, hidden) = rest.unwrap_or_default();
        let mut lines = self.quoted(event, rest);
        let mut thread = self.threads.remove(&*event.thread_id).unwrap_or_default();
        self.running.remove(&thread.place);
        // The summary is the main thread's last line.
        let is_main = thread.kind == "main";
        if thread.name.is_empty() {
            // The branch was never started.
            thread.name = if path.is_empty() {
                event.thread_id.to_string()
            } else {
                format!("branch {path}")
            };
            thread.began = event.timestamp;
            "branch".clone_into(&mut thread.kind);
        }
        let error = facts.error();
        // The node's own failure line contained the reason already.
        let is_echo = end == End::Failed && !thread.failure.is_empty() && error == thread.failure;
        let reason = if error.is_empty() || error == thread.failure {
            String::new()
        } else {
            format!(": {error}")
        };
        if shown && !is_echo && !is_main {
            let tone = match end {
                End::Completed => Tone::Good,
                End::Failed => Tone::Bad,
                // Usually a loser of a race that was stopped: not a failure.
                End::Cancelled => Tone::Quiet,
            };
            let took = seconds(event.timestamp.saturating_sub(thread.began));
            let verb = if end == End::Completed { "in" } else { "after" };
            let status = facts.text("status").to_lowercase();
            let unheard = match hidden {
                0 => String::new(),
                count => format!(" ({} characters of its reply are not shown)", grouped(count)),
            };
            let nodes = if self.verbose {
                String::new()
            } else {
                thread.named_nodes()
            };
            let text = format!("{status} {verb} {took}{nodes}{reason}{unheard}");
            self.threads.insert(event.thread_id.to_string(), thread);
            lines.push(self.line(event, tone, text));
            self.threads.remove(&*event.thread_id);
        }
        lines.extend(summed.map(|counts| Line {
            text: counts,
            ..self.line(event, Tone::Plain, "")
        }));
        lines
    }

    fn node_started(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let (node, node_type) = (facts.text("nodeId"), facts.text("nodeType"));
        let text = format!("{node} ({node_type}) started");
        let is_told = self.verbose && facts.number("attempt") <= 1;
        let Some(thread) = self.threads.get_mut(&*event.thread_id) else {
            return Vec::new();
        };
        thread.node = node;
        thread.node_began = event.timestamp;
        if is_told && !thread.is_quiet {
            vec![self.line(event, Tone::Quiet, text)]
        } else {
            Vec::new()
        }
    }

    fn node_completed(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let node = facts.text("nodeId");
        let Some(thread) = self
            .threads
            .get_mut(&*event.thread_id)
            .filter(|thread| !thread.is_quiet)
        else {
            return Vec::new();
        };
        let took = event.timestamp.saturating_sub(thread.node_began);
        let works = does_work(&facts.text("nodeType"));
        if works && thread.nodes.len() <= MAX_NAMED_NODES {
            thread.nodes.push((node.clone(), took));
        }
        let rest = thread.reply.finish();
        let is_main = thread.kind == "main";
        let mut lines = self.quoted(event, rest);
        if self.verbose || (works && is_main) {
            lines.extend(self.node_line(event, &node, took));
        }
        lines
    }

    fn node_line(&mut self, event: &Event, node: &str, took: u64) -> Option<Line> {
        let key = (event.workflow_id.to_string(), node.to_owned());
        let count = self.node_lines.entry(key).or_default();
        *count += 1;
        let count = *count;
        if count > MAX_NODE_LINES && !self.verbose {
            let text = format!("{node} goes on; further times are not shown (--verbose shows them)");
            return (count == MAX_NODE_LINES + 1).then(|| self.line(event, Tone::Quiet, text));
        }
        let facts = Facts(event);
        let attempts = match facts.number("attempts") {
            0 | 1 => String::new(),
            attempts => format!(" at attempt {attempts}"),
        };
        let used = event.raised.fields.get("output").and_then(|output| output.get("usage"));
        let used = used.and_then(|used| TokenUsage::deserialize(used).ok());
        let used = used.map_or_else(String::new, |used| {
            let cached = match used.cached_read {
                0 => String::new(),
                read => format!(", {} of them cached", grouped(read)),
            };
            let (sent, received) = (grouped(used.sent()), grouped(used.received()));
            format!(" ({sent} tokens in{cached}, {received} out)")
        });
        let text = format!("{node} completed in {}{attempts}{used}", seconds(took));
        Some(self.line(event, Tone::Plain, text))
    }

    fn node_failed(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let Some(thread) = self
            .threads
            .get_mut(&*event.thread_id)
            .filter(|thread| !thread.is_quiet)
        else {
            return Vec::new();
        };
        thread.failure = facts.error();
        let text = format!("{} failed: {}", facts.text("nodeId"), thread.failure);
        vec![self.line(event, Tone::Bad, text)]
    }

    fn tool_call(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let is_quiet = self
            .threads
            .get(&*event.thread_id)
            .is_some_and(|thread| thread.is_quiet);
        self.calls += usize::from(!is_quiet);
        if is_quiet || (self.calls > MAX_CALLS && !self.verbose) {
            return Vec::new();
        }
        let arguments = event
            .raised
            .fields
            .get("arguments")
            .map_or_else(String::new, Value::to_string);
        let text = format!(
            "{} calls {} {}",
            facts.text("nodeId"),
            facts.text("name"),
            clipped(&arguments, 60)
        );
        vec![self.line(event, Tone::Plain, text)]
    }

    /// Reports the size of the next request; not for branches, which start with their parent's conversation, already reported.
    fn tokens(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let is_over = event.raised.event_type == EventType::TokenLimitExceeded;
        let thread = self.threads.get(&*event.thread_id);
        if thread.is_some_and(|thread| thread.is_quiet || (thread.kind == "branch" && !is_over)) {
            return Vec::new();
        }
        let (used, limit) = (facts.number("tokensUsed"), facts.number("tokenLimit"));
        let of = format!("the next request has {} of {} tokens", grouped(used), grouped(limit));
        let text = match event.raised.event_type {
            EventType::TokenLimitExceeded if facts.number("currentTurnTokens") > limit => {
                format!(
                    "{of}: over the limit, and no compression helps: it retains the current turn, which alone is larger"
                )
            }
            EventType::TokenLimitExceeded => format!("{of}: over the limit"),
            EventType::TokenLimitApproached => {
                format!("{of} ({} %): its compression begins early", percent(used, limit))
            }
            _other => format!("{of} ({} %)", percent(used, limit)),
        };
        vec![self.line(event, Tone::Turn, text)]
    }

    fn compressed(&mut self, event: &Event) -> Vec<Line> {
        let facts = Facts(event);
        let thread = self.threads.get(&*event.thread_id);
        // A triggered thread compresses a copy: report the compression when the thread takes the copy over.
        if thread.is_some_and(|thread| thread.kind == "triggered" || thread.is_quiet) {
            return Vec::new();
        }
        let (before, after) = (facts.number("tokensBefore"), facts.number("tokensAfter"));
        if event.raised.fields.get("changed") == Some(&Value::Bool(false)) {
            let text = format!("the compression would not be smaller: {} tokens stay", grouped(before));
            return vec![self.line(event, Tone::Turn, text)];
        }
        self.compressions.count += 1;
        self.compressions.saved += before.saturating_sub(after);
        let limit = match thread.and_then(|thread| thread.context?.1) {
            Some(limit) => format!(" (limit {})", grouped(limit)),
            None => String::new(),
        };
        let text = format!(
            "compressed from {} to {} messages, from {} to {} tokens{limit}",
            grouped(facts.number("messagesBefore")),
            grouped(facts.number("messagesAfter")),
            grouped(before),
            grouped(after)
        );
        vec![self.line(event, Tone::Turn, text)]
    }
}

impl Thread {
    fn now(&self) -> String {
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
        if let Some(reply) = self.reply.unfinished() {
            let skipped = reply.chars().count().saturating_sub(TAIL_WIDTH);
            line.push_str("  ");
            line.extend(reply.chars().skip(skipped));
        }
        line
    }

    /// Formats ` (read 0.1 s, write 1.2 s)` if the thread ran several nodes, or one with a different name than the thread.
    fn named_nodes(&self) -> String {
        let is_said = match self.nodes.as_slice() {
            [] => true,
            [(only, _)] => self.name.ends_with(only.as_str()),
            _ => false,
        };
        if is_said {
            return String::new();
        }
        let first = self.nodes.iter().take(MAX_NAMED_NODES);
        let mut names: Vec<String> = first.map(|(node, took)| format!("{node} {}", seconds(*took))).collect();
        if self.nodes.len() > MAX_NAMED_NODES {
            names.push("and more".to_owned());
        }
        format!(" ({})", names.join(", "))
    }
}

/// True for types of nodes with a duration worth showing.
fn does_work(node_type: &str) -> bool {
    !matches!(
        node_type,
        "START" | "END" | "VARIABLE" | "ROUTE" | "FORK" | "JOIN" | "START_FROM_TRIGGER" | "CONTINUE_FROM_TRIGGER"
    )
}

/// Typed access to the fields of an event.
pub(super) struct Facts<'e>(pub(super) &'e Event);

impl Facts<'_> {
    pub(super) fn text(&self, field: &str) -> String {
        match self.0.raised.fields.get(field) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        }
    }

    /// Returns the name of a called workflow that was written during the run: its label, or its id without the hash of its text.
    fn written_name(&self) -> Option<String> {
        self.0.raised.fields.get("definition")?;
        let (label, id) = (self.text("label"), self.text("subgraphId"));
        Some(match id.rsplit_once('@') {
            _ if !label.is_empty() => label,
            Some((name, _)) => name.to_owned(),
            None => id,
        })
    }

    fn list(&self, field: &str) -> Vec<String> {
        let list = self.0.raised.fields.get(field).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    fn some_number(&self, field: &str) -> Option<u64> {
        self.0.raised.fields.get(field).and_then(Value::as_u64)
    }

    fn number(&self, field: &str) -> u64 {
        self.some_number(field).unwrap_or_default()
    }

    pub(super) fn error(&self) -> String {
        let message = self.0.raised.fields.get("error").and_then(|error| error.get("message"));
        message.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}
