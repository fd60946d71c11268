//! Runs a workflow under random faults, and compares each outcome with that of a run without faults.
//!
//! A seed determines the faults of a run: errors of providers, late and truncated replies, tools that fail or hang, kills of the
//! process at commits, and downtime after which the wall clock has jumped. [`chaos`] runs one seed after the other under virtual time.
//! For a run with another outcome it searches the kinds of faults that are needed for it, and reports them.
//!
//! ```
//! use pirn::{Engine, chaos};
//! let ask = r#"{"id": "ask", "nodes": [{"id": "s", "type": "START"},
//!     {"id": "llm", "type": "LLM", "config": {"prompt": "hello"}}, {"id": "e", "type": "END"}],
//!   "edges": [{"from": "s", "to": "llm"}, {"from": "llm", "to": "e"}]}"#;
//! let tried = chaos(move || Engine::builder().workflows(ask)).seeds(0..20).run()?;
//! // The node has no retry: an error of the provider fails the run.
//! assert!(tried.different > 0, "{tried}");
//! # Ok::<(), pirn::simulate::SimulateError>(())
//! ```
//!
//! Contents: `trial.rs` the seeds and the comparison, `process.rs` the execution of a run with kills, `killed_store.rs` a store that fails
//! like one of a killed process, `plan.rs` the faults of a seed.

mod killed_store;
mod plan;
mod process;
mod trial;

pub use plan::{FaultKind, InjectedFault};
pub use trial::{Chaos, ChaosOutcome, ChaosTrial, DEFAULT_SEEDS, DifferentRun, Progress, chaos};
