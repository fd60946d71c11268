//! Keys that encrypt a store file.

use std::fmt::{self, Debug, Display};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use crate::content::ContentHash;

/// Length of a key in bytes.
const LEN: usize = 32;

/// Maximum number of keys.
// Every opening compares them with those of the store; a rotation needs two.
const MAX_KEYS: usize = 16;

/// Keys of an encrypted store: the first one encrypts, all of them decrypt.
///
/// ```
/// use pirn_store::StoreKeys;
///
/// let keys: StoreKeys = "
///     ## the key of 2026, then the one of 2025, as 64 hexadecimal digits or base64
///     6f1c0a7d3be94825aa01c6d27e5f4b1890d3e2f7a4b5c6d70819fa2b3c4d5e6f
///     mJ3Vq7mQ2c1f0uYy8mJ5mT0n0g4cVwq9rj1s2d3f4g4=
/// ".parse()?;
/// assert_eq!(keys.ids().count(), 2);
/// # Ok::<(), pirn_store::InvalidKeys>(())
/// ```
#[derive(Clone)]
pub struct StoreKeys(Vec<StoreKey>);

/// A key with its id.
#[derive(Clone)]
pub(crate) struct StoreKey {
    pub(crate) id: KeyId,
    pub(crate) bytes: Zeroizing<[u8; LEN]>,
}

/// Name of a key, computed from the key: shown in errors and stored in front of every encrypted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub(crate) [u8; 4]);

impl Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reason why a text has no keys of a store. The message contains no part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKeys(String);

impl Display for InvalidKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidKeys {}

impl StoreKeys {
    /// Returns the ids of the keys, in their order.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.0.iter().map(|key| key.id)
    }

    pub(crate) fn keys(&self) -> &[StoreKey] {
        &self.0
    }
}

impl std::str::FromStr for StoreKeys {
    type Err = InvalidKeys;

    /// Parses keys that whitespace or commas separate. Text from `#` to the end of its line is a comment.
    fn from_str(text: &str) -> Result<Self, InvalidKeys> {
        let lines = text
            .lines()
            .map(|line| line.split_once('#').map_or(line, |(line, _)| line));
        let words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || c == ','));
        let mut keys: Vec<StoreKey> = Vec::new();
        for word in words.filter(|word| !word.is_empty()) {
            let number = keys.len() + 1;
            let bytes = key(word).ok_or_else(|| {
                InvalidKeys(format!(
                    "key {number} has {} characters: expected 64 hexadecimal digits, or 32 bytes as base64 (44 characters)",
                    word.chars().count()
                ))
            })?;
            let id = id_of(&bytes);
            if keys.iter().any(|key| key.id == id) {
                return Err(InvalidKeys(format!("key {number} is given twice (its id is {id})")));
            }
            if keys.len() == MAX_KEYS {
                return Err(InvalidKeys(format!("more than {MAX_KEYS} keys")));
            }
            keys.push(StoreKey { id, bytes });
        }
        if keys.is_empty() {
            return Err(InvalidKeys(
                "no key: expected 64 hexadecimal digits or base64".to_owned(),
            ));
        }
        Ok(Self(keys))
    }
}

/// Shows the ids only.
impl Debug for StoreKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.ids().map(|id| id.to_string()).collect();
        f.debug_tuple("StoreKeys").field(&ids).finish()
    }
}

fn key(word: &str) -> Option<Zeroizing<[u8; LEN]>> {
    if let Some(hex) = ContentHash::parse(word) {
        return Some(Zeroizing::new(*hex.as_bytes()));
    }
    let word = word.trim_end_matches('=');
    let mut decoded = STANDARD_NO_PAD
        .decode(word)
        .or_else(|_| URL_SAFE_NO_PAD.decode(word))
        .ok()?;
    let bytes = decoded.as_slice().try_into().ok().map(Zeroizing::new);
    decoded.zeroize();
    bytes
}

fn id_of(bytes: &[u8; LEN]) -> KeyId {
    let sum = Sha256::new_with_prefix(b"pirn store key\0")
        .chain_update(bytes)
        .finalize();
    KeyId([sum[0], sum[1], sum[2], sum[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_key_is_the_same_in_every_notation() {
        let ids = |text: &str| text.parse::<StoreKeys>().expect("is a key").ids().collect::<Vec<_>>();
        let unpadded = BASE64.trim_end_matches('=');
        assert_eq!(ids(HEX), ids(&HEX.to_uppercase()));
        assert_eq!(ids(HEX), ids(BASE64));
        assert_eq!(ids(HEX), ids(&format!("# one\n  {unpadded}  # its comment\n")));
        let other = "ff".repeat(32);
        assert_eq!(ids(&format!("{other},{HEX}"))[1], ids(HEX)[0]);
    }

    #[test]
    fn invalid_keys_are_refused_without_being_shown() {
        let many: Vec<String> = (0..=MAX_KEYS).map(|byte| format!("{byte:02x}").repeat(32)).collect();
        for (text, why) in [
            ("", "no key"),
            ("# only a comment", "no key"),
            (&HEX[1..], "key 1 has 63 characters"),
            ("secret words", "key 1 has 6 characters"),
            (&format!("{HEX} {BASE64}"), "key 2 is given twice"),
            (&format!("{HEX} {}", &BASE64[4..]), "key 2 has 40 characters"),
            (&many.join("\n"), "more than 16 keys"),
        ] {
            let error = text.parse::<StoreKeys>().map(drop).expect_err("is refused").to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("secret") && !error.contains(&HEX[..8]), "{error}");
        }
        let keys: StoreKeys = HEX.parse().expect("is a key");
        assert!(!format!("{keys:?}").contains(&HEX[..8]));
    }
}
