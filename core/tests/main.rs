//! Tests of the public API: definitions, analysis, each state machine, and whole runs without actors.

mod analysis;
mod definitions;
mod join;
mod machines;
mod run;
mod thread;
