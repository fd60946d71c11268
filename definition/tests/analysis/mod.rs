//! Warnings for valid definitions, against brute force where possible.

mod fixtures;
mod loops;
mod mistakes;
mod shipped;
mod trigger_cycles;
mod work;
