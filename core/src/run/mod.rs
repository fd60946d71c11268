//! A whole run as one state machine: threads, forks, conversations, firings and termination, without actors or I/O.
//!
//! [`RunMachine`] receives a [`Message`] with [`RunMachine::tell`], processes queued messages one by one with [`RunMachine::step`],
//! and returns [`Effect`]s for the host to perform. Messages between its actors use its internal queue. The machine can be
//! serialized, and rebuilt by sending it all external messages again in their order:
//!
//! ```no_run
//! # use pirn_core::run::{Effect, Message, RunMachine, World};
//! fn hear(run: &mut RunMachine, now: u64, message: Message, world: &mut dyn World) -> Vec<Effect> {
//!     let mut effects = Vec::new();
//!     run.tell(message);
//!     while let Some(message) = run.next_message() {
//!         run.step(now, message, world, &mut effects);
//!     }
//!     effects
//! }
//! ```
//!
//! Not here: the behaviour of a single thread ([`crate::thread`]), the result of a fork ([`crate::join`]), and I/O.

mod acted;
mod amount;
mod answer;
mod branches;
mod budget;
mod compression;
mod control;
mod conversation;
mod decided;
mod doubt;
mod effect;
mod ended;
mod entry;
mod events;
mod fired;
mod firing;
mod forks;
mod globals;
mod graphs;
mod large_results;
mod last_asked;
mod ledger;
mod machine;
mod mailbox;
mod memory;
mod message;
mod messages;
mod open_effects;
mod outbox;
mod outcome;
mod panics;
mod quiescence;
mod record;
mod report;
mod scheduled;
mod session;
mod settings;
mod slots;
mod spending;
mod start;
mod step;
mod thread;
mod thread_list;
mod tree;
mod trigger_calls;
mod triggered;
mod typed;
mod waiting;
mod world;

pub use acted::{Matching, TriggersActed};
pub use answer::{AnswerRefused, Fits};
pub use decided::{TriggerDecision, TriggersDecide};
pub use doubt::{Doubt, DoubtKind, DoubtReport, RepeatReport, Resolution, effect_key, trigger_key};
pub use effect::{DetachedStart, Effect, Emitted};
pub use fired::Fired;
pub use firing::Firing;
pub use last_asked::LastAsked;
pub use ledger::CallMost;
pub use machine::{RunMachine, RunSeed};
pub use memory::DEFAULT_RUN_BYTES;
pub use message::{
    Artifacts, Assigned, Assignment, BranchStart, Change, Control, Ended, FollowUp, Forwarded, HandedConversation,
    Merge, Message, Prepared, Request, Timer, ToConversation, ToSupervisor, ToThread,
};
pub use messages::Messages;
pub use open_effects::OpenEffects;
pub use outbox::Outbox;
pub use panics::{Panic, Panicked};
pub use quiescence::MAX_QUIESCE_ROUNDS;
pub use record::{Begun, BegunRecord, Diverged, Listening, Replayed, Told};
pub use report::{
    BudgetFigure, BudgetReport, ConversationReport, FiringOutcome, FiringReport, NodeReport, NodeUsage, PathUsage,
    RunReport, RunStatus, ThreadReport, TokenReport, UsageReport,
};
pub use scheduled::scheduled;
pub use session::{SessionLeft, SessionSeed, SessionState, StoredConversation};
pub use settings::{Setting, Settings};
pub use thread::EffectBuffers;
pub use thread_list::ThreadList;
pub use tree::Origin;
pub use trigger_calls::{CallNo, CallTarget, TriggerCall};
pub use triggered::{detached, event_fields};
pub use typed::OutputError;
pub use waiting::{Awaited, OpenWaits};
pub use world::{Called, World};

/// Number of a thread in its run; 0 is the main thread.
pub type ThreadNo = u32;

/// Number of a fork instance in its run.
pub type ForkNo = u32;
