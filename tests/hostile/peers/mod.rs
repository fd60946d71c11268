//! Providers and MCP servers with hostile answers: endless, huge, compressed, malformed, late or redirected. A call ends within its
//! bounds with an error that does not contain the key, and the engine's other runs continue.

mod log;
mod mcp;
mod programs;
mod provider;

pub(crate) use mcp::serve as serve_mcp;

/// The tests with their names.
pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    [provider::TESTS, mcp::TESTS, programs::TESTS].concat()
}
