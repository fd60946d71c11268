//! A runtime for workflows of LLM agents: loads workflows, executes their runs as actors, and reports events and results.
#![doc = include_str!("../README.md")]
// A code block of the README names the file that it shows; a test compares both.
#![allow(rustdoc::invalid_codeblock_attributes)]

pub mod cases;
pub mod chaos;
pub mod check;
pub mod config;
mod engine;
pub mod explore;
pub mod faults;
mod leaves;
pub mod profiles;
mod run_setup;
// For the tests of the workspace: its signatures have types of `pirn-actors`, which are not stable.
#[doc(hidden)]
pub mod scene;
pub mod simulate;
mod skills;
pub mod tools;
pub mod workflow;

pub use chaos::chaos;
pub use engine::durable::{
    CommandOutcome, Difference, DoubtAnswer, DoubtQuestion, EXPLAIN_LINES, FirstDifference, ForkBuilder, Migration,
    OutcomeDiff, PinnedBlock, PrefixComparison, PrefixReason, RecordError, RecordedRun, RequestContent, RequestPrefix,
    RequestSummary, RequestView, ResponseContent, ResumeBuilder, ResumeError, RunCommand, RunDiff, RunFollower,
    RunView, Step, StepKind, ThreadSpan,
};
pub use engine::{
    BlockingEvents, BuildError, CancelOnDrop, Compression, Engine, EngineBuilder, EventFilter, Events, FiringOutcome,
    FiringReport, Graphs, History, Journal, JournalFlush, MailboxDepths, NodeInfo, NodeReport, NotLocalContext,
    RunBuilder, RunHandle, RunJournal, RunReport, RunStatus, SessionState, ShutdownReport, SubscriptionItem,
    ThreadList, ThreadReport, TriggerRefused, WeakEngine, WorkflowInfo,
};
pub use explore::explore;
pub use pirn_actors::current_call::idempotency_key;
pub use pirn_actors::host::WorkClock;
pub use pirn_actors::ports::{
    CallContext, Input, Model, ModelCall, ModelSession, TokenSink, Tool, ToolContext, ToolSpec,
};
pub use pirn_conversation::conversation::{MarkMap, MessageRules, ModelRequest, TokenUsage, Tokenizer};
pub use pirn_conversation::model_call::{CacheCollapses, CacheReason, CacheReport, CacheUse, CallBound, FinishReason};
pub use pirn_core::run::{
    AnswerRefused, BudgetFigure, BudgetReport, ConversationReport, DoubtKind, DoubtReport, MessageRefused, OutputError,
    RepeatReport, Resolution, TokenReport, UserMessage,
};
pub use pirn_core::status::ThreadStatus;
pub use pirn_core::thread::{
    ClientCall, ConsentAnswer, Interaction, InvalidAnswer, ModelReply, NodeStatus, ThreadKind, ToolConsent, When,
};
pub use pirn_definition::definition::{
    Budget, CatchUp, ClientToolsError, CodeModeLimits, DynamicConfig, DynamicConsent, DynamicForm, DynamicLimits,
    ExecuteTriggeredSubgraph, Fault, FaultCode, InDoubt, Overlap, PinSection, Pinned, Profile, ScheduleDefinition,
    SourceFile, ToolDefinition, TriggerAction, TriggerCondition, TriggerDefinition, TriggerInput, WorkflowDefinition,
};
pub use pirn_definition::error::{ErrorFacts, RunError, RunErrorCode};
pub use pirn_definition::event_type::EventType;
pub use pirn_definition::message::{Message, Part, Role, ToolCall};
pub use pirn_definition::value::SchemaMismatch;
pub use pirn_events::event::{Event, EventData, EventFields};
pub use pirn_events::trigger::TriggerState;
/// Language models: providers, and the registry that finds the model of a profile.
pub use pirn_models as models;
pub use pirn_models::{formats, tokens};
/// Scripts: settings, worker processes, functions for CODE.
pub use pirn_script as script;
/// The store of durable runs.
pub use pirn_store as store;
/// The JSON library in the version that this crate's signatures use, for inputs, outputs and tool arguments.
pub use serde_json;
pub use simulate::simulate;
pub use skills::with_skills;
pub use workflow::workflow;

/// The programs in the pages under `docs/`, compiled and run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/first-program.md")]
    struct FirstProgram;
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../docs/durability.md")]
    struct Durability;
    #[doc = include_str!("../docs/simulation.md")]
    struct Simulation;
    #[doc = include_str!("../docs/explore.md")]
    struct Explore;
    #[doc = include_str!("../docs/guides/testing.md")]
    struct Testing;
    #[doc = include_str!("../docs/guides/long-conversations.md")]
    struct LongConversations;
    #[doc = include_str!("../docs/guides/langgraph.md")]
    struct Langgraph;
}
