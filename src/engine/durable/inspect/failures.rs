//! Threads of a replayed run that failed, with the node at which each ended and the input of that node.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::PreparedRequest;
use pirn_core::run::{Effect, ReplayStep, RunMachine, ThreadNo};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{self, Output};
use pirn_definition::graph::{Graph, NodeIx, NodeKind};
use pirn_definition::message::ToolCall;
use serde_json::{Value, json};

/// Maximum number of failed threads that are retained; further ones are only in the list of threads.
const MOST: usize = 1_000;

/// Maximum length of an input's text, in characters.
const LONGEST: usize = 600;

/// The node at which a thread failed.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::engine::durable) struct FailedNode {
    pub(in crate::engine::durable) thread_id: Arc<str>,
    pub(in crate::engine::durable) node_id: Arc<str>,
    pub(in crate::engine::durable) node_type: &'static str,
    /// Number of attempts of the node.
    pub(in crate::engine::durable) attempts: u32,
    /// Input of the node, as text.
    pub(in crate::engine::durable) input: String,
}

/// The last input of a thread's effect. Shares the values of the run.
enum LastInput {
    Value(Arc<Value>),
    Output(Output),
    Tool(ToolCall),
    Model(Arc<PreparedRequest>),
}

/// Collects the failed threads of a replayed run.
#[derive(Default)]
pub(in crate::engine::durable) struct FailureWatch {
    last: BTreeMap<ThreadNo, (NodeIx, LastInput)>,
    failed: Vec<FailedNode>,
}

impl FailureWatch {
    pub(in crate::engine::durable) fn saw(&mut self, machine: &RunMachine, replayed: &ReplayStep<'_>) {
        let ReplayStep::Effects(_, effects) = replayed else {
            return;
        };
        for effect in effects.iter() {
            match effect {
                Effect::Thread { thread, effect } => {
                    if let Some(last) = machine.live(*thread).and_then(|live| input_of(live.graph(), effect)) {
                        self.last.insert(*thread, last);
                    }
                }
                Effect::ThreadEnded { thread } => self.ended(machine, *thread),
                _other => {}
            }
        }
    }

    fn ended(&mut self, machine: &RunMachine, thread: ThreadNo) {
        let last = self.last.remove(&thread);
        // The machine of the thread exists until its end message is processed, in a later step.
        let Some(live) = machine.live(thread) else { return };
        let has_failed = matches!(live.status(), ThreadStatus::Failed | ThreadStatus::Timeout);
        if !has_failed || self.failed.len() >= MOST {
            return;
        }
        let (graph, node) = (live.graph(), live.node());
        let input = match last.filter(|(of, _)| *of == node) {
            Some((_, LastInput::Value(value))) => value.to_string(),
            Some((_, LastInput::Output(output))) => output.value().to_string(),
            Some((_, LastInput::Tool(call))) => json!({"tool": call.name, "arguments": call.arguments}).to_string(),
            Some((_, LastInput::Model(request))) => model_input(&request),
            // Nodes without an effect use the output of the node before them.
            None => live.last_output().value().to_string(),
        };
        self.failed.push(FailedNode {
            thread_id: Arc::clone(live.thread_id()),
            node_id: Arc::clone(&graph.node(node).id),
            node_type: graph.node(node).kind.type_name(),
            attempts: live.history().last().map_or(1, |record| record.attempts),
            input: shortened(&input, LONGEST),
        });
    }

    /// Returns the failed threads in the order of their ends.
    pub(in crate::engine::durable) fn failed(self) -> Vec<FailedNode> {
        self.failed
    }
}

fn input_of(graph: &Graph, effect: &thread::Effect) -> Option<(NodeIx, LastInput)> {
    Some(match effect {
        thread::Effect::Function { node, input, .. } => (*node, LastInput::Output(input.clone())),
        thread::Effect::Script { node, input, .. } => (*node, LastInput::Value(Arc::clone(input))),
        // A failed tool of an LLM node does not fail the node: the model receives the error.
        thread::Effect::Tool { node, call, .. } if matches!(graph.node(*node).kind, NodeKind::Tool { .. }) => {
            (*node, LastInput::Tool(call.clone()))
        }
        thread::Effect::Model { node, request, .. } => (*node, LastInput::Model(Arc::clone(request))),
        _other => return None,
    })
}

fn model_input(request: &PreparedRequest) -> String {
    let said = request.last_said();
    let said = said.messages.last().map_or("", |message| message.content.as_str());
    let (messages, tokens) = (request.len(), request.tokens());
    format!(
        "{} (last user message of {messages}; {tokens} tokens)",
        json!(shortened(said, LONGEST))
    )
}

/// Returns the first characters of a text.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
