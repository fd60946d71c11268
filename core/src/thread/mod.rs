//! State machine of one thread.
//!
//! [`ThreadMachine::step`] processes an [`Input`] and appends [`Effect`]s. Each node type has a file in `nodes/` and a row in
//! `nodes/mod.rs`.
//!
//! Not here: decisions that need two threads ([`crate::run`], [`crate::join`]), and the content of conversations.

mod effect;
mod entries;
mod evaluate;
mod history;
mod id;
mod items;
mod loops;
mod machine;
mod nodes;
mod retry;
mod safe_point;
mod script_state;
mod seed;
mod spec;
mod state;
mod step;
mod usage;

pub use effect::{
    AnsweredRequest, Callee, CancelReason, ConsentRequest, ContextChange, ContinuedRequest, ConversationOp, Effect,
    EffectId, Environment, Evaluation, FiringId, Input, Joined, LoggedOutcome, ModelChoice, ModelReply, OfferedTools,
    Outcome, PendingReduction, PersonsAnswer, RequestWithEvents, ScriptLogs, SummaryRequest, ThreadEnd, TimerPurpose,
    ToolChoice, ToolResult, TriggeredResult, When, WrittenSummary,
};
pub use evaluate::{ThreadScope, evaluate, written};
pub use id::ThreadId;
pub(crate) use items::item_names;
pub use machine::{NodeRecord, NodeStatus, ThreadKind, ThreadMachine, run_variables, thread_variables};
pub use nodes::consent::{ClientCall, ConsentAnswer, ToolConsent};
pub use nodes::question::Interaction;
pub(crate) use nodes::script::called_workflows;
pub use pirn_definition::value::Output;
pub use safe_point::variable_fields;
pub use script_state::{CallKind, CallLimits, ScriptInstance, ScriptState, SeenBudget, TokenFigures};
pub use seed::{BranchSeed, Snapshot, ThreadSeed};
pub use state::{Outputs, Variable, Variables, coerce};
pub use usage::UsageByNode;
