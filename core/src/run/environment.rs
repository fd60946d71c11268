//! The environment of a run during a step: inline evaluation, inline calls and configuration.

use std::sync::Arc;

use pirn_conversation::conversation::compression::SummaryUse;
use pirn_conversation::conversation::{MessageRules, ModelRequest, Tokenizer};
use pirn_conversation::model_call::CallBound;
use pirn_definition::definition::Fault;
use pirn_definition::graph::{Graph, NodeIx};
use pirn_definition::value::SchemaMismatch;
use pirn_events::event::EventMask;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ThreadNo;
use super::parts::ledger::CallMaximum;
use crate::thread::{Evaluation, Input, ModelChoice, Outcome, Output, ThreadMachine, ThreadScope};

/// Event types with subscribers. Events of other types are not built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInterest {
    /// Types that a subscriber or a trigger listens to.
    pub interest: EventMask,
    /// Types that a trigger watches.
    pub watched: EventMask,
    /// Types watched by a trigger that holds the thread.
    pub holding: EventMask,
}

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

/// A configuration value with the request that it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Setting {
    /// Token limit of a workflow that sets none.
    TokenLimit {
        /// Id of the workflow.
        workflow: Arc<str>,
        /// Limit in tokens; `None` for no limit.
        tokens: Option<u64>,
    },
    /// Share of the token limit at which early compression starts, if the workflow sets none.
    SpeculativeAt(Option<f64>),
    /// Seed of the random numbers that scripts draw.
    ScriptSeed(u64),
    /// Tokenizer of a workflow.
    Tokenizer {
        /// Id of the workflow.
        workflow: Arc<str>,
        /// Name of the tokenizer.
        name: Arc<str>,
    },
    /// Message order that the model of a profile accepts.
    MessageRules {
        /// Id of the profile; `None` for the default profile.
        profile: Option<Arc<str>>,
        /// Accepted order.
        rules: MessageRules,
    },
    /// Profile to which a name, or the absence of a name, resolves.
    Profile {
        /// Requested name.
        named: Option<Arc<str>>,
        /// Id of the profile.
        profile: Option<Arc<str>>,
    },
    /// Use of a profile's model for summaries.
    SummaryUse {
        /// Id of the profile; `None` for the default profile.
        profile: Option<Arc<str>>,
        /// Use of its model.
        summaries: SummaryUse,
    },
    /// Tokens of tool definitions.
    ToolTokens {
        /// Id of the workflow that uses the tools.
        workflow: Arc<str>,
        /// Names of the tools.
        tools: Vec<Arc<str>>,
        /// Number of tokens.
        tokens: u64,
    },
    /// Tokens of a string or a medium that was counted in this step.
    Count {
        /// [`Settings::digest`](super::Settings::digest) of the counted value.
        of: u64,
        /// Number of tokens.
        tokens: u64,
    },
    /// Maximum usage of a model call of this step.
    #[serde(rename = "callMost")]
    CallMaximum(CallMaximum),
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
    /// Validates a value against a JSON Schema.
    ///
    /// # Errors
    /// The value does not fit the schema.
    fn fits(&self, _schema: &Value, _value: &Value) -> Result<(), SchemaMismatch> {
        Ok(())
    }
    /// Returns the fault of an invalid JSON Schema, or `None` if it is valid.
    fn schema_fault(&self, _schema: &Value) -> Option<String> {
        None
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
