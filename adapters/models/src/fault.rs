//! Faults of a profile.

/// A fault of a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile `{profile}`, {pointer}: {message}")]
pub struct ProfileFault {
    /// The profile's id; empty if it has none.
    pub profile: String,
    /// JSON pointer into the profile, such as `/responses/2/match`.
    pub pointer: String,
    /// Description in one sentence, for display.
    pub message: String,
}

impl ProfileFault {
    /// Creates a fault of the profile `profile` at `pointer`.
    pub fn new(profile: impl Into<String>, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            profile: profile.into(),
            pointer: pointer.into(),
            message: message.into(),
        }
    }
}
