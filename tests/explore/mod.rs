//! Virtual time, seeds and schedules: repeated runs, random orders and every order.

mod answers;
mod brute_force;
mod chaos;
mod exhaustive;
mod interleavings;
mod many_runs;
mod schedules;
mod shared_variables;
mod simulated;
