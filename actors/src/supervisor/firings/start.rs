//! Starts what a trigger asked for, once its main thread has said how it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::conversation::{Conversation, Counted, select};
use pirn_core::definition::{HistorySelection, TriggerAction};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventType;
use pirn_core::graph::{Graph, Node};
use pirn_core::message::Message;
use pirn_core::thread::{FiringId, ThreadKind, Variables};
use serde_json::{Map, Value, json};

use super::super::children::Start;
use super::super::{Origin, SupervisorActor, SupervisorMsg};
use super::{FiringRun, MAX_TIMEOUT_MS, State, visible};
use crate::engine::{DetachedRun, OnEnd};
use crate::firing::Firing;
use crate::thread::{ConversationRef, Described};

impl SupervisorActor {
    /// A trigger starts a run that needs nothing of the thread which raised the event, nor that it still lives.
    pub(in crate::supervisor) fn fire_alone(&mut self, firing: Firing) {
        let id = firing.id;
        let main = self.threads.number_of(&firing.event.thread_id).unwrap_or_default();
        let mut run = FiringRun::new(firing, main, State::Detached);
        let graph = self.threads.get(main).map(|child| &child.graph);
        let node = graph.and_then(|graph| {
            let name = run.firing.event.raised.data.get("nodeId")?.as_str()?;
            graph
                .nodes
                .iter()
                .find(|node| *node.id == *name)
                .map(|node| (graph, node))
        });
        if let Some((graph, node)) = node {
            run.stands_at(graph, node);
        }
        let detached = run.firing.detached(self.hear_the_end_of(id));
        self.firings.insert(id, run);
        if let Some(detached) = detached {
            self.start_run(id, detached);
        }
    }

    /// What a detached run comes to is a message.
    fn hear_the_end_of(&self, id: FiringId) -> OnEnd {
        let supervisor = Arc::clone(&self.run.supervisor);
        Box::new(move |report| {
            let output = match &report.error {
                None => Ok(report.output.clone()),
                Some(error) => Err(error.clone()),
            };
            supervisor.do_send(SupervisorMsg::Compressed { firing: id, output });
        })
    }

    fn start_run(&mut self, id: FiringId, run: DetachedRun) {
        if let Err(error) = self.run.engine.start_detached(run) {
            self.compressed(id, Err(error));
        }
    }

    /// The main thread has said how it stands: the child can start.
    pub(in crate::supervisor) fn described(&mut self, id: FiringId, described: Option<Box<Described>>) {
        let Some(run) = self.firings.get_mut(&id).filter(|run| run.state == State::Describing) else {
            return;
        };
        let Some(described) = described else {
            return self.firing_never_began(id);
        };
        let Some(main) = self.threads.get(run.main) else {
            return;
        };
        let node = main.graph.node(described.node);
        run.stands_at(&main.graph, node);
        run.basis = Some((described.conversation.basis(), described.conversation.clone()));
        run.variables = described.variables.clone();
        let compression = main.graph.config.compression.clone();
        let input = child_input(
            run,
            &described,
            &self.run.globals.borrow(),
            compression.as_ref().map(|config| json!(config)),
        );
        let depth = run.trigger_depth();
        let is_token = run.is_token_event();
        // Inside what a token event started the limit is not checked, nor in what starts there.
        let is_unlimited = is_token || main.is_unlimited;
        let (main_no, is_detached) = (run.main, main.is_detached);
        match &run.firing.trigger.action {
            TriggerAction::StartWorkflow { .. } => {
                let context = compression_context(input);
                let messages = visible(&described.conversation);
                run.state = State::Detached;
                let firing = run.firing.clone();
                if let Some(mut detached) = firing.detached(self.hear_the_end_of(id)) {
                    if let Value::Object(input) = &mut detached.input {
                        input.extend(context);
                    }
                    let is_unlimited = is_token;
                    self.start_run(
                        id,
                        DetachedRun {
                            messages,
                            is_unlimited,
                            ..detached
                        },
                    );
                }
            }
            TriggerAction::ExecuteTriggeredSubgraph(execute) => {
                let Some(graph) = self.run.engine.graph(&execute.triggered_workflow_id) else {
                    let message = format!("there is no workflow {}", execute.triggered_workflow_id);
                    return self.firing_failed(id, &RunError::new(RunErrorCode::NodeFailed, message));
                };
                let after_ms = (execute.timeout * 1000.0).clamp(0.0, MAX_TIMEOUT_MS) as u64;
                if after_ms > 0 {
                    let supervisor = Arc::clone(&self.run.supervisor);
                    run.timer = Some(self.run.host.after(after_ms, move || {
                        supervisor.do_send(SupervisorMsg::FiringDeadline { firing: id });
                    }));
                }
                let conversation = child_conversation(run, &described);
                self.define_globals(&graph);
                let start = Start::of(
                    graph,
                    ThreadKind::Triggered,
                    Origin::Triggered { firing: id },
                    Arc::new(input),
                );
                let thread = self.start(Start {
                    conversation,
                    depth: 1,
                    trigger_depth: depth,
                    is_unlimited,
                    is_detached,
                    ..start
                });
                let thread_id = String::from(&*self.threads.id(thread));
                if let Some(run) = self.firings.get_mut(&id) {
                    run.state = State::Running(thread);
                    run.report.thread_id.clone_from(&thread_id);
                }
                self.say(main_no, id, EventType::TriggeredSubgraphStarted, None);
            }
            _ => self.firing_failed(
                id,
                &RunError::new(RunErrorCode::NodeFailed, "the action starts no workflow"),
            ),
        }
    }
}

impl FiringRun {
    /// Records where the thread is, and where it goes where that is known.
    fn stands_at(&mut self, graph: &Graph, node: &Node) {
        self.report.current_node_id = Some(node.id.to_string());
        self.report.next_node_id = match node.edges.as_slice() {
            [edge] => Some(graph.node(edge.target).id.to_string()),
            _ => None,
        };
    }
}

/// The child's input (SPEC section 6).
fn child_input(run: &FiringRun, described: &Described, globals: &Variables, compression: Option<Value>) -> Value {
    let event = &run.firing.event;
    let mut input = Map::new();
    input.insert("triggerId".into(), json!(run.firing.trigger.id));
    input.insert("event".into(), event.to_json());
    input.insert("output".into(), (*described.output).clone());
    input.insert("input".into(), (*described.input).clone());
    let options = run.execute().and_then(|execute| execute.merge_options.as_ref());
    if let Some(names) = options.and_then(|options| options.include_variables.as_ref()) {
        let variables: BTreeMap<&str, &Value> = names
            .iter()
            .filter_map(|name| {
                let value = described.variables.value(name).or_else(|| globals.value(name))?;
                Some((name.as_str(), &**value))
            })
            .collect();
        input.insert("variables".into(), json!(variables));
    }
    if let Some(messages) = included_history(run, described) {
        input.insert("conversationHistory".into(), json!(messages));
    }
    if run.is_token_event() {
        let counted: Vec<&Counted> = described.conversation.visible().iter().collect();
        input.insert("threadId".into(), json!(event.thread_id));
        input.insert("workflowId".into(), json!(event.workflow_id));
        input.insert(
            "messages".into(),
            counted.iter().map(|counted| json!(*counted.message)).collect(),
        );
        input.insert("markMap".into(), json!(pirn_core::conversation::MarkMap::default()));
        for field in ["tokensUsed", "tokenLimit"] {
            input.insert(field.into(), event.raised.data.get(field).cloned().unwrap_or_default());
        }
        input.insert("compressionConfig".into(), compression.unwrap_or_default());
    }
    Value::Object(input)
}

/// What of a child's input is the compression's context: a detached run gets it beside the event's fields.
fn compression_context(input: Value) -> Map<String, Value> {
    const CONTEXT: [&str; 7] = [
        "threadId",
        "workflowId",
        "messages",
        "markMap",
        "tokensUsed",
        "tokenLimit",
        "compressionConfig",
    ];
    match input {
        Value::Object(mut input) => CONTEXT
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), input.remove(*field)?)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn included_history(run: &FiringRun, described: &Described) -> Option<Vec<Message>> {
    let options = run.execute()?.merge_options.as_ref()?;
    match options.include_conversation_history.as_ref()? {
        HistorySelection::All(true) => Some(visible(&described.conversation)),
        HistorySelection::All(false) => None,
        HistorySelection::Some(selection) => {
            let chosen = select(&described.conversation, selection).ok()?;
            Some(chosen.iter().map(|message| (**message).clone()).collect())
        }
    }
}

/// Where the child's conversation starts: the main's visible messages on a token event, else what it was handed.
fn child_conversation(run: &FiringRun, described: &Described) -> ConversationRef {
    let messages: Vec<Counted> = if run.is_token_event() {
        described.conversation.visible().iter().cloned().collect()
    } else {
        let handed = included_history(run, described).unwrap_or_default();
        let known = described.conversation.visible();
        handed
            .into_iter()
            .map(|message| {
                let counted = known.iter().find(|counted| *counted.message == message).cloned();
                counted.unwrap_or_else(|| Counted::new(message, &pirn_core::conversation::Estimator))
            })
            .collect()
    };
    ConversationRef::Snapshot(Conversation::from_messages(messages))
}
