//! Opening of a store: lock, checks, layout.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::file_checksum::FileChecksum;
use super::lock::FileLock;
use super::path::{Files, beside, checked};
use super::wal;
use crate::error::StoreError;
use crate::keys::StoreKeys;
use crate::sqlite::PAGE_SIZE;
use crate::sqlite::fault::Fault;
use crate::sqlite::format::cipher::{Cipher, ENCRYPTION, NoCipher};
use crate::sqlite::recent::Recent;
use crate::sqlite::tables::{APPLICATION, ENCRYPTED_LAYOUT, LAYOUT, LISTS, RECENT, SCHEMA, Tables};

/// Minimum version of SQLite. In earlier versions a write-ahead log could be reset too early and lose a transaction.
const LEAST_SQLITE: i32 = 3_051_003;

/// Size of the page cache in KiB.
const CACHE_KIB: i32 = 16 * 1024;

/// Open and checked store with its lock.
pub(in crate::sqlite) struct OpenStore {
    pub(in crate::sqlite) tables: Tables,
    /// Declared after `tables`, so that the connection is dropped before the lock.
    pub(in crate::sqlite) hold: Option<FileLock>,
    /// Identity of the files; none on a registered VFS.
    pub(in crate::sqlite) files: Option<Files>,
}

pub(in crate::sqlite) fn open(
    path: &Path,
    vfs: Option<&str>,
    keys: Option<&StoreKeys>,
) -> Result<OpenStore, StoreError> {
    // A registered VFS has its own names, which need not be files.
    let path = if vfs.is_some() { path.to_owned() } else { checked(path)? };
    let file: Arc<str> = path.to_string_lossy().into();
    let unreadable = |why: String| StoreError::Unreadable {
        file: file.clone(),
        why,
    };
    // Checked at run time, because a program may link another SQLite than the bundled one.
    if rusqlite::version_number() < LEAST_SQLITE {
        return Err(unreadable(format!(
            "SQLite {} is too old, 3.51.3 is needed",
            rusqlite::version()
        )));
    }
    let mut hold = if vfs.is_none() {
        // Before the log is read: another process could write it at the same time.
        Some(FileLock::take(&path, &file)?)
    } else {
        None
    };
    let mut closed = None;
    if let Some(hold) = &hold {
        let log = beside(&path, "-wal");
        // Before SQLite opens the file, which may change it.
        closed = hold.closed.filter(|closed| closed.is_still(&path, &log));
        let damage = wal::check(&log).map_err(|error| unreadable(format!("its write-ahead log: {error}")))?;
        if let Some(why) = damage {
            let (file, run) = (file.clone(), None);
            return Err(StoreError::Damaged { file, run, why });
        }
    }
    let tables = connect(&path, vfs, (&file, closed), keys).map_err(|fault| fault.told(&file));
    if let (Err(StoreError::KeyRefused { .. }), Some(hold), Some(closed)) = (&tables, &mut hold, &closed) {
        // The file is unchanged, so the next opening need not check it. Without the checksum it does.
        let _written = hold.was_closed(closed);
    }
    let tables = tables?;
    // After the connection, which creates the file and its log.
    let files = hold.is_some().then(|| Files::of(&path));
    Ok(OpenStore { tables, hold, files })
}

/// Opens the connection. `closed`: the file has the checksum with which it was closed, so checks are skipped.
fn connect(
    path: &Path,
    vfs: Option<&str>,
    (file, mut closed): (&Arc<str>, Option<FileChecksum>),
    keys: Option<&StoreKeys>,
) -> Result<Tables, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let sql = match vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
        None => Connection::open_with_flags(path, flags)?,
    };
    // Only the writer checkpoints, so that it detects failures: not on close, and (below) not automatically.
    sql.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // The default of rusqlite (16) is less than the number of statements in this module.
    sql.set_prepared_statement_cache_capacity(64);
    // The index of the log is in the memory of this process, so no shared-memory file is needed.
    sql.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // Only affects a new file.
    sql.pragma_update(None, "page_size", PAGE_SIZE)?;
    // Overwrites deleted rows with zeros in their page. Pages that become free are erased by `shrink`.
    sql.pragma_update(None, "secure_delete", "FAST")?;
    sql.pragma_update(None, "cache_size", -CACHE_KIB)?;
    sql.pragma_update(None, "temp_store", "MEMORY")?;
    // Detects damaged pages when they are read, at little cost.
    sql.pragma_update(None, "cell_size_check", true)?;
    // A file from elsewhere must not call functions through its schema.
    sql.pragma_update(None, "trusted_schema", false)?;
    let refused = |why: &str| {
        Fault::Refused(StoreError::Unreadable {
            file: file.clone(),
            why: why.to_owned(),
        })
    };
    // Reads the header, including changes that are still in the log.
    let number = |name: &str| sql.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, layout) = (number("application_id")?, number("user_version")?);
    let tables: i64 = sql.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    // All three, so that a foreign database without tables is not taken for a new store.
    let is_new = tables == 0 && application == 0 && layout == 0;
    if !is_new && application != APPLICATION {
        return Err(refused("an SQLite file, but not a Pirn store"));
    }
    let is_encrypted = layout == ENCRYPTED_LAYOUT;
    if !is_new && layout != LAYOUT && !is_encrypted {
        return Err(refused(&format!(
            "its layout is {layout}; this version supports {LAYOUT} and {ENCRYPTED_LAYOUT}"
        )));
    }
    // Before anything is written.
    let cipher = cipher_of(&sql, file, keys, (is_new, is_encrypted))?;
    // SQLite falls back to reading only, and every commit would fail later.
    if sql.is_readonly(MAIN_DB)? {
        return Err(refused("the file is read-only"));
    }
    if is_new {
        // It allows free pages to be returned to the system in small steps. In an existing file the pragma would write.
        sql.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    // After the checks: changing the mode writes to the file, which may be foreign.
    let mode = keep_log(&sql)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(refused(&format!(
            "SQLite cannot use a write-ahead log for it: its journal mode is `{mode}`"
        )));
    }
    sql.pragma_update(None, "synchronous", "FULL")?;
    sql.pragma_update(None, "wal_autocheckpoint", 0)?;
    write_schema(&sql, file, cipher.as_ref(), (is_new, is_encrypted))?;
    if cipher.is_some() && !is_encrypted {
        // The names of sessions in the lists are replaced: see `check_lists`.
        closed = None;
    }
    let mut tables = Tables {
        sql: Rc::new(sql),
        file: file.clone(),
        next_key: 0,
        recent: Recent::default(),
        is_shrinking: false,
        cipher,
    };
    if is_new {
        tables.next_key = 1;
    } else if let Some(closed) = closed {
        // The checksum proves that the last process checked these rows or wrote them itself.
        tables.next_key = closed.next_key;
    } else {
        // First, because reading rows from damaged pages gives misleading errors.
        tables.quick_check()?;
        // Before `check_rows`, which compares the lists with the rows.
        tables.sql.execute_batch(LISTS)?;
        tables.next_key = tables.check_rows()?;
        // After the rows were checked, because it continues them with the recent records.
        tables.read_recent()?;
    }
    // Moves everything that an earlier process left in the log into the file. That process may have ended because of a failed sync:
    // then the system shows log pages that may not be on the disk.
    tables.checkpoint()?;
    tables.is_shrinking = tables.has_much_room()?;
    Ok(tables)
}

/// Creates the tables of a new store, and those of its encryption when it is opened with keys for the first time.
fn write_schema(
    sql: &Connection,
    file: &Arc<str>,
    cipher: Option<&Cipher>,
    (is_new, is_encrypted): (bool, bool),
) -> Result<(), Fault> {
    let new_keys = match cipher {
        Some(cipher) if !is_encrypted || cipher.is_new_key(sql)? => Some(cipher),
        Some(_) | None => None,
    };
    if !is_new && new_keys.is_none() {
        return Ok(());
    }
    sql.execute_batch("BEGIN IMMEDIATE")?;
    if is_new {
        sql.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {LAYOUT}; {SCHEMA} {LISTS} {RECENT}"
        ))?;
    }
    if let Some(cipher) = new_keys {
        if !is_encrypted {
            sql.execute_batch(&format!("PRAGMA user_version = {ENCRYPTED_LAYOUT}; {ENCRYPTION}"))?;
        }
        cipher.write(sql).map_err(|error| no_cipher(error, file))?;
    }
    sql.execute_batch("COMMIT")?;
    Ok(())
}

/// Returns the keys of the store, if it is or becomes encrypted.
fn cipher_of(
    sql: &Connection,
    file: &Arc<str>,
    keys: Option<&StoreKeys>,
    (is_new, is_encrypted): (bool, bool),
) -> Result<Option<Cipher>, Fault> {
    let cipher = match keys {
        None if is_encrypted => Err(NoCipher::Key("the store is encrypted, and no key was given".to_owned())),
        None => return Ok(None),
        Some(keys) if is_encrypted => Cipher::read(sql, keys),
        // Existing values are encrypted by `rekey`.
        Some(keys) => Cipher::new(keys, !is_new),
    };
    cipher.map(Some).map_err(|error| no_cipher(error, file))
}

fn no_cipher(error: NoCipher, file: &Arc<str>) -> Fault {
    let (file, run) = (file.clone(), None);
    match error {
        NoCipher::Key(why) => StoreError::KeyRefused { file, why }.into(),
        NoCipher::Damaged(why) => StoreError::Damaged { file, run, why }.into(),
        NoCipher::System(why) => StoreError::Failed { file, run, why }.into(),
        NoCipher::Sql(error) => error.into(),
    }
}

/// Sets the journal mode. Steps to the end: the change is made durable after its row, and an error of that is the next result.
fn keep_log(sql: &Connection) -> rusqlite::Result<String> {
    let mut change = sql.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = change.query([])?;
    let mut mode = String::new();
    while let Some(row) = rows.next()? {
        mode = row.get(0)?;
    }
    Ok(mode)
}

impl Tables {
    fn quick_check(&self) -> Result<(), Fault> {
        // One finding is enough, and a full list of a large damaged file takes long.
        let found: String = self.sql.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found == "ok" {
            return Ok(());
        }
        let (file, run) = (self.file.clone(), None);
        Err(StoreError::Damaged { file, run, why: found }.into())
    }

    /// Returns the number of pages in the log.
    pub(in crate::sqlite) fn log_pages(&self) -> Result<i64, Fault> {
        let mut ask = self.sql.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
        Ok(ask.query_row([], |row| row.get(1))?)
    }

    /// Moves the log into the file and truncates it.
    pub(in crate::sqlite) fn checkpoint(&mut self) -> Result<(), Fault> {
        self.empty_log("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    /// Moves the log into the file without truncating it. Overwriting the log syncs faster than growing
    /// a file.
    pub(in crate::sqlite) fn begin_log_again(&mut self) -> Result<(), Fault> {
        self.empty_log("PRAGMA wal_checkpoint(RESTART)")
    }

    fn empty_log(&mut self, checkpoint: &str) -> Result<(), Fault> {
        // A file without its log must have no recent records: see that module.
        self.empty_recent()?;
        let busy: i64 = self.sql.prepare_cached(checkpoint)?.query_row([], |row| row.get(0))?;
        // The connection is exclusive, so no other process can use the log unless the lock was circumvented.
        if busy == 0 {
            return Ok(());
        }
        let (file, run) = (self.file.clone(), None);
        let why = "its write-ahead log is in use by another connection".to_owned();
        Err(StoreError::Failed { file, run, why }.into())
    }
}
