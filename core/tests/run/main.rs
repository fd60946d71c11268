//! Whole runs without an actor: every order of ends of small trees against SPEC's words, arbitrary input, and runs that are
//! written down, read back and rebuilt.

mod any_input;
mod budgets;
mod oracle;
mod orders;
mod play;
mod rebuilt;
mod shapes;
mod world;
