//! MCP servers, over stdio and HTTP, and a gateway to models.
//!
//! Not here: programs and scripts that install them, which are in `tests/servers`.

mod mcp;
mod over_http;
mod real_servers;
