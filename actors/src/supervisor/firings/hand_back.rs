//! Takes what a triggered sub-workflow or a detached compression hands back to its main thread (SPEC section 6).

use std::sync::Arc;

use pirn_core::conversation::compression::CompressionResult;
use pirn_core::conversation::{Conversation, select};
use pirn_core::definition::{ContinueFromTriggerConfig, HistoryCallbackMode};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventType;
use pirn_core::graph::NodeKind;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{FiringId, TriggeredResult};
use serde_json::{Value, json};

use super::super::{Child, SupervisorActor, SupervisorMsg, ThreadNo};
use super::{FiringRun, State, visible};
use crate::conversation::{Change, Merge};
use crate::firing::Firing;
use crate::globals::HandedGlobals;
use crate::thread::ThreadMsg;

impl SupervisorActor {
    /// The child thread has ended.
    pub(in crate::supervisor) fn triggered_ended(&mut self, id: FiringId, thread: ThreadNo) {
        let Some((end, history)) = self.threads.get(thread).and_then(Child::ended).map(|ended| {
            (
                ended.end.clone(),
                ended.left.as_ref().map_or_else(Vec::new, |left| left.history.clone()),
            )
        }) else {
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
        let supervisor = Arc::clone(&self.run.supervisor);
        if let Some(left) = self.threads.get(thread).and_then(Child::left) {
            left.conversation.clone().with_snapshot(move |conversation| {
                supervisor.do_send(SupervisorMsg::Returned {
                    firing: id,
                    conversation: Box::new(conversation),
                });
            });
        }
    }

    /// The child's conversation is here: what it hands back goes to the main thread.
    pub(in crate::supervisor) fn returned(&mut self, id: FiringId, conversation: &Conversation) {
        let Some(run) = self.firings.get(&id) else { return };
        let State::Running(thread) = run.state else { return };
        match self.result_of(run, thread, conversation) {
            Ok((variables, merge)) => {
                let holds = run.firing.trigger.action.holds_the_thread();
                let result = TriggeredResult {
                    variables,
                    conversation: merge.is_some(),
                    holds,
                    is_compression: run.is_token_event(),
                    trigger_depth: run.trigger_depth(),
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
                if self.threads.get(main).is_none_or(Child::has_ended) {
                    self.applied(id, Some(too_late()));
                }
                self.next_firing_of(main);
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
        let Some(child) = self.threads.get(thread) else {
            return Ok((Vec::new(), None));
        };
        let Some(ended) = child.left() else {
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
        // A name that is the run's and not its thread's own is meant; one of the thread's own would hide it there.
        let is_global = |name: &str| {
            let globals = self.run.globals.borrow();
            globals.variable(name).is_some() && run.variables.variable(name).is_none()
        };
        let (globals, variables): (Vec<_>, Vec<_>) = variables.into_iter().partition(|(name, _)| is_global(name));
        let change = Self::change_of(run, config, conversation)?;
        let globals = self.globals_of(run, globals);
        let merge = match (change, globals) {
            (None, None) => None,
            (Some(change), globals) => Some(run.merge(change, globals)),
            (None, globals) => Some(Merge {
                is_compression: false,
                ..run.merge(Change::Nothing, globals)
            }),
        };
        Ok((variables, merge))
    }

    /// Global variables to assign, in the main thread's name.
    fn globals_of(&self, run: &FiringRun, values: Vec<(Arc<str>, Arc<Value>)>) -> Option<HandedGlobals> {
        let main = self.threads.get(run.main).filter(|_| !values.is_empty())?;
        Some(HandedGlobals {
            values,
            workflow_id: Arc::clone(&main.graph.workflow_id),
            thread_id: self.threads.id(run.main),
            trigger_depth: main.trigger_depth.max(run.trigger_depth()),
        })
    }

    /// What becomes of the main thread's conversation.
    fn change_of(
        run: &FiringRun,
        config: &ContinueFromTriggerConfig,
        conversation: &Conversation,
    ) -> Result<Option<Change>, RunError> {
        let Some((basis, before)) = &run.basis else {
            return Ok(None);
        };
        let change = match &config.conversation_history_callback {
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
                    HistoryCallbackMode::Append => Some(Change::Append(messages)),
                    HistoryCallbackMode::Replace => Some(Change::Replace {
                        basis: *basis,
                        messages,
                    }),
                }
            }
            None if run.is_token_event() => {
                let (now, then) = (visible(conversation), visible(before));
                if now == then {
                    Some(Change::Nothing)
                } else {
                    Some(Change::Replace {
                        basis: *basis,
                        messages: now,
                    })
                }
            }
            None => None,
        };
        Ok(change)
    }

    /// A detached run that a trigger started has ended. Where it was started on a token event and its output is a
    /// compression's result, that is applied.
    pub(in crate::supervisor) fn compressed(&mut self, id: FiringId, output: Result<Value, RunError>) {
        let Some(run) = self.firings.get_mut(&id).filter(|run| run.state == State::Detached) else {
            return;
        };
        let (main, trigger_depth) = (run.main, run.trigger_depth());
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
            .map(|(result, (basis, _))| run.merge(Change::Compressed { basis: *basis, result }, None));
        match merge {
            Some(merge) if self.threads.get(main).is_some_and(|child| !child.has_ended()) => {
                if let Some(run) = self.firings.get_mut(&id) {
                    run.state = State::Applying;
                }
                let result = TriggeredResult {
                    variables: Vec::new(),
                    conversation: true,
                    holds: false,
                    is_compression: true,
                    trigger_depth,
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
            Some(_) => self.firing_failed(id, &too_late()),
            None => self.firing_over(id, None),
        }
    }

    /// It came to nothing: the main thread goes on unchanged, and is told so that it stops waiting.
    pub(in crate::supervisor) fn firing_failed(&mut self, id: FiringId, error: &RunError) {
        let Some(run) = self.firings.get(&id) else { return };
        let (main, firing, is_token) = (run.main, run.firing.clone(), run.is_token_event());
        self.say_failed(main, &firing, error);
        if is_token {
            self.say_not_compressed(main, &firing, error);
            self.tell(main, ThreadMsg::CompressionEnded);
        }
        let holds = firing.trigger.action.holds_the_thread();
        self.firing_over(id, Some(error.clone()));
        if holds {
            self.let_go(main, &firing);
        }
    }

    /// The main thread has applied a result, or could not.
    pub(in crate::supervisor) fn applied(&mut self, id: FiringId, error: Option<RunError>) {
        let Some(run) = self.firings.get(&id).filter(|run| run.state == State::Applying) else {
            return;
        };
        let main = run.main;
        match &error {
            Some(error) => {
                let firing = run.firing.clone();
                let is_token = run.is_token_event();
                self.say_failed(main, &firing, error);
                if is_token {
                    self.say_not_compressed(main, &firing, error);
                }
            }
            // A detached run is no sub-workflow of the thread: COMPRESSION_COMPLETED has said what there is to say.
            None if run.execute().is_none() => {}
            None => self.say(main, id, EventType::TriggeredSubgraphCompleted, None),
        }
        self.firing_over(id, error);
    }
}

impl SupervisorActor {
    pub(super) fn say_not_compressed(&self, main: ThreadNo, firing: &Firing, error: &RunError) {
        self.emit_caused(main, firing.trigger_depth(), EventType::CompressionFailed, || {
            vec![("triggerId", json!(firing.trigger.id)), ("error", json!(error))]
        });
    }
}

impl FiringRun {
    fn merge(&self, change: Change, globals: Option<HandedGlobals>) -> Merge {
        Merge {
            change,
            is_compression: self.is_token_event(),
            trigger_depth: self.trigger_depth(),
            globals,
        }
    }
}

pub(super) fn too_late() -> RunError {
    RunError::new(
        RunErrorCode::Cancelled,
        "the thread ended before the result could take effect",
    )
}
