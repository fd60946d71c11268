//! Stores that fail or wait at a chosen commit, and the record of a run's outside world that survives crashes.
//!
//! Not here: tests; other folders use these stores.

pub(in crate::durable) mod blocking_store;
pub(in crate::durable) mod external_effects;
pub(crate) mod failing_store;
