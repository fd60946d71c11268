//! Warnings for valid definitions, against brute force where possible.

mod joins;
mod loops;
mod shipped;
mod trigger_cycles;
mod work;
mod world;
