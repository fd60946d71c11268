//! Tests of the public API: the stores alone, and whole runs in a store.

mod runs;
mod store;
