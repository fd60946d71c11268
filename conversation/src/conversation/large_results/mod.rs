//! Large tool results (artifacts): previews in the conversation, and built-in tools with which a model reads the rest.
//!
//! 1. A result above the token limit is stored once, under a hash of its content. Its message shows a preview with the id.
//! 2. A preview is smaller than the result. Unchanged are: results for which no preview is smaller, results with images or files,
//!    and
//!    results too large to store.
//! 3. A reply about a stored result is within the limit, so that it is never stored again.
//! 4. Equal results in equal order have equal ids.
//!
//! Not here: the limits of a provider on the size of a request.

mod excerpt;
mod page;
mod preview;
mod recall;
mod stored_results;

pub use page::read_artifact;
pub use preview::{ShownResult, artifact_of, shown_result};
pub use recall::{no_longer_shown, recall};
pub use stored_results::{DEFAULT_KEPT_BYTES, DroppedResult, LargeResults};

/// Default token limit of a reply, if the workflow has no limit for results.
pub const DEFAULT_PAGE_TOKENS: u64 = 2_000;
