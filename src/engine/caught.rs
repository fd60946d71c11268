//! Panics in code of the embedding program.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the message of a panic, if it has one.
pub(super) fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text")
}

/// Calls code of the embedding program. A panic is logged, with `what` as the name of the call.
pub(super) fn survive<T>(what: &str, call: impl FnOnce() -> T) -> Option<T> {
    let called = catch_unwind(AssertUnwindSafe(call));
    called
        .map_err(|panic| tracing::error!(what, message = text_of_panic(&*panic), "a panic was contained"))
        .ok()
}
