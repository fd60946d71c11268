//! The face of Pirn: load workflows, run them, watch them.
#![doc = include_str!("../README.md")]

pub mod config;
mod engine;
pub mod explore;
pub mod faults;
pub mod models;
pub mod profiles;
pub mod scene;
pub mod script;
pub mod simulate;
pub mod tokens;
pub mod tools;

pub use engine::{
    BlockingEvents, BuildError, Compression, Engine, EngineBuilder, EventFilter, Events, FiringOutcome, FiringReport,
    Heard, History, NodeReport, NotLocalContext, RunBuilder, RunHandle, RunReport, RunStatus, ShutdownReport,
    ThreadList, ThreadReport,
};
pub use explore::explore;
pub use pirn_actors::ports::{Input, Model, ModelCall, Tool, ToolSpec};
pub use pirn_core::conversation::Tokenizer;
pub use pirn_core::definition::{Fault, Pinned, Profile, TriggerDefinition};
pub use pirn_core::error::{ErrorFacts, RunError, RunErrorCode};
pub use pirn_core::event::{Event, EventData, EventType};
pub use pirn_core::message::{Message, Role, ToolCall};
pub use pirn_core::status::ThreadStatus;
pub use pirn_core::thread::ModelReply;
pub use simulate::simulate;

#[cfg(doctest)]
#[doc = include_str!("../docs/embedding.md")]
struct Embedding;
