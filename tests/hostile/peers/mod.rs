//! Providers and MCP servers that answer anything: endless, huge, packed, broken, late, elsewhere. A call ends within its bounds,
//! says so in words without the key, and the engine's other runs go on.

mod log;
mod mcp;
mod programs;
mod provider;

pub(crate) use mcp::serve as serve_mcp;

/// By name.
pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    [provider::TESTS, mcp::TESTS, programs::TESTS].concat()
}
