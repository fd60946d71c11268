//! Shrinking of the file after a removal: free pages are cut off in small steps, so that no commit waits long.
//!
//! 1. Deleted rows are overwritten in pages that stay (`secure_delete`), and erased with the pages that are cut off.
//! 2. When SQLite moves a row to another page, a copy may remain in a gap of the old one. Only rewriting the file removes such
//!    copies. An explicit `shrink` rewrites a small file, and a large one only on request.
//! 3. The log is truncated at the end: it contains the pages as they were before.
//! 4. The writer's thread does a part when no command waits, and between commands under load.

use crate::sqlite::fault::Fault;
use crate::sqlite::tables::Tables;

/// Minimum number of free pages for which an opened store is shrunk: an earlier process may have ended in the middle of it.
const MUCH_ROOM: i64 = 256;

/// Maximum size of a file that an explicit `shrink` always rewrites.
const REWRITTEN_BYTES: u64 = 256 << 20;

impl Tables {
    /// Cuts up to `pages` free pages off the file. Returns true if there are no more free pages.
    pub(in crate::sqlite) fn shrink_some(&mut self, pages: u32) -> Result<bool, Fault> {
        let mut is_last = false;
        if self.free_pages()? == 0 {
            // Moving the recent records frees their pages.
            self.empty_recent()?;
            is_last = self.free_pages()? == 0;
        }
        if is_last {
            // The log still has copies of the pages that were cut off.
            self.checkpoint()?;
            self.is_shrinking = false;
            return Ok(true);
        }
        let mut vacuum = self
            .sql
            .prepare_cached(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut steps = vacuum.query([])?;
        // The pragma frees one page for each step, so it must be stepped to its end.
        while steps.next()?.is_some() {}
        Ok(false)
    }

    /// Returns the space of removed data to the system. Returns the number of bytes by which the file has shrunk. `rewrites`: also
    /// rewrites a large file.
    pub(in crate::sqlite) fn shrink(&mut self, pages: u32, rewrites: bool) -> Result<u64, Fault> {
        self.empty_recent()?;
        let before = self.size()?;
        if rewrites || before <= REWRITTEN_BYTES {
            // A rewrite also removes copies in the gaps of pages that stay, which cutting off pages does not.
            self.sql.execute_batch("VACUUM")?;
            self.checkpoint()?;
            self.is_shrinking = false;
        } else {
            while !self.shrink_some(pages)? {}
        }
        Ok(before.saturating_sub(self.size()?))
    }

    /// Returns the size of the file in bytes, including changes in the log.
    pub(in crate::sqlite) fn size(&self) -> Result<u64, Fault> {
        let pages: i64 = self.sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
        Ok(pages.cast_unsigned() * u64::from(crate::sqlite::PAGE_SIZE))
    }

    /// Returns true if a quarter of the file is free.
    pub(in crate::sqlite) fn has_much_room(&self) -> Result<bool, Fault> {
        let free = self.free_pages()?;
        let pages: i64 = self.sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
        // Few free pages are reused by the next commits, so cutting them off would only be undone.
        Ok(free >= MUCH_ROOM && free * 4 >= pages)
    }

    fn free_pages(&self) -> Result<i64, Fault> {
        Ok(self.sql.pragma_query_value(None, "freelist_count", |row| row.get(0))?)
    }
}
