//! Runs as tests: a [`Case`] repeats a recorded run under virtual time and compares the outcome.
//!
//! A case contains the inputs of a run: the replies of its models by a digest of the request, the results of its tools by the
//! arguments, the answers of people, its session, and messages, events and other inputs with their positions. It needs no provider, no tool and no person. If the workflow has changed, a request that the
//! recording does not know is reported with the nearest recorded request.
//!
//! ```
//! use futures::executor::block_on;
//! use pirn::{Engine, cases::Case, store::MemoryStore};
//! let ask = r#"{"id": "ask", "nodes": [{"id": "s", "type": "START"},
//!     {"id": "llm", "type": "LLM", "config": {"prompt": "hello {{input}}"}}, {"id": "e", "type": "END"}],
//!   "edges": [{"from": "s", "to": "llm"}, {"from": "llm", "to": "e"}]}"#;
//! let engine = Engine::builder().workflows(ask).store(MemoryStore::new()).virtual_time(None).build()?;
//! let run = engine.start("ask", "Ada")?;
//! engine.wait_idle();
//! let case = block_on(Case::record(&engine, run.run_id()))?;
//!
//! assert!(case.run(Engine::builder())?.failures.is_empty());
//! let changed = Case { definition: None, ..case };
//! let tested = changed.run(Engine::builder().workflows(ask.replace("hello", "goodbye")))?;
//! assert!(tested.failures[0].message.contains("goodbye Ada"), "{:?}", tested.failures);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contents: `case.rs` the file format and a run of it, `recorded.rs` the models and tools that reply from a recording,
//! `inputs.rs` the delivery of inputs from outside, `graders.rs`
//! the comparison of an outcome, `varying.rs` times and ids that the comparison ignores, `differences.rs` texts about two values. The recording itself is in `engine/durable/inspect/recording.rs`.

mod case;
pub(crate) mod differences;
mod graders;
mod inputs;
mod recorded;
mod varying;

pub use case::{Case, CaseError, CaseFile, FORMAT_VERSION, Tested};
pub use graders::{GradeError, GradeErrorCause, GradeFailure, Grader};

pub use crate::engine::durable::{
    EventPosition, OutsideInput, OutsideInputKind, RecordError, RecordedAnswer, RecordedRequest, RecordedRun,
    RecordedSession, RecordedSessionState, RecordedToolCall, Recording, RequestKey, SentMessage,
};
