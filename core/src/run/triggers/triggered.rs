//! Input and result of a triggered sub-workflow.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::compression::CompressionResult;
use pirn_conversation::conversation::{Conversation, CountedMessage, MarkMap, select, select_counted};
use pirn_definition::Millis;
use pirn_definition::definition::{
    ContinueFromTriggerConfig, ExecuteTriggeredSubgraph, HistoryCallbackMode, HistorySelection, TriggerAction,
};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::NodeKind;
use pirn_definition::message::Message as ChatMessage;
use pirn_events::event::Event;
use serde_json::{Map, Value, json};

use crate::run::ThreadNo;
use crate::run::data::effect::{DetachedStart, Effect};
use crate::run::data::message::{
    Assigned, Change, ConversationSource, FinalThreadState, Merge, Timer, ToConversation, ToThread, TriggerContext,
};
use crate::run::data::report::NodeReport;
use crate::run::data::summaries::SummaryWarning;
use crate::run::data::thread_state::InitialState;
use crate::run::data::trigger::Firing;
use crate::run::parts::agents::none_left;
use crate::run::parts::firing::{FiringAdmission, FiringRun, FiringState, too_late};
use crate::run::parts::tree::{Origin, ThreadLookup};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::status::ThreadStatus;
use crate::thread::{CancelReason, FiringId, Input, NodeRecord, ThreadKind, TriggeredResult, Variables};

/// Ten years: upper bound for a `timeout`.
const MAX_TIMEOUT_MS: f64 = 315_360_000_000.0;

impl RunMachine {
    /// Handles a trigger that fired for a thread of this run.
    pub(in crate::run) fn fire(&mut self, firing: &Firing, step: &mut Step<'_>) {
        self.memory.fired();
        let Some(main) = self.thread_of(&firing.event.thread_id) else {
            return;
        };
        let (id, is_live) = (self.firings.next_id(), self.tree.is_live(main));
        // Before `admit`: a firing that is coalesced or refused holds the thread too, until `release_hold` releases it.
        if is_live && firing.holds() {
            self.firings.hold(main, id);
            // If the event was raised in the thread's name from outside, the thread must check at its next safe point.
            self.send(main, ToThread::Input(Input::Raised));
        }
        match self.firings.admit((id, firing.clone()), main, is_live) {
            // An awaited firing may be queued behind one that waits for a safe point. The thread is held from now on, so that it
            // can start.
            FiringAdmission::Queued | FiringAdmission::Awaits => self.next_firing_of(main),
            FiringAdmission::Coalesced => self.release_hold(main, (id, firing)),
            FiringAdmission::Refused(error) => {
                self.emit_failed(main, (id, firing), &error, step);
                if firing.is_token_event() {
                    // The limit is checked again before the next model call.
                    self.converse(main, ToConversation::CompressionEnded);
                }
                self.release_hold(main, (id, firing));
            }
        }
    }

    /// Sends an empty result to a thread that may be waiting for the firing.
    fn release_hold(&mut self, main: ThreadNo, (id, firing): (FiringId, &Firing)) {
        let result = TriggeredResult {
            holds: firing.holds(),
            ..TriggeredResult::default()
        };
        self.hand_back(main, id, result, None);
    }

    fn hand_back(&mut self, main: ThreadNo, firing: FiringId, result: TriggeredResult, merge: Option<Merge>) {
        let merge = merge.map(Box::new);
        self.send(main, ToThread::Triggered { firing, result, merge });
    }

    /// Starts the thread's next firing if none is active.
    fn next_firing_of(&mut self, main: ThreadNo) {
        if self.tree.is_live(main)
            && let Some(firing) = self.firings.next_of(main)
        {
            // The thread answers through its conversation, so that its state and the snapshot are of one point in time.
            self.send(main, ToThread::Describe(firing));
        }
    }

    /// Starts a run that needs nothing of the thread that raised the event. The thread may have ended.
    pub(in crate::run) fn fire_alone(&mut self, firing: Firing, step: &mut Step<'_>) {
        self.memory.fired();
        // The report needs a thread: the main one, if the event names none of this run.
        let main = self.thread_of(&firing.event.thread_id).unwrap_or_default();
        let graph = Arc::clone(self.graph_of(main));
        // The node of the event, not the current one: the thread may have moved on or ended since.
        let named = firing.event.raised.fields.get("nodeId").and_then(Value::as_str);
        let node = named.and_then(|name| graph.by_id.get(name));
        let id = self.firings.next_id();
        let start = detached((id, &firing));
        let run = self.firings.detached((id, firing), main);
        if let Some(node) = node {
            run.set_location(&graph, graph.node(*node));
        }
        let threads = ThreadLookup {
            tree: &self.tree,
            graphs: &self.graphs,
        };
        let counts = self.agents.as_deref_mut();
        if let Some(start) = &start
            && counts.is_some_and(|counts| !counts.start_workflow(main, threads))
        {
            let error = RunError::new(RunErrorCode::Overloaded, none_left(&start.workflow_id));
            return self.firing_failed(id, &error, step);
        }
        step.out.extend(start.map(|start| Effect::StartRun(Box::new(start))));
    }

    /// Starts the child after the main thread returned its state.
    pub(in crate::run) fn prepared(
        &mut self,
        id: FiringId,
        prepared: Option<Box<TriggerContext>>,
        step: &mut Step<'_>,
    ) {
        let Some(run) = self.firings.preparing(id) else { return };
        let main = run.main;
        let Some(prepared) = prepared else {
            let error = self.firings.never_began(id);
            return self.emit_refused(id, &error, step);
        };
        let Some(at) = self.tree.get(main).cloned() else { return };
        let graph = self.graphs.get(at.graph);
        run.set_location(graph, graph.node(prepared.node));
        run.set_basis(&prepared);
        // Two pointers, cloned because `run` borrows the firings, which change below.
        let firing = run.firing.clone();
        let included = match included_history(&firing, &prepared) {
            Ok(included) => included,
            Err(error) => return self.firing_failed(id, &error, step),
        };
        let compression = graph.config.compression.as_ref();
        let input = child_input(&firing, &prepared, &self.globals, compression, included.as_deref());
        // The input contains the event and the output.
        self.memory.took(&input);
        let is_token = firing.is_token_event();
        match &firing.trigger.action {
            TriggerAction::StartWorkflow { .. } => {
                self.firings.run_begun(id);
                // Only token events get here: the other firings of this action need no state of the thread (`Firing::is_alone`).
                let Some(mut start) = detached((id, &firing)) else {
                    return;
                };
                if let Value::Object(fields) = &mut start.input {
                    fields.extend(compression_context(input));
                }
                start.messages = visible(&prepared.conversation);
                start.is_unlimited = is_token;
                let asked = prepared.asked.as_ref().filter(|_| is_token);
                start.summary_profile = asked.and_then(|asked| step.env.profile(asked.profile_id.as_deref()));
                step.out.push(Effect::StartRun(Box::new(start)));
            }
            TriggerAction::ExecuteTriggeredSubgraph(execute) => {
                let Some(graph) = step.env.graph(&execute.triggered_workflow_id) else {
                    let message = format!("there is no workflow {}", execute.triggered_workflow_id);
                    return self.firing_failed(id, &RunError::new(RunErrorCode::NodeFailed, message), step);
                };
                if let Some(after_ms) = time_limit(execute) {
                    step.out.push(Effect::SetTimer {
                        timer: Timer::Firing(id),
                        after_ms,
                    });
                }
                let origin = Origin::Triggered { firing: id };
                let start = InitialState {
                    conversation: child_conversation(&firing, &prepared, included),
                    // The nesting starts again: a chain of triggers is limited by its trigger depth.
                    depth: 1,
                    trigger_depth: firing.trigger_depth(),
                    // A compression must not trigger a compression of itself: inside a token event's workflow the limit is not
                    // checked.
                    is_unlimited: is_token || at.is_unlimited,
                    // The outcome waits for a sub-workflow only if it waits for the thread that the sub-workflow serves.
                    is_detached: at.is_detached,
                    // A summary continues this request, so that the provider's cache serves what it has read before.
                    asked: prepared.asked.clone().filter(|_| is_token),
                    ..InitialState::of(graph, ThreadKind::Triggered, origin, Arc::new(input))
                };
                let thread = self.start(start, step);
                let thread_id = self.thread_id(thread);
                // After `start`: the state contains the number of the thread.
                self.firings.started(id, thread);
                if let Some(run) = self.firings.get_mut(id) {
                    run.report.thread_id = thread_id.to_string();
                }
                self.emit_event(id, EventType::TriggeredSubgraphStarted, step);
            }
            TriggerAction::StopThread { .. }
            | TriggerAction::PauseThread { .. }
            | TriggerAction::ResumeThread { .. }
            | TriggerAction::SetVariable { .. }
            | TriggerAction::SendNotification { .. }
            | TriggerAction::Custom { .. } => {
                // The matcher sends other messages for these actions. A firing must still end, because it blocks the next one of
                // the thread.
                let error = RunError::new(RunErrorCode::NodeFailed, "the action starts no workflow");
                self.firing_failed(id, &error, step);
            }
        }
    }

    /// Cancels the sub-workflow when its time limit has passed.
    pub(in crate::run) fn firing_deadline(&mut self, id: FiringId, _step: &mut Step<'_>) {
        let Some(run) = self.firings.get(id) else { return };
        // The sub-workflow may have ended while its timer expired.
        let FiringState::Running(thread) = run.state() else {
            return;
        };
        let after_ms = run.firing.execute().and_then(time_limit).unwrap_or_default();
        self.cancel(thread, CancelReason::TimedOut { after_ms }, 0);
    }

    /// Sends the result of an ended child thread to the main thread.
    pub(in crate::run) fn triggered_ended(&mut self, id: FiringId, thread: ThreadNo, step: &mut Step<'_>) {
        self.hand_back_of(id, thread, step);
        // The firing has copied what it needs. A report needs only the child's outcome.
        self.release(thread);
    }

    fn hand_back_of(&mut self, id: FiringId, thread: ThreadNo, step: &mut Step<'_>) {
        // Cloned because a failure changes the run. The output is shared.
        let Some(end) = self.end_of(thread).cloned() else {
            return;
        };
        let history = self.artifacts(thread).map_or(&[][..], |left| &left.history);
        let nodes = self.nodes(thread, history);
        let warnings = self.artifacts(thread).map_or(&[][..], |left| &left.warnings);
        let warnings = warnings.iter().map(SummaryWarning::to_json).collect();
        let Some(run) = self.firings.get_mut(id) else { return };
        run.report.status = Some(end.status);
        if run.firing.execute().is_some_and(|execute| execute.record_history) {
            run.report.nodes.clone_from(&nodes);
        }
        // Retained even without `recordHistory`: `mergeHistory` reads them.
        run.nodes = nodes;
        run.report.warnings = warnings;
        // Also without a time limit: the host ignores a timer that is not set.
        step.out.push(Effect::StopTimer {
            timer: Timer::Firing(id),
        });
        if end.status != ThreadStatus::Completed {
            let error = RunError::new(
                RunErrorCode::NodeFailed,
                format!("the triggered sub-workflow ended {}", end.status.as_str()),
            );
            let error = match end.error {
                Some(cause) => error.caused_by(cause),
                None => error,
            };
            return self.firing_failed(id, &error, step);
        }
        let Some(run) = self.firings.get(id) else { return };
        if run.state() != FiringState::Running(thread) {
            return;
        }
        // `keeps_artifacts` is true for triggered threads, so they always exist.
        let Some(left) = self.artifacts(thread) else { return };
        match self.result_of(run, thread, left) {
            Ok((variables, merge)) => {
                let main = run.main;
                let result = TriggeredResult {
                    variables,
                    conversation: merge.is_some(),
                    holds: run.firing.holds(),
                    is_compression: run.firing.is_token_event(),
                    trigger_depth: run.firing.trigger_depth(),
                    ..TriggeredResult::default()
                };
                // Before `applied`, which accepts only a firing that is `Returning`.
                self.firings.returning(id);
                if self.tree.is_live(main) {
                    self.hand_back(main, id, result, merge);
                    // A result that waits for a safe point does not block the next firing if another one holds the thread.
                    self.next_firing_of(main);
                } else {
                    self.applied(id, Some(too_late()), step);
                }
            }
            Err(error) => self.firing_failed(id, &error, step),
        }
    }

    fn result_of(
        &self,
        run: &FiringRun,
        thread: ThreadNo,
        left: &FinalThreadState,
    ) -> Result<(Assigned, Option<Merge>), RunError> {
        let Some(conversation) = &left.conversation else {
            // A panic lost the conversation, and without it the result would be incomplete.
            return Err(crate::run::turns::conversation::lost());
        };
        // The sub-workflow may end at another node, and the defaults apply.
        let nothing = ContinueFromTriggerConfig::default();
        let config = match &self.graph_of(thread).node(left.node).kind {
            NodeKind::ContinueFromTrigger(config) => config,
            _ => &nothing,
        };
        // A global variable is meant unless the thread has a variable with this name, which would hide it there.
        let is_global = |name: &str| self.globals.variable(name).is_some() && run.variables.variable(name).is_none();
        let variables = handed_variables(config, &left.variables)?;
        let (globals, variables): (Vec<_>, Vec<_>) = variables.into_iter().partition(|(name, _)| is_global(name));
        let merge = match change_of(run, config, conversation)? {
            // Without a change the thread needs no message to its conversation.
            None if globals.is_empty() => None,
            Some(change) => Some(Merge {
                warnings: left.warnings.clone(),
                ..merge(run, change, globals)
            }),
            None => Some(Merge {
                // Only variables change, so no COMPRESSION_COMPLETED is due.
                is_compression: false,
                ..merge(run, Change::Nothing, globals)
            }),
        };
        Ok((variables, merge))
    }

    /// Handles the end of a detached run that a trigger started. If a token event started it and its output is a compression
    /// result, the result is applied.
    pub(in crate::run) fn detached_ended(
        &mut self,
        id: FiringId,
        output: Result<Value, RunError>,
        step: &mut Step<'_>,
    ) {
        let Some(run) = self
            .firings
            .get_mut(id)
            .filter(|run| run.state() == FiringState::Detached)
        else {
            return;
        };
        let is_token = run.firing.is_token_event();
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                run.report.status = Some(ThreadStatus::Failed);
                return self.firing_failed(id, &error, step);
            }
        };
        run.report.status = Some(ThreadStatus::Completed);
        // Any other output is valid too: the workflow may have had another purpose than a compression.
        let is_result = is_token && (output.get("messages").is_some() || output.get("markMap").is_some());
        let result = is_result
            .then(|| serde_json::from_value::<Box<CompressionResult>>(output))
            .transpose();
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let message = format!("the output of the triggered run is no compression result: {error}");
                return self.firing_failed(id, &RunError::new(RunErrorCode::NodeFailed, message), step);
            }
        };
        let (main, trigger_depth) = (run.main, run.firing.trigger_depth());
        let basis = run.basis.as_ref().map(|basis| basis.0);
        let Some((result, basis)) = result.zip(basis) else {
            // The run compressed nothing: enable the token limit check again.
            if is_token && self.tree.is_live(main) {
                self.converse(main, ToConversation::CompressionEnded);
            }
            return self.firing_over(id, None, step);
        };
        let merge = merge(run, Change::Compressed { basis, result }, Vec::new());
        // The run may outlive the thread that started it, and its result then has no receiver.
        if !self.tree.is_live(main) {
            return self.firing_failed(id, &too_late(), step);
        }
        self.firings.returning(id);
        let result = TriggeredResult {
            variables: Vec::new(),
            conversation: true,
            // No thread waits for a run of START_WORKFLOW.
            holds: false,
            is_compression: true,
            trigger_depth,
            ..TriggeredResult::default()
        };
        self.hand_back(main, id, result, Some(merge));
    }

    /// Ends a firing with an error. The main thread is unchanged and, if it was held, released.
    fn firing_failed(&mut self, id: FiringId, error: &RunError, step: &mut Step<'_>) {
        let Some(run) = self.firings.get(id) else { return };
        // Two pointers, cloned because the calls below change the firings.
        let (main, firing) = (run.main, run.firing.clone());
        self.emit_failed(main, (id, &firing), error, step);
        // Enables the token limit check, which the event of this firing has disabled.
        if firing.is_token_event() && self.tree.is_live(main) {
            self.converse(main, ToConversation::CompressionEnded);
        }
        self.firing_over(id, Some(error.clone()), step);
        if firing.holds() {
            self.release_hold(main, (id, &firing));
        }
    }

    /// Handles a main thread's message that it applied or rejected a result.
    pub(in crate::run) fn applied(&mut self, id: FiringId, error: Option<RunError>, step: &mut Step<'_>) {
        let Some(run) = self.firings.get(id).filter(|run| run.state() == FiringState::Returning) else {
            return;
        };
        match &error {
            Some(error) => {
                let (main, firing) = (run.main, run.firing.clone());
                self.emit_failed(main, (id, &firing), error, step);
            }
            // A detached run is not a sub-workflow of the thread. COMPRESSION_COMPLETED already reported the result.
            None if run.firing.execute().is_none() => {}
            None => self.emit_event(id, EventType::TriggeredSubgraphCompleted, step),
        }
        self.firing_over(id, error, step);
    }

    fn firing_over(&mut self, id: FiringId, error: Option<RunError>, step: &mut Step<'_>) {
        if self.firings.over(id, error)
            && let Some(main) = self.firings.get(id).map(|run| run.main)
        {
            step.out.push(Effect::StopTimer {
                timer: Timer::Firing(id),
            });
            // The thread exceeded its limit during this early compression and waits for it. The result may still be too large.
            if let Some(holds) = self.firings.get_mut(id).and_then(FiringRun::take_awaiting) {
                let result = TriggeredResult {
                    holds: true,
                    checks_limit: true,
                    ..TriggeredResult::default()
                };
                self.hand_back(main, holds, result, None);
            }
            // At most one firing prepares or runs for a thread, so the end of this one may start the next.
            self.next_firing_of(main);
        }
    }

    fn emit_event(&mut self, id: FiringId, event_type: EventType, step: &mut Step<'_>) {
        let Some(run) = self.firings.get(id) else { return };
        let (main, firing) = (run.main, run.firing.clone());
        let (child, current, next) = (
            json!(run.report.thread_id),
            json!(run.report.current_node_id),
            json!(run.report.next_node_id),
        );
        self.emit_caused(main, firing.trigger_depth(), event_type, step, || {
            vec![
                ("triggerId", json!(firing.trigger.id)),
                ("firing", json!(id)),
                ("childThreadId", child),
                ("currentNodeId", current),
                ("nextNodeId", next),
                ("error", Value::Null),
            ]
        });
    }

    /// Reports a firing whose thread ended before the firing started.
    pub(in crate::run) fn emit_refused(&mut self, id: FiringId, error: &RunError, step: &mut Step<'_>) {
        if let Some((main, firing)) = self.firings.get(id).map(|run| (run.main, run.firing.clone())) {
            self.emit_failed(main, (id, &firing), error, step);
        }
    }

    fn emit_failed(
        &mut self,
        main: ThreadNo,
        (id, firing): (FiringId, &Firing),
        error: &RunError,
        step: &mut Step<'_>,
    ) {
        let depth = firing.trigger_depth();
        self.emit_caused(main, depth, EventType::TriggeredSubgraphFailed, step, || {
            vec![
                ("triggerId", json!(firing.trigger.id)),
                ("firing", json!(id)),
                ("error", json!(error)),
            ]
        });
        if firing.is_token_event() {
            self.emit_caused(main, depth, EventType::CompressionFailed, step, || {
                vec![("triggerId", json!(firing.trigger.id)), ("error", json!(error))]
            });
        }
    }

    /// Converts a thread's history for a report.
    pub(in crate::run) fn nodes(&self, thread: ThreadNo, history: &[NodeRecord]) -> Vec<NodeReport> {
        let graph = self.graph_of(thread);
        let report = |record: &NodeRecord| NodeReport {
            node_id: Arc::clone(&graph.node(record.node).id),
            status: record.status,
            attempts: record.attempts,
            finish_reason: record.finish_reason,
            firing: None,
        };
        history.iter().map(report).collect()
    }
}

/// Returns the run that a firing starts, if its action is `START_WORKFLOW`.
pub fn detached((id, firing): (FiringId, &Firing)) -> Option<DetachedStart> {
    let TriggerAction::StartWorkflow { workflow_id, input } = &firing.trigger.action else {
        return None;
    };
    let fields = input.as_ref().map_or(&[][..], |input| &input.fields);
    Some(DetachedStart {
        firing: id,
        workflow_id: workflow_id.clone(),
        input: Value::Object(event_fields(&firing.event, fields)),
        messages: Vec::new(),
        is_unlimited: false,
        summary_profile: None,
        trigger_depth: firing.trigger_depth(),
    })
}

/// Copies the named fields of an event, or all fields if `fields` is empty. `data.amount` selects a part of a field.
pub fn event_fields(event: &Event, fields: &[String]) -> Map<String, Value> {
    let Value::Object(event) = event.to_json() else {
        return Map::new();
    };
    if fields.is_empty() {
        return event;
    }
    let mut taken = Map::new();
    for field in fields {
        take_part(&event, field, &mut taken);
    }
    taken
}

/// Copies the value at `path`. Returns false if there is none.
fn take_part(from: &Map<String, Value>, path: &str, taken: &mut Map<String, Value>) -> bool {
    let (name, rest) = path
        .split_once('.')
        .map_or((path, None), |(name, rest)| (name, Some(rest)));
    match (from.get(name), rest) {
        (Some(value), None) => {
            taken.insert(name.to_owned(), value.clone());
            true
        }
        (Some(Value::Object(from)), Some(rest)) => {
            // Another path may have selected a part of the same field: removed, extended and inserted again.
            let mut inside = match taken.remove(name) {
                Some(Value::Object(inside)) => inside,
                _none => Map::new(),
            };
            let is_there = take_part(from, rest, &mut inside);
            // The parts of other paths are inserted again even if this path selects nothing.
            if is_there || !inside.is_empty() {
                taken.insert(name.to_owned(), Value::Object(inside));
            }
            is_there
        }
        (None | Some(_), _) => false,
    }
}

/// Returns the variables that CONTINUE_FROM_TRIGGER passes to the main thread.
fn handed_variables(config: &ContinueFromTriggerConfig, child: &Variables) -> Result<Assigned, RunError> {
    let mut variables = Vec::new();
    let Some(callback) = &config.variable_callback else {
        return Ok(variables);
    };
    if callback.include_all {
        let all = child.iter();
        variables.extend(all.map(|(name, value)| (Arc::clone(name), Arc::clone(value))));
    }
    // Checked even with `includeAll`: a named variable that is missing is an error of the workflow.
    for name in callback.include_variables.iter().flatten() {
        let value = child.value(name).cloned().ok_or_else(|| {
            RunError::new(
                RunErrorCode::NodeFailed,
                format!("variableCallback names {name}, which the sub-workflow did not set"),
            )
        })?;
        variables.push((name.as_str().into(), value));
    }
    Ok(variables)
}

/// Returns the change of the main thread's conversation.
fn change_of(
    run: &FiringRun,
    config: &ContinueFromTriggerConfig,
    conversation: &Conversation,
) -> Result<Option<Change>, RunError> {
    let Some((basis, before)) = run.basis.as_deref() else {
        return Ok(None);
    };
    let (basis, is_token) = (*basis, run.firing.is_token_event());
    let change = match &config.conversation_history_callback {
        Some(callback) => {
            let chosen = select(conversation, &callback.selection())
                .map_err(|error| RunError::new(RunErrorCode::NodeFailed, error.to_string()))?;
            let messages = chosen.iter().map(|message| (**message).clone()).collect();
            // A compression replaces what exceeded the limit. Other results are additions.
            let default = if is_token {
                HistoryCallbackMode::Replace
            } else {
                HistoryCallbackMode::Append
            };
            match callback.mode.unwrap_or(default) {
                HistoryCallbackMode::Append => Some(Change::Append(messages)),
                HistoryCallbackMode::Replace => Some(Change::Replace { basis, messages }),
            }
        }
        // Without a callback the visible conversation of the sub-workflow is the compression.
        None if is_token => {
            let messages = visible(conversation);
            // A replacement by equal messages would start a new batch for nothing.
            if messages == visible(before) {
                Some(Change::Nothing)
            } else {
                Some(Change::Replace { basis, messages })
            }
        }
        None => None,
    };
    Ok(change)
}

/// Returns the time limit of a sub-workflow, at least 1 ms. 0 in the file means no limit.
fn time_limit(execute: &ExecuteTriggeredSubgraph) -> Option<Millis> {
    let after_ms = (execute.timeout * 1000.0).clamp(0.0, MAX_TIMEOUT_MS).round() as Millis;
    (execute.timeout > 0.0).then(|| after_ms.max(1))
}

fn merge(run: &FiringRun, change: Change, globals: Assigned) -> Merge {
    Merge {
        change,
        is_compression: run.firing.is_token_event(),
        trigger_depth: run.firing.trigger_depth(),
        globals,
        warnings: Vec::new(),
    }
}

/// Builds the input of the child.
fn child_input(
    firing: &Firing,
    prepared: &TriggerContext,
    globals: &Variables,
    compression: Option<&pirn_definition::definition::CompressionConfig>,
    included: Option<&[CountedMessage]>,
) -> Value {
    let event = &firing.event;
    let mut input = Map::new();
    input.insert("triggerId".into(), json!(firing.trigger.id));
    input.insert("event".into(), event.to_json());
    input.insert("output".into(), (*prepared.output).clone());
    input.insert("input".into(), (*prepared.input).clone());
    let options = firing.execute().and_then(|execute| execute.merge_options.as_ref());
    if let Some(names) = options.and_then(|options| options.include_variables.as_ref()) {
        let variables: BTreeMap<&str, &Value> = names
            .iter()
            .filter_map(|name| {
                // A variable of the thread hides the global one of its name.
                let value = prepared.variables.value(name).or_else(|| globals.value(name))?;
                Some((name.as_str(), &**value))
            })
            .collect();
        input.insert("variables".into(), json!(variables));
    }
    if let Some(included) = included {
        let messages = included.iter().map(|counted| json!(*counted.message)).collect();
        input.insert("conversationHistory".into(), messages);
    }
    if firing.is_token_event() {
        let counted: Vec<&CountedMessage> = prepared.conversation.visible().iter().collect();
        input.insert("threadId".into(), json!(event.thread_id));
        input.insert("workflowId".into(), json!(event.workflow_id));
        let messages = counted.iter().map(|counted| json!(*counted.message)).collect();
        input.insert("messages".into(), messages);
        // `messages` contains the visible messages only, so nothing in it is archived.
        input.insert("markMap".into(), json!(MarkMap::default()));
        for field in ["tokensUsed", "tokenLimit"] {
            input.insert(
                field.into(),
                event.raised.fields.get(field).cloned().unwrap_or_default(),
            );
        }
        input.insert("compressionConfig".into(), json!(compression));
    }
    Value::Object(input)
}

/// Returns the compression context of a child's input. A detached run receives it in addition to the event's fields.
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

/// Returns the messages that the trigger passes to the child, with their token counts from the main thread.
fn included_history(firing: &Firing, prepared: &TriggerContext) -> Result<Option<Vec<CountedMessage>>, RunError> {
    let options = firing.execute().and_then(|execute| execute.merge_options.as_ref());
    let selection = options.and_then(|options| options.include_conversation_history.as_ref());
    match selection {
        Some(HistorySelection::All(true)) => Ok(Some(prepared.conversation.visible().iter().cloned().collect())),
        Some(HistorySelection::All(false)) | None => Ok(None),
        Some(HistorySelection::Some(selection)) => select_counted(&prepared.conversation, selection)
            .map(Some)
            .map_err(|error| RunError::new(RunErrorCode::NodeFailed, error.to_string())),
    }
}

/// Returns the initial conversation of the child: all visible messages for a token event, else those that the trigger passes.
fn child_conversation(
    firing: &Firing,
    prepared: &TriggerContext,
    included: Option<Vec<CountedMessage>>,
) -> ConversationSource {
    let messages = if firing.is_token_event() {
        prepared.conversation.visible().iter().cloned().collect()
    } else {
        included.unwrap_or_default()
    };
    ConversationSource::Snapshot(Conversation::from_messages(messages))
}

fn visible(conversation: &Conversation) -> Vec<ChatMessage> {
    let messages = conversation.visible();
    messages.iter().map(|counted| (*counted.message).clone()).collect()
}
