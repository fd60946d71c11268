//! A whole run as one state machine: threads, forks, conversations, firings and termination, without actors or I/O.
//!
//! [`RunMachine`] receives a [`Message`] with [`RunMachine::receive`], processes queued messages one by one with [`RunMachine::step`],
//! and returns [`Effect`]s for the host to perform. Messages between its actors use its internal queue. The machine can be
//! serialized, and rebuilt by sending it all external messages again in their order:
//!
//! ```no_run
//! # use pirn_core::run::{Effect, Message, RunMachine, RunEnvironment};
//! fn process(run: &mut RunMachine, now: u64, message: Message, env: &mut dyn RunEnvironment) -> Vec<Effect> {
//!     let mut effects = Vec::new();
//!     run.receive(message);
//!     while let Some(message) = run.next_message() {
//!         run.step(now, message, env, &mut effects);
//!     }
//!     effects
//! }
//! ```
//!
//! Folders: `data/` (messages, effects, state of threads), `parts/` (queue, tree, budget and other parts of the state), `turns/` and
//! `steps/` (functions that `machine.rs` calls), `triggers/` and `replay/`.
//!
//! Not here: the behaviour of a single thread ([`crate::thread`]), the result of a fork ([`crate::join`]), and I/O.

mod answer;
mod data;
mod entry;
mod environment;
mod machine;
mod parts;
mod replay;
mod settings;
mod state;
mod step;
mod steps;
mod triggers;
mod turns;
mod typed;

pub use answer::{AnswerRefused, Fits, check_answer};
pub use data::doubt::{DoubtKind, DoubtReport, RepeatReport, Resolution, UnresolvedEffect, effect_key, trigger_key};
pub use data::effect::{DetachedStart, Effect, Emitted};
pub use data::last_request::LastRequest;
pub use data::message::{
    Assigned, Assignment, Change, Control, ConversationSource, FinalThreadState, FiringRecord, FollowUp, ForkSnapshot,
    Merge, Message, Panic, Panicked, Request, ThreadRequest, ThreadResult, Timer, ToConversation, ToSupervisor,
    ToThread, TriggerContext,
};
pub use data::messages::Messages;
pub use data::report::{
    BudgetFigure, BudgetReport, ConversationReport, FiringOutcome, FiringReport, NodeReport, NodeUsage, PathUsage,
    RunReport, RunStatus, TokenReport, UsageReport,
};
pub use data::session::{SessionLeft, SessionSeed, SessionState, StoredConversation};
pub use data::summaries::{SummaryRules, SummaryWarning};
pub use data::thread_list::{ThreadList, ThreadReport};
pub use data::thread_state::EffectBuffers;
pub use data::trigger::{CallNo, CallTarget, Firing, TriggerCall};
pub use data::user_messages::{MAX_MESSAGE_ID, MAX_WAITING_BYTES, MAX_WAITING_MESSAGES, MessageRefused, UserMessage};
pub use environment::{CallResult, EventInterest, RunEnvironment, Setting};
pub use parts::ledger::CallMaximum;
pub use parts::memory::DEFAULT_RUN_BYTES;
pub use parts::quiescence::MAX_QUIESCE_ROUNDS;
pub use parts::tree::Origin;
pub use replay::open_effects::OpenEffects;
pub use replay::outbox::Outbox;
pub use replay::record::{Diverged, JournaledInput, Replay, ReplayStep, RunStart, RunStartRecord};
pub use replay::scheduled::scheduled;
pub use replay::trigger_decisions::{TriggerDecision, TriggerDecisions};
pub use replay::trigger_progress::{Matching, TriggerProgress};
pub use replay::waiting::{PendingWaits, WaitReason};
pub use settings::Settings;
pub use state::{ForkGap, RunMachine, RunSeed};
pub use triggers::triggered::{detached, event_fields};
pub use typed::OutputError;

/// Number of a thread in its run; 0 is the main thread.
pub type ThreadNo = u32;

/// Number of a fork instance in its run.
pub type ForkNo = u32;
