//! Help texts, pages and example files: each documented command works and prints what is shown.
//!
//! Not here: pages of the service, which are in `tests/service`.

mod deploy;
mod docs;
#[cfg(unix)]
mod examples_of_help;
mod help;
mod hints;
#[cfg(unix)]
mod picture;
mod skill;
