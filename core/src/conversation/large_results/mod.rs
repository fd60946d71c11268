//! Large tool results (artifacts): what a conversation shows in their place, and how a model reads them.
//!
//! 1. A result of more than the limit is kept once, by the hash of what it says; its message shows a preview with the id.
//! 2. A preview is smaller than what it stands for. A result that no preview makes smaller, one with images or files, and one
//!    that is too large to be kept stay as they are.
//! 3. An answer about a kept result is at most the limit: it is never kept itself.
//! 4. The same results in the same order have the same ids.

mod excerpt;
mod kept;
mod page;
mod preview;
mod recall;

pub use kept::{DEFAULT_KEPT_BYTES, DroppedResult, LargeResults};
pub use page::read_artifact;
pub use preview::{ShownResult, artifact_of, shown_result};
pub use recall::{no_longer_shown, recall};

/// The tokens of an answer where the workflow has no limit on results.
pub const DEFAULT_PAGE_TOKENS: u64 = 2_000;

/// The least limit on results: a preview and a page need room for what they say beside the text.
pub const MIN_RESULT_TOKENS: u64 = 200;
