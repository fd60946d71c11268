//! The warnings over definitions that compile, against brute force wherever that is possible.

mod joins;
mod loops;
mod shipped;
mod trigger_cycles;
mod work;
mod world;
