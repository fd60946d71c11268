//! Tests of the public API: each state machine, and whole runs without actors.

mod join;
mod run;
mod thread;
