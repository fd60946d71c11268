//! Tests of the thread machine under arbitrary input: its guarantees hold, and the random walk covers every case.

mod coverage;
mod fixtures;
mod graph;
mod kind;
mod lazy_input;
mod loops;
mod walk;
