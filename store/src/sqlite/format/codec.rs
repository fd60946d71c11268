//! Binary encoding of numbers and texts, with a checksum: the format of all rows.

use std::fmt::{self, Display};

use crc32fast::Hasher;

/// Reason why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Short,
    Checksum,
    Version(u8),
    Text,
    Value,
    Long,
    /// Not encrypted, in an encrypted store.
    Plain,
    /// Encrypted with a key that was not given.
    Key,
    /// Changed or moved after its encryption.
    Forged,
}

impl Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("cut short"),
            Self::Checksum => f.write_str("the checksum does not match"),
            Self::Version(version) => write!(f, "written in format {version}, which this version does not support"),
            Self::Text => f.write_str("not UTF-8"),
            Self::Value => f.write_str("a value that has no meaning"),
            Self::Long => f.write_str("bytes after its end"),
            Self::Plain => f.write_str("not encrypted, unlike the store"),
            Self::Key => f.write_str("encrypted with a key that was not given"),
            Self::Forged => f.write_str("changed or moved after its encryption"),
        }
    }
}

/// Computes the checksum of the concatenated parts.
pub(crate) fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Appends values to a buffer.
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Appends a variable-length number: seven bits a byte, the lowest first.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    /// Appends an optional text: 0 for none, otherwise its length plus one, and the text.
    pub(crate) fn optional_text(&mut self, text: Option<&str>) {
        match text {
            // An empty text is 1, so that none and empty are different.
            None => self.number(0),
            Some(text) => {
                self.number(text.len() as u64 + 1);
                self.bytes(text.as_bytes());
            }
        }
    }

    /// Appends the checksum of `seed` and the bytes. Returns the bytes and the checksum.
    pub(crate) fn seal(mut self, seed: &[u8]) -> (Vec<u8>, u32) {
        // The seed is not stored. It ties the bytes to their row, so that bytes under a wrong key are detected.
        let sum = checksum(&[seed, &self.0]);
        self.0.extend_from_slice(&sum.to_le_bytes());
        (self.0, sum)
    }
}

/// Reads values from a buffer.
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Verifies the checksum and returns it with the decoder.
    pub(crate) fn open(sealed: &'a [u8], seed: &[u8]) -> Result<(Self, u32), Malformed> {
        let (bytes, sum) = sealed.split_last_chunk().ok_or(Malformed::Short)?;
        let sum = u32::from_le_bytes(*sum);
        if checksum(&[seed, bytes]) == sum {
            Ok((Self(bytes), sum))
        } else {
            Err(Malformed::Checksum)
        }
    }

    pub(crate) fn version(&mut self, known: u8) -> Result<(), Malformed> {
        match self.byte()? {
            version if version == known => Ok(()),
            other => Err(Malformed::Version(other)),
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The last byte of ten has room for one bit only. More bits are damage and must not be dropped silently.
            if (bits << shift) >> shift != bits {
                return Err(Malformed::Value);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Value)
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed::Short)?;
        // A damaged length must not panic, nor allocate before it is compared with the buffer.
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let len = self.number()?;
        self.text_of(len)
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, Malformed> {
        match self.number()? {
            0 => Ok(None),
            len => self.text_of(len - 1).map(Some),
        }
    }

    fn text_of(&mut self, len: u64) -> Result<String, Malformed> {
        let bytes = self.bytes(len)?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| Malformed::Text)
    }

    /// Fails if bytes remain.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Long)
        }
    }
}
