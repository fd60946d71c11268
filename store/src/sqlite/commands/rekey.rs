//! Encryption of a store's values with its first key, in batches. See `cipher`.

use rusqlite::params;
use rusqlite::types::{Value, ValueRef};

use crate::content::{Content, ContentHash};
use crate::error::StoreError;
use crate::sqlite::fault::{Fault, damaged};
use crate::sqlite::format::cipher::Of;
use crate::sqlite::format::codec::Malformed;
use crate::sqlite::tables::Tables;

/// Maximum number of rows that one batch reads, and of those that it encrypts.
const READ: usize = 4_096;
const ENCRYPTED: usize = 256;
/// Number of bytes after which a batch ends.
const BYTES: usize = 4 << 20;

/// Position of the next batch.
#[derive(Clone, Debug, Default)]
pub(in crate::sqlite) struct Rekeying {
    /// Index in [`Of::ALL`].
    table: usize,
    /// Key of the last row; none before the first one of the table.
    after: Option<Value>,
    /// Number of rows encrypted so far.
    pub(in crate::sqlite) rows: u64,
}

impl Rekeying {
    pub(in crate::sqlite) fn is_complete(&self) -> bool {
        self.table == Of::ALL.len()
    }
}

/// Row to encrypt.
struct Found {
    key: Value,
    body: Vec<u8>,
    /// The body is a text: a content that is not encrypted.
    is_text: bool,
    follows: Option<[u8; ContentHash::LEN]>,
}

impl Tables {
    /// Encrypts the next batch, and returns the position after it.
    pub(in crate::sqlite) fn rekey(&mut self, mut at: Rekeying) -> Result<Rekeying, Fault> {
        if self.cipher.is_none() {
            let why = "its values cannot be encrypted without a key".to_owned();
            return Err(StoreError::KeyRefused {
                file: self.file.clone(),
                why,
            }
            .into());
        }
        if at.table == 0 && at.after.is_none() {
            // Later records are written with the first key, so the journal is complete now.
            self.move_recent()?;
        }
        let Some(of) = Of::ALL.get(at.table).copied() else {
            return Ok(at);
        };
        let (found, after) = self.not_current(of, at.after.take().as_ref())?;
        at.rows += found.len() as u64;
        for row in found {
            self.encrypt(of, row)?;
        }
        match after {
            Some(after) => at.after = Some(after),
            None => at.table += 1,
        }
        Ok(at)
    }

    /// Removes the table's rows of other keys, which no value uses any longer.
    pub(in crate::sqlite) fn end_rekey(&mut self) -> Result<(), Fault> {
        if let Some(cipher) = &mut self.cipher {
            let first = cipher.first();
            self.sql
                .execute("DELETE FROM encryption WHERE key <> ?1", [&first[..]])?;
            cipher.is_mixed = false;
        }
        Ok(())
    }

    /// Returns rows with values that are not encrypted with the first key, and the key of the last row that was read; none at the end of the
    /// table.
    fn not_current(&self, of: Of, after: Option<&Value>) -> Result<(Vec<Found>, Option<Value>), Fault> {
        let (table, key) = (of.table(), of.key());
        let follows = if of == Of::Contents { "follows" } else { "NULL" };
        let later = if after.is_some() {
            format!("WHERE {key} > ?1")
        } else {
            String::new()
        };
        let sql = format!("SELECT {key}, body, {follows} FROM {table} {later} ORDER BY {key} LIMIT {READ}");
        let mut select = self.sql.prepare_cached(&sql)?;
        let mut rows = match after {
            Some(after) => select.query([after])?,
            None => select.query([])?,
        };
        let (mut found, mut last, mut read, mut bytes) = (Vec::new(), None, 0, 0);
        while let Some(row) = rows.next()? {
            read += 1;
            let key: Value = row.get(0)?;
            let body = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
            bytes += body.len();
            let is_current = self.cipher.as_ref().is_some_and(|cipher| cipher.is_current(body));
            // A text may have any first byte.
            let is_text = matches!(row.get_ref(1)?, ValueRef::Text(_));
            if is_text || !is_current {
                found.push(Found {
                    key: key.clone(),
                    body: body.to_owned(),
                    is_text,
                    follows: if is_text { row.get(2)? } else { None },
                });
            }
            last = Some(key);
            if found.len() == ENCRYPTED || bytes > BYTES {
                return Ok((found, last));
            }
        }
        Ok((found, last.filter(|_| read == READ)))
    }

    fn encrypt(&self, of: Of, found: Found) -> Result<(), Fault> {
        let Some(cipher) = &self.cipher else { return Ok(()) };
        let (table, column) = (of.table(), of.key());
        let malformed = |why: Malformed| damaged(&self.file, None, &format!("a row of {table}"), why);
        let is_plain = found.is_text || matches!((of, &found.key), (Of::Sessions | Of::Meta, Value::Text(_)));
        if is_plain && !cipher.is_mixed {
            return Err(malformed(Malformed::Plain).into());
        }
        let row = match &found.key {
            // Replaces the row under its plain name.
            Value::Text(name) if of != Of::Runs => return self.write_named(of, name, &found.body),
            Value::Blob(hash) if found.is_text => return self.encrypt_content(hash, &found),
            Value::Text(id) => id.as_bytes().to_vec(),
            Value::Integer(number) => number.to_le_bytes().to_vec(),
            Value::Blob(hash) => hash.clone(),
            Value::Null | Value::Real(_) => return Err(malformed(Malformed::Value).into()),
        };
        let opened = cipher.open(of, &row, &found.body).map_err(malformed)?;
        let sealed = self.sealed(of, &row, opened.unwrap_or(found.body))?;
        let sql = format!("UPDATE {table} SET body = ?2 WHERE {column} = ?1");
        self.sql.prepare_cached(&sql)?.execute(params![found.key, sealed])?;
        Ok(())
    }

    /// Replaces a content that is not encrypted.
    fn encrypt_content(&self, hash: &[u8], found: &Found) -> Result<(), Fault> {
        let malformed = |why: Malformed| damaged(&self.file, None, "a row of contents", why);
        let text = std::str::from_utf8(&found.body).map_err(|_| malformed(Malformed::Text))?;
        let content = Content::new(text).following(found.follows.map(ContentHash::from_bytes));
        if content.hash().as_bytes() != hash {
            return Err(malformed(Malformed::Checksum).into());
        }
        self.sql
            .prepare_cached("DELETE FROM contents WHERE hash = ?1")?
            .execute([hash])?;
        self.keep(&content)
    }
}
