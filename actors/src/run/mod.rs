//! State of a run that its actors share: context, environment of its machine, settings, and runs rebuilt from a journal.
//!
//! Not here: actors, and the queue of a run, which is in `mailbox`; the machine, which is in `pirn-core`.

pub mod call_settings;
pub(crate) mod environment;
pub mod followed_run;
pub(crate) mod inline_services;
pub mod rebuilt_run;
pub(crate) mod run_context;
pub(crate) mod settings;
pub(crate) mod spans;
pub(crate) mod step_buffers;
pub(crate) mod turn;
