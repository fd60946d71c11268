//! Texts that are kept once, by the hash of what they say: definitions, inputs, chunks of conversations.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; Self::LEN]);

impl ContentHash {
    /// Its length in bytes.
    pub const LEN: usize = 32;

    /// The hash of `text`.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// As kept.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// From the bytes that [`ContentHash::as_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// From 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::LEN {
            return None;
        }
        let mut bytes = [0; Self::LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
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

/// A text with its hash, and the content that it follows: that one is kept for as long as this one is.
///
/// So what grows without end, such as the conversation of a session, is a chain of contents: each part is written once, and
/// whoever needs the whole names the last part alone.
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

    /// The same text, which follows another content. The text should say so too: contents with the same text are one, and what it
    /// follows is what the first of them did.
    #[must_use]
    pub fn following(mut self, content: Option<ContentHash>) -> Self {
        self.follows = content;
        self
    }

    /// The content that it follows.
    pub fn follows(&self) -> Option<ContentHash> {
        self.follows
    }

    /// The name it is found by.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    /// The text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
}
