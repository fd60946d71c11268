//! The environment of a run during a step: inline evaluation, inline calls and configuration.

use std::sync::Arc;

use pirn_conversation::conversation::compression::SummaryUse;
use pirn_conversation::conversation::{MessageRules, ModelRequest, Tokenizer};
use pirn_conversation::model_call::CallBound;
use pirn_definition::definition::Fault;
use pirn_definition::graph::{Graph, NodeIx};
use serde_json::Value;

use super::ThreadNo;
use super::record::EventInterest;
use super::settings::Setting;
use crate::thread::{Evaluation, Input, ModelChoice, Outcome, Output, ThreadMachine, ThreadScope};

/// Result of calling a registered function.
#[derive(Clone, Debug, PartialEq)]
pub enum CallResult {
    /// Result of an inline call.
    Done(Result<Value, String>),
    /// The function is slow or asynchronous: call it by an effect.
    TakesTime,
    /// No function of this name is registered.
    Unknown,
}

/// Environment of a run. Evaluations and calls are as deterministic as the workflow. Subscriptions and configuration are recorded
/// ([`Settings`](super::Settings)), so that a replay uses equal values.
pub trait RunEnvironment {
    /// Returns the event types with subscribers.
    fn listening(&self) -> EventInterest;
    /// Returns the workflow with this id.
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>>;
    /// Compiles the source of a workflow that was written during the run. Equal sources have equal graphs in every process; one graph
    /// serves the repeated requests of a run.
    ///
    /// # Errors
    /// Returns the faults of the source.
    fn compile(&self, source: &Arc<str>) -> Result<Arc<Graph>, Vec<Fault>>;
    /// Validates a value against a JSON Schema. Returns one sentence if it is invalid.
    ///
    /// # Errors
    /// The value does not fit the schema.
    fn fits(&self, _schema: &Value, _value: &Value) -> Result<(), String> {
        Ok(())
    }
    /// Returns the token limit of a workflow that sets none: that of its profile.
    fn token_limit(&self, graph: &Graph) -> Option<u64>;
    /// Returns the share of the token limit at which early compression starts, if the workflow sets none; `None` disables it.
    fn speculative_at(&self) -> Option<f64> {
        None
    }
    /// Returns the tokenizer of a workflow: the one that it names, else that of its first LLM node's profile.
    fn tokenizer(&self, graph: &Graph) -> Arc<dyn Tokenizer>;
    /// Returns the message order that the model of a profile accepts. `None` means the default profile.
    fn message_rules(&self, profile_id: Option<&str>) -> MessageRules;
    /// Resolves a profile name, or the default profile for `None`. Returns `None` if it is not registered.
    fn profile(&self, profile_id: Option<&str>) -> Option<Arc<str>> {
        profile_id.map(Arc::from)
    }
    /// Returns whether the model of a profile summarizes conversations. `None` means the default profile.
    fn summary_use(&self, _profile_id: Option<&str>) -> SummaryUse {
        SummaryUse::default()
    }
    /// Returns the maximum reply length and token prices of a model call. Used for calls with a budget.
    fn call_bound(&self, _request: &ModelRequest, _chosen: &ModelChoice) -> CallBound {
        CallBound::default()
    }
    /// Returns the tokens of these tool definitions, counted with the workflow's tokenizer.
    fn tool_tokens(&self, graph: &Graph, tools: &[Arc<str>]) -> u64;
    /// During a rebuild: starts the step of the next recorded input.
    fn next_step(&mut self) {}
    /// During a rebuild: provides the recorded settings of the step that follows.
    fn expect(&mut self, _recorded: &[Setting]) {}
    /// Evaluates expressions or templates of a node inline. Returns `None` if that may take long; the run then uses an effect.
    fn evaluate(
        &mut self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome>;
    /// Calls a registered function for the current node of this thread, if it can run inline.
    fn call(&mut self, function: &str, input: &Output, thread: &ThreadMachine) -> CallResult;
    /// Called for each input that a thread receives.
    fn delivered(&mut self, _thread: ThreadNo, _input: &Input) {}
    /// Called when something other than an input of the thread affects its later behaviour.
    fn noted(&mut self, _thread: ThreadNo, _what: std::fmt::Arguments<'_>) {}
    /// Called when state that all threads share changes.
    fn shared(&mut self, _name: std::fmt::Arguments<'_>, _value: &Value) {}
}
