//! Scenarios in a real engine. They share one binary, because each binary links all of `pirn`; a test that needs a process of its
//! own is in `hostile` or `process`.

mod acceptance;
mod conversation;
mod differential;
mod durable;
mod explore;
mod forks;
mod lifecycle;
mod models;
mod scripts;
mod triggers;
