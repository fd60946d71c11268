//! State machine of one thread.
//!
//! [`ThreadMachine::step`] processes an [`Input`] and appends [`Effect`]s. Each node type has a file in `nodes/` and a row in
//! `nodes/mod.rs`.
//!
//! Order of the files, each of which imports only those before it: `data/`, `machine.rs` (the state of a thread), `context.rs` (what a
//! step reads and changes), `safe_point.rs`, `nodes/` and `step.rs` (the transitions).
//!
//! Not here: decisions that need two threads ([`crate::run`], [`crate::join`]), and the content of conversations.

mod context;
mod data;
mod evaluate;
mod items;
mod machine;
mod nodes;
mod retry;
mod safe_point;
mod spec;
mod step;

pub use data::effect::{
    AnsweredRequest, Callee, CancelReason, ConsentRequest, ContextChange, ContinuedRequest, ConversationOp, Effect,
    EffectId, Environment, Evaluation, FiringId, Input, Joined, LoggedOutcome, ModelChoice, ModelReply, OfferedTools,
    Outcome, PendingReduction, PersonsAnswer, RequestWithEvents, ScriptLogs, SummaryRequest, ThreadEnd, TimerPurpose,
    ToolChoice, ToolResult, TriggeredResult, When, WrittenSummary, started_run_id,
};
pub use data::id::ThreadId;
pub use data::question::{ClientCall, ConsentAnswer, Interaction, InvalidAnswer, ToolConsent};
pub use data::records::{NodeRecord, NodeStatus, ThreadKind};
pub use data::script_state::{CallKind, CallLimits, ScriptInstance, ScriptState, SeenBudget, TokenFigures};
pub use data::seed::{BranchSeed, Snapshot, ThreadSeed};
pub(crate) use data::state::type_of;
pub use data::state::{Outputs, Variable, Variables, coerce};
pub use data::usage::UsageByNode;
pub use evaluate::{ThreadScope, evaluate, written};
pub(crate) use items::item_names;
pub use machine::{ThreadMachine, run_variables, thread_variables};
pub(crate) use nodes::script::called_workflows;
pub use pirn_definition::value::Output;
pub use safe_point::variable_fields;
