//! The Studio: a page that shows runs and changes them through the public API.
//!
//! `mode` states what the page may do, `page` serves its three files. The handlers that the page calls are in `api`, like those of
//! any other client; nothing here knows runs.

mod mode;
#[cfg(feature = "studio")]
pub(crate) mod page;

pub use mode::StudioMode;
