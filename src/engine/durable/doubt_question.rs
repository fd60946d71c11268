//! Questions about effects in doubt, and their answers.

use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_core::run::DoubtKind;
use serde_json::Value;

/// An effect in doubt that a person must decide.
#[derive(Clone, Debug, PartialEq)]
pub struct DoubtQuestion {
    /// The run.
    pub run_id: Arc<str>,
    /// The effect's idempotency key.
    pub effect_id: String,
    /// The node.
    pub node_id: Arc<str>,
    /// Kind of the effect.
    pub kind: DoubtKind,
    /// The request: the tool's name and arguments, the function's input; null for a model.
    pub asked: Value,
}

/// A person's decision on an effect in doubt.
#[derive(Clone, Debug, PartialEq)]
pub enum DoubtAnswer {
    /// Repeat the effect: it was not performed, or repeating it is harmless.
    Repeat,
    /// The effect was performed, with this result.
    Done(Value),
    /// Treat the effect as failed.
    Fail,
}

/// Function that asks a person about an effect in doubt.
pub(crate) type AskDoubt = Arc<dyn Fn(DoubtQuestion) -> BoxFuture<'static, DoubtAnswer> + Send + Sync>;
