//! The cache of a provider: marks and keys in requests, cached tokens, and the use that a run observes.
//!
//! Not here: costs of the tokens, which are in `usage`.

mod cache_use;
mod caching;
mod counted_cache;
mod langchain_comparison;
