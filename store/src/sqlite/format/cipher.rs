//! Encryption of stored values.
//!
//! 1. The schema of an encrypted store is that of a plain one. Each `body` is an XChaCha20-Poly1305 ciphertext with a random nonce, behind
//!    the id of its key. The associated data are the store, the table and the row's key, so that a value in another place is refused.
//! 2. Names that users choose (of sessions, of `meta`) and the hashes of contents are replaced by a keyed hash. Its secret is random for
//!    each store and does not change with a rotation, so that a rotation changes no key of a row. The names are in the values.
//! 3. The table `encryption` has the secret, encrypted with every key that a value of the store uses, and an empty row while it
//!    has values that are not encrypted. So a missing key is detected when the store is opened.
//! 4. `rekey` encrypts all other values with the first key, in batches. Values name their key, so it can stop after any batch.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{AeadInOut, KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use rusqlite::Connection;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::codec::Malformed;
use crate::keys::{KeyId, StoreKeys};

/// First byte of an encrypted value. The encodings of plain ones start with their version.
const SEALED: u8 = 0xec;
const NONCE: usize = 24;
/// Length of the part before the ciphertext: the byte above, the id of the key, the nonce.
const HEAD: usize = 1 + 4 + NONCE;

/// Length of the tag behind the ciphertext.
const TAG: usize = 16;

/// Length of a keyed hash, and of its secret.
pub(in crate::sqlite) const NAME: usize = 32;
const SECRET: usize = 64;

/// Keys of the values, and rows without a value.
pub(in crate::sqlite) const ENCRYPTION: &str =
    "CREATE TABLE encryption(key BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;";

/// Associated data of the secret, which is independent of the store.
const OF_SECRET: &[u8] = b"pirn store secret";

/// Table of a value. The rows of `recent` belong to `journal`, to which they are moved unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum Of {
    Runs,
    Journal,
    Contents,
    Snapshots,
    Sessions,
    Meta,
}

impl Of {
    pub(in crate::sqlite) const ALL: [Self; 6] = [
        Self::Runs,
        Self::Journal,
        Self::Contents,
        Self::Snapshots,
        Self::Sessions,
        Self::Meta,
    ];

    pub(in crate::sqlite) fn table(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Journal => "journal",
            Self::Contents => "contents",
            Self::Snapshots => "snapshots",
            Self::Sessions => "sessions",
            Self::Meta => "meta",
        }
    }

    /// Returns the column with the row's key.
    pub(in crate::sqlite) fn key(self) -> &'static str {
        match self {
            Self::Runs | Self::Journal | Self::Sessions => "id",
            Self::Contents => "hash",
            Self::Snapshots => "run",
            Self::Meta => "name",
        }
    }
}

/// Keys of an open store.
pub(in crate::sqlite) struct Cipher {
    /// The first one encrypts.
    keys: Vec<(KeyId, XChaCha20Poly1305)>,
    secret: Zeroizing<[u8; SECRET]>,
    /// Identity of the store in associated data.
    store: [u8; NAME],
    /// The store has values that are not encrypted.
    pub(in crate::sqlite) is_mixed: bool,
}

/// Reason why a store cannot be opened with some keys.
#[derive(Debug)]
pub(in crate::sqlite) enum NoCipher {
    Key(String),
    Damaged(String),
    System(String),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for NoCipher {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Cipher {
    /// Creates the keys of a store that has no encrypted value yet.
    pub(in crate::sqlite) fn new(keys: &StoreKeys, is_mixed: bool) -> Result<Self, NoCipher> {
        let mut secret = Zeroizing::new([0; SECRET]);
        random(&mut secret[..]).map_err(NoCipher::System)?;
        Ok(Self::of(keys, secret, is_mixed))
    }

    /// Reads the keys of an encrypted store.
    pub(in crate::sqlite) fn read(sql: &Connection, keys: &StoreKeys) -> Result<Self, NoCipher> {
        let mut secret: Option<Zeroizing<[u8; SECRET]>> = None;
        let mut is_mixed = false;
        let mut select = sql.prepare("SELECT key, body FROM encryption")?;
        let mut found = select.query([])?;
        while let Some(row) = found.next()? {
            let (id, body): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
            if id.is_empty() {
                is_mixed = true;
                continue;
            }
            let damaged = |why: &str| NoCipher::Damaged(format!("its table of keys: {why}"));
            let id = id
                .as_slice()
                .try_into()
                .map(KeyId)
                .map_err(|_| damaged("a malformed id"))?;
            let Some(key) = keys.keys().iter().find(|key| key.id == id) else {
                let given: Vec<String> = keys.ids().map(|id| id.to_string()).collect();
                return Err(NoCipher::Key(format!(
                    "it has values of the key {id}, which is not among the given keys ({})",
                    given.join(", ")
                )));
            };
            let opened = open(&cipher(&key.bytes), OF_SECRET, &body).map_err(|_| damaged("the key does not match"))?;
            let opened = opened.as_slice().try_into().map(Zeroizing::new);
            let opened = opened.map_err(|_| damaged("a secret of another length"))?;
            if secret.as_ref().is_some_and(|secret| *secret != opened) {
                return Err(damaged("two secrets"));
            }
            secret = Some(opened);
        }
        match secret {
            Some(secret) => Ok(Self::of(keys, secret, is_mixed)),
            None => Err(NoCipher::Damaged("its table of keys is empty".to_owned())),
        }
    }

    fn of(keys: &StoreKeys, secret: Zeroizing<[u8; SECRET]>, is_mixed: bool) -> Self {
        let keys = keys.keys().iter().map(|key| (key.id, cipher(&key.bytes))).collect();
        let mut cipher = Self {
            keys,
            secret,
            store: [0; NAME],
            is_mixed,
        };
        cipher.store = cipher.hash(b"store", b"");
        cipher
    }

    /// Adds the first key to the table of keys, and a row for values that are not encrypted. Existing rows stay.
    pub(in crate::sqlite) fn write(&self, sql: &Connection) -> Result<(), NoCipher> {
        let mut insert = sql.prepare("INSERT OR IGNORE INTO encryption(key, body) VALUES(?1, ?2)")?;
        if let Some((id, key)) = self.keys.first() {
            let body = seal(*id, key, OF_SECRET, &self.secret[..]).map_err(NoCipher::System)?;
            insert.execute((&id.0[..], body))?;
        }
        if self.is_mixed {
            insert.execute((&[][..] as &[u8], &[][..] as &[u8]))?;
        }
        Ok(())
    }

    /// Returns true if the table of keys has no row of the first key.
    pub(in crate::sqlite) fn is_new_key(&self, sql: &Connection) -> rusqlite::Result<bool> {
        let id = self.first();
        let exists = sql
            .prepare("SELECT 1 FROM encryption WHERE key = ?1")?
            .exists([&id[..]])?;
        Ok(!exists)
    }

    /// Returns the id of the key that encrypts.
    pub(in crate::sqlite) fn first(&self) -> [u8; 4] {
        self.keys.first().map_or([0; 4], |(id, _)| id.0)
    }

    /// Returns true if a value is encrypted with the first key.
    pub(in crate::sqlite) fn is_current(&self, value: &[u8]) -> bool {
        value.first() == Some(&SEALED) && value.get(1..5) == Some(&self.first()[..])
    }

    /// Encrypts a value of the row with this key. The error is that of the system's random numbers.
    pub(in crate::sqlite) fn seal(&self, of: Of, row: &[u8], value: &[u8]) -> Result<Vec<u8>, String> {
        match self.keys.first() {
            Some((id, key)) => seal(*id, key, &self.place(of, row), value),
            None => Err("no key".to_owned()),
        }
    }

    /// Decrypts a value of the row with this key. Returns none for a value that is not encrypted and need not be.
    pub(in crate::sqlite) fn open(&self, of: Of, row: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        if value.first() != Some(&SEALED) {
            return if self.is_mixed { Ok(None) } else { Err(Malformed::Plain) };
        }
        let id = value.get(1..5).ok_or(Malformed::Short)?;
        let key = self.keys.iter().find(|(known, _)| known.0 == id);
        let (_, key) = key.ok_or(Malformed::Key)?;
        open(key, &self.place(of, row), value).map(Some)
    }

    /// Returns the name under which a row is stored.
    pub(in crate::sqlite) fn hash(&self, table: &[u8], name: &[u8]) -> [u8; NAME] {
        let mut mac = Hmac::<Sha256>::new((&*self.secret).into());
        mac.update(table);
        mac.update(&[0]);
        mac.update(name);
        mac.finalize().into_bytes().into()
    }

    /// Returns the associated data.
    fn place(&self, of: Of, row: &[u8]) -> Vec<u8> {
        [&self.store[..], of.table().as_bytes(), &[0], row].concat()
    }
}

fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.into())
}

fn random(bytes: &mut [u8]) -> Result<(), String> {
    getrandom::fill(bytes).map_err(|error| format!("the system has no random numbers for its encryption: {error}"))
}

fn seal(id: KeyId, key: &XChaCha20Poly1305, aad: &[u8], msg: &[u8]) -> Result<Vec<u8>, String> {
    let mut nonce = [0; NONCE];
    random(&mut nonce)?;
    let mut sealed = Vec::with_capacity(HEAD + msg.len() + TAG);
    sealed.push(SEALED);
    sealed.extend_from_slice(&id.0);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(msg);
    let tag = key.encrypt_inout_detached(&XNonce::from(nonce), aad, (&mut sealed[HEAD..]).into());
    let tag = tag.map_err(|_| "the value is too large to be encrypted".to_owned())?;
    sealed.extend_from_slice(&tag);
    Ok(sealed)
}

fn open(key: &XChaCha20Poly1305, aad: &[u8], value: &[u8]) -> Result<Vec<u8>, Malformed> {
    let (head, msg) = value.split_at_checked(HEAD).ok_or(Malformed::Short)?;
    let nonce: [u8; NONCE] = head[HEAD - NONCE..].try_into().map_err(|_| Malformed::Short)?;
    key.decrypt(&XNonce::from(nonce), Payload { msg, aad })
        .map_err(|_| Malformed::Forged)
}
