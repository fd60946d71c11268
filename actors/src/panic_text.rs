//! The message of a panic.

use std::any::Any;

/// Returns the text of a panic. A payload of another type is leaked, because its destructor may panic too.
pub fn panic_message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).to_owned(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => {
                std::mem::forget(payload);
                "a panic without a message".to_owned()
            }
        },
    }
}
