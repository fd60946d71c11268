//! Data of a run: messages and effects, the state of its threads, settings, and the parts of its report.
//!
//! The files import each other without cycles. Of the other files of the run they import only those of its queues and tables, such as
//! `graphs.rs` and `tree.rs`.
//!
//! Not here: functions that change a run. They are methods of [`RunMachine`](super::RunMachine) in the files of the folder above.

pub(super) mod branches;
pub(super) mod doubt;
pub(super) mod effect;
pub(super) mod last_request;
pub(super) mod message;
pub(super) mod messages;
pub(super) mod report;
pub(super) mod session;
pub(super) mod summaries;
pub(super) mod thread_list;
pub(super) mod thread_state;
pub(super) mod trigger;
pub(super) mod user_messages;
