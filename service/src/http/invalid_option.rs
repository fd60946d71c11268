//! Error of an option that the service does not accept.

/// An option of the service is invalid. The message states what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOption(String);

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
