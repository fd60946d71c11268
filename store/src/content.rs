//! Content-addressed texts, each stored once: definitions, inputs, chunks of conversations.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; Self::LEN]);

impl ContentHash {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// Hashes `text`.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns the bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Creates a hash from the bytes returned by [`ContentHash::as_bytes`].
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::LEN {
            return None;
        }
        let mut bytes = [0; Self::LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            // At most 255, because both digits are below 16.
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Some(Self(bytes))
    }
}

impl Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// Text with its hash, and the preceding content if it is part of a chain. A preceding content is stored until its last follower
/// is removed.
///
/// Data that grows, such as the conversation of a session, is stored as a chain of contents: each part is written once, and a
/// reference to the last part retains the whole chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    hash: ContentHash,
    text: Arc<str>,
    follows: Option<ContentHash>,
}

impl Content {
    /// Hashes `text`.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self {
            hash: ContentHash::of(&text),
            text,
            follows: None,
        }
    }

    /// Makes the content follow another one. The text should depend on that one too: equal texts are one content, which follows
    /// the content that was given with its first write.
    #[must_use]
    pub fn following(mut self, content: Option<ContentHash>) -> Self {
        self.follows = content;
        self
    }

    /// Returns the hash of the preceding content.
    pub fn follows(&self) -> Option<ContentHash> {
        self.follows
    }

    /// Returns the hash of the text.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    /// Returns the text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
}
