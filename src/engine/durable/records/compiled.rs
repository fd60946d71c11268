//! Cache of compiled definitions of stored runs: the most recently used ones, each compiled once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pirn_actors::journal::Graphs;
use pirn_store::ContentHash;

/// Maximum number of cached definitions; the least recently used one is evicted.
// A bound is needed because each compiled definition holds all workflows that its engine had.
const MOST: usize = 16;

/// Cache of compiled definitions by hash.
#[derive(Default)]
pub(crate) struct CompiledDefinitions {
    by_hash: Mutex<VecDeque<(ContentHash, Cell)>>,
}

// A lock for each entry: a compilation takes milliseconds, and other definitions must not wait for it.
type Cell = Arc<Mutex<Option<Graphs>>>;

impl CompiledDefinitions {
    /// Returns the workflows of a definition, compiling them on first use. Only requests for an equal definition wait for the
    /// compilation.
    pub(crate) fn get_or_compile<E>(
        &self,
        hash: ContentHash,
        compile: impl FnOnce() -> Result<Graphs, E>,
    ) -> Result<Graphs, E> {
        let cell = self.cell(hash);
        // A compilation that panicked has left `None`, so a poisoned cell is usable.
        let mut graphs = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graphs) = &*graphs {
            return Ok(Arc::clone(graphs));
        }
        // An error is returned to this caller alone: the cell stays empty, and the next request compiles again.
        let compiled = compile()?;
        *graphs = Some(Arc::clone(&compiled));
        Ok(compiled)
    }

    fn cell(&self, hash: ContentHash) -> Cell {
        let mut by_hash = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        // A linear search over at most 16 entries, in the order of their last use.
        let place = by_hash.iter().position(|(known, _)| *known == hash);
        let entry = place.and_then(|place| by_hash.remove(place));
        let (hash, cell) = entry.unwrap_or_else(|| (hash, Cell::default()));
        by_hash.push_back((hash, Arc::clone(&cell)));
        if by_hash.len() > MOST {
            // Runs that use the evicted definition hold their own reference to its graphs.
            by_hash.pop_front();
        }
        cell
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn definitions_used_alternately_are_compiled_once_each() {
        let definitions = CompiledDefinitions::default();
        let mut compiled = 0;
        for turn in 0..100 {
            let hash = ContentHash::of(&format!("definition {}", turn % MOST));
            let graphs = definitions.get_or_compile(hash, || {
                compiled += 1;
                Ok::<_, Infallible>(Graphs::default())
            });
            assert!(graphs.is_ok());
        }
        assert_eq!(compiled, MOST);
        let refused = definitions.get_or_compile(ContentHash::of("wrong"), || Err::<Graphs, _>("a fault"));
        assert_eq!(refused.map(drop), Err("a fault"));
        let repaired = definitions.get_or_compile(ContentHash::of("wrong"), || Ok::<_, Infallible>(Graphs::default()));
        assert!(repaired.is_ok(), "a fault is not retained");
    }
}
