//! MCP: the service as a server, clients of the project, questions to clients, OAuth.
//!
//! Not here: MCP servers of models, which are in `tests/cli/tools.rs`.

mod conformance;
mod mcp_client;
mod mcp_questions;
mod oauth;
mod python_client;
mod sessions;
