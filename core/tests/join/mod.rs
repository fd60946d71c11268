//! The fork/join machine against SPEC section 4.

mod analysis;
mod any_input;
mod cases;
mod fork;
mod orders;
mod output;
mod transitions;
mod variables;
