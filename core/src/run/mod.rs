//! A whole run as one state machine: threads, forks, conversations, firings and termination, without actors or I/O.
//!
//! [`RunMachine`] receives a [`Message`] with [`RunMachine::tell`], processes queued messages one by one with [`RunMachine::step`],
//! and returns [`Effect`]s for the host to perform. Messages between its actors use its internal queue. The machine can be
//! serialized, and rebuilt by sending it all external messages again in their order:
//!
//! ```no_run
//! # use pirn_core::run::{Effect, Message, RunMachine, RunEnvironment};
//! fn hear(run: &mut RunMachine, now: u64, message: Message, env: &mut dyn RunEnvironment) -> Vec<Effect> {
//!     let mut effects = Vec::new();
//!     run.tell(message);
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
mod branches;
mod budget;
mod compression;
mod control;
mod conversation;
mod doubt;
mod effect;
mod entry;
mod environment;
mod events;
mod firing;
mod firing_record;
mod forks;
mod globals;
mod graphs;
mod large_results;
mod last_request;
mod ledger;
mod machine;
mod mailbox;
mod memory;
mod message;
mod message_intake;
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
mod start;
mod step;
mod summaries;
mod termination;
mod thread;
mod thread_list;
mod tree;
mod trigger_calls;
mod trigger_decisions;
mod trigger_progress;
mod triggered;
mod typed;
mod usage;
mod user_messages;
mod waiting;
mod workflow_tools;

pub use answer::{AnswerRefused, Fits};
pub use doubt::{DoubtKind, DoubtReport, RepeatReport, Resolution, UnresolvedEffect, effect_key, trigger_key};
pub use effect::{DetachedStart, Effect, Emitted};
pub use environment::{CallResult, RunEnvironment};
pub use firing::Firing;
pub use firing_record::FiringRecord;
pub use last_request::LastRequest;
pub use ledger::CallMaximum;
pub use machine::{RunMachine, RunSeed};
pub use memory::DEFAULT_RUN_BYTES;
pub use message::{
    Assigned, Assignment, Change, Control, ConversationSource, FinalThreadState, FollowUp, ForkSnapshot, Merge,
    Message, Request, ThreadRequest, ThreadResult, Timer, ToConversation, ToSupervisor, ToThread, TriggerContext,
};
pub use messages::Messages;
pub use open_effects::OpenEffects;
pub use outbox::Outbox;
pub use panics::{Panic, Panicked};
pub use quiescence::MAX_QUIESCE_ROUNDS;
pub use record::{Diverged, EventInterest, JournaledInput, ReplayStep, RunStart, RunStartRecord};
pub use report::{
    BudgetFigure, BudgetReport, ConversationReport, FiringOutcome, FiringReport, NodeReport, NodeUsage, PathUsage,
    RunReport, RunStatus, ThreadReport, TokenReport, UsageReport,
};
pub use scheduled::scheduled;
pub use session::{SessionLeft, SessionSeed, SessionState, StoredConversation};
pub use settings::{Setting, Settings};
pub use summaries::{SummaryRules, SummaryWarning};
pub use thread::EffectBuffers;
pub use thread_list::ThreadList;
pub use tree::Origin;
pub use trigger_calls::{CallNo, CallTarget, TriggerCall};
pub use trigger_decisions::{TriggerDecision, TriggerDecisions};
pub use trigger_progress::{Matching, TriggerProgress};
pub use triggered::{detached, event_fields};
pub use typed::OutputError;
pub use user_messages::{MAX_MESSAGE_ID, MAX_WAITING_BYTES, MAX_WAITING_MESSAGES, MessageRefused, UserMessage};
pub use waiting::{PendingWaits, WaitReason};

/// Number of a thread in its run; 0 is the main thread.
pub type ThreadNo = u32;

/// Number of a fork instance in its run.
pub type ForkNo = u32;
