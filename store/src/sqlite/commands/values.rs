//! Values of rows, through which every read and write of user data passes: unchanged in a plain store, encrypted in an encrypted one
//! (see `cipher`).

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, ToSql, params};

use crate::content::{Content, ContentHash};
use crate::error::StoreError;
use crate::sqlite::fault::{Fault, damaged};
use crate::sqlite::format::cipher::{Cipher, NAME, Of};
use crate::sqlite::format::codec::Malformed;
use crate::sqlite::tables::Tables;

/// Text of a content, and its predecessor.
type Found = (Arc<str>, Option<ContentHash>);

impl Tables {
    /// Encodes the value of a row for storage.
    pub(in crate::sqlite) fn sealed(&self, of: Of, row: &[u8], value: Vec<u8>) -> Result<Vec<u8>, Fault> {
        match &self.cipher {
            None => Ok(value),
            Some(cipher) => cipher.seal(of, row, &value).map_err(|why| self.system(why)),
        }
    }

    /// Decodes the stored value of a row.
    pub(in crate::sqlite) fn opened<'a>(
        &self,
        of: Of,
        row: &[u8],
        value: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, Malformed> {
        match &self.cipher {
            None => Ok(Cow::Borrowed(value)),
            Some(cipher) => Ok(cipher.open(of, row, value)?.map_or(Cow::Borrowed(value), Cow::Owned)),
        }
    }

    fn system(&self, why: String) -> Fault {
        let (file, run) = (self.file.clone(), None);
        StoreError::Failed { file, run, why }.into()
    }
}

/// Rows of `sessions` and `meta`, with names that users choose. The stored name is text in a plain store. In an encrypted one it is a keyed
/// hash (a blob), and the name is in the value.
impl Tables {
    /// Returns the value of the row with this name.
    pub(in crate::sqlite) fn named(&self, of: Of, name: &str) -> Result<Option<Vec<u8>>, Fault> {
        let sql = match of {
            Of::Meta => "SELECT body FROM meta WHERE name = ?1",
            _ => "SELECT body FROM sessions WHERE id = ?1",
        };
        let mut select = self.sql.prepare_cached(sql)?;
        if let Some(cipher) = &self.cipher {
            let row = cipher.hash(of.table().as_bytes(), name.as_bytes());
            let sealed: Option<Vec<u8>> = select.query_row([&row[..]], |found| found.get(0)).optional()?;
            if let Some(sealed) = sealed {
                let opened = named_value(cipher, of, &row, &sealed);
                let (found, value) = opened.map_err(|why| damaged(&self.file, None, name, why))?;
                if found == name {
                    return Ok(Some(value));
                }
                return Err(damaged(&self.file, None, name, Malformed::Value).into());
            }
            if !cipher.is_mixed {
                return Ok(None);
            }
        }
        Ok(select.query_row([name], |found| found.get(0)).optional()?)
    }

    /// Writes or replaces the row with this name.
    pub(in crate::sqlite) fn write_named(&self, of: Of, name: &str, value: &[u8]) -> Result<(), Fault> {
        let sql = match of {
            Of::Meta => "REPLACE INTO meta(name, body) VALUES(?1, ?2)",
            _ => "REPLACE INTO sessions(id, body) VALUES(?1, ?2)",
        };
        let mut replace = self.sql.prepare_cached(sql)?;
        let Some(cipher) = &self.cipher else {
            replace.execute(params![name, value])?;
            return Ok(());
        };
        if cipher.is_mixed {
            // The row may be there under its plain name.
            self.delete_row(of, &name)?;
        }
        let row = cipher.hash(of.table().as_bytes(), name.as_bytes());
        let sealed = cipher.seal(of, &row, &with_name(name, value));
        let sealed = sealed.map_err(|why| self.system(why))?;
        replace.execute(params![&row[..], sealed])?;
        Ok(())
    }

    pub(in crate::sqlite) fn delete_named(&self, of: Of, name: &str) -> Result<(), Fault> {
        let Some(cipher) = &self.cipher else {
            return self.delete_row(of, &name);
        };
        if cipher.is_mixed {
            self.delete_row(of, &name)?;
        }
        let row = cipher.hash(of.table().as_bytes(), name.as_bytes());
        self.delete_row(of, &&row[..])
    }

    fn delete_row(&self, of: Of, name: &dyn ToSql) -> Result<(), Fault> {
        let sql = match of {
            Of::Meta => "DELETE FROM meta WHERE name = ?1",
            _ => "DELETE FROM sessions WHERE id = ?1",
        };
        self.sql.prepare_cached(sql)?.execute([name])?;
        Ok(())
    }

    /// Reads every row, with its name.
    pub(in crate::sqlite) fn each_named(
        &self,
        of: Of,
        mut tell: impl FnMut(String, Vec<u8>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let sql = match of {
            Of::Meta => "SELECT name, body FROM meta",
            _ => "SELECT id, body FROM sessions",
        };
        let mut select = self.sql.prepare_cached(sql)?;
        let mut found = select.query([])?;
        while let Some(found) = found.next()? {
            let body = found.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let (name, value) = match (found.get_ref(0)?, &self.cipher) {
                (ValueRef::Blob(row), Some(cipher)) => {
                    let opened = named_value(cipher, of, row, body);
                    opened.map_err(|why| damaged(&self.file, None, of.table(), why))?
                }
                (name, cipher) => {
                    let name = name.as_str().map_err(rusqlite::Error::from)?;
                    if cipher.as_ref().is_some_and(|cipher| !cipher.is_mixed) {
                        return Err(damaged(&self.file, None, name, Malformed::Plain).into());
                    }
                    (name.to_owned(), body.to_owned())
                }
            };
            tell(name, value)?;
        }
        Ok(())
    }
}

/// Contents. Their key is the hash in a plain store, and a keyed hash of it in an encrypted one.
impl Tables {
    /// Stores a content, unless the store has it.
    pub(in crate::sqlite) fn keep(&self, content: &Content) -> Result<(), Fault> {
        let mut insert = self
            .sql
            // Contents are immutable, so an existing one is equal and is not written again.
            .prepare_cached("INSERT OR IGNORE INTO contents(hash, body, follows) VALUES(?1, ?2, ?3)")?;
        let (hash, follows) = (content.hash(), content.follows());
        let Some(cipher) = &self.cipher else {
            let follows = follows.as_ref().map(ContentHash::as_bytes);
            insert.execute(params![hash.as_bytes(), &**content.text(), follows])?;
            return Ok(());
        };
        // Before the encryption, which costs more than the query.
        if self.has_content(&hash)? {
            return Ok(());
        }
        let row = content_row(cipher, &hash);
        let sealed = cipher.seal(Of::Contents, &row, &with_predecessor(content.text(), follows));
        let sealed = sealed.map_err(|why| self.system(why))?;
        let follows = follows.map(|hash| content_row(cipher, &hash));
        insert.execute(params![row, sealed, follows])?;
        Ok(())
    }

    pub(in crate::sqlite) fn has_content(&self, hash: &ContentHash) -> Result<bool, Fault> {
        let mut select = self.sql.prepare_cached("SELECT 1 FROM contents WHERE hash = ?1")?;
        if let Some(cipher) = &self.cipher {
            if select.exists([content_row(cipher, hash)])? {
                return Ok(true);
            }
            if !cipher.is_mixed {
                return Ok(false);
            }
        }
        Ok(select.exists([hash.as_bytes()])?)
    }

    /// Returns the text of a content. Verifies the hash.
    pub(in crate::sqlite) fn content(&self, hash: &ContentHash) -> Result<Option<Arc<str>>, Fault> {
        if let Some(cipher) = &self.cipher {
            if let Some((text, _)) = self.sealed_content(cipher, hash)? {
                return Ok(Some(text));
            }
            if !cipher.is_mixed {
                return Ok(None);
            }
        }
        let mut select = self.sql.prepare_cached("SELECT body FROM contents WHERE hash = ?1")?;
        let mut rows = select.query([hash.as_bytes()])?;
        let Some(found) = rows.next()? else {
            return Ok(None);
        };
        let text: Option<Arc<str>> = found.get_ref(0)?.as_str().ok().map(Arc::from);
        self.checked(hash, text).map(Some)
    }

    /// Returns the predecessor of a content; none also if the content is missing.
    pub(in crate::sqlite) fn followed(&self, hash: &ContentHash) -> Result<Option<ContentHash>, Fault> {
        if let Some(cipher) = &self.cipher
            // The column has a keyed hash; the hash is in the value.
            && let Some((_, follows)) = self.sealed_content(cipher, hash)?
        {
            return Ok(follows);
        }
        let mut select = self
            .sql
            .prepare_cached("SELECT follows FROM contents WHERE hash = ?1")?;
        let follows: Option<Option<[u8; ContentHash::LEN]>> =
            select.query_row([hash.as_bytes()], |row| row.get(0)).optional()?;
        Ok(follows.flatten().map(ContentHash::from_bytes))
    }

    fn sealed_content(&self, cipher: &Cipher, hash: &ContentHash) -> Result<Option<Found>, Fault> {
        let row = content_row(cipher, hash);
        let mut select = self.sql.prepare_cached("SELECT body FROM contents WHERE hash = ?1")?;
        let mut rows = select.query([row])?;
        let Some(found) = rows.next()? else {
            return Ok(None);
        };
        let body = found.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?;
        let opened = cipher.open(Of::Contents, &row, body);
        let content = opened.and_then(|opened| content_value(&opened.ok_or(Malformed::Plain)?));
        let (text, follows) = content.map_err(|why| damaged(&self.file, None, &format!("content {hash}"), why))?;
        Ok(Some((self.checked(hash, Some(text))?, follows)))
    }

    fn checked(&self, hash: &ContentHash, text: Option<Arc<str>>) -> Result<Arc<str>, Fault> {
        // The name is the hash, so contents need no separate checksum.
        text.filter(|text| ContentHash::of(text) == *hash).ok_or_else(|| {
            let (file, why) = (self.file.clone(), format!("content {hash} does not match its hash"));
            StoreError::Damaged { file, run: None, why }.into()
        })
    }

    /// Returns the keys under which the row of a content, or its followers, may be stored.
    pub(in crate::sqlite) fn content_rows(&self, hash: &ContentHash) -> impl Iterator<Item = [u8; NAME]> {
        let sealed = self.cipher.as_ref().map(|cipher| content_row(cipher, hash));
        let plain = self.cipher.as_ref().is_none_or(|cipher| cipher.is_mixed);
        sealed.into_iter().chain(plain.then_some(*hash.as_bytes()))
    }
}

/// Returns the key of a content in an encrypted store: without the secret of the store, the hash of a guessed text would show that the
/// store has it.
fn content_row(cipher: &Cipher, hash: &ContentHash) -> [u8; NAME] {
    cipher.hash(b"contents", hash.as_bytes())
}

/// Encodes the plaintext of a content. Its predecessor is part of it, because the column `follows` has a keyed hash.
fn with_predecessor(text: &str, follows: Option<ContentHash>) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len() + 1 + ContentHash::LEN);
    value.push(u8::from(follows.is_some()));
    value.extend(follows.iter().flat_map(ContentHash::as_bytes));
    value.extend_from_slice(text.as_bytes());
    value
}

fn content_value(value: &[u8]) -> Result<Found, Malformed> {
    let (has_predecessor, rest) = value.split_first().ok_or(Malformed::Short)?;
    let (follows, text) = match has_predecessor {
        0 => (None, rest),
        1 => {
            let (hash, text) = rest.split_first_chunk().ok_or(Malformed::Short)?;
            (Some(ContentHash::from_bytes(*hash)), text)
        }
        _ => return Err(Malformed::Value),
    };
    let text = std::str::from_utf8(text).map_err(|_| Malformed::Text)?;
    Ok((text.into(), follows))
}

/// Encodes the plaintext of a named row: the length of the name, the name, the value.
fn with_name(name: &str, value: &[u8]) -> Vec<u8> {
    [&(name.len() as u64).to_le_bytes()[..], name.as_bytes(), value].concat()
}

/// Decrypts a named row.
fn named_value(cipher: &Cipher, of: Of, row: &[u8], value: &[u8]) -> Result<(String, Vec<u8>), Malformed> {
    let opened = cipher.open(of, row, value)?.ok_or(Malformed::Plain)?;
    let (len, rest) = opened.split_first_chunk().ok_or(Malformed::Short)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| Malformed::Short)?;
    let (name, value) = rest.split_at_checked(len).ok_or(Malformed::Short)?;
    let name = std::str::from_utf8(name).map_err(|_| Malformed::Text)?;
    Ok((name.to_owned(), value.to_owned()))
}
