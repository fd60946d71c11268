//! Runs in stores that several processes share: PostgreSQL, Restate, and engines that follow or take over runs of others.
//!
//! Not here: several processes on real servers, which are in `tests/cluster`.

mod followed;
mod in_servers;
mod postgres;
mod put_runs;
mod restate;
