//! Pictures of examples and of random workflows.

mod checks;
mod examples;
mod random;
mod settings;
mod sizes;
