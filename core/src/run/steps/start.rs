//! Start of threads: the main one, called and triggered sub-workflows. Branches start from the state stored in their fork.

use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{Graph, NodeIx, NodeKind};
use serde_json::{Value, json};

use crate::run::ThreadNo;
use crate::run::data::effect::Effect;
use crate::run::data::message::{ConversationSource, Timer};
use crate::run::data::thread_state::InitialState;
use crate::run::parts::tree::{Origin, OwnedWork, TreeNode};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::status::ThreadStatus;
use crate::thread::{Callee, EffectId, Outcome, ThreadKind, run_variables};

/// Default nesting limit of forks and sub-workflows.
const DEFAULT_MAX_DEPTH: u32 = 10;

impl RunMachine {
    /// Adds a thread to the run, with the global variables of its workflow that the run does not have yet.
    pub(in crate::run) fn start(&mut self, start: InitialState, step: &mut Step<'_>) -> ThreadNo {
        // `InitialState::of` sets the graph. Only a deserialized start lacks it until `attach`.
        let Some(graph) = start.graph.clone() else {
            return 0;
        };
        let defined = run_variables(&graph);
        for (name, _) in defined.iter() {
            // A workflow that starts later must not reset a variable that threads already use.
            if let (None, Some(variable)) = (self.globals.variable(name), defined.variable(name)) {
                self.globals.define(name, variable.clone());
            }
        }
        let at = TreeNode {
            kind: start.kind,
            graph: self.graphs.add(&graph, step.env),
            origin: start.origin,
            parent: self.parent_of(start.origin),
            depth: start.depth,
            trigger_depth: start.trigger_depth,
            is_unlimited: start.is_unlimited,
            is_detached: start.is_detached,
        };
        if graph.config.budget.is_some() {
            self.budget.get_or_insert_default();
        }
        if graph.config.max_agents.is_some() {
            self.agents.get_or_insert_default();
        }
        let limit = self.time_limit(&at);
        let thread = self.register(at, Some(Box::new(start)), step);
        // The time limit of a run in a session starts with its turn, not with its wait for the turn.
        if thread > 0 || !self.awaits_session() {
            limit_time(thread, limit, step);
        }
        thread
    }

    /// Starts the main thread of a run that waited for its session.
    pub(in crate::run) fn begin_main(&mut self, step: &mut Step<'_>) {
        let limit = self.tree.get(0).and_then(|at| self.time_limit(at));
        self.schedule_first_step(0, step);
        // From here on, so that the wait for other runs of the session does not count.
        limit_time(0, limit, step);
    }

    /// Returns the depth of a thread that `parent` starts, or an OVERLOADED error if it exceeds the limit.
    pub(in crate::run) fn deeper(&self, parent: ThreadNo) -> Result<u32, RunError> {
        // The main workflow limits the whole run: a called workflow cannot raise its own limit.
        let limit = self.graph_of(0).config.max_depth.unwrap_or(DEFAULT_MAX_DEPTH);
        self.tree
            .deeper(parent, limit)
            .ok_or_else(|| RunError::new(RunErrorCode::Overloaded, format!("threads nest deeper than {limit}")))
    }

    /// Returns a called workflow, and the depth of the thread that walks it.
    pub(in crate::run) fn callee(
        &self,
        parent: ThreadNo,
        workflow_id: &str,
        step: &Step<'_>,
    ) -> Result<(Arc<Graph>, u32), RunError> {
        let depth = self.deeper(parent)?;
        let called = step.env.graph(workflow_id);
        let called = called
            .ok_or_else(|| RunError::new(RunErrorCode::NodeFailed, format!("there is no workflow {workflow_id}")))?;
        // The compiler has checked the workflow that a node names. The id of another callee may come from a script.
        if called.triggered {
            let message = format!("workflow {workflow_id} is started by triggers only");
            return Err(RunError::new(RunErrorCode::NodeFailed, message));
        }
        Ok((called, depth))
    }

    /// Compiles the source of a called workflow, and returns it with the depth of the thread that walks it.
    fn inline_callee(
        &mut self,
        parent: ThreadNo,
        source: &Arc<str>,
        step: &Step<'_>,
    ) -> Result<(Arc<Graph>, u32), RunError> {
        let depth = self.deeper(parent)?;
        self.memory.made(source.len() as u64);
        let called = step.env.compile(source).map_err(|faults| {
            // The message reaches the script or the model that wrote the workflow; the details only the report.
            let reason = match &faults[..] {
                [] => String::new(),
                [only] => format!(": at {}: {}", only.pointer, only.message),
                [first, more @ ..] => format!(": at {}: {} (and {} more)", first.pointer, first.message, more.len()),
            };
            let message = format!("the workflow written during the run is invalid{reason}");
            RunError::new(RunErrorCode::NodeFailed, message).with_details(json!({ "faults": faults }))
        })?;
        Ok((called, depth))
    }

    /// Starts the workflow that a thread calls.
    pub(in crate::run) fn call(
        &mut self,
        (parent, effect): (ThreadNo, EffectId),
        node: NodeIx,
        callee: &Callee,
        input: Arc<Value>,
        conversation: ConversationSource,
        step: &mut Step<'_>,
    ) {
        // The caller may have ended after it sent the message.
        let Some(at) = self.tree.get(parent).filter(|_| self.tree.is_live(parent)).cloned() else {
            return;
        };
        // The node is read while the run is borrowed mutably below.
        let graph = Arc::clone(self.graph_of(parent));
        let (found, agent) = match (callee, &graph.node(node).kind) {
            (Callee::OfNode, NodeKind::Subgraph { workflow_id, agent, .. }) => {
                (self.callee(parent, workflow_id, step), agent.clone())
            }
            // Only SUBGRAPH nodes name a workflow.
            (Callee::OfNode, _) => return,
            (Callee::Registered(workflow_id) | Callee::Tool(workflow_id), _) => {
                (self.callee(parent, workflow_id, step), None)
            }
            (Callee::Inline(source), _) => (self.inline_callee(parent, source, step), None),
        };
        let (workflow, depth) = match found {
            Ok(callee) => callee,
            Err(error) => return self.answer(parent, effect, Outcome::Failed(error)),
        };
        let input = match input_of(callee, &workflow, input, step) {
            Ok(input) => input,
            Err(error) => return self.answer(parent, effect, Outcome::Failed(error)),
        };
        let subgraph_id = Arc::clone(&workflow.workflow_id);
        let written = written_of(callee, &graph.node(node).kind, &input);
        let start = InitialState {
            conversation,
            agent,
            depth,
            trigger_depth: at.trigger_depth,
            is_unlimited: at.is_unlimited,
            is_detached: at.is_detached,
            ..InitialState::of(workflow, ThreadKind::Subgraph, Origin::Called { parent, effect }, input)
        };
        let thread = self.start(start, step);
        // The end of the caller cancels the called workflow.
        self.tree.own(parent, OwnedWork::Child { effect, thread });
        let thread_id = self.thread_id(thread);
        self.emit(parent, EventType::SubgraphStarted, step, || {
            let mut fields = vec![
                ("nodeId", json!(graph.node(node).id)),
                ("childThreadId", json!(thread_id)),
                ("subgraphId", json!(subgraph_id)),
            ];
            fields.extend(written);
            fields
        });
    }

    /// Handles the end of a called workflow: its caller continues or fails.
    pub(in crate::run) fn called_ended(
        &mut self,
        parent: ThreadNo,
        effect: EffectId,
        thread: ThreadNo,
        step: &mut Step<'_>,
    ) {
        self.tree.disown(parent, OwnedWork::Child { effect, thread });
        let Some(end) = self.end_of(thread) else { return };
        let status = end.status;
        let outcome = match status {
            ThreadStatus::Completed => Outcome::Child {
                output: Arc::clone(end.output.value()),
            },
            // An ended thread has a final status. The other three complete the match.
            ThreadStatus::Failed
            | ThreadStatus::Cancelled
            | ThreadStatus::Timeout
            | ThreadStatus::Created
            | ThreadStatus::Running
            | ThreadStatus::Paused => {
                let workflow_id = &self.graph_of(thread).workflow_id;
                let message = format!("workflow {workflow_id} ended {}", status.as_str());
                let error = RunError::new(RunErrorCode::NodeFailed, message);
                Outcome::Failed(match &end.error {
                    Some(cause) => error.caused_by(cause.clone()),
                    None => error,
                })
            }
        };
        let thread_id = self.thread_id(thread);
        self.emit(parent, EventType::SubgraphCompleted, step, || {
            vec![("childThreadId", json!(thread_id)), ("status", json!(status))]
        });
        // The caller has copied the output. A report needs only the child's outcome.
        self.release(thread);
        self.answer(parent, effect, outcome);
    }
}

/// Returns the input of a called workflow: that of a tool is read from the arguments. An input that does not fit `inputSchema` is an error,
/// except for a SUBGRAPH node, whose workflow is part of the definition.
fn input_of(callee: &Callee, workflow: &Graph, input: Arc<Value>, step: &Step<'_>) -> Result<Arc<Value>, RunError> {
    let input = match callee {
        Callee::OfNode => return Ok(input),
        Callee::Tool(_) => Arc::new(workflow.about.input_of(&input)),
        Callee::Registered(_) | Callee::Inline(_) => input,
    };
    let Some(schema) = &workflow.about.input_schema else {
        return Ok(input);
    };
    let fits = step.env.fits(&Value::Object(schema.clone()), &input);
    fits.map(|()| input).map_err(|why| {
        let id = &workflow.workflow_id;
        let message = format!("the input does not fit the `inputSchema` of {id}: {why}");
        RunError::new(RunErrorCode::InvalidInput, message)
    })
}

/// Returns the fields of `SUBGRAPH_STARTED` about a workflow that was written during the run: its definition, which no file contains, and
/// the label that a script gave to an agent.
fn written_of(callee: &Callee, by: &NodeKind, input: &Value) -> Vec<(&'static str, Value)> {
    let Callee::Inline(source) = callee else {
        return Vec::new();
    };
    let definition = serde_json::from_str(source).ok();
    // Only the input of an agent has a label. The input of a submitted workflow is the model's data, in which `label` may mean anything.
    let is_agent = matches!(by, NodeKind::Orchestration(_));
    let label = input.get("label").filter(|label| is_agent && label.is_string());
    let fields = [("definition", definition), ("label", label.cloned())];
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn limit_time(thread: ThreadNo, limit: Option<Millis>, step: &mut Step<'_>) {
    if let Some(after_ms) = limit {
        step.out.push(Effect::SetTimer {
            timer: Timer::Thread { thread, after_ms },
            after_ms,
        });
    }
}
