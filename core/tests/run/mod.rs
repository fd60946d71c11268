//! Whole runs without actors: every order of ends of small trees against the SPEC, arbitrary inputs, and runs that are serialized,
//! deserialized and rebuilt.

mod any_input;
mod budgets;
mod children;
mod fixtures;
mod harness;
mod merges;
mod oracle;
mod orders;
mod rebuilt;
mod shapes;
