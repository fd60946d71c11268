//! Subcommands that run a workflow under controlled conditions and compare the outcomes: `explore`, `chaos`, `test`.
//!
//! Not here: `pirn run --seeds` and the inputs of a run, which are in `run`.

pub(crate) mod cases;
pub(crate) mod chaos;
pub(crate) mod explore;
