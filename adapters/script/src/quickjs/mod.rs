//! JavaScript in QuickJS: realms, their limits, and the exchange of values with them.
//!
//! Not here: the scope and the meaning of a snippet, which are in `expressions` and `code`.

mod convert;
mod host;
mod interrupt;
mod label;
mod library;
pub(crate) mod live_script;
pub(crate) mod parser;
pub(crate) mod realm;
pub(crate) mod realm_options;
pub(crate) mod reserve;
