//! The file after a removal: pages that are free are cut off, a few at a time, so that no commit waits for long.
//!
//! 1. What was deleted is overwritten where its page stays (`secure_delete`), and gone with the pages that are cut off.
//! 2. Where SQLite has moved a row to another page, a copy may stay in a gap of the first: a file that is written anew has none. A
//!    small one is when somebody waits for it to be shrunk, a large one only if that is asked for.
//! 3. The log is emptied at last: it has the pages as they were before.
//! 4. The writer's thread does some of it when no command waits, and between commands where some always do.

use crate::sqlite::fault::Fault;
use crate::sqlite::tables::Tables;

/// Free pages from which on a store that is opened is shrunk: its last process may have ended in the middle.
const MUCH_ROOM: i64 = 256;

/// Bytes of a file that is written anew when it is shrunk.
const REWRITTEN_BYTES: u64 = 256 << 20;

impl Tables {
    /// Cuts up to `pages` free pages off the file. Returns true when none is left.
    pub(super) fn shrink_some(&mut self, pages: u32) -> Result<bool, Fault> {
        let mut is_last = false;
        if self.free_pages()? == 0 {
            // The records that came last leave free pages behind when they are moved.
            self.empty_recent()?;
            is_last = self.free_pages()? == 0;
        }
        if is_last {
            self.checkpoint()?;
            self.is_shrinking = false;
            return Ok(true);
        }
        let mut vacuum = self
            .sql
            .prepare_cached(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut steps = vacuum.query([])?;
        while steps.next()?.is_some() {}
        Ok(false)
    }

    /// Takes the room of what was removed off the file. Returns the bytes that it is smaller by. `rewrites`: writes a large file anew
    /// too.
    pub(super) fn shrink(&mut self, pages: u32, rewrites: bool) -> Result<u64, Fault> {
        self.empty_recent()?;
        let before = self.size()?;
        if rewrites || before <= REWRITTEN_BYTES {
            self.sql.execute_batch("VACUUM")?;
            self.checkpoint()?;
            self.is_shrinking = false;
        } else {
            while !self.shrink_some(pages)? {}
        }
        Ok(before.saturating_sub(self.size()?))
    }

    /// Bytes of the file, with what the log has of it.
    pub(super) fn size(&self) -> Result<u64, Fault> {
        let pages: i64 = self.sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
        Ok(pages.cast_unsigned() * u64::from(super::PAGE_SIZE))
    }

    /// True if a quarter of the file is free.
    pub(super) fn has_much_room(&self) -> Result<bool, Fault> {
        let free = self.free_pages()?;
        let pages: i64 = self.sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
        Ok(free >= MUCH_ROOM && free * 4 >= pages)
    }

    fn free_pages(&self) -> Result<i64, Fault> {
        Ok(self.sql.pragma_query_value(None, "freelist_count", |row| row.get(0))?)
    }
}
