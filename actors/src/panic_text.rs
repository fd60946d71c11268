//! The message of a panic.

use std::any::Any;

/// The text of a panic. A payload that is no text is leaked: its destructor is as little to be trusted as the
/// code that threw it.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).to_owned(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => {
                std::mem::forget(payload);
                "a panic without a text".to_owned()
            }
        },
    }
}
