//! Triggered sub-workflows of this run's threads (SPEC section 6): isolated, one at a time for a thread, coalesced.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::conversation::compression::CompressionResult;
use pirn_core::conversation::{Basis, Conversation, Counted, Spent, select};
use pirn_core::definition::{
    ContinueFromTriggerConfig, ExecuteTriggeredSubgraph, HistoryCallbackMode, HistorySelection, TriggerAction,
};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventType;
use pirn_core::graph::NodeKind;
use pirn_core::message::Message;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{CancelReason, FiringId, ThreadKind, TriggeredResult};
use serde_json::{Map, Value, json};

use super::children::Start;
use super::{Origin, Owned, SupervisorActor, SupervisorMsg, ThreadNo};
use crate::conversation::Merge;
use crate::engine::DetachedRun;
use crate::host::TimerHandle;
use crate::run::{FiringReport, NodeReport};
use crate::thread::{ConversationRef, Described, ThreadMsg};
use crate::triggers::{Firing, event_fields};

/// Firings that may wait for one thread; one more is refused.
const QUEUE_LIMIT: usize = 16;

/// Default of `timeout`, seconds, for what has no such parameter.
const MAX_TIMEOUT_MS: f64 = 315_360_000_000.0;

/// One firing, from its event to its end.
pub(super) struct FiringRun {
    firing: Firing,
    main: ThreadNo,
    state: State,
    /// The main thread's conversation as the child got it.
    basis: Option<(Basis, Conversation)>,
    report: FiringReport,
    timer: Option<TimerHandle>,
    nodes: Vec<NodeReport>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Queued,
    Describing,
    Running(ThreadNo),
    /// A detached run compresses; the thread does not wait.
    Detached,
    /// The thread has the result and applies it at its next safe point.
    Applying,
    Over,
}

impl FiringRun {
    pub(super) fn thread(&self) -> Option<ThreadNo> {
        match self.state {
            State::Running(thread) => Some(thread),
            State::Queued | State::Describing | State::Detached | State::Applying | State::Over => None,
        }
    }

    fn is_open(&self) -> bool {
        self.state != State::Over
    }

    fn execute(&self) -> Option<&ExecuteTriggeredSubgraph> {
        match &self.firing.trigger.action {
            TriggerAction::ExecuteTriggeredSubgraph(execute) => Some(execute),
            _ => None,
        }
    }

    fn is_token_event(&self) -> bool {
        matches!(
            self.firing.event.raised.event_type,
            EventType::TokenLimitExceeded | EventType::TokenUsageWarning
        )
    }
}

impl SupervisorActor {
    /// A trigger fired for a thread of this run.
    pub(super) fn fire(&mut self, firing: Firing) {
        let id = firing.id;
        let Some(main) = self.numbers.get(firing.event.thread_id.as_str()).copied() else {
            return;
        };
        let alive = self.threads.get(&main).is_some_and(|child| child.ended.is_none());
        if !alive {
            return;
        }
        let same = |other: &FiringRun| other.main == main && other.is_open();
        let coalesces = self
            .firings
            .values()
            .any(|other| same(other) && other.firing.trigger.id == firing.trigger.id);
        let waiting = self.firings.values().filter(|other| same(other)).count();
        if coalesces || waiting >= QUEUE_LIMIT {
            if !coalesces {
                self.say_failed(
                    main,
                    &firing,
                    &RunError::new(RunErrorCode::Overloaded, "too many triggers wait for this thread"),
                );
            }
            self.tell(
                main,
                ThreadMsg::Triggered {
                    firing: id,
                    result: TriggeredResult {
                        holds: firing.trigger.action.holds_the_thread(),
                        ..TriggeredResult::default()
                    },
                    merge: None,
                },
            );
            return;
        }
        let report = FiringReport {
            firing: id,
            trigger_id: firing.trigger.id.clone(),
            main_thread_id: firing.event.thread_id.clone(),
            current_node_id: None,
            next_node_id: None,
            timestamp: firing.event.timestamp,
            thread_id: String::new(),
            status: None,
            nodes: Vec::new(),
        };
        self.firings.insert(
            id,
            FiringRun {
                firing,
                main,
                state: State::Queued,
                basis: None,
                report,
                timer: None,
                nodes: Vec::new(),
            },
        );
        if let Some(child) = self.threads.get_mut(&main) {
            child.owned.push(Owned::Firing(id));
        }
        self.next_firing_of(main);
    }

    /// Starts the thread's next firing, where none is under way.
    fn next_firing_of(&mut self, main: ThreadNo) {
        let busy = self
            .firings
            .values()
            .any(|run| run.main == main && !matches!(run.state, State::Queued | State::Over));
        if busy {
            return;
        }
        let Some((id, run)) = self
            .firings
            .iter_mut()
            .find(|(_, run)| run.main == main && run.state == State::Queued)
        else {
            return;
        };
        run.state = State::Describing;
        let (id, supervisor) = (*id, self.run.supervisor.clone());
        self.tell(
            main,
            ThreadMsg::Describe(Box::new(move |described| {
                supervisor.do_send(SupervisorMsg::Described {
                    firing: id,
                    described: described.map(Box::new),
                });
            })),
        );
    }

    /// The main thread has said how it stands: the child can start.
    pub(super) fn described(&mut self, id: FiringId, described: Option<Box<Described>>) {
        let Some(run) = self.firings.get_mut(&id).filter(|run| run.state == State::Describing) else {
            return;
        };
        let Some(described) = described else {
            run.state = State::Over;
            return;
        };
        let Some(main) = self.threads.get(&run.main) else {
            return;
        };
        let node = main.graph.node(described.node);
        run.report.current_node_id = Some(node.id.to_string());
        run.report.next_node_id = match node.edges.as_slice() {
            [edge] => Some(main.graph.node(edge.target).id.to_string()),
            _ => None,
        };
        run.basis = Some((described.conversation.basis(), described.conversation.clone()));
        let compression = main.graph.config.compression.clone();
        let input = child_input(run, &described, compression.as_ref().map(|config| json!(config)));
        let depth = run.firing.event.raised.trigger_depth + 1;
        let is_token = run.is_token_event();
        let (main_no, is_detached) = (run.main, main.is_detached);
        match &run.firing.trigger.action {
            TriggerAction::StartWorkflow {
                workflow_id,
                input: wanted,
            } => {
                let fields = wanted.as_ref().map(|wanted| wanted.fields.clone()).unwrap_or_default();
                let input = detached_input(run, input, &fields);
                run.state = State::Detached;
                let workflow_id = workflow_id.clone();
                let messages = if is_token {
                    visible(&described.conversation)
                } else {
                    Vec::new()
                };
                let supervisor = self.run.supervisor.clone();
                let started = self.run.engine.start_detached(DetachedRun {
                    workflow_id,
                    input,
                    messages,
                    is_unlimited: is_token,
                    trigger_depth: depth,
                    on_end: Box::new(move |report| {
                        let output = match &report.error {
                            None => Ok(report.output.clone()),
                            Some(error) => Err(error.clone()),
                        };
                        supervisor.do_send(SupervisorMsg::Compressed { firing: id, output });
                    }),
                });
                if let Err(error) = started {
                    self.compressed(id, Err(error));
                }
            }
            TriggerAction::ExecuteTriggeredSubgraph(execute) => {
                let Some(graph) = self.run.engine.graph(&execute.triggered_workflow_id) else {
                    let message = format!("there is no workflow {}", execute.triggered_workflow_id);
                    return self.firing_failed(id, &RunError::new(RunErrorCode::NodeFailed, message));
                };
                let after_ms = (execute.timeout * 1000.0).clamp(0.0, MAX_TIMEOUT_MS) as u64;
                if after_ms > 0 {
                    let supervisor = self.run.supervisor.clone();
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
                    is_unlimited: is_token,
                    is_detached,
                    ..start
                });
                let thread_id = self
                    .threads
                    .get(&thread)
                    .map(|child| child.thread_id.to_string())
                    .unwrap_or_default();
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

    pub(super) fn firing_deadline(&mut self, id: FiringId) {
        if let Some(thread) = self.firings.get(&id).and_then(FiringRun::thread) {
            let after_ms = self
                .firings
                .get(&id)
                .and_then(|run| run.execute())
                .map_or(0, |execute| (execute.timeout * 1000.0) as u64);
            self.cancel(thread, CancelReason::TimedOut { after_ms });
        }
    }

    /// The main thread ended: what was started for it is stopped.
    pub(super) fn give_up_firing(&mut self, id: FiringId) {
        let Some(run) = self.firings.get_mut(&id) else { return };
        match run.state {
            State::Running(thread) => self.cancel(thread, CancelReason::ParentEnded),
            State::Queued | State::Describing => run.state = State::Over,
            // The detached run and the thread's own last words still come.
            State::Detached | State::Applying | State::Over => {}
        }
    }

    /// The child thread has ended.
    pub(super) fn triggered_ended(&mut self, id: FiringId, thread: ThreadNo) {
        let Some((end, history)) = self
            .threads
            .get(&thread)
            .and_then(|child| child.ended.as_ref())
            .map(|ended| (ended.end.clone(), ended.history.clone()))
        else {
            return;
        };
        let nodes = self.nodes(thread, &history);
        let Some(run) = self.firings.get_mut(&id) else { return };
        run.timer = None;
        run.report.status = Some(end.status);
        if run.execute().is_some_and(|execute| execute.record_history) {
            run.report.nodes.clone_from(&nodes);
        }
        run.nodes = nodes;
        let spent = self
            .threads
            .get(&thread)
            .and_then(|child| child.ended.as_ref())
            .map_or(Spent::default(), |ended| ended.spent);
        self.late_spent.add(spent);
        if end.status != ThreadStatus::Completed {
            let error = RunError::new(
                RunErrorCode::NodeFailed,
                format!("the triggered sub-workflow ended {}", end.status.as_str()),
            );
            let error = match end.error {
                Some(cause) => error.caused_by(cause),
                None => error,
            };
            return self.firing_failed(id, &error);
        }
        let supervisor = self.run.supervisor.clone();
        if let Some(ended) = self.threads.get(&thread).and_then(|child| child.ended.as_ref()) {
            ended.conversation.with_snapshot(move |conversation| {
                supervisor.do_send(SupervisorMsg::Returned {
                    firing: id,
                    conversation: Box::new(conversation),
                });
            });
        }
    }

    /// The child's conversation is here: what it hands back goes to the main thread.
    pub(super) fn returned(&mut self, id: FiringId, conversation: &Conversation) {
        let Some(run) = self.firings.get(&id) else { return };
        let State::Running(thread) = run.state else { return };
        match self.result_of(run, thread, conversation) {
            Ok((variables, merge)) => {
                let holds = run.firing.trigger.action.holds_the_thread();
                let result = TriggeredResult {
                    variables,
                    conversation: merge.is_some(),
                    holds,
                };
                let main = run.main;
                if let Some(run) = self.firings.get_mut(&id) {
                    run.state = State::Applying;
                }
                self.tell(
                    main,
                    ThreadMsg::Triggered {
                        firing: id,
                        result,
                        merge: merge.map(Box::new),
                    },
                );
                if self.threads.get(&main).is_none_or(|child| child.ended.is_some()) {
                    self.applied(
                        id,
                        Some(RunError::new(
                            RunErrorCode::Cancelled,
                            "the thread ended before the result could take effect",
                        )),
                    );
                }
            }
            Err(error) => self.firing_failed(id, &error),
        }
    }

    #[allow(clippy::type_complexity)] // variables and a merge, each as the thread takes them
    fn result_of(
        &self,
        run: &FiringRun,
        thread: ThreadNo,
        conversation: &Conversation,
    ) -> Result<(Vec<(Arc<str>, Arc<Value>)>, Option<Merge>), RunError> {
        let Some(child) = self.threads.get(&thread) else {
            return Ok((Vec::new(), None));
        };
        let Some(ended) = &child.ended else {
            return Ok((Vec::new(), None));
        };
        let nothing = ContinueFromTriggerConfig::default();
        let config = match &child.graph.node(ended.node).kind {
            NodeKind::ContinueFromTrigger(config) => config,
            _ => &nothing,
        };
        let mut variables = Vec::new();
        if let Some(callback) = &config.variable_callback {
            if callback.include_all {
                variables.extend(
                    ended
                        .variables
                        .iter()
                        .map(|(name, value)| (Arc::clone(name), Arc::clone(value))),
                );
            }
            for name in callback.include_variables.iter().flatten() {
                let value = ended.variables.value(name).cloned().ok_or_else(|| {
                    RunError::new(
                        RunErrorCode::NodeFailed,
                        format!("variableCallback names {name}, which the sub-workflow did not set"),
                    )
                })?;
                variables.push((name.as_str().into(), value));
            }
        }
        let Some((basis, before)) = &run.basis else {
            return Ok((variables, None));
        };
        let merge = match &config.conversation_history_callback {
            Some(callback) => {
                let chosen = select(conversation, &callback.selection)
                    .map_err(|error| RunError::new(RunErrorCode::NodeFailed, error.to_string()))?;
                let messages = chosen.iter().map(|message| (**message).clone()).collect();
                let default = if run.is_token_event() {
                    HistoryCallbackMode::Replace
                } else {
                    HistoryCallbackMode::Append
                };
                match callback.mode.unwrap_or(default) {
                    HistoryCallbackMode::Append => Some(Merge::Append(messages)),
                    HistoryCallbackMode::Replace => Some(Merge::Replace {
                        basis: *basis,
                        messages,
                        is_compression: run.is_token_event(),
                    }),
                }
            }
            None if run.is_token_event() => {
                let (now, then) = (visible(conversation), visible(before));
                (now != then).then_some(Merge::Replace {
                    basis: *basis,
                    messages: now,
                    is_compression: true,
                })
            }
            None => None,
        };
        Ok((variables, merge))
    }

    /// A detached run that a trigger started has ended. Where it was started on a token event and its output is a
    /// compression's result, that is applied.
    pub(super) fn compressed(&mut self, id: FiringId, output: Result<Value, RunError>) {
        let Some(run) = self.firings.get_mut(&id).filter(|run| run.state == State::Detached) else {
            return;
        };
        let main = run.main;
        let is_token = run.is_token_event();
        let result = match output {
            Ok(output) if is_token => serde_json::from_value::<CompressionResult>(output).ok(),
            Ok(_) => None,
            Err(error) => {
                run.report.status = Some(ThreadStatus::Failed);
                return self.firing_failed(id, &error);
            }
        };
        run.report.status = Some(ThreadStatus::Completed);
        let merge = result
            .zip(run.basis.as_ref())
            .map(|(result, (basis, _))| Merge::Compressed { basis: *basis, result });
        match merge {
            Some(merge) if self.threads.get(&main).is_some_and(|child| child.ended.is_none()) => {
                if let Some(run) = self.firings.get_mut(&id) {
                    run.state = State::Applying;
                }
                let result = TriggeredResult {
                    variables: Vec::new(),
                    conversation: true,
                    holds: false,
                };
                self.tell(
                    main,
                    ThreadMsg::Triggered {
                        firing: id,
                        result,
                        merge: Some(Box::new(merge)),
                    },
                );
            }
            Some(_) | None => self.firing_over(id),
        }
    }

    /// It came to nothing: the main thread goes on unchanged, and is told so that it stops waiting.
    fn firing_failed(&mut self, id: FiringId, error: &RunError) {
        let Some(run) = self.firings.get(&id) else { return };
        let (main, firing, is_token) = (run.main, run.firing.clone(), run.is_token_event());
        self.say_failed(main, &firing, error);
        if is_token {
            self.emit(main, EventType::CompressionFailed, || {
                vec![("triggerId", json!(firing.trigger.id)), ("error", json!(error))]
            });
            self.tell(main, ThreadMsg::CompressionEnded);
        }
        let holds = firing.trigger.action.holds_the_thread();
        self.firing_over(id);
        if holds {
            self.tell(
                main,
                ThreadMsg::Triggered {
                    firing: id,
                    result: TriggeredResult {
                        holds,
                        ..TriggeredResult::default()
                    },
                    merge: None,
                },
            );
        }
    }

    /// The main thread has applied a result, or could not.
    pub(super) fn applied(&mut self, id: FiringId, error: Option<RunError>) {
        let Some(run) = self.firings.get(&id).filter(|run| run.state == State::Applying) else {
            return;
        };
        let main = run.main;
        match error {
            Some(error) => {
                let firing = run.firing.clone();
                let is_token = run.is_token_event();
                self.say_failed(main, &firing, &error);
                if is_token {
                    self.emit(main, EventType::CompressionFailed, || {
                        vec![("triggerId", json!(firing.trigger.id)), ("error", json!(error))]
                    });
                }
            }
            // A detached run is no sub-workflow of the thread: COMPRESSION_COMPLETED has said what there is to say.
            None if run.execute().is_none() => {}
            None => self.say(main, id, EventType::TriggeredSubgraphCompleted, None),
        }
        self.firing_over(id);
    }

    fn firing_over(&mut self, id: FiringId) {
        let Some(run) = self.firings.get_mut(&id) else { return };
        run.state = State::Over;
        run.basis = None;
        run.timer = None;
        let main = run.main;
        self.disown(main, Owned::Firing(id));
        self.next_firing_of(main);
    }

    fn say(&self, main: ThreadNo, id: FiringId, event_type: EventType, error: Option<&RunError>) {
        let Some(run) = self.firings.get(&id) else { return };
        self.emit(main, event_type, || {
            vec![
                ("triggerId", json!(run.firing.trigger.id)),
                ("firing", json!(id)),
                ("childThreadId", json!(run.report.thread_id)),
                ("currentNodeId", json!(run.report.current_node_id)),
                ("nextNodeId", json!(run.report.next_node_id)),
                ("error", json!(error)),
            ]
        });
    }

    fn say_failed(&self, main: ThreadNo, firing: &Firing, error: &RunError) {
        self.emit(main, EventType::TriggeredSubgraphFailed, || {
            vec![
                ("triggerId", json!(firing.trigger.id)),
                ("firing", json!(firing.id)),
                ("error", json!(error)),
            ]
        });
    }

    pub(super) fn firing_reports(&self) -> Vec<FiringReport> {
        self.firings.values().map(|run| run.report.clone()).collect()
    }

    /// Nodes of firings with `mergeHistory: true`, marked.
    pub(super) fn merged_nodes(&self) -> Vec<NodeReport> {
        self.firings
            .iter()
            .filter(|(_, run)| run.main == 0 && run.execute().is_some_and(|execute| execute.merge_history))
            .flat_map(|(id, run)| {
                run.nodes.iter().map(|node| NodeReport {
                    firing: Some(*id),
                    ..node.clone()
                })
            })
            .collect()
    }
}

fn visible(conversation: &Conversation) -> Vec<Message> {
    conversation
        .visible()
        .iter()
        .map(|counted| (*counted.message).clone())
        .collect()
}

/// The child's input (SPEC section 6).
fn child_input(run: &FiringRun, described: &Described, compression: Option<Value>) -> Value {
    let event = &run.firing.event;
    let mut input = Map::new();
    input.insert("triggerId".into(), json!(run.firing.trigger.id));
    input.insert("event".into(), json!(**event));
    input.insert("output".into(), (*described.output).clone());
    input.insert("input".into(), (*described.input).clone());
    let options = run.execute().and_then(|execute| execute.merge_options.as_ref());
    if let Some(names) = options.and_then(|options| options.include_variables.as_ref()) {
        let variables: BTreeMap<&str, &Value> = names
            .iter()
            .filter_map(|name| Some((name.as_str(), &**described.variables.value(name)?)))
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

/// A detached run's input: the named fields of the event (all of them where none is named), and for token events the
/// compression's context.
fn detached_input(run: &FiringRun, context: Value, fields: &[String]) -> Value {
    let mut input = event_fields(&run.firing.event, fields);
    if let (true, Value::Object(mut context)) = (run.is_token_event(), context) {
        for field in [
            "threadId",
            "workflowId",
            "messages",
            "markMap",
            "tokensUsed",
            "tokenLimit",
            "compressionConfig",
        ] {
            if let Some(value) = context.remove(field) {
                input.insert(field.to_owned(), value);
            }
        }
    }
    Value::Object(input)
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
    ConversationRef::of(Conversation::from_messages(messages))
}
