//! The environment of a run's machine, for live and replayed runs.

use std::fmt;
use std::sync::Arc;

use pirn_conversation::conversation::compression::SummaryUse;
use pirn_conversation::conversation::{MessageRules, ModelRequest, Tokenizer};
use pirn_conversation::model_call::CallBound;
use pirn_core::run::{CallResult, EventInterest, RunEnvironment, Setting, ThreadNo};
use pirn_core::thread::{Evaluation, Input, ModelChoice, Outcome, Output, ThreadMachine, ThreadScope};
use pirn_definition::definition::Fault;
use pirn_definition::graph::{Graph, NodeIx};
use pirn_definition::value::SchemaMismatch;
use serde_json::{Map, Value};

use super::inline_services::InlineServices;
use super::run_context::RunContext;
use super::settings::SharedSettings;
use crate::calls::call_context::CallContext;
use crate::host::{Host, Observation};

/// The environment that a run's machine queries inline.
pub(crate) struct ActorEnvironment<'a> {
    run_id: &'a Arc<str>,
    metadata: Option<&'a Arc<Map<String, Value>>>,
    inline_services: &'a InlineServices,
    listening: EventInterest,
    /// Recorded configuration of a durable run.
    settings: Option<&'a SharedSettings>,
    /// Receives observations. None during a replay.
    observer: Option<&'a Host>,
}

impl<'a> ActorEnvironment<'a> {
    /// The environment of a live run.
    pub(crate) fn of(run: &'a RunContext) -> Self {
        Self {
            run_id: &run.run_id,
            metadata: run.supervisor.metadata(),
            inline_services: &run.inline_services,
            listening: run.listening(),
            settings: run.settings(),
            observer: Some(&run.host),
        }
    }

    /// The environment of a replay.
    pub(crate) fn rebuilding(
        run_id: &'a Arc<str>,
        metadata: Option<&'a Arc<Map<String, Value>>>,
        inline_services: &'a InlineServices,
        (listening, settings): (EventInterest, &'a SharedSettings),
    ) -> Self {
        Self {
            run_id,
            metadata,
            inline_services,
            listening,
            settings: Some(settings),
            observer: None,
        }
    }

    /// Sets the current listeners.
    pub(crate) fn listen(&mut self, listening: EventInterest) {
        self.listening = listening;
    }

    fn observe(&self, observation: impl FnOnce(Arc<str>) -> Observation) {
        if let Some(host) = self.observer {
            host.observe(|| observation(Arc::clone(self.run_id)));
        }
    }
}

/// Origin of a call by a thread.
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

impl RunEnvironment for ActorEnvironment<'_> {
    fn listening(&self) -> EventInterest {
        self.listening
    }
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.inline_services.graphs().get(workflow_id).cloned()
    }
    fn compile(&self, source: &Arc<str>) -> Result<Arc<Graph>, Vec<Fault>> {
        // Not recorded: the result depends on the source and on the registered workflows only, which a replay has too.
        self.inline_services.compile(source)
    }
    fn fits(&self, schema: &Value, value: &Value) -> Result<(), SchemaMismatch> {
        (self.inline_services.ports().fits)(schema, value)
    }
    fn schema_fault(&self, schema: &Value) -> Option<String> {
        (self.inline_services.ports().schema_fault)(schema)
    }
    fn token_limit(&self, graph: &Graph) -> Option<u64> {
        // A closure, because a replay uses the recorded value instead of the current configuration.
        let ask = || self.inline_services.token_limit(graph);
        match self.settings {
            // Profiles have no effect on a workflow without model calls, so its limit is not recorded.
            Some(settings) if graph.calls_models() => settings.get().token_limit(&graph.workflow_id, ask),
            Some(_) | None => ask(),
        }
    }
    fn speculative_at(&self) -> Option<f64> {
        let ask = || self.inline_services.ports().speculative_at;
        match self.settings {
            Some(settings) => settings.get().speculative_at(ask),
            None => ask(),
        }
    }
    fn tokenizer(&self, graph: &Graph) -> Arc<dyn Tokenizer> {
        let tokenizer = self.inline_services.tokenizer(graph);
        let Some(settings) = self.settings else {
            return tokenizer;
        };
        let ask = || Arc::from(tokenizer.name());
        let name = match &graph.config.tokenizer {
            // A tokenizer named by the workflow is the same in every process, so its name is not recorded.
            Some(_) => None,
            None => settings.get().tokenizer(&graph.workflow_id, ask),
        };
        settings.tokenizer(name.unwrap_or_else(ask), tokenizer)
    }
    fn message_rules(&self, profile_id: Option<&str>) -> MessageRules {
        let ask = || self.inline_services.message_rules(profile_id);
        match self.settings {
            Some(settings) => settings.get().message_rules(profile_id, ask),
            None => ask(),
        }
    }
    fn profile(&self, profile_id: Option<&str>) -> Option<Arc<str>> {
        let ask = || Some(self.inline_services.profile(profile_id));
        match self.settings {
            Some(settings) => settings.get().profile(profile_id, ask),
            None => ask(),
        }
    }
    fn summary_use(&self, profile_id: Option<&str>) -> SummaryUse {
        let ask = || self.inline_services.summary_use(profile_id);
        match self.settings {
            Some(settings) => settings.get().summary_use(profile_id, ask),
            None => ask(),
        }
    }
    fn call_bound(&self, request: &ModelRequest, chosen: &ModelChoice) -> CallBound {
        self.inline_services.call_bound(request, chosen)
    }
    fn tool_tokens(&self, graph: &Graph, tools: &[Arc<str>]) -> u64 {
        // The sum is recorded as a whole, so the tokenizer need not record its counts.
        let ask = || {
            self.inline_services
                .tool_tokens(tools, &*self.inline_services.tokenizer(graph))
        };
        match self.settings {
            // Without tools the sum is 0 in every process.
            Some(settings) if !tools.is_empty() => settings.get().tool_tokens(&graph.workflow_id, tools, ask),
            Some(_) | None => ask(),
        }
    }
    fn next_step(&mut self) {
        if let Some(settings) = self.settings {
            settings.get().next_step();
        }
    }
    fn expect(&mut self, recorded: &[Setting]) {
        if let Some(settings) = self.settings {
            settings.get().expect(recorded);
        }
    }
    fn evaluate(
        &mut self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome> {
        // Not recorded: a replay evaluates again.
        self.inline_services.evaluate(graph, node, what, scope)
    }
    fn call(&mut self, function: &str, input: &Output, thread: &ThreadMachine) -> CallResult {
        // Built only if the function reads its origin.
        let context = || context_of(self.run_id, thread, thread.node(), self.metadata);
        self.inline_services
            .call(function, input, thread.trigger_depth(), &context)
    }
    fn delivered(&mut self, thread: ThreadNo, input: &Input) {
        // Inputs are formatted for observing hosts only.
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
