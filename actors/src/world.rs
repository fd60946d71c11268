//! The world of a run's machine, also of one that is rebuilt.

use std::fmt;
use std::sync::Arc;

use pirn_core::conversation::{MessageRules, ModelRequest, Tokenizer};
use pirn_core::graph::{Graph, NodeIx};
use pirn_core::model_call::CallBound;
use pirn_core::run::{Called, Listening, ThreadNo, World};
use pirn_core::thread::{Evaluation, Input, ModelChoice, Outcome, Output, ThreadMachine, ThreadScope};
use serde_json::{Map, Value};

use crate::call_context::CallContext;
use crate::host::{Host, Observation};
use crate::in_place::InPlace;
use crate::run_context::RunContext;

/// The world that a run's machine asks in place.
pub(crate) struct RunWorld<'a> {
    run_id: &'a Arc<str>,
    metadata: Option<&'a Arc<Map<String, Value>>>,
    in_place: &'a InPlace,
    listening: Listening,
    /// Hears what becomes of the run, where it is there and wants to.
    observer: Option<&'a Host>,
}

impl<'a> RunWorld<'a> {
    /// That of a run which its actors carry.
    pub(crate) fn of(run: &'a RunContext) -> Self {
        Self {
            run_id: &run.run_id,
            metadata: run.supervisor.metadata(),
            in_place: &run.in_place,
            listening: run.listening(),
            observer: Some(&run.host),
        }
    }

    /// That of a run which is rebuilt.
    pub(crate) fn rebuilding(
        run_id: &'a Arc<str>,
        metadata: Option<&'a Arc<Map<String, Value>>>,
        in_place: &'a InPlace,
        listening: Listening,
    ) -> Self {
        Self {
            run_id,
            metadata,
            in_place,
            listening,
            observer: None,
        }
    }

    /// Others listen from now on.
    pub(crate) fn listen(&mut self, listening: Listening) {
        self.listening = listening;
    }

    fn observe(&self, observation: impl FnOnce(Arc<str>) -> Observation) {
        if let Some(host) = self.observer {
            host.observe(|| observation(Arc::clone(self.run_id)));
        }
    }
}

/// The place that a thread calls something from.
pub(crate) fn context_of(
    run_id: &Arc<str>,
    thread: &ThreadMachine,
    node: NodeIx,
    metadata: Option<&Arc<Map<String, Value>>>,
) -> CallContext {
    let graph = thread.graph();
    CallContext {
        run_id: Arc::clone(run_id),
        thread_id: Arc::clone(thread.thread_id()),
        workflow_id: Arc::clone(&graph.workflow_id),
        node_id: Some(Arc::clone(&graph.node(node).id)),
        metadata: metadata.cloned().unwrap_or_default(),
    }
}

impl World for RunWorld<'_> {
    fn listening(&self) -> Listening {
        self.listening
    }
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.in_place.graphs().get(workflow_id).cloned()
    }
    fn token_limit(&self, graph: &Graph) -> Option<u64> {
        self.in_place.token_limit(graph)
    }
    fn speculative_at(&self) -> Option<f64> {
        self.in_place.ports().speculative_at
    }
    fn tokenizer(&self, graph: &Graph) -> Arc<dyn Tokenizer> {
        self.in_place.tokenizer(graph)
    }
    fn message_rules(&self, profile_id: Option<&str>) -> MessageRules {
        self.in_place.message_rules(profile_id)
    }
    fn profile(&self, profile_id: Option<&str>) -> Option<Arc<str>> {
        Some(self.in_place.profile(profile_id))
    }
    fn call_bound(&self, request: &ModelRequest, chosen: &ModelChoice) -> CallBound {
        self.in_place.call_bound(request, chosen)
    }
    fn tool_tokens(&self, tools: &[Arc<str>], tokenizer: &dyn Tokenizer) -> u64 {
        self.in_place.tool_tokens(tools, tokenizer)
    }
    fn evaluate(
        &mut self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome> {
        self.in_place.evaluate(graph, node, what, scope)
    }
    fn call(&mut self, function: &str, input: &Output, thread: &ThreadMachine) -> Called {
        let context = || context_of(self.run_id, thread, thread.node(), self.metadata);
        self.in_place.call(function, input, thread.trigger_depth(), &context)
    }
    fn delivered(&mut self, thread: ThreadNo, input: &Input) {
        self.observe(|run| Observation::Delivered {
            run,
            thread,
            text: format!("{input:?}"),
        });
    }
    fn noted(&mut self, thread: ThreadNo, what: fmt::Arguments<'_>) {
        self.observe(|run| Observation::Delivered {
            run,
            thread,
            text: what.to_string(),
        });
    }
    fn shared(&mut self, name: fmt::Arguments<'_>, value: &Value) {
        self.observe(|run| Observation::Shared {
            run,
            name: name.to_string(),
            text: value.to_string(),
        });
    }
}
