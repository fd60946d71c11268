//! The warnings over definitions that compile, against brute force wherever that is possible.

mod joins;
mod loops;
mod rings;
mod shipped;
mod work;
mod world;
