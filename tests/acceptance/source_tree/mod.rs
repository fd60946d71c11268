//! Rules of the repository itself: imports, module documentation, mutants, orphan files, packages.
//!
//! Not here: checks of pages, which are in `docs`; behaviour of engines.

mod crates_picture;
mod file_cycles;
pub(in crate::acceptance) mod house;
mod module_docs;
mod mutants;
mod orphans;
mod release;
