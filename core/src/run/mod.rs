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
//! Not here: the behaviour of a single thread ([`crate::thread`]), the result of a fork ([`crate::join`]), and I/O.

mod amount;
mod answer;
mod budget;
mod compression;
mod control;
mod conversation;
mod data;
mod entry;
mod environment;
mod events;
mod firing;
mod forks;
mod globals;
mod graphs;
mod large_results;
mod ledger;
mod machine;
mod mailbox;
mod memory;
mod memory_check;
mod message_intake;
mod named_events;
mod open_effects;
mod outbox;
mod outcome;
mod panics;
mod quiescence;
mod record;
mod scheduled;
mod session;
mod settings;
mod slots;
mod start;
mod state;
mod step;
mod termination;
mod thread;
mod tree;
mod trigger_calls;
mod trigger_decisions;
mod trigger_progress;
mod triggered;
mod typed;
mod usage;
mod waiting;
mod workflow_tools;

pub use answer::{AnswerRefused, Fits};
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
pub use ledger::CallMaximum;
pub use memory::DEFAULT_RUN_BYTES;
pub use open_effects::OpenEffects;
pub use outbox::Outbox;
pub use quiescence::MAX_QUIESCE_ROUNDS;
pub use record::{Diverged, JournaledInput, ReplayStep, RunStart, RunStartRecord};
pub use scheduled::scheduled;
pub use settings::Settings;
pub use state::{RunMachine, RunSeed};
pub use tree::Origin;
pub use trigger_decisions::{TriggerDecision, TriggerDecisions};
pub use trigger_progress::{Matching, TriggerProgress};
pub use triggered::{detached, event_fields};
pub use typed::OutputError;
pub use waiting::{PendingWaits, WaitReason};

/// Number of a thread in its run; 0 is the main thread.
pub type ThreadNo = u32;

/// Number of a fork instance in its run.
pub type ForkNo = u32;
