//! The smaller machines, and everything that reads a user's text, under arbitrary input.

mod conversation;
mod texts;
mod trigger;
