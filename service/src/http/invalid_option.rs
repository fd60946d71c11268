//! Error of an option that the service does not accept.

use std::fmt;

/// An option of the service is invalid. The message states what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOption(String);

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidOption {}

impl From<String> for InvalidOption {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for InvalidOption {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}
