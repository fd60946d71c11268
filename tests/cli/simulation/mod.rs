//! Simulated and repeated runs: `explore`, `chaos`, `test`, and seeds of virtual time.
//!
//! Not here: the library functions behind them, which are in `tests/explore`.

mod cases;
mod chaos;
mod explore;
mod seeds;
