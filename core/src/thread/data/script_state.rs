//! Recorded inputs of a script, which determine its next step.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use imbl::Vector;
use pirn_definition::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Recorded inputs of a script at a step. A copy takes constant time: copies share the recorded lists.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScriptState {
    /// Arguments of the script.
    pub args: Option<Arc<Value>>,
    /// Seed of the script's random numbers.
    pub seed: u64,
    /// Kind and digest of every call so far.
    pub known: Vector<(CallKind, Arc<str>)>,
    /// Results in the order of their arrival.
    pub results: Vector<Arc<Value>>,
    /// Number of log lines so far.
    pub notes: u64,
    /// Token figures that the script has seen in earlier steps.
    pub budget: Option<SeenBudget>,
    /// Number of results from which on the script is in this step: 0 in the first step, else one more than the number of results
    /// that the last step received.
    pub from: usize,
    /// Names of the tools that the script may call, without those that match a pattern.
    pub tools: Vec<String>,
    /// Limits that the script can read.
    pub limits: CallLimits,
    /// Time of the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Millis>,
    /// Token figures of this step, if a limit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenFigures>,
    /// Identity of the script in this process.
    #[serde(skip)]
    pub instance: ScriptInstance,
}

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallKind {
    /// Starts an agent.
    Agent,
    /// Starts a registered workflow.
    Workflow,
    /// Calls a tool.
    Tool,
    /// Question to a person.
    Ask,
    /// Waits for a time.
    Sleep,
    /// Waits for an event.
    Event,
    /// Cancels other calls. It has no result.
    Cancel,
}

/// Token figures passed to the script: a later evaluation receives equal figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeenBudget {
    /// Limit at the first step.
    pub total: u64,
    /// Tokens used when a number of results was delivered, ascending.
    pub spent: Vector<(usize, u64)>,
}

/// Limits on the calls of a script.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CallLimits {
    /// Maximum number of calls.
    pub calls: u32,
    /// Maximum number of agents and workflows.
    pub agents: u32,
}

/// Limit and use of tokens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TokenFigures {
    /// Maximum number of tokens.
    pub total: u64,
    /// Number of tokens used.
    pub spent: u64,
}

/// Identity of a script in this process. Copies of a state have one identity; a state that was rebuilt from recorded inputs has
/// another.
///
/// The layer that evaluates scripts attaches a value, which is dropped with the last copy. No decision depends on it.
#[derive(Clone, Default)]
pub struct ScriptInstance(Arc<OnceLock<Box<dyn Any + Send + Sync>>>);

impl ScriptInstance {
    /// Returns the attached value. The first call attaches the value of `make`.
    pub fn attached(&self, make: impl FnOnce() -> Box<dyn Any + Send + Sync>) -> &(dyn Any + Send + Sync) {
        &**self.0.get_or_init(make)
    }
}

impl fmt::Debug for ScriptInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptInstance").finish_non_exhaustive()
    }
}
