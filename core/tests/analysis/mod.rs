//! Warnings for valid definitions, against brute force where possible.

mod fixtures;
mod joins;
mod loops;
mod shipped;
mod trigger_cycles;
mod work;
