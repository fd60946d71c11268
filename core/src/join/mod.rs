//! Decisions about one fork: which paths run, when and how its JOIN is decided, and the result.
//!
//! [`ForkJoinMachine`] decides. [`join_output`], [`join_error`] and [`merge_variables`] turn its verdict into the parent's
//! output, error and variables. All of it is pure: the supervisor performs the effects.
//!
//! Not here: the cancellation of losers and the start of branches ([`crate::run`]).

mod items;
mod machine;
mod output;
mod path;
mod reduce;
mod rule;
mod variables;

pub use items::{item_reports, late_items_output};
pub use machine::{Effect, ForkJoinMachine, Input, Phase, Rejected};
pub use output::{JoinedPath, PathReport, join_error, join_output, path_reports, within_limits};
pub use path::{PathEnd, PathStatus};
pub use rule::{Conversation, Verdict};
pub use variables::{BranchVariables, MergedVariables, merge_variables};
