//! The thread machine under arbitrary input: its promises, and that the walk comes by every corner.

mod coverage;
mod fixtures;
mod graph;
mod kind;
mod lazy_input;
mod loops;
mod walk;
