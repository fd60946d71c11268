//! Acceptance cases through the engine, as whoever embeds it meets them. Each carries its id where a failure shows it.

mod called;
mod forks;
mod lifecycle;
mod listeners;
mod loading;
mod loops;
mod triggered;
mod triggers;
mod variables;
