//! Virtual time, seeds and orders: the same run again, random orders, every order.

mod answers;
mod brute_force;
mod exhaustive;
mod interleavings;
mod many_runs;
mod schedules;
mod shared_variables;
mod simulated;
