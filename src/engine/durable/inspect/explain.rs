//! Explanation of a run as text, for people and for language models: outcome, cause, failing node, cost and path.

use std::fmt::Write;

use pirn_core::run::NodeReport;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::ThreadKind;
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use pirn_store::WaitingFor;
use serde_json::json;

use super::failures::{FailedNode, shortened};
use super::threads::ThreadSpan;
use super::view::RunView;

/// Maximum number of lines of an explanation.
pub const EXPLAIN_LINES: usize = 60;

/// Maximum length of a line, in characters.
const LINE: usize = 400;

/// Maximum number of nodes in the path: of the first and of the last.
const NODES: (usize, usize) = (12, 10);

/// Maximum number of other threads.
const THREADS: usize = 12;

/// Maximum number of open questions and of effects in doubt, each.
const OPEN: usize = 4;

/// Maximum number of nodes in the cost.
const COSTLY: usize = 3;

impl RunView {
    /// Explains the run as of the step: outcome, cause, failing node with its input, cost, path and threads. At most
    /// [`EXPLAIN_LINES`] lines of plain text.
    pub fn explain(&self) -> String {
        let mut text = Lines::default();
        let report = &self.report;
        text.line(&format!(
            "{} of {}: {} after step {}, {}",
            self.run.id,
            self.run.workflow,
            self.status_word(),
            self.step,
            duration(report.elapsed_ms)
        ));
        text.line(&format!("Cause: {}", self.cause()));
        if let Some(failed) = self.failing_node() {
            text.line(&failing(failed));
            text.line(&format!("  input: {}", failed.input));
        }
        if report.status == ThreadStatus::Completed {
            text.line(&format!("Output: {}", report.output));
        }
        self.cost(&mut text);
        for question in self.interactions.iter().take(OPEN) {
            let (id, node, asked) = (&question.id, &question.node_id, &question.question);
            text.line(&format!("Question: {id} of node {node}: {asked}"));
        }
        for doubt in report.in_doubt.iter().take(OPEN) {
            text.line(&format!("In doubt: {} of node {}", doubt.effect_id, doubt.node_id));
        }
        self.path(&mut text);
        self.other_threads(&mut text);
        text.0
    }

    fn status_word(&self) -> &'static str {
        if self.report.status.is_final() {
            self.report.status.as_str()
        } else if self.is_waiting().is_some() {
            "WAITING"
        } else if self.is_current() {
            self.run.status.as_str()
        } else {
            self.report.status.as_str()
        }
    }

    fn is_waiting(&self) -> Option<WaitingFor> {
        self.shown_wait().filter(|_| !self.report.status.is_final())
    }

    /// Returns the cause of the outcome in one sentence.
    fn cause(&self) -> String {
        let report = &self.report;
        if let Some(error) = &report.error {
            return self.cause_of(error);
        }
        match (report.status, self.is_waiting()) {
            (ThreadStatus::Completed, _) => {
                let last = report.nodes.iter().rev().find(|node| node.firing.is_none());
                let node = last.map_or_else(String::new, |node| format!(" at node {}", node.node_id));
                format!("the main thread reached its end{node}.")
            }
            (_, Some(WaitingFor::Interaction)) => match self.interactions.first() {
                Some(question) => format!("it waits for a person's answer at node {}.", question.node_id),
                None => "it waits for a person's answer.".to_owned(),
            },
            (_, Some(WaitingFor::Event)) => format!("it waits for an event{}.", self.at_node()),
            (_, Some(WaitingFor::Timer)) => format!("it waits for a timer{}.", self.at_node()),
            (ThreadStatus::Paused, None) => format!("it is paused{}.", self.at_node()),
            // The run itself waits, and the store has an input that ends the wait.
            (_, None) if self.is_current() && self.waiting_for.is_some() => {
                let (at, run) = (self.at_node(), &self.run.id);
                format!("its next step is ready{at}; `pirn runs resume {run}` continues it.")
            }
            (_, None) if self.is_current() => {
                let (at, run) = (self.at_node(), &self.run.id);
                format!(
                    "it has not ended; the main thread is{at}. Unless a process executes it, `pirn runs resume {run}` \
                     continues it."
                )
            }
            (_, None) => format!("it has not ended; the main thread is{}.", self.at_node()),
        }
    }

    fn at_node(&self) -> String {
        let last = self.report.nodes.iter().rev().find(|node| node.firing.is_none());
        last.map_or_else(
            || " at its start".to_owned(),
            |node| format!(" at node {}", node.node_id),
        )
    }

    fn cause_of(&self, error: &RunError) -> String {
        // The last error of the chain is the first that happened.
        let first = chain(error).last().unwrap_or(error);
        let node = first.node_id.as_ref().or(error.node_id.as_ref());
        let thread = first
            .thread_id
            .as_ref()
            .filter(|thread| ***thread != *self.report.thread_id);
        let path = first
            .path_id
            .as_ref()
            .map_or_else(String::new, |path| format!(", path {path}"));
        let place = match (node, thread) {
            (Some(node), Some(thread)) => format!("node {node} of thread {thread}{path}: "),
            (Some(node), None) => format!("node {node}: "),
            (None, Some(thread)) => format!("thread {thread}{path}: "),
            (None, None) => String::new(),
        };
        let message = first.message.trim_end_matches('.');
        let then = match &error.node_id {
            Some(node) if error.cause.is_some() && error.node_id != first.node_id => {
                format!("; the run failed at node {node} with {}", error.code.as_str())
            }
            _ => String::new(),
        };
        format!("{place}{}: {message}{then}.", first.code.as_str())
    }

    /// Returns the node that caused the failure of the run.
    fn failing_node(&self) -> Option<&FailedNode> {
        let error = self.report.error.as_ref()?;
        let of_thread = |id: &str| self.failed.iter().rev().find(|failed| *failed.thread_id == *id);
        // The first cause has failed first, and the others because of it.
        let errors: Vec<&RunError> = chain(error).collect();
        let deepest = errors.into_iter().rev();
        deepest
            .filter_map(|error| error.thread_id.as_deref())
            .find_map(of_thread)
            .or_else(|| of_thread(&self.report.thread_id))
    }

    fn cost(&self, text: &mut Lines) {
        let spent = &self.report.tokens.spent;
        if self.requests.is_empty() {
            return text.line("Cost: no model calls");
        }
        let failed = self.requests.iter().filter(|request| request.error.is_some()).count();
        let calls = self.requests.len();
        let mut line = format!("Cost: {calls} model call{}", if calls == 1 { "" } else { "s" });
        if failed > 0 {
            let _ = write!(line, " ({failed} failed or cancelled)");
        }
        let _ = write!(
            line,
            ", {} tokens ({} sent, {} of them cached, {} received)",
            spent.total,
            spent.sent(),
            spent.cached_read,
            spent.received()
        );
        if let Some(cost) = &spent.cost {
            let _ = write!(line, ", {} {}", cost.amount(), cost.currency);
        }
        let waited: u64 = self.requests.iter().filter_map(|request| request.duration_ms).sum();
        let _ = write!(line, ", {} of model time", duration(waited));
        text.line(&line);
        let mut nodes: Vec<_> = self.report.usage.nodes.iter().collect();
        nodes.sort_by_key(|node| std::cmp::Reverse(node.usage.total));
        for node in nodes.into_iter().take(COSTLY) {
            text.line(&format!(
                "  {} tokens by node {} of {}",
                node.usage.total, node.node_id, node.workflow_id
            ));
        }
    }

    fn path(&self, text: &mut Lines) {
        let nodes: Vec<&NodeReport> = self.report.nodes.iter().filter(|node| node.firing.is_none()).collect();
        if nodes.is_empty() {
            return;
        }
        text.line("Path of the main thread:");
        let (first, last) = NODES;
        let left_out = nodes.len().saturating_sub(first + last);
        for (place, node) in nodes.iter().enumerate() {
            if left_out > 0 && place == first {
                text.line(&format!("  ... {left_out} more nodes"));
            }
            if place >= first && place < first + left_out {
                continue;
            }
            let mut line = format!("  {} {}", node.node_id, json!(node.status).as_str().unwrap_or_default());
            if node.attempts > 1 {
                let _ = write!(line, ", {} attempts", node.attempts);
            }
            if let Some(reason) = node.finish_reason {
                let _ = write!(line, ", {}", reason.as_str());
            }
            text.line(&line);
        }
    }

    fn other_threads(&self, text: &mut Lines) {
        let is_other = |thread: &&ThreadSpan| thread.kind != ThreadKind::Main;
        // Threads that did not complete first: they explain more.
        let mut others: Vec<&ThreadSpan> = self.threads.iter().filter(is_other).collect();
        if others.is_empty() {
            return;
        }
        let count = others.len();
        others.sort_by_key(|thread| thread.status == ThreadStatus::Completed);
        text.line(&format!("Other threads: {count}"));
        for thread in others.iter().take(THREADS) {
            let mut line = format!("  {} {}", thread.thread_id, thread.kind.as_str());
            for (word, id) in [("path", thread.path_id.as_deref()), ("of", thread.node_id.as_deref())] {
                if let Some(id) = id {
                    let _ = write!(line, " {word} {id}");
                }
            }
            if let Some(trigger) = &thread.trigger_id {
                let _ = write!(line, " by trigger {trigger}");
            }
            if let Some(label) = self.agent_label(&thread.thread_id) {
                let _ = write!(line, " labelled {label}");
            }
            let _ = write!(line, ": {}", thread.status.as_str());
            if let Some(ended) = thread.ended_at {
                let _ = write!(line, ", {}", duration(ended.saturating_sub(thread.started_at)));
            }
            text.line(&line);
        }
        if count > THREADS {
            text.line(&format!("  ... {} more threads", count - THREADS));
        }
    }

    /// Returns the label that a script gave the agent of this thread.
    fn agent_label(&self, thread_id: &str) -> Option<&str> {
        let raised = self.events.iter().map(|event| &event.raised);
        let mut calls = raised.filter(|raised| raised.event_type == EventType::SubgraphStarted);
        let call = calls.find(|call| call.fields.text("childThreadId") == Some(thread_id))?;
        call.fields.text("label")
    }
}

fn failing(failed: &FailedNode) -> String {
    let mut line = format!(
        "Failing node: {} ({}) of thread {}",
        failed.node_id, failed.node_type, failed.thread_id
    );
    if failed.attempts > 1 {
        let _ = write!(line, ", attempt {}", failed.attempts);
    }
    line
}

/// Returns an error and its causes, the first cause last.
fn chain(error: &RunError) -> impl Iterator<Item = &RunError> {
    std::iter::successors(Some(error), |error| error.cause.as_ref())
}

fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// A text of limited lines.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, line: &str) {
        if self.0.lines().count() < EXPLAIN_LINES {
            // A line break in a message would break the limit on lines.
            let line = shortened(line, LINE).replace(['\n', '\r'], " ");
            self.0.push_str(&line);
            self.0.push('\n');
        }
    }
}
