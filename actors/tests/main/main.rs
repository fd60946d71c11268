//! Tests of the public API: hosts, contained actors, and a run that loses its trigger matcher.

mod containment;
mod host_runtime;
mod local_host;
mod lost_matcher;
mod simulated_host;
