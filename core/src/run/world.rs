//! The world outside, as a run asks it while it takes a step: code that is called in place and answers at once.

use std::sync::Arc;

use serde_json::Value;

use super::ThreadNo;
use super::record::Listening;
use super::settings::Setting;
use crate::conversation::{MessageRules, ModelRequest, Tokenizer};
use crate::graph::{Graph, NodeIx};
use crate::model_call::CallBound;
use crate::thread::{Evaluation, Input, ModelChoice, Outcome, Output, ThreadMachine, ThreadScope};

/// The answer to a call of a registered function.
#[derive(Clone, Debug, PartialEq)]
pub enum Called {
    /// It was called in place.
    Done(Result<Value, String>),
    /// It takes its time: it is an effect.
    TakesTime,
    /// There is none of that name.
    Unknown,
}

/// The world as a run sees it. What is evaluated and called is deterministic where the workflow is; who listens, and the
/// configuration that is asked for, is recorded ([`Settings`](super::Settings)) to rebuild the run.
pub trait World {
    /// The event types that are listened to just now.
    fn listening(&self) -> Listening;
    /// The workflow of this id.
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>>;
    /// The token limit of a workflow that names none: its profile's.
    fn token_limit(&self, graph: &Graph) -> Option<u64>;
    /// The share of its token limit at which the compression of a workflow that names none begins early; none: not early.
    fn speculative_at(&self) -> Option<f64> {
        None
    }
    /// The tokenizer of a workflow: the one that it names, else that of its first LLM node's profile.
    fn tokenizer(&self, graph: &Graph) -> Arc<dyn Tokenizer>;
    /// The order of messages that a profile's model takes; of the default one, where none is named.
    fn message_rules(&self, profile_id: Option<&str>) -> MessageRules;
    /// The profile that this names, or the default one; none where that is not known.
    fn profile(&self, profile_id: Option<&str>) -> Option<Arc<str>> {
        profile_id.map(Arc::from)
    }
    /// The most that a model may write to this request, and what its tokens cost at most; asked where a budget limits them.
    fn call_bound(&self, _request: &ModelRequest, _chosen: &ModelChoice) -> CallBound {
        CallBound::default()
    }
    /// Tokens of the definitions of these tools, as a workflow counts them.
    fn tool_tokens(&self, graph: &Graph, tools: &[Arc<str>]) -> u64;
    /// A run that is rebuilt is told something.
    fn next_step(&mut self) {}
    /// A run that is rebuilt has recorded this of the step that follows: it is asked for again.
    fn expect(&mut self, _recorded: &[Setting]) {}
    /// Evaluates texts of a node; `None` where that may take long: it is an effect then.
    fn evaluate(
        &mut self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome>;
    /// Calls a registered function for the node that this thread is at, where that is done in place.
    fn call(&mut self, function: &str, input: &Output, thread: &ThreadMachine) -> Called;
    /// An input is delivered to a thread.
    fn delivered(&mut self, _thread: ThreadNo, _input: &Input) {}
    /// Something that is no input of a thread decides what it does later.
    fn noted(&mut self, _thread: ThreadNo, _what: std::fmt::Arguments<'_>) {}
    /// Something that all threads of the run see has a new value.
    fn shared(&mut self, _name: std::fmt::Arguments<'_>, _value: &Value) {}
}
