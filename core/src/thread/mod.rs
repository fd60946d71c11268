//! State machine of one thread.
//!
//! [`ThreadMachine::step`] processes an [`Input`] and appends [`Effect`]s. Each node type has a file in `nodes/` and a row in
//! `nodes/mod.rs`.
//!
//! Not here: decisions that need two threads ([`crate::run`], [`crate::join`]), and the content of conversations.

mod effect;
mod evaluate;
mod history;
mod id;
mod items;
mod loops;
mod machine;
mod nodes;
mod retry;
mod safe_point;
mod seed;
mod spending;
mod state;
mod step;

pub use crate::value::Output;
pub use effect::{
    CancelReason, ConsentRequest, ContextChange, ConversationOp, Effect, EffectId, Environment, Evaluation, FiringId,
    Fold, GoesOn, Input, Joined, LoggedOutcome, ModelChoice, ModelReply, Outcome, PersonsAnswer, Prepared, ScriptLogs,
    ThreadEnd, TimerPurpose, ToolChoice, ToolResult, TriggeredResult,
};
pub use evaluate::{ThreadScope, evaluate, written};
pub use id::ThreadId;
pub(crate) use items::item_names;
pub use machine::{
    DEFAULT_MAX_STEPS, NodeRecord, NodeStatus, ThreadKind, ThreadMachine, run_variables, thread_variables,
};
pub use nodes::consent::{ConsentAnswer, ToolConsent};
pub use nodes::question::Interaction;
pub use safe_point::variable_fields;
pub use seed::{BranchSeed, Snapshot, ThreadSeed};
pub use spending::Spending;
pub use state::{Outputs, Variable, Variables, coerce};
