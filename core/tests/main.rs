//! Tests of the public API: each state machine, and whole runs without actors.

mod join;
mod machines;
mod run;
mod thread;
